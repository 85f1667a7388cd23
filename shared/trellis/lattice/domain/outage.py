"""Limits how often the reason of an outage is reported.

Pure: reasons and times in; whether a reason is reported, out. Called by ``lattice_connection`` and ``model_watch``.
Dependents show the reason, and write to show another one. Invariants: the first reason of an outage is reported at
once; another one after a minute at the earliest; a repeated one after a delay that doubles each time, from a minute to
an hour. So alternating failures of several servers cause ever fewer writes.
"""

from __future__ import annotations

from typing import Final

from trellis.lattice.timings import OutageTimings
from trellis.limits.backoff import Backoff

_KINDS_MAX: Final = 8
"""Maximum number of distinct reasons of an outage; texts with a number in them could otherwise be new forever."""


class Outage:
    """State of one outage. ``reason``: the last reported reason; before the first outage, a text of the caller."""

    def __init__(self, reason: str, timings: OutageTimings = OutageTimings()) -> None:
        self.reason = reason
        self._timings = timings
        self._reported: set[str] = set()
        self._at = 0.0
        self._vague = False
        self._repeats = 0

    def unavailable(self, reason: str, now: float, *, vague: bool = False, urgent: bool = False) -> bool:
        """Note the reason of an outage; return whether to report it.

        Args:
            reason: for users.
            now: seconds of the monotonic clock.
            vague: a better reason is expected soon, and is reported at once.
            urgent: a user has to act; the first report has no delay.
        """
        if not self._reported:
            return self._may_report(reason, now, vague=vague)
        if reason == self.reason:
            return False
        known = reason in self._reported or len(self._reported) > _KINDS_MAX
        backoff = Backoff(self._timings.pause, self._timings.pause_most)
        pause = backoff.bound(self._repeats + 1) if known else 0.0 if self._vague or urgent else backoff.first
        if now - self._at < pause:
            return False
        if known:
            self._repeats += 1
        return self._may_report(reason, now, vague=False)

    def over(self) -> None:
        """End the outage; the next reason starts another one."""
        self.reason = ""
        self._reported.clear()
        self._repeats = 0

    def _may_report(self, reason: str, now: float, *, vague: bool) -> bool:
        self._reported.add(reason)
        self.reason, self._at, self._vague = reason, now, vague
        return True
