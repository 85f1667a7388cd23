"""A guest as host functions see it: its memory, what its call may still take, its clock.

Made by ``instance``; found by ``imports`` through :func:`current`, which is the guest that runs in this thread: host
functions are defined once for all guests, so none of them knows its guest otherwise.
Invariant: nothing here but the clock's offset, and that the host ends it, outlives a call; the rest would be state
that no snapshot has.
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
    """What a guest may ask for. Called in the guest's thread, and may block: that time is not the guest's."""

    def call(self, request: bytes) -> bytes:
        """Do a request of docs/controller-abi.md (any bytes: they are the guest's); return its answer, in JSON.

        What it raises ends the guest, as the cause of a GuestFault of the kind HostFailed.
        """
        ...

    def log(self, level: int, text: str) -> None:
        """Take a line for users; level 0 is debug, 1 info, 2 warning, 3 error."""
        ...


class Guest:
    """One guest. ``fault``: why its call ends, once a host function or the deadline has found a reason."""

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
        """Begin a call: of the one before nothing is left."""
        self.budget = Budget(self.limits)
        if self.interrupted:  # as `interrupt`, which found the former budget, or finds this one
            self.budget.interrupted = True
        self.lines = Lines(self.host.log)
        self.answer: bytes | None = None
        self.requeue_ms: int | None = None
        self.fault: BaseException | None = None

    def interrupt(self) -> None:
        """End the call that is in progress, and each that is begun later; from any thread."""
        self.interrupted = True
        self.budget.interrupted = True

    def monotonic(self) -> int:
        """Return nanoseconds of a clock that never goes back, over suspending, restarts and boots of the machine."""
        return time.monotonic_ns() + self.clock_offset

    def continue_clock(self, last: int, offset: int) -> None:
        """Let the clock go on, never below ``last``, nor less ahead of the kernel's than it was (``offset``)."""
        self.clock_offset = max(offset, last - time.monotonic_ns())

    def stopped(self) -> BaseException | None:
        """Return why the deadline ends the call, or None if it may go on."""
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
        raise RuntimeError("code of a guest runs outside of a call")
    return _RUNNING.guest


def failed(error: BaseException) -> None:
    """Keep why the call that runs in this thread ends; it comes out of that call."""
    if _RUNNING.guest is not None:
        _RUNNING.guest.fault = error


@contextmanager
def running(guest: Guest) -> Iterator[None]:
    """Make ``guest`` the one that runs in this thread."""
    before, _RUNNING.guest = _RUNNING.guest, guest
    try:
        yield
    finally:
        _RUNNING.guest = before
