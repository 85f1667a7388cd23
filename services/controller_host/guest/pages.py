"""Changed pages of this process: pages that a guest wrote since they were mapped.

In: an address range. Out: runs of page numbers. Called by ``suspending``. Source: Linux's
Documentation/admin-guide/mm/pagemap.rst: bit 63 present, 62 swapped, 61 of a file or shared; readable by the process
itself without privileges (only the frame numbers are then hidden).
Invariant: an omitted page is unchanged; None if the kernel does not report changes: all pages have to be compared.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import re
import sys
from collections.abc import Iterator
from typing import Final

PAGE: Final = mmap.PAGESIZE
ZERO_PAGE: Final = bytes(PAGE)

_ENTRY: Final = 8
_PRESENT_OR_SWAPPED, _OF_FILE = 0xC0, 0x20  # in an entry's highest byte
_PRIVATE: Final = bytes(int(bool(byte & _PRESENT_OR_SWAPPED) and not byte & _OF_FILE) for byte in range(256))
_RUNS: Final = re.compile(b"\x01+")
_HIGHEST: Final = _ENTRY - 1 if sys.byteorder == "little" else 0

_libc: Final = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_MAP_FIXED: Final = 0x10
_FAILED: Final = ctypes.c_void_p(-1).value


def private(address: int, length: int) -> list[tuple[int, int]] | None:
    """Return the runs of private pages of this process, numbered from ``address``.

    None if the kernel does not report them.
    """
    count = length // PAGE
    try:
        descriptor = os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        entries = os.pread(descriptor, count * _ENTRY, address // PAGE * _ENTRY)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    if len(entries) != count * _ENTRY:
        return None
    return [match.span() for match in _RUNS.finditer(entries[_HIGHEST::_ENTRY].translate(_PRIVATE))]


def map_privately(descriptor: int, offset: int, address: int, length: int) -> None:
    """Map a part of a file over ``address``, copy-on-write.

    Raises:
        OSError: The kernel rejects the mapping.
    """
    done = _libc.mmap(
        address, length, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | _MAP_FIXED, descriptor, offset
    )
    if done == _FAILED:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def map_nothing(address: int, length: int) -> None:
    """Map zero pages over ``address``, which are allocated on the first write.

    Raises:
        OSError: The kernel rejects the mapping.
    """
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_FIXED
    if _libc.mmap(address, length, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0) == _FAILED:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def holes(descriptor: int, offset: int, length: int) -> Iterator[tuple[int, int]]:
    """Yield the holes of a file, as ranges of bytes from ``offset``."""
    at, end = offset, offset + length
    while at < end:
        start = min(end, os.lseek(descriptor, at, os.SEEK_HOLE))
        try:
            at = min(end, os.lseek(descriptor, start, os.SEEK_DATA))
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            at = end  # no data after this position
        if at > start:
            yield start - offset, at - offset


def chunks(runs: list[tuple[int, int]], most: int) -> Iterator[tuple[int, int]]:
    """Yield the runs in parts of at most ``most`` pages."""
    for start, end in runs:
        for at in range(start, end, most):
            yield at, min(at + most, end)
