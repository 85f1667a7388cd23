"""Format of a snapshot file: header, checksums of the pages, note of the host, memory.

In and out: a file descriptor. Called by ``snapshots`` (reads, checks) and ``suspending`` (writes). The parts are at
fixed offsets, so that the memory can grow in place; unwritten ranges are holes without disk space.
Invariants: a header becomes valid only after all other parts of its generation were written; it contains the checksum
of the pages' checksums, so that mixed generations are detected; an invalid file is ignored, never an error.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from typing import Final

import xxhash

from controller_host.guest.pages import PAGE, ZERO_PAGE

FORMAT: Final = 1
CHECKSUMS_AT: Final = 128 << 10
NOTE_AT: Final = CHECKSUMS_AT + (8 << 20)  # space for 4 GiB of pages of 4 KiB
MEMORY_AT: Final = 16 << 20
MOST_NOTE_BYTES: Final = MEMORY_AT - NOTE_AT
CHECKSUM: Final = 8

_MAGIC: Final = b"TRLSNAP\0"
_FIXED: Final = struct.Struct("<8sIIQ16s16s32sIIQQQQ16s16s")
_STATE_AT: Final = 12
_WRITING, _WHOLE = 0, 1
_MOST_MEMORY: Final = 4 << 30
_AT_ONCE: Final = 1 << 20
_ZEROES: Final = bytes(_AT_ONCE)


@dataclass(frozen=True, slots=True)
class Header:
    """Header of a snapshot.

    ``boot``, ``run``: of the kernel and of the service that wrote it; ``identity``: digest of its :class:`Identity`;
    ``clock``, ``clock_offset``: the guest's monotonic clock and its offset to the kernel's, in nanoseconds;
    ``globals``: their bit patterns.
    """

    generation: int
    boot: bytes
    run: bytes
    identity: bytes
    memory_bytes: int
    clock: int
    clock_offset: int
    globals: tuple[int, ...]
    pages_checksum: bytes
    note_bytes: int
    note_checksum: bytes

    def pack(self) -> bytes:
        """Return the header as bytes, marked as complete, with their checksum at the end."""
        fixed = _FIXED.pack(
            _MAGIC, FORMAT, _WHOLE, self.generation, self.boot, self.run, self.identity, PAGE, len(self.globals),
            self.memory_bytes, self.clock, self.clock_offset, self.note_bytes, self.pages_checksum, self.note_checksum,
        )  # fmt: skip
        body = fixed + struct.pack(f"<{len(self.globals)}Q", *self.globals)
        return body + xxhash.xxh3_128_digest(body)


def read_header(descriptor: int) -> Header | None:
    """Return the header of a complete snapshot whose file is long enough; None otherwise."""
    raw = os.pread(descriptor, PAGE, 0)
    if len(raw) < _FIXED.size:
        return None
    (magic, form, state, generation, boot, run, identity, page, count, memory_bytes, clock, offset, note_bytes,
     pages_checksum, note_checksum) = _FIXED.unpack_from(raw)  # fmt: skip
    end = _FIXED.size + 8 * count
    if (magic, form, state, page) != (_MAGIC, FORMAT, _WHOLE, PAGE) or end + 16 > CHECKSUMS_AT:
        return None
    if end + 16 > len(raw):  # rare: only modules with many globals require a second read
        raw = os.pread(descriptor, end + 16, 0)
    if xxhash.xxh3_128_digest(raw[:end]) != raw[end : end + 16]:
        return None
    if memory_bytes > _MOST_MEMORY or os.fstat(descriptor).st_size < MEMORY_AT + memory_bytes:
        return None
    values = struct.unpack_from(f"<{count}Q", raw, _FIXED.size)
    return Header(
        generation, boot, run, identity, memory_bytes, clock, offset, values, pages_checksum, note_bytes, note_checksum
    )


def read_note(descriptor: int, header: Header) -> bytes | None:
    """Return the host's note; None if its checksum does not match."""
    note = os.pread(descriptor, header.note_bytes, NOTE_AT)
    return note if xxhash.xxh3_128_digest(note) == header.note_checksum else None


def read_checksums(descriptor: int, memory_bytes: int) -> bytearray:
    """Return the checksums of the pages of ``memory_bytes``; 0 for a page of zeros."""
    length = memory_bytes // PAGE * CHECKSUM
    return bytearray(os.pread(descriptor, length, CHECKSUMS_AT).ljust(length, b"\0"))


def intact(descriptor: int, header: Header) -> bool:
    """Return whether the checksums of all pages match; reads the whole memory."""
    checksums = read_checksums(descriptor, header.memory_bytes)
    if xxhash.xxh3_128_digest(checksums) != header.pages_checksum:
        return False
    for at in range(0, header.memory_bytes, _AT_ONCE):
        data = os.pread(descriptor, min(_AT_ONCE, header.memory_bytes - at), MEMORY_AT + at)
        if checksums_of(data) != checksums[at // PAGE * CHECKSUM :][: len(data) // PAGE * CHECKSUM]:
            return False
    return True


def checksums_of(data: bytes) -> bytes:
    """Return the concatenated checksums of whole pages."""
    if _ZEROES.startswith(data):
        return bytes(len(data) // PAGE * CHECKSUM)
    pages = (data[at : at + PAGE] for at in range(0, len(data), PAGE))
    return b"".join(bytes(CHECKSUM) if page == ZERO_PAGE else xxhash.xxh3_64_digest(page) for page in pages)


def invalidate_header(descriptor: int) -> None:
    """Invalidate the snapshot until a new header is written."""
    os.pwrite(descriptor, struct.pack("<I", _WRITING), _STATE_AT)


def write_all(descriptor: int, data: bytes | bytearray | memoryview, offset: int) -> None:
    """Write all data at an offset, with retries after short writes."""
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written
