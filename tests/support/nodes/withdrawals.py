"""A circuit breaker that pauses every deletion, and records those that are withdrawn."""

from __future__ import annotations

from trellis.limits.breaker import Deletion

PAUSE_SECONDS = 600.0


class PausingBreaker:
    """A circuit breaker that permits nothing. ``paused``: uids of the objects whose deletion is paused."""

    def __init__(self, *uids: str) -> None:
        self.paused = set(uids)

    async def admit(self, target: Deletion) -> float:
        """Pause a deletion; return the seconds until the next attempt."""
        self.paused.add(target.uid)
        return PAUSE_SECONDS

    def withdraw(self, _: str, uid: str) -> None:
        """Remove a paused deletion."""
        self.paused.discard(uid)
