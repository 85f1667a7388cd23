"""Logging: JSON lines for machines, readable text on a terminal.

In: events of structlog loggers and of the standard library (faststream, aiohttp, nats, kubernetes). Out: stderr. Called
once by the ``main`` of each process; ``get_logger`` by every module. Invariant: no line contains a password of a URL or
the local variables of a traceback; lines within a span contain its IDs.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from typing import Final, Literal, TextIO

from opentelemetry import trace

from trellis.installer_api.redaction import redact_url
from trellis.telemetry.jsontext import to_json
from trellis.telemetry.structlog_package import EventDict, Processor, WrappedLogger, structlog
from trellis.telemetry.text import text_renderer, wants_colours

LogFormat = Literal["auto", "json", "text"]

_QUIET: Final = ("nats", "faststream", "aiohttp", "kubernetes", "asyncio", "urllib3", "opentelemetry")
# Their debug lines contain whole responses, including Secrets.
_NEVER_DEBUG: Final = ("kubernetes", "urllib3")


class _StderrHandler(logging.StreamHandler[TextIO]):
    """Writes to the current ``sys.stderr``: a progress display of rich replaces it."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:
        return sys.stderr

    @stream.setter
    def stream(self, value: TextIO) -> None:
        raise AttributeError(value)


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """Return the logger of a module: ``get_logger(__name__)``. Usable before :func:`setup_logging`."""
    if not structlog.is_configured():
        _configure_structlog()
    return structlog.stdlib.get_logger(name)


def bind_service(service: str) -> None:
    """Add the name of the service to all lines of the current task and of the tasks that it creates from now on."""
    structlog.contextvars.bind_contextvars(service=service)


def setup_logging(*, log_format: LogFormat, level: str) -> None:
    """Send all logs of the process to stderr; may be called several times.

    Args:
        log_format: ``json``, ``text``, or ``auto``: text if stderr is a terminal.
        level: ``debug``, ``info``, ``warning`` or ``error``. Libraries log warnings only, unless it is ``debug``.
    """
    threshold = logging.getLevelNamesMapping()[level.upper()]
    _configure_structlog()
    text = log_format == "text" or (log_format == "auto" and sys.stderr.isatty())
    handler = _StderrHandler()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=_shared_processors(),
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *(_text_processors() if text else _json_processors()),
            ],
        )
    )
    root = logging.getLogger()
    for former in [handler for handler in root.handlers if isinstance(handler, _StderrHandler)]:
        root.removeHandler(former)
    root.addHandler(handler)
    root.setLevel(threshold)
    logging.captureWarnings(capture=True)
    _tame_libraries(threshold)


def _tame_libraries(threshold: int) -> None:
    for name in _QUIET:
        logger = logging.getLogger(name)
        quietest = logging.INFO if name in _NEVER_DEBUG else logging.DEBUG
        logger.setLevel(max(threshold, quietest if threshold <= logging.DEBUG else logging.WARNING))
        # FastStream has its own handlers, with colours, some of them for stdout.
        if name == "faststream":
            logger.handlers.clear()
            logger.propagate = True


def _configure_structlog() -> None:
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_shared_processors(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        # Loggers of modules exist before main() configures them, and tests configure them several times.
        cache_logger_on_first_use=False,
    )


def _shared_processors() -> list[Processor]:
    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        _add_trace,
        structlog.processors.StackInfoRenderer(),
    ]


def _add_trace(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    context = trace.get_current_span().get_span_context()
    if context.is_valid:
        event["trace_id"] = trace.format_trace_id(context.trace_id)
        event["span_id"] = trace.format_span_id(context.span_id)
    return event


def _redact(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    for key, value in event.items():
        event[key] = _redacted(value)
    return event


def _redacted(value: object) -> object:
    match value:
        case str():
            return redact_url(value)
        case Mapping():
            return {key: _redacted(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_redacted(inner) for inner in value]
        case BaseException():
            return redact_url(str(value) or type(value).__name__)
        case _:
            return value


def _json_processors() -> list[Processor]:
    return [structlog.processors.format_exc_info, _redact, _in_order, _render_json]


def _text_processors() -> list[Processor]:
    return [
        structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False, key="time"),
        # Not the renderer of structlog: its tracebacks show local variables, including secrets.
        structlog.processors.format_exc_info,
        _redact,
        text_renderer(colours=wants_colours()),
    ]


def _in_order(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Move the fields that users search for to the front of the line."""
    first = ("time", "level", "event", "service", "logger", "trace_id", "span_id")
    return {key: event[key] for key in first if key in event} | dict(event)


def _render_json(_: WrappedLogger, __: str, event: EventDict) -> str:
    return to_json(event)
