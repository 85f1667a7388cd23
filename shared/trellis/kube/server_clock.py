"""Unix time by the clock of the API server, independent of the local wall clock.

In: the ``Date`` of each answer. Out: the time. Called by ``trellis.kube.calls``; read through ``Kube.now`` to compare
the present with times from Kubernetes: the end of a Job, a failure on a Node, a Lease, a circuit breaker. Invariants:
between two answers it follows the monotonic clock; until the first answer it is the wall clock. Source: RFC 9110,
6.6.1: an origin server with a clock sends ``Date`` in whole seconds; net/http of Go always does.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Final

_TOLERANCE: Final = 5.0
"""Seconds: a ``Date`` is truncated to whole seconds, and the answer can be delayed by some seconds."""


@dataclass(eq=False)
class ServerClock:
    """The clock. ``wall``: Unix seconds; ``steady``: monotonic seconds."""

    wall: Callable[[], float] = time.time
    steady: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._began = self.wall() - self.steady()
        self._date = ""

    def __call__(self) -> float:
        """Return the time."""
        return self._began + self.steady()

    def answered(self, date: str | None) -> None:
        """Synchronize with the ``Date`` of a new answer; an invalid date is ignored."""
        if not date or date == self._date:
            return
        self._date = date
        try:
            found = parsedate_to_datetime(date).timestamp()
        except (ValueError, OverflowError):
            return
        if abs(self() - found) > _TOLERANCE:
            self._began = found - self.steady()
