"""Unix time that never advances faster than the elapsed time.

Called by the circuit breaker, whose limits are per time: a wall clock that is set ahead by hours must not permit the
deletions of these hours. A clock that is set back is followed, because objects contain times of that clock. In services
it is the clock of the API server (``trellis.kube.server_clock``): with several servers, one can be ahead.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(eq=False)
class UnhurriedClock:
    """A clock. ``wall``: Unix seconds; ``steady``: monotonic seconds."""

    wall: Callable[[], float]
    steady: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._last, self._at = self.wall(), self.steady()

    def __call__(self) -> float:
        """Return the time of the wall clock, unless it advanced faster than the monotonic clock."""
        at = self.steady()
        self._last, self._at = min(self.wall(), self._last + at - self._at), at
        return self._last
