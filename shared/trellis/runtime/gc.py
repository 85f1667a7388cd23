"""Excludes objects loaded at the start from garbage collection, and returns memory of threads to the system.

In: the process after all imports and wiring. Out: a heap whose collections inspect later objects only. Called by each
``main``, and by code with many threads. Reason: modules and models are 94,000 objects, and a full collection over them
blocks the process for 60 ms (measured, two services in one process). Decoding a page of 200 Nodes creates 50,000
objects, so lists trigger it repeatedly: it took half of their CPU time, and three tenths of that of the imports. One
collection at the end takes 0.15 s more: of 200,000 objects it finds 2,000 to be garbage.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_M_ARENA_MAX: Final = -8
"""mallopt(3), glibc's malloc.h."""
_ARENAS: Final = 2


@contextmanager
def importing() -> Iterator[None]:
    """Disable garbage collection in the block, and freeze the objects created in it: almost none is garbage."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        freeze()
        if collects:
            gc.enable()


def freeze() -> None:
    """Have collections pass over every object there is now."""
    gc.freeze()


def share_arenas() -> None:
    """Have the threads to come share two heaps, where the C library is glibc.

    It gives threads up to eight heaps for each processor, none of which lends another what it has free: a hundred
    threads that each need a little now and then hold 35 MiB for nothing (measured, controller_host).
    """
    if (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
        mallopt(_M_ARENA_MAX, _ARENAS)


def give_back() -> None:
    """Return free pages to the system, where the C library is glibc: it keeps what lies below something in use.

    It takes some milliseconds, in which other threads may have to wait for memory.
    """
    if (malloc_trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        malloc_trim(0)
