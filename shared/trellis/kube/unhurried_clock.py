"""Unix seconds that never run ahead of the time that really passes.

Called by the circuit breaker, whose limits are per time: a wall clock that is set ahead by hours must not permit what
only hours would. One that is set back is followed, because others write their times by it. In services it is the API
server's (``trellis.kube.server_clock``): with several servers, one may be ahead of the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(eq=False)
class UnhurriedClock:
    """A clock. ``wall``: Unix seconds; ``steady``: seconds since any moment, never set."""

    wall: Callable[[], float]
    steady: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._last, self._at = self.wall(), self.steady()

    def __call__(self) -> float:
        """Return the time: that of the wall clock, unless it has gained on the steady one."""
        at = self.steady()
        self._last, self._at = min(self.wall(), self._last + at - self._at), at
        return self._last
