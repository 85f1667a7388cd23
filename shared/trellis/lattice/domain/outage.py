"""Why something is unreachable, told seldom enough.

Pure: reasons and times in; out, whether a reason is news. Called by ``link`` and ``model_watch``. Everybody who needs
what is unreachable shows its reason, and writes to show another one. Invariants: the first reason of an outage is news;
another one is after a minute at the earliest; one that was told before, only after a pause that doubles with each, from
a minute to an hour. So servers that fail in different ways by turns cost ever less, and a user reads a reason that is
true of one.
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
