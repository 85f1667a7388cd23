"""Reader of the primitives of the binary format: bytes, LEB128 numbers, names, vectors.

In: the module's bytes. Called by ``binary``. Invariant: never reads past its end; malformed input raises only
:class:`Malformed`.
"""

from __future__ import annotations

from typing import Final


class Malformed(Exception):  # noqa: N818 (an adjective for the input)
    """The bytes are not a valid module."""


class TooMany(Malformed):
    """The module exceeds a bound."""

    def __init__(self, what: str, count: int, most: int) -> None:
        super().__init__(f"it has {count} {what}, the maximum is {most}")


class Reader:
    """A position in ``data``; ``end`` is the end of its section."""

    __slots__ = ("at", "data", "end")

    def __init__(self, data: bytes, at: int = 0, end: int | None = None) -> None:
        self.data: Final = data
        self.at = at
        self.end: Final = len(data) if end is None else end

    def byte(self) -> int:
        """Read one byte."""
        if self.at >= self.end:
            raise Malformed("it ends in the middle of a section")
        self.at += 1
        return self.data[self.at - 1]

    def u32(self) -> int:
        """Read an unsigned LEB128 number of at most 32 bits."""
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 28:
                raise Malformed("it has a number of more than five bytes")
        if value >> 32:
            raise Malformed("it has a number of more than 32 bits")
        return value

    def skip(self, length: int) -> int:
        """Skip ``length`` bytes; return their start."""
        start = self.at
        if length > self.end - start:
            raise Malformed("it ends in the middle of a section")
        self.at = start + length
        return start

    def name(self) -> str:
        """Read a name."""
        length = self.u32()
        start = self.skip(length)
        try:
            return self.data[start : self.at].decode()
        except UnicodeDecodeError as error:
            raise Malformed("it has a name that is not UTF-8") from error

    def done(self) -> bool:
        """Return whether the end of the section is reached."""
        return self.at >= self.end


def u32(value: int) -> bytes:
    """Return an unsigned LEB128 number as bytes."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def name(text: str) -> bytes:
    """Return a name as bytes."""
    raw = text.encode()
    return u32(len(raw)) + raw
