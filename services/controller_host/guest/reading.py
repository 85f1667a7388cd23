"""Reads the binary format's atoms: bytes, LEB128 numbers, names, vectors.

In: the module's bytes. Called by ``binary``. Invariant: never reads past its end; what is malformed raises
:class:`Malformed`, nothing else.
"""

from __future__ import annotations

from typing import Final


class Malformed(Exception):  # noqa: N818 (what the bytes are)
    """The bytes are no module."""


class TooMany(Malformed):
    """The module has more of something than is run here."""

    def __init__(self, what: str, count: int, most: int) -> None:
        super().__init__(f"it has {count} {what}, and at most {most} are run")


class Reader:
    """A position in ``data``; ``end`` is where its section ends."""

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
        """Pass ``length`` bytes; return where they begin."""
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
            raise Malformed("it has a name that is no UTF-8") from error

    def done(self) -> bool:
        """Return whether the section is read to its end."""
        return self.at >= self.end


def u32(value: int) -> bytes:
    """Write an unsigned LEB128 number."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def name(text: str) -> bytes:
    """Write a name."""
    raw = text.encode()
    return u32(len(raw)) + raw
