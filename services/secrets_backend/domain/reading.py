"""Parser for untrusted JSON, whose exceptions contain nothing of the input.

Pure. In: bytes. Out: their value, or ``UNREADABLE``. Called by ``protocol``, ``tokens`` and ``policy``. The exceptions
of the parser contain the whole document, so they are caught here. Of duplicate names the last value counts, as in the
protocol's Go server; the limit of nesting is 1,024, that of numbers 64 bits.
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
    """Return the JSON object in a text; ``UNREADABLE`` for any other value."""
    found = read_json(text)
    return found if isinstance(found, dict) else UNREADABLE


def quoted(name: str) -> str:
    """Return a name for a message: in quotes, at most 64 characters, without control characters and line breaks."""
    return '"' + shown(name, QUOTED_MAX, hidden='"') + '"'


def shown(text: str, most: int = SHOWN_MAX, hidden: str = "") -> str:
    """Return a text for logs and events: at most ``most`` characters; unprintable or ``hidden`` ones are escaped."""
    start = text if len(text) <= most else text[: most - 1] + "…"
    return "".join(char if char.isprintable() and char not in hidden else f"\\u{ord(char):04x}" for char in start)
