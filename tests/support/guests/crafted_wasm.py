"""Modules that no tool builds: made to be expensive to read or compile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from controller_host.guest import bounds
from controller_host.guest.binary import MAGIC
from controller_host.guest.reading import u32
from support.guests import wat


def section(number: int, content: bytes) -> bytes:
    return bytes([number]) + u32(len(content)) + content


def vector(count: int, item: bytes) -> bytes:
    return u32(count) + item * count


def nested(depth: int) -> bytes:
    """Return a guest with so many loops in one another in a function: the engine's work grows with the square."""
    return wat.guest(more=f"(func {'loop ' * depth}{'end ' * depth})")


def _function(groups: bytes, content: bytes) -> bytes:
    return section(10, u32(1) + u32(len(groups) + len(content) + 1) + groups + content + b"\x0b")


_TYPE: Final = b"\x60\0\0"
_TYPES: Final = section(1, vector(1, _TYPE))
_OFFSET: Final = b"\x41\0\x0b"

ABOVE: Final[dict[str, Callable[[], bytes]]] = {
    "sections": lambda: b"\0\1\0" * (bounds.MOST_SECTIONS + 1),
    "types": lambda: section(1, vector(bounds.MOST_TYPES + 1, _TYPE)),
    "parameters of a type": lambda: section(1, u32(1) + b"\x60" + vector(bounds.MOST_PARAMETERS + 1, b"\x7f") + b"\0"),
    "results of a type": lambda: section(1, u32(1) + b"\x60\0" + vector(bounds.MOST_PARAMETERS + 1, b"\x7f")),
    "imports": lambda: _TYPES + section(2, vector(bounds.MOST_IMPORTS + 1, b"\0\0\0\0")),
    "functions": lambda: _TYPES + section(3, vector(bounds.MOST_FUNCTIONS + 1, b"\0")),
    "tables": lambda: section(4, vector(bounds.MOST_TABLES + 1, b"\x70\0\0")),
    "memories": lambda: section(5, vector(bounds.MOST_MEMORIES + 1, b"\0\0")),
    "globals": lambda: section(6, vector(bounds.MOST_GLOBALS + 1, b"\x7f\1" + _OFFSET)),
    "exports": lambda: section(7, vector(bounds.MOST_EXPORTS + 1, b"\0\0\0")),
    "element segments": lambda: section(9, vector(bounds.MOST_SEGMENTS + 1, b"\0" + _OFFSET + b"\0")),
    "elements in a segment": lambda: section(
        9, u32(1) + b"\0" + _OFFSET + vector(bounds.MOST_TABLE_ELEMENTS + 1, b"\0")
    ),
    "bytes in a function": lambda: _function(b"\0", b"\1" * bounds.MOST_BODY_BYTES),
    "groups of locals in a function": lambda: _function(vector(bounds.MOST_LOCALS + 1, b"\0\x7f"), b""),
    "data segments": lambda: (
        section(5, b"\1\0\1") + section(11, vector(bounds.MOST_SEGMENTS + 1, b"\0" + _OFFSET + b"\0"))
    ),
}
"""One more of something than is run, well-formed as far as that; without the first bytes of a module."""


def above(what: str) -> bytes:
    """Return a module with one more of something than is run."""
    return MAGIC + ABOVE[what]()
