"""How long to wait before trying again.

Pure. In: how often it failed in a row. Out: seconds. Called by the keyed queue and the connection.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

# Doubling stops here: 2.0 ** 1024 overflows, and any sensible cap is reached long before.
_MAX_DOUBLINGS = 64


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential backoff with full jitter: anything between 0 and ``first`` x 2^(failures - 1), at most ``cap``.

    Full jitter spreads the retries of many keys that failed for one cause; the bounds are in seconds.
    """

    first: float = 1.0
    cap: float = 300.0
    random: Callable[[], float] = random.random

    def bound(self, failures: int) -> float:
        """Return the longest delay after this many failures in a row, at least 1."""
        return min(self.cap, self.first * 2.0 ** min(max(failures, 1) - 1, _MAX_DOUBLINGS))

    def delay(self, failures: int) -> float:
        """Return a delay in seconds after this many failures in a row, at least 1."""
        return self.random() * self.bound(failures)
