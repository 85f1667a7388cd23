"""A token bucket: a rate with a burst.

Pure: times of a monotonic clock in, decisions out. Called by code that limits untrusted input: ``lattice`` messages of
a lattice, ``controller_host`` requests of guests, ``secrets_backend`` events about an account. Source: the token bucket
of ITU-T I.371 and of ``golang.org/x/time/rate``.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class TokenBucket:
    """A token bucket with ``rate`` tokens per second and at most ``burst`` tokens.

    ``burst`` defaults to the tokens of one second, at least 1. A ``rate`` of 0 disables the limit.
    """

    rate: float
    burst: float = 0.0
    _left: float = field(default=-1.0)
    _at: float = field(default=0.0)

    def wait(self, now: float, tokens: float = 1.0) -> float:
        """Return the seconds until this number of tokens is available; 0 if it is."""
        if not self.rate:
            return 0.0
        self._fill(now)
        return max(0.0, (tokens - self._left) / self.rate)

    def take(self, now: float, tokens: float = 1.0) -> bool:
        """Take the tokens and return True, or return False if they are not available."""
        if not self.rate:
            return True
        self._fill(now)
        if self._left < tokens:
            return False
        self._left -= tokens
        return True

    def _fill(self, now: float) -> None:
        most = self.burst or max(1.0, self.rate)
        if self._left < 0:
            self._left, self._at = most, now
        self._left = min(most, self._left + max(0.0, now - self._at) * self.rate)
        self._at = now
