"""Suspends an instance to disk and wakes it: a new instance maps the file with its memory.

Called by ``instance``. Suspending writes only pages that the guest has changed since it woke; waking reads only pages
that the guest accesses, so its duration does not depend on the size of the state (ADR 51).
Invariants: a snapshot is written completely or not at all; after a failed write the instance stays in memory. The state
of a guest is one memory, the mutable globals and its clock: ``rewriting`` rejects all other state.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import xxhash
from wasmtime import WasmtimeError

from controller_host.guest import native, pages, snapshot_file
from controller_host.guest.binary import WASM_PAGE
from controller_host.guest.faults import FaultKind, GuestFault
from controller_host.guest.guest import Guest
from controller_host.guest.pages import PAGE
from controller_host.guest.rewriting import global_export
from controller_host.guest.snapshot_file import CHECKSUM, CHECKSUMS_AT, MEMORY_AT, NOTE_AT, Header
from controller_host.guest.snapshots import Identity, Snapshot, SnapshotFailed, SnapshotLost, Snapshots

_AT_ONCE: Final = (1 << 20) // PAGE
_KINDS: Final = {"i32": (0, 32), "i64": (1, 64), "f32": (2, 32), "f64": (3, 64)}


@dataclass(frozen=True, slots=True)
class Suspended:
    """Result of suspending: written pages, disk usage of the file in bytes, seconds."""

    pages: int
    disk_bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Mapped:
    """The file that an awake instance maps. ``memory_bytes``: the mapped part of its memory."""

    snapshots: Snapshots
    identity: Identity
    inode: int
    generation: int
    memory_bytes: int


class State:
    """State of an instance in a snapshot: memory, globals and clock; ``mapped``: the file of its memory."""

    def __init__(
        self, store: native.NativeStore, guest: Guest, types: Sequence[str], data_span: tuple[int, int]
    ) -> None:
        self._guest: Final = guest
        self._context: Final = store.context
        self._kinds: Final = [_KINDS[kind] for kind in types]
        self._globals: Final[list[Any]] = [
            store.export(global_export(number).encode()).global_ for number in range(len(types))
        ]
        self._image: tuple[int, int] = data_span  # range in which unchanged pages can be non-zero
        self.mapped: Mapped | None = None

    def resident_bytes(self) -> int:
        """Return the private memory of this instance in bytes; all of it if the kernel does not report pages."""
        address, size = self._guest.memory.extent()
        runs = pages.private(address, size)
        return size if runs is None else sum(end - start for start, end in runs) * PAGE

    def restore(self, snapshot: Snapshot) -> None:
        """Restore the state from a snapshot.

        Raises:
            SnapshotLost: Its file was removed or replaced.
            GuestFault: Its memory is above the limit, which has been reduced.
        """
        header = snapshot.header
        if len(header.globals) != len(self._globals):
            raise SnapshotLost("it belongs to another module")
        self._grow(header.memory_bytes)
        self._map(snapshot)
        for handle, (kind, _), bits in zip(self._globals, self._kinds, header.globals, strict=True):
            native.set_global_bits(self._context, handle, kind, bits)
        self._guest.continue_clock(header.clock, header.clock_offset)
        self._image = (0, header.memory_bytes)
        self.mapped = Mapped(
            snapshot.snapshots, snapshot.identity, snapshot.inode, header.generation, header.memory_bytes
        )

    def save(self, snapshots: Snapshots, identity: Identity, note: bytes) -> Suspended:
        """Write the snapshot.

        Raises:
            SnapshotFailed: The write failed; no snapshot remains.
        """
        began = time.monotonic()
        path = snapshots.path(identity.controller_uid)
        if len(note) > snapshot_file.MOST_NOTE_BYTES:
            raise SnapshotFailed(f"the note has {len(note)} bytes, the maximum is {snapshot_file.MOST_NOTE_BYTES}")
        try:
            descriptor, before = self._open(snapshots, identity)
            try:
                written = self._write(descriptor, before, snapshots, identity, note)
                return Suspended(written, os.fstat(descriptor).st_blocks * 512, time.monotonic() - began)
            finally:
                os.close(descriptor)
        except OSError as error:
            with contextlib.suppress(OSError):  # the previous file remains, valid or marked as incomplete
                path.unlink(missing_ok=True)
            raise SnapshotFailed(f"{path}: {error.strerror}", error.errno or 0) from error

    def _grow(self, memory_bytes: int) -> None:
        missing = memory_bytes - self._guest.memory.size()
        try:
            if missing > 0:
                self._guest.memory.grow(missing // WASM_PAGE)
        except WasmtimeError:
            raise GuestFault(
                FaultKind.MEMORY_EXCEEDED,
                f"it was suspended with {memory_bytes} bytes of memory, the limit is now "
                f"{self._guest.limits.memory_bytes} (spec.limits.memory)",
            ) from None

    def _map(self, snapshot: Snapshot) -> None:
        try:
            descriptor = os.open(
                snapshot.snapshots.path(snapshot.identity.controller_uid), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
            )
        except OSError as error:
            raise SnapshotLost(f"its file cannot be opened: {error.strerror}") from error
        try:
            # Check through the same descriptor: access beyond the end of a mapped file ends the process.
            if os.fstat(descriptor).st_ino != snapshot.inode or (
                snapshot_file.read_header(descriptor) != snapshot.header
            ):
                raise SnapshotLost("its file was replaced")
            address, size = self._guest.memory.extent()
            if size != snapshot.header.memory_bytes:
                raise SnapshotLost("it belongs to another module")
            if size:
                pages.map_privately(descriptor, MEMORY_AT, address, size)
            if snapshot.snapshots.in_memory:
                for start, end in pages.holes(descriptor, MEMORY_AT, size):
                    pages.map_nothing(address + start, end - start)
        except OSError as error:
            raise SnapshotLost(f"its file cannot be mapped: {error.strerror}") from error
        finally:
            os.close(descriptor)

    def _open(self, snapshots: Snapshots, identity: Identity) -> tuple[int, Header | None]:
        """Open the file that this instance maps, or a new one: a file that may be mapped is never truncated."""
        path = snapshots.path(identity.controller_uid)
        mapped = self.mapped
        if mapped is not None and (mapped.snapshots, mapped.identity) == (snapshots, identity):
            try:
                descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            except FileNotFoundError:
                pass  # removed in the meantime
            else:
                header = snapshot_file.read_header(descriptor)
                same = header is not None and header.generation == mapped.generation
                if same and os.fstat(descriptor).st_ino == mapped.inode:
                    return descriptor, header
                os.close(descriptor)
        path.unlink(missing_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), None

    def _write(
        self, descriptor: int, before: Header | None, snapshots: Snapshots, identity: Identity, note: bytes
    ) -> int:
        address, size = self._guest.memory.extent()
        kept = before.memory_bytes if before else 0
        checksums = snapshot_file.read_checksums(descriptor, kept).ljust(size // PAGE * CHECKSUM, b"\0")
        snapshot_file.invalidate_header(descriptor)
        os.ftruncate(descriptor, MEMORY_AT + size)
        written = 0
        for start, end in self._candidates(descriptor, address, size, kept):
            written += _write_pages(descriptor, address, start, end, checksums)
        snapshot_file.write_all(descriptor, checksums, CHECKSUMS_AT)
        snapshot_file.write_all(descriptor, note, NOTE_AT)
        header = Header(
            generation=(before.generation if before else 0) + 1,
            boot=snapshots.boot,
            run=snapshots.run,
            identity=identity.digest(),
            memory_bytes=size,
            clock=self._guest.monotonic(),
            clock_offset=self._guest.clock_offset,
            globals=tuple(
                native.global_bits(self._context, handle, bits)
                for handle, (_, bits) in zip(self._globals, self._kinds, strict=True)
            ),
            pages_checksum=xxhash.xxh3_128_digest(checksums),
            note_bytes=len(note),
            note_checksum=xxhash.xxh3_128_digest(note),
        )
        snapshot_file.write_all(descriptor, header.pack(), 0)
        return written

    def _candidates(self, descriptor: int, address: int, size: int, kept: int) -> Iterator[tuple[int, int]]:
        """Return the runs of pages that may differ from the file; ``kept``: bytes of this memory in the file."""
        private = pages.private(address, size)
        if kept:
            if private is None:
                yield from _different(descriptor, address, kept)
                yield from pages.chunks([(kept // PAGE, size // PAGE)], _AT_ONCE)
            else:
                yield from pages.chunks(private, _AT_ONCE)
            return
        first, last = (0, size) if private is None else self._image
        first, last = first // PAGE, min(size // PAGE, -(-last // PAGE))
        below = [(start, min(end, first)) for start, end in private or () if start < first]
        beyond = [(max(start, last), end) for start, end in private or () if end > last]
        yield from pages.chunks([*below, (first, last), *beyond], _AT_ONCE)


def _different(descriptor: int, address: int, length: int) -> Iterator[tuple[int, int]]:
    """Yield the pages that differ from the file, for kernels that do not report changed pages."""
    for start, end in pages.chunks([(0, length // PAGE)], _AT_ONCE):
        ours = ctypes.string_at(address + start * PAGE, (end - start) * PAGE)
        theirs = os.pread(descriptor, (end - start) * PAGE, MEMORY_AT + start * PAGE)
        if ours != theirs:
            for page in range(end - start):
                part = slice(page * PAGE, (page + 1) * PAGE)
                if ours[part] != theirs[part]:
                    yield start + page, start + page + 1


def _write_pages(descriptor: int, address: int, start: int, end: int, checksums: bytearray) -> int:
    """Write pages and their checksums; unchanged zero pages stay holes. Return the number of written pages."""
    data = ctypes.string_at(address + start * PAGE, (end - start) * PAGE)
    fresh = snapshot_file.checksums_of(data)
    part = slice(start * CHECKSUM, end * CHECKSUM)
    zero = bytes(CHECKSUM)
    either = [
        fresh[at : at + CHECKSUM] != zero or checksums[part.start + at : part.start + at + CHECKSUM] != zero
        for at in range(0, len(fresh), CHECKSUM)
    ]
    checksums[part] = fresh
    if all(either):
        snapshot_file.write_all(descriptor, data, MEMORY_AT + start * PAGE)
    else:
        for page in (page for page, write in enumerate(either) if write):
            content = memoryview(data)[page * PAGE : (page + 1) * PAGE]
            snapshot_file.write_all(descriptor, content, MEMORY_AT + (start + page) * PAGE)
    return sum(either)
