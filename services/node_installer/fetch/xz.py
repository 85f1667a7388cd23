"""Unpacks xz within the memory that the installer's Job allows: ``lzma.open`` has no limit.

In: a compressed stream. Out: the content, to be read forwards. Called by ``archive``.
Invariant: the memory is limited to :data:`MEMORY_BYTES`, even if the header of a file requires more.
"""

from __future__ import annotations

import io
import lzma
from typing import BinaryIO, Final

MEMORY_BYTES: Final = 72 << 20
"""Unpacking the output of `xz -9` needs 65 MiB; a custom dictionary may require 4 GiB."""
_BLOCK: Final = 1 << 16


class Reader(io.RawIOBase):
    """The content of an xz file of one or several streams."""

    def __init__(self, raw: BinaryIO) -> None:
        super().__init__()
        self._raw = raw
        self._stream = self._new()

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override] # any buffer, in the base
        """Read at least one byte; 0 at the end.

        Raises:
            ValueError: it exceeds the memory limit, or is damaged. EOFError: it is truncated.
        """
        while True:
            if self._stream.eof:
                rest = self._stream.unused_data or self._raw.read(_BLOCK)
                rest = rest.lstrip(b"\0")  # padding between streams
                if not rest:
                    return 0
                self._stream = self._new()
            else:
                rest = self._raw.read(_BLOCK) if self._stream.needs_input else b""
                if self._stream.needs_input and not rest:
                    raise EOFError("it is truncated")
            content = self._unpack(rest, len(buffer))
            if content:
                buffer[: len(content)] = content
                return len(content)

    def _unpack(self, block: bytes, most: int) -> bytes:
        try:
            return self._stream.decompress(block, most)
        except lzma.LZMAError as error:
            message = str(error)
            if "memory usage limit" in message.lower():
                message = f"unpacking it needs more than {MEMORY_BYTES >> 20} MiB of memory: pack it with `xz -9`"
            raise ValueError(message) from error

    @staticmethod
    def _new() -> lzma.LZMADecompressor:
        return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MEMORY_BYTES)
