"""Limits a lattice connection whose message rate exceeds the bound: closes it, and delays the next one.

In: reports of dropped messages; times. Out: the end of a connection with its reason, and the seconds until the next
one. Called by ``link``. Invariants: dropped messages may have any content, so no host counts as silent after a drop; a
flood is read for a few seconds per half minute at most, and less the longer it lasts.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from trellis.lattice.timings import FloodTimings
from trellis.limits.backoff import Backoff


@dataclass(slots=True)
class Flood:
    """``why``: what was too much on the connection of now, for users; "" if nothing was."""

    timings: FloodTimings = FloodTimings()
    why: str = ""
    _ends: asyncio.Event = field(default_factory=asyncio.Event)
    _floods: int = 0
    _at: float = 0.0

    def watch(self) -> asyncio.Event:
        """A connection begins; return what is set when it is to end, by this or by anybody else."""
        self.why, self._ends = "", asyncio.Event()
        return self._ends

    def came(self, why: str) -> None:
        """Something was left out: end the connection, as reading on would cost everybody else."""
        if not self.why:
            self.why = f"{why}; the subscription is paused, and the state of the lattice is unknown"
            self._ends.set()

    def pause(self) -> float:
        """Return for how many seconds to be away now, 0 if there was no flood."""
        if not self.why:
            return 0.0
        now, self.why = time.monotonic(), ""
        again = self._floods > 0 and now - self._at < self.timings.forgotten
        self._floods = self._floods + 1 if again else 1
        self._at = now
        return Backoff(self.timings.away, self.timings.away_most).bound(self._floods)
