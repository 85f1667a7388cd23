"""The file of a suspended instance: its header, the checksums of its pages, its host's note, its memory.

In and out: a file descriptor. Called by ``snapshots`` (reads, checks) and ``suspending`` (writes). The parts lie at
fixed offsets, so that memory may grow in place; what was never written is a hole and takes no room.
Invariants: a header is whole only after everything else of its generation was written; it holds the checksum of the
pages' checksums, so pages of two generations never pass as one; what does not pass is no snapshot, and never an error.
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
NOTE_AT: Final = CHECKSUMS_AT + (8 << 20)  # room for the pages of 4 GiB, of 4 KiB each
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
    """What a snapshot says of itself.

    ``boot``, ``run``: of the kernel and of the service when it was written; ``identity``: digest of what it belongs to;
    ``clock``: the guest's monotonic clock, and how far it is ahead of the kernel's, in nanoseconds; ``globals``: their
    bit patterns.
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
        """Return its bytes, marked as whole, with their own checksum at the end."""
        fixed = _FIXED.pack(
            _MAGIC, FORMAT, _WHOLE, self.generation, self.boot, self.run, self.identity, PAGE, len(self.globals),
            self.memory_bytes, self.clock, self.clock_offset, self.note_bytes, self.pages_checksum, self.note_checksum,
        )  # fmt: skip
        body = fixed + struct.pack(f"<{len(self.globals)}Q", *self.globals)
        return body + xxhash.xxh3_128_digest(body)


def read_header(descriptor: int) -> Header | None:
    """Return the header of a whole snapshot whose file is long enough; None for anything else."""
    raw = os.pread(descriptor, PAGE, 0)
    if len(raw) < _FIXED.size:
        return None
    (magic, form, state, generation, boot, run, identity, page, count, memory_bytes, clock, offset, note_bytes,
     pages_checksum, note_checksum) = _FIXED.unpack_from(raw)  # fmt: skip
    end = _FIXED.size + 8 * count
    if (magic, form, state, page) != (_MAGIC, FORMAT, _WHOLE, PAGE) or end + 16 > CHECKSUMS_AT:
        return None
    if end + 16 > len(raw):  # few have so many globals: to read the room for all of them each time takes longer
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
    """Return the host's note; None if it is not what was written."""
    note = os.pread(descriptor, header.note_bytes, NOTE_AT)
    return note if xxhash.xxh3_128_digest(note) == header.note_checksum else None


def read_checksums(descriptor: int, memory_bytes: int) -> bytearray:
    """Return the checksums of so much memory's pages; 0 for one that is all zero."""
    length = memory_bytes // PAGE * CHECKSUM
    return bytearray(os.pread(descriptor, length, CHECKSUMS_AT).ljust(length, b"\0"))


def intact(descriptor: int, header: Header) -> bool:
    """Return whether every page is what its generation wrote: reads all of it."""
    checksums = read_checksums(descriptor, header.memory_bytes)
    if xxhash.xxh3_128_digest(checksums) != header.pages_checksum:
        return False
    for at in range(0, header.memory_bytes, _AT_ONCE):
        data = os.pread(descriptor, min(_AT_ONCE, header.memory_bytes - at), MEMORY_AT + at)
        if checksums_of(data) != checksums[at // PAGE * CHECKSUM :][: len(data) // PAGE * CHECKSUM]:
            return False
    return True


def checksums_of(data: bytes) -> bytes:
    """Return the checksums of whole pages, one after another."""
    if _ZEROES.startswith(data):
        return bytes(len(data) // PAGE * CHECKSUM)
    pages = (data[at : at + PAGE] for at in range(0, len(data), PAGE))
    return b"".join(bytes(CHECKSUM) if page == ZERO_PAGE else xxhash.xxh3_64_digest(page) for page in pages)


def mark_as_being_written(descriptor: int) -> None:
    """From now on this is no snapshot, until a header is written again."""
    os.pwrite(descriptor, struct.pack("<I", _WRITING), _STATE_AT)


def write_all(descriptor: int, data: bytes | bytearray | memoryview, offset: int) -> None:
    """Write everything at an offset; a short write goes on where it ended."""
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written
