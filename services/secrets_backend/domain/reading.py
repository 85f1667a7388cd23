"""JSON from strangers, without a trace of it in any exception.

Pure. In: bytes. Out: what they say, or ``UNREADABLE``. Called by ``protocol``, ``tokens`` and ``policy``. The parser's
own exceptions hold the whole document, so they end here. Of a name that stands twice the last value counts, as for
the protocol's Go server; nesting ends at 1,024, numbers at 64 bits.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Final, Literal

import orjson

QUOTED_MAX: Final = 64
SHOWN_MAX: Final = 253


class Unreadable(Enum):
    """The type of ``UNREADABLE``."""

    UNREADABLE = "unreadable"


UNREADABLE: Final = Unreadable.UNREADABLE


def read_json(text: bytes | str) -> Any:  # noqa: ANN401 (that is what JSON is)
    """Return the value of a JSON text, or ``UNREADABLE``; never raises."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return UNREADABLE


def read_object(text: bytes | str) -> dict[str, Any] | Literal[Unreadable.UNREADABLE]:
    """Return the JSON object in a text; ``UNREADABLE`` if there is something else in it."""
    found = read_json(text)
    return found if isinstance(found, dict) else UNREADABLE


def quoted(name: str) -> str:
    """Return a name for a message: in quotes, at most 64 characters, nothing that moves a cursor or ends a line."""
    return '"' + shown(name, QUOTED_MAX, hidden='"') + '"'


def shown(text: str, most: int = SHOWN_MAX, hidden: str = "") -> str:
    """Return a text for logs and events: so many characters at most; what is not printable, or hidden, as escapes."""
    start = text if len(text) <= most else text[: most - 1] + "…"
    return "".join(char if char.isprintable() and char not in hidden else f"\\u{ord(char):04x}" for char in start)
