"""Excludes objects loaded at the start from garbage collection, and returns memory of threads to the system.

In: the process after all imports and wiring, and after the lists of a leadership term. Out: a heap whose collections
inspect later objects only. Called by each ``main``, by ``service``, and by code with many threads. Reason: modules and
models are 94,000 objects, and a full collection over them blocks the process for 60 ms (measured, two services in one
process). Decoding a page of 200 Nodes creates 50,000 objects, so lists trigger it repeatedly: it used half of their CPU
time, and three tenths of that of the imports. One collection at the end adds 0.15 s: of 200,000 objects it finds 2,000
to be garbage.
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


@contextmanager
def caches_excluded(*, former: bool) -> Iterator[None]:
    """Exclude all current objects from collections in the block, which is a leadership term with its caches.

    A full collection over the caches of 5,000 nodes blocks each change that is in progress. ``former``: the garbage of
    a former term is collected first. After the block, collections inspect all objects again.
    """
    if former:
        gc.collect()
    freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def freeze() -> None:
    """Exclude all current objects from collections."""
    gc.freeze()


def share_arenas() -> None:
    """Limit the threads that start later to two shared heaps (glibc only).

    glibc creates up to eight heaps per processor, which do not share free memory: a hundred threads with small
    occasional allocations retain 35 MiB of free memory (measured, controller_host).
    """
    if (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
        mallopt(_M_ARENA_MAX, _ARENAS)


def give_back() -> None:
    """Return free pages to the system (glibc only, which retains free pages below used ones).

    The call lasts some milliseconds, in which other threads may wait for memory.
    """
    if (malloc_trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        malloc_trim(0)
