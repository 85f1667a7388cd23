"""Exponential backoff with jitter and a maximum.

Pure except for the source of jitter. In: consecutive failures. Out: seconds. Called by everything that retries.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

# Maximum number of doublings: 2.0 ** 1024 overflows, and any realistic cap is reached long before.
_MAX_DOUBLINGS: Final = 64


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential backoff with full jitter: between 0 and ``first`` x 2^(failures - 1), at most ``cap``, in seconds.

    Full jitter spreads the retries of many keys that failed for the same cause.
    """

    first: float = 1.0
    cap: float = 300.0
    random: Callable[[], float] = random.random

    def bound(self, failures: int) -> float:
        """Return the maximum delay in seconds after this number of consecutive failures, at least 1; deterministic."""
        return min(self.cap, self.first * 2.0 ** min(max(failures, 1) - 1, _MAX_DOUBLINGS))

    def delay(self, failures: int) -> float:
        """Return a random delay in seconds after this number of consecutive failures, at least 1."""
        return self.random() * self.bound(failures)


_CALLS: Final = Backoff(first=0.2, cap=10.0)
"""Backoff of attempts to reach a server."""


@dataclass(slots=True)
class Attempts:
    """Counts consecutive failures, and returns the delay of a backoff after each."""

    backoff: Backoff = _CALLS
    _failures: int = field(default=0, init=False)

    def next(self) -> float:
        """Count a failure and return the seconds until the next attempt."""
        self._failures += 1
        return self.backoff.delay(self._failures)

    def reset(self) -> None:
        """Reset the count after a successful attempt."""
        self._failures = 0
