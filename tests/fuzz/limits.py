"""Limits of one case: processor time and memory.

A hang is found by the process's own timer, which counts only while it computes: a busy machine makes no finding.
Memory is the growth of the process's peak, which Linux sets back on request.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

_RESET_PEAK = b"5"


class TooLong(BaseException):
    """A case took more processor time than it may. No ``except Exception`` of a parser can hide it."""


class TooMuch(AssertionError):  # noqa: N818 (a verdict)
    """A case took more memory than it may."""


@contextlib.contextmanager
def bounded(seconds: float, mebibytes: int) -> Iterator[None]:
    """Raise :class:`TooLong` or :class:`TooMuch` if the block takes more; only in a process's main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        del number, frame
        raise TooLong(f"more than {seconds} s of processor time")

    _reset_peak()
    before = _peak()
    former = signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, former)
    grown = (_peak() - before) >> 10
    if grown > mebibytes:
        raise TooMuch(f"{grown} MiB of memory, and {mebibytes} are a case's")


def _peak() -> int:
    """Return the peak of resident memory in KiB: this program's own, not that of the process it was started from."""
    with contextlib.suppress(OSError), Path("/proc/self/status").open("rb") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(b"VmHWM:"))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _reset_peak() -> None:
    with contextlib.suppress(OSError):
        file = os.open("/proc/self/clear_refs", os.O_WRONLY)
        try:
            os.write(file, _RESET_PEAK)
        finally:
            os.close(file)
