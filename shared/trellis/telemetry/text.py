"""Renders a log event as one line of text: ``12:03:44 warning  node_watcher  NATS unreachable  url=nats://…``.

In: fields of an event. Out: text, optionally in colours. Called by ``telemetry.logs`` as the last processor. Invariant:
one line, except for tracebacks, which follow it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Final

from trellis.telemetry.jsontext import to_json
from trellis.telemetry.structlog_package import EventDict, WrappedLogger

_LEVEL_WIDTH: Final = 8
_RESET: Final = "\033[0m"
_DIM: Final = "\033[2m"
_BOLD: Final = "\033[1m"
_COLOURS: Final = {
    "debug": _DIM,
    "info": "\033[32m",
    "warning": "\033[33m",
    "error": "\033[31m",
    "critical": "\033[1;31m",
}
# The trace ID is sufficient for a search in Jaeger; these two fields only widen the line.
_LEFT_OUT: Final = ("logger", "span_id")
_MULTILINE: Final = ("stack", "exception")


def wants_colours() -> bool:
    """Return whether stderr is a terminal that shows colours (NO_COLOR and TERM=dumb are respected)."""
    return sys.stderr.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def text_renderer(*, colours: bool) -> Callable[[WrappedLogger, str, EventDict], str]:
    """Return the structlog processor that renders an event; it expects ``time``, ``level`` and ``event``."""

    def paint(style: str, text: str) -> str:
        return f"{style}{text}{_RESET}" if colours and text else text

    def render(_: WrappedLogger, __: str, event: EventDict) -> str:
        for key in _LEFT_OUT:
            event.pop(key, None)
        after = [str(text) for key in _MULTILINE if (text := event.pop(key, None))]
        level = str(event.pop("level", "info"))
        head = [
            paint(_DIM, str(event.pop("time", ""))),
            paint(_COLOURS.get(level, ""), level.ljust(_LEVEL_WIDTH)),
            paint("\033[36m", str(event.pop("service", ""))),
            paint(_BOLD, _one_line(str(event.pop("event", "")))),
        ]
        fields = [f"{paint(_DIM, f'{key}=')}{_value(value)}" for key, value in event.items()]
        return "\n".join([" ".join(part for part in (*head, *fields) if part), *after])

    return render


def _one_line(text: str) -> str:
    """Return the text with line breaks and terminal control characters escaped."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def _value(value: object) -> str:
    """Return a value as one word: plain if it is printable without spaces and quotes, otherwise as JSON."""
    if isinstance(value, str) and value and value.isprintable() and not any(char in value for char in ' "'):
        return value
    return _one_line(to_json(value))
