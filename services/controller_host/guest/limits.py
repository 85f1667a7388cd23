"""What one call of a guest may take, and what it has taken so far; what compiling a module may take.

Time comes from the thread that runs the guest: :class:`Budget` is used in that thread alone, but for ``interrupt``.
Invariant: what the host does for a guest (its ``call``) counts neither as the guest's processor time nor as its time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from controller_host.guest.faults import FaultKind, GuestFault

TICK: Final = 0.01
"""Seconds from one look at a running guest to the next: what its budget is counted in."""
_LONGEST_UNSEEN: Final = 0.05
"""Seconds a guest may run before it is looked at again, whatever it has left: so long does an interruption take."""
_TIMES: Final = 4
_BESIDE: Final = 60
"""So many times its seconds of processor may pass by the clock, and so many more: the machine has others to serve."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one guest. Seconds are of one call; ``wall_seconds`` is by the clock, apart from the host's calls."""

    memory_bytes: int = 64 << 20
    cpu_seconds: float = 1.0
    wall_seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class CompileBounds:
    """What compiling one module may take. ``cpu_seconds``: of processor."""

    memory_bytes: int = 2 << 30
    cpu_seconds: int = 120

    @property
    def clock_seconds(self) -> int:
        """Seconds by the clock."""
        return self.cpu_seconds * _TIMES + _BESIDE


class Budget:
    """What is left of one call."""

    __slots__ = ("_cpu", "_host_cpu", "_limits", "_wall", "host_seconds", "interrupted")

    def __init__(self, limits: Limits) -> None:
        self._limits: Final = limits
        self._cpu: Final = time.thread_time()
        self._wall: Final = time.monotonic()
        self._host_cpu = 0.0
        self.host_seconds = 0.0
        self.interrupted = False

    def cpu_seconds(self) -> float:
        """Return the processor time the guest has taken."""
        return time.thread_time() - self._cpu - self._host_cpu

    def wall_seconds(self) -> float:
        """Return the time since the call began, apart from the host's calls."""
        return time.monotonic() - self._wall - self.host_seconds

    def wall_left(self) -> float:
        """Return the seconds by the clock that are left; below 0 if none are."""
        return self._limits.wall_seconds - self.wall_seconds()

    def check(self) -> None:
        """Raise GuestFault if nothing is left."""
        if self.interrupted:
            raise GuestFault(FaultKind.INTERRUPTED, "the host stopped it")
        if self.cpu_seconds() > self._limits.cpu_seconds:
            raise GuestFault(
                FaultKind.CPU_EXCEEDED,
                f"a call took more than {self._limits.cpu_seconds:g} s of processor time (spec.limits.cpuPerCall)",
            )
        if self.wall_left() < 0:
            raise GuestFault(
                FaultKind.TIME_EXCEEDED,
                f"a call took longer than {self._limits.wall_seconds:g} s (spec.limits.timePerCall)",
            )

    def ticks(self) -> int:
        """Return after how many ticks to look again: processor time cannot run ahead of the clock."""
        left = min(self._limits.cpu_seconds - self.cpu_seconds(), self.wall_left(), _LONGEST_UNSEEN)
        return max(1, int(left / TICK))

    @contextmanager
    def of_host(self) -> Iterator[None]:
        """Count what happens inside as the host's, not as the guest's."""
        cpu, wall = time.thread_time(), time.monotonic()
        try:
            yield
        finally:
            self._host_cpu += time.thread_time() - cpu
            self.host_seconds += time.monotonic() - wall
