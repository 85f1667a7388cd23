"""Exponential backoff with jitter and a maximum.

Pure except for the source of jitter. In: consecutive failures. Out: seconds. Called by everything that retries.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

# Doubling stops here: 2.0 ** 1024 overflows, and any sensible cap is reached long before.
_MAX_DOUBLINGS: Final = 64


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential backoff with full jitter: anything between 0 and ``first`` x 2^(failures - 1), at most ``cap``.

    Full jitter spreads the retries of many keys that failed for one cause; the bounds are in seconds.
    """

    first: float = 1.0
    cap: float = 300.0
    random: Callable[[], float] = random.random

    def bound(self, failures: int) -> float:
        """Return the longest delay after this many failures in a row, at least 1; the same each time."""
        return min(self.cap, self.first * 2.0 ** min(max(failures, 1) - 1, _MAX_DOUBLINGS))

    def delay(self, failures: int) -> float:
        """Return a delay in seconds after this many failures in a row, at least 1."""
        return self.random() * self.bound(failures)


_CALLS: Final = Backoff(first=0.2, cap=10.0)
"""Between attempts to reach a server."""


@dataclass(slots=True)
class Attempts:
    """Counts the failures in a row of one thing, and returns the waits of a backoff after each."""

    backoff: Backoff = _CALLS
    _failures: int = field(default=0, init=False)

    def next(self) -> float:
        """Count a failure and return the seconds until the next attempt."""
        self._failures += 1
        return self.backoff.delay(self._failures)

    def reset(self) -> None:
        """Count from the beginning: an attempt succeeded."""
        self._failures = 0
