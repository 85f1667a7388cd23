"""Limits how often the reason of an outage is reported.

Pure: reasons and times in; whether a reason is reported, out. Called by ``link`` and ``model_watch``. Dependents show
the reason, and write to show another one. Invariants: the first reason of an outage is reported at once; another one
after a minute at the earliest; a repeated one after a delay that doubles each time, from a minute to an hour. So
alternating failures of several servers cause ever fewer writes.
"""

from __future__ import annotations

from typing import Final

from trellis.lattice.timings import OutageTimings
from trellis.limits.backoff import Backoff

_KINDS_MAX: Final = 8
"""Reasons that an outage may have besides; texts with a number in them could else be new forever."""


class Outage:
    """``why`` is the reason that was told last, before the first outage what the caller says of the beginning."""

    def __init__(self, why: str, timings: OutageTimings = OutageTimings()) -> None:
        self.why = why
        self._timings = timings
        self._told: set[str] = set()
        self._at = 0.0
        self._vague = False
        self._repeats = 0

    def away(self, why: str, now: float, *, vague: bool = False, urgent: bool = False) -> bool:
        """It is unreachable for this reason; return whether that is news.

        Args:
            why: for users.
            now: seconds of the monotonic clock.
            vague: a better reason is to be expected soon, and is news at once.
            urgent: nothing goes on until a user acts on it: it waits for no pause the first time.
        """
        if not self._told:
            return self._tell(why, now, vague=vague)
        if why == self.why:
            return False
        known = why in self._told or len(self._told) > _KINDS_MAX
        backoff = Backoff(self._timings.pause, self._timings.pause_most)
        pause = backoff.bound(self._repeats + 1) if known else 0.0 if self._vague or urgent else backoff.first
        if now - self._at < pause:
            return False
        if known:
            self._repeats += 1
        return self._tell(why, now, vague=False)

    def over(self) -> None:
        """It is there: what comes next is another outage."""
        self.why = ""
        self._told.clear()
        self._repeats = 0

    def _tell(self, why: str, now: float, *, vague: bool) -> bool:
        self._told.add(why)
        self.why, self._at, self._vague = why, now, vague
        return True
