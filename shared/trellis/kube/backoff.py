"""Waits between attempts: full jitter, doubling, bounded.

Pure but for the random source. Called by the client, the informer and the leader.
Source: "full jitter": a uniform wait between nothing and the current ceiling keeps many clients from striking together.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field


@dataclass(slots=True)
class Backoff:
    """Seconds to wait before the next attempt: uniform in 0 … ``first`` · 2ⁿ, never over ``most``."""

    first: float = 0.2
    most: float = 10.0
    _attempt: int = field(default=0, init=False)

    def next(self) -> float:
        """Return the next wait in seconds."""
        ceiling = min(self.most, self.first * 2 ** min(self._attempt, 30))
        self._attempt += 1
        return random.uniform(0, ceiling)  # noqa: S311 - spreads load, guards no secret

    def reset(self) -> None:
        """Start again from ``first``: the far side works."""
        self._attempt = 0
