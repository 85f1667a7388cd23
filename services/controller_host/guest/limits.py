"""Limits of a call of a guest and their usage; limits of the compilation of a module.

Times are those of the thread that runs the guest: :class:`Budget` is used only in this thread, except ``interrupted``.
Invariant: the host's work for a guest (its ``call``) does not count as the guest's CPU time or wall-clock time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from controller_host.guest.faults import FaultKind, GuestFault

TICK: Final = 0.01
"""Seconds of one tick of the engine, the unit of deadlines."""
_LONGEST_UNSEEN: Final = 0.05
"""Maximum seconds between two checks of the budget, and so the latency of an interruption."""
_TIMES: Final = 4
_BESIDE: Final = 60
"""Wall-clock limit of a compilation: its CPU seconds times ``_TIMES`` plus ``_BESIDE``: the CPU is shared."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one guest. Seconds are per call; ``wall_seconds`` excludes calls to the host."""

    memory_bytes: int = 64 << 20
    cpu_seconds: float = 1.0
    wall_seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class CompileBounds:
    """Limits of the compilation of one module. ``cpu_seconds``: CPU time."""

    memory_bytes: int = 2 << 30
    cpu_seconds: int = 120

    @property
    def clock_seconds(self) -> int:
        """Limit of the wall-clock time in seconds."""
        return self.cpu_seconds * _TIMES + _BESIDE


class Budget:
    """Budget of one call."""

    __slots__ = ("_cpu", "_host_cpu", "_limits", "_wall", "host_seconds", "interrupted")

    def __init__(self, limits: Limits) -> None:
        self._limits: Final = limits
        self._cpu: Final = time.thread_time()
        self._wall: Final = time.monotonic()
        self._host_cpu = 0.0
        self.host_seconds = 0.0
        self.interrupted = False

    def cpu_seconds(self) -> float:
        """Return the CPU time of the guest in seconds."""
        return time.thread_time() - self._cpu - self._host_cpu

    def wall_seconds(self) -> float:
        """Return the seconds since the start of the call, without calls to the host."""
        return time.monotonic() - self._wall - self.host_seconds

    def wall_left(self) -> float:
        """Return the remaining wall-clock seconds; negative if the limit is exceeded."""
        return self._limits.wall_seconds - self.wall_seconds()

    def check(self) -> None:
        """Raise GuestFault if the budget is exhausted."""
        if self.interrupted:
            raise GuestFault(FaultKind.INTERRUPTED, "the host stopped it")
        if self.cpu_seconds() > self._limits.cpu_seconds:
            raise GuestFault(
                FaultKind.CPU_EXCEEDED,
                f"a call used more than {self._limits.cpu_seconds:g} s of processor time (spec.limits.cpuPerCall)",
            )
        if self.wall_left() < 0:
            raise GuestFault(
                FaultKind.TIME_EXCEEDED,
                f"a call did not end within {self._limits.wall_seconds:g} s (spec.limits.timePerCall)",
            )

    def ticks(self) -> int:
        """Return the ticks until the next check: CPU time cannot exceed wall-clock time."""
        left = min(self._limits.cpu_seconds - self.cpu_seconds(), self.wall_left(), _LONGEST_UNSEEN)
        return max(1, int(left / TICK))

    @contextmanager
    def of_host(self) -> Iterator[None]:
        """Count the time of the block as the host's, not as the guest's."""
        cpu, wall = time.thread_time(), time.monotonic()
        try:
            yield
        finally:
            self._host_cpu += time.thread_time() - cpu
            self.host_seconds += time.monotonic() - wall
