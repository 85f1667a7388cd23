"""Stateless WASI preview 1: output becomes log lines, clocks and random numbers work, the rest returns an errno.

In: arguments of the guest, all unsigned. Out: an errno. Called by ``imports``. The implementation of wasmtime has state
(files, a clock that starts with each instance) that a snapshot would not contain (ADR 51).
Invariant: no state between two calls; every pointer is checked; no function exceeds the time limit of the call.
Source: WASI preview 1, "wasi_snapshot_preview1.witx"; layouts of records are those of its wasm32 ABI.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable
from typing import Final

from controller_host.guest import abi
from controller_host.guest.faults import FaultKind, GuestFault
from controller_host.guest.guest import Guest

SUCCESS, BADF, INVAL, NOSYS, SPIPE = 0, 8, 28, 52, 70
_STREAMS: Final = range(3)
_REALTIME, _MONOTONIC = 0, 1
_CHARACTER_DEVICE: Final = 2
_MOST_VECTORS: Final = 1024  # IOV_MAX of Linux
_MOST_SUBSCRIPTIONS: Final = 1024
_AT_ONCE: Final = 256 << 10
_NAP: Final = 0.02
_CLOCK, _FD_READ = 0, 1


def _sizes_get(guest: Guest, count: int, size: int) -> int:
    guest.memory.write(count, bytes(4))
    guest.memory.write(size, bytes(4))
    return SUCCESS


def _nothing(_guest: Guest, *_arguments: int) -> int:
    return SUCCESS


def _no_system(_guest: Guest, *_arguments: int) -> int:
    return NOSYS


def _no_file(_guest: Guest, *_arguments: int) -> int:
    return BADF


def _of_stream(errno: int) -> Callable[..., int]:
    def answer(_guest: Guest, fd: int, *_arguments: int) -> int:
        return errno if fd in _STREAMS else BADF

    return answer


def _now(guest: Guest, clock: int) -> int | None:
    if clock == _REALTIME:
        return time.time_ns()
    return guest.monotonic() if clock == _MONOTONIC else None


def _clock_time_get(guest: Guest, clock: int, _precision: int, pointer: int) -> int:
    now = _now(guest, clock)
    if now is None:
        return INVAL
    guest.memory.write(pointer, struct.pack("<Q", now))
    return SUCCESS


def _clock_res_get(guest: Guest, clock: int, pointer: int) -> int:
    if clock not in {_REALTIME, _MONOTONIC}:
        return INVAL
    guest.memory.write(pointer, struct.pack("<Q", 1))
    return SUCCESS


def _fd_fdstat_get(guest: Guest, fd: int, pointer: int) -> int:
    if fd not in _STREAMS:
        return BADF
    permissions = 1 << 6 if fd else 1 << 1  # fd_write, fd_read
    guest.memory.write(pointer, struct.pack("<BxHxxxxQQ", _CHARACTER_DEVICE, 0, permissions, 0))
    return SUCCESS


def _fd_filestat_get(guest: Guest, fd: int, pointer: int) -> int:
    if fd not in _STREAMS:
        return BADF
    guest.memory.write(pointer, struct.pack("<QQB7xQQQQQ", 0, 0, _CHARACTER_DEVICE, 1, 0, 0, 0, 0))
    return SUCCESS


def _fd_read(guest: Guest, fd: int, _vectors: int, _count: int, read: int) -> int:
    if fd != 0:
        return BADF
    guest.memory.write(read, bytes(4))  # the end of the file
    return SUCCESS


def _fd_write(guest: Guest, fd: int, vectors: int, count: int, written: int) -> int:
    if fd not in {1, 2}:
        return BADF
    if count > _MOST_VECTORS:
        return INVAL
    total = 0
    for pointer, length in struct.iter_unpack("<II", guest.memory.read(vectors, count * 8)):
        guest.memory.check(pointer, length)
        for at in range(0, length, _AT_ONCE):
            guest.budget.check()
            guest.lines.write(fd, guest.memory.read(pointer + at, min(_AT_ONCE, length - at)))
        total += length
    guest.memory.write(written, struct.pack("<I", total & 0xFFFF_FFFF))
    return SUCCESS


def random_get(guest: Guest, pointer: int, length: int) -> int:
    """Write ``length`` random bytes at ``pointer``."""
    guest.memory.check(pointer, length)
    for at in range(0, length, _AT_ONCE):
        guest.budget.check()
        guest.memory.write(pointer + at, os.urandom(min(_AT_ONCE, length - at)))
    return SUCCESS


def _poll_oneoff(guest: Guest, subscriptions: int, events: int, count: int, ready: int) -> int:
    if not 0 < count <= _MOST_SUBSCRIPTIONS:
        return INVAL
    records = [guest.memory.read(subscriptions + at * 48, 48) for at in range(count)]
    answers = [_stream_event(each) for each in records if each[8] != _CLOCK]
    if not answers:
        deadlines = [(_deadline(guest, each), each) for each in records]
        first = min(deadline for deadline, _ in deadlines)
        _sleep(guest, first)
        answers = [struct.pack("<8sHB21x", each[:8], SUCCESS, _CLOCK) for at, each in deadlines if at <= first]
    guest.memory.write(events, b"".join(answers))
    guest.memory.write(ready, struct.pack("<I", len(answers)))
    return SUCCESS


def _deadline(guest: Guest, subscription: bytes) -> int:
    """Return the end of a clock subscription by the guest's monotonic clock; now for an unknown clock."""
    clock: int
    timeout: int
    clock, timeout, _, flags = struct.unpack_from("<I4xQQH", subscription, 16)
    now = _now(guest, clock)
    if now is None:
        return guest.monotonic()
    return guest.monotonic() + max(0, timeout - now if flags & 1 else timeout)


def _stream_event(subscription: bytes) -> bytes:
    (fd,) = struct.unpack_from("<I", subscription, 16)
    kind = subscription[8]
    errno = SUCCESS if fd in ({0} if kind == _FD_READ else {1, 2}) else BADF
    return struct.pack("<8sHB5xQH6x", subscription[:8], errno, kind, 0, 1 if kind == _FD_READ else 0)


def _sleep(guest: Guest, deadline: int) -> None:
    while (left := deadline - guest.monotonic()) > 0:
        guest.budget.check()
        time.sleep(min(left / 1e9, _NAP, max(0.0, guest.budget.wall_left()) + 0.001))


def _proc_exit(_guest: Guest, status: int) -> int:
    raise GuestFault(FaultKind.EXITED, f"it exited with status {status}")


_FUNCTIONS: Final[dict[str, Callable[..., int]]] = {
    "args_get": _nothing,
    "args_sizes_get": _sizes_get,
    "clock_res_get": _clock_res_get,
    "clock_time_get": _clock_time_get,
    "environ_get": _nothing,
    "environ_sizes_get": _sizes_get,
    "fd_close": _of_stream(SUCCESS),
    "fd_datasync": _of_stream(SUCCESS),
    "fd_fdstat_get": _fd_fdstat_get,
    "fd_fdstat_set_flags": _of_stream(SUCCESS),
    "fd_filestat_get": _fd_filestat_get,
    "fd_read": _fd_read,
    "fd_seek": _of_stream(SPIPE),
    "fd_sync": _of_stream(SUCCESS),
    "fd_tell": _of_stream(SPIPE),
    "fd_write": _fd_write,
    "poll_oneoff": _poll_oneoff,
    "proc_exit": _proc_exit,
    "proc_raise": _no_system,
    "random_get": random_get,
    "sched_yield": _nothing,
}


def function(name: str) -> Callable[..., int]:
    """Return the implementation of a function of :data:`controller_host.guest.abi.WASI`; there are no files."""
    assert name in abi.WASI
    return _FUNCTIONS.get(name, _no_file)
