"""Counters of a controller for its status and the metrics.

Written by ``lifecycle`` in the thread that serves the controller; read in the event loop. Invariant: bounded memory for
any controller.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from trellis.telemetry import TraceContext

_TIMES: Final = 100


@dataclass(slots=True)
class Counters:
    """Counters of a controller; ``wake_seconds``: of the last hundred wakes."""

    calls: int = 0
    wakes: int = 0
    suspends: int = 0
    cold_starts: int = 0
    traps: int = 0
    snapshot_bytes: int = 0
    resident_bytes: int = 0
    wake_seconds: deque[float] | None = None
    last_call: TraceContext | None = None
    """Trace context of the last call."""

    def woken(self, seconds: float) -> None:
        """Record a wake."""
        self.wakes += 1
        if self.wake_seconds is None:
            self.wake_seconds = deque(maxlen=_TIMES)
        self.wake_seconds.append(seconds)

    def wake_p99(self) -> float | None:
        """Return the 99th percentile of the duration of wakes in seconds, None without wakes."""
        if not self.wake_seconds:
            return None
        found = sorted(self.wake_seconds)
        return found[max(0, -(-99 * len(found) // 100) - 1)]
