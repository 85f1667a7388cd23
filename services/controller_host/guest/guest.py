"""State of a guest for host functions: its memory, the budget of its call, its clock.

Created by ``instance``; ``imports`` gets it from :func:`current`, the guest that runs in this thread: host functions
are defined once for all guests.
Invariant: only the offset of the clock, and an interruption by the host, outlive a call; a snapshot would not contain
other state.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from controller_host.guest.faults import GuestFault
from controller_host.guest.limits import Budget, Limits
from controller_host.guest.lines import Lines
from controller_host.guest.memory import Memory


class Host(Protocol):
    """Host of a guest. Called in the guest's thread; can block: the time does not count as the guest's."""

    def call(self, request: bytes) -> bytes:
        """Process a request of docs/controller-abi.md (untrusted bytes of the guest); return the answer as JSON.

        An exception ends the guest, as the cause of a GuestFault of the kind HostFailed.
        """
        ...

    def log(self, level: int, text: str) -> None:
        """Log a line for users; level 0 is debug, 1 info, 2 warning, 3 error."""
        ...


class Guest:
    """One guest. ``fault``: the error of a host function or the deadline that ends the call."""

    __slots__ = (
        "answer",
        "budget",
        "clock_offset",
        "fault",
        "host",
        "interrupted",
        "limits",
        "lines",
        "memory",
        "requeue_ms",
    )

    def __init__(self, limits: Limits, host: Host, memory: Memory) -> None:
        self.limits: Final = limits
        self.host: Final = host
        self.memory: Final = memory
        self.clock_offset = 0
        self.interrupted = False
        self.begin()

    def begin(self) -> None:
        """Reset the state for a new call."""
        self.budget = Budget(self.limits)
        if self.interrupted:  # `interrupt` in another thread sets either the previous or the new budget
            self.budget.interrupted = True
        self.lines = Lines(self.host.log)
        self.answer: bytes | None = None
        self.requeue_ms: int | None = None
        self.fault: BaseException | None = None

    def interrupt(self) -> None:
        """End the call in progress, and all later calls; thread-safe."""
        self.interrupted = True
        self.budget.interrupted = True

    def monotonic(self) -> int:
        """Return nanoseconds of a monotonic clock that continues across suspensions, restarts and reboots."""
        return time.monotonic_ns() + self.clock_offset

    def continue_clock(self, last: int, offset: int) -> None:
        """Continue the clock: at least at ``last``, and at least ``offset`` ahead of the kernel's clock."""
        self.clock_offset = max(offset, last - time.monotonic_ns())

    def stopped(self) -> BaseException | None:
        """Return the fault if the budget of the call is exhausted, None otherwise."""
        try:
            self.budget.check()
        except GuestFault as fault:
            self.fault = fault
        return self.fault


class _Running(threading.local):
    guest: Guest | None = None


_RUNNING: Final = _Running()


def current() -> Guest:
    """Return the guest that runs in this thread."""
    if _RUNNING.guest is None:
        raise RuntimeError("guest code runs outside a call")
    return _RUNNING.guest


def failed(error: BaseException) -> None:
    """Record the error that ends the call in this thread; the call raises it."""
    if _RUNNING.guest is not None:
        _RUNNING.guest.fault = error


@contextmanager
def running(guest: Guest) -> Iterator[None]:
    """Set ``guest`` as the current guest of this thread."""
    before, _RUNNING.guest = _RUNNING.guest, guest
    try:
        yield
    finally:
        _RUNNING.guest = before
