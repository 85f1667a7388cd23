"""Time that passes only when a test says so."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(eq=False)
class FakeAlarm:
    """A timer that was set; it counts until it is cancelled."""

    call: Callable[[], None]
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True

    def ring(self) -> None:
        if not self.cancelled:
            self.call()


@dataclass
class FakeTimers:
    """A clock that starts at 1,000 s and alarms that ring while it is moved on."""

    time: float = 1000.0
    alarms: list[tuple[float, int, FakeAlarm]] = field(default_factory=list)
    order: itertools.count[int] = field(default_factory=itertools.count)

    def now(self) -> float:
        return self.time

    def call_at(self, when: float, call: Callable[[], None]) -> FakeAlarm:
        alarm = FakeAlarm(call)
        heapq.heappush(self.alarms, (when, next(self.order), alarm))
        return alarm

    @property
    def pending(self) -> list[float]:
        """When the alarms ring that still count."""
        return sorted(when for when, _, alarm in self.alarms if not alarm.cancelled)

    def ring(self) -> None:
        """Run the next timer at any time: one turn of the event loop."""
        heapq.heappop(self.alarms)[2].ring()

    def advance(self, seconds: float) -> None:
        """Move the clock on, ringing what is due on the way."""
        end = self.time + seconds
        while self.alarms and self.alarms[0][0] <= end:
            when, _, alarm = heapq.heappop(self.alarms)
            self.time = max(self.time, when)
            alarm.ring()
        self.time = end
