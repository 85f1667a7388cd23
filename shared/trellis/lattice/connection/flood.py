"""Limits a lattice connection whose message rate exceeds the bound: closes it, and delays the next one.

In: reports of dropped messages; times. Out: the end of a connection with its reason, and the seconds until the next
one. Called by ``lattice_connection``. Invariants: dropped messages may have any content, so no host counts as stopped
after a drop; a flood is read for at most a few seconds per half minute, and less the longer it lasts.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from trellis.lattice.timings import FloodTimings
from trellis.limits.backoff import Backoff


@dataclass(slots=True)
class Flood:
    """State of the limit; ``reason``: the excess on the current connection, for users; "" if there is none."""

    timings: FloodTimings = FloodTimings()
    reason: str = ""
    _ends: asyncio.Event = field(default_factory=asyncio.Event)
    _floods: int = 0
    _at: float = 0.0

    def watch(self) -> asyncio.Event:
        """Start a connection; return the event that ends it. Other code may also set the event."""
        self.reason, self._ends = "", asyncio.Event()
        return self._ends

    def came(self, reason: str) -> None:
        """End the connection after a dropped message, because further reads would delay all other lattices."""
        if not self.reason:
            self.reason = f"{reason}; the subscription is paused, and the state of the lattice is unknown"
            self._ends.set()

    def pause(self) -> float:
        """Return the seconds until the next connection, 0 without a flood."""
        if not self.reason:
            return 0.0
        now, self.reason = time.monotonic(), ""
        again = self._floods > 0 and now - self._at < self.timings.forgotten
        self._floods = self._floods + 1 if again else 1
        self._at = now
        return Backoff(self.timings.unavailable, self.timings.unavailable_most).bound(self._floods)
