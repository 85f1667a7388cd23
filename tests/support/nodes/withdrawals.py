"""A circuit breaker that records what is withdrawn from it."""

from __future__ import annotations

from trellis.limits.breaker import Destruction

HELD_SECONDS = 600.0


class Holding:
    """Holds every destruction. ``held``: uids of what is held now."""

    def __init__(self, *uids: str) -> None:
        self.held = set(uids)

    async def hold(self, target: Destruction) -> float:
        """Hold a destruction."""
        self.held.add(target.uid)
        return HELD_SECONDS

    def withdraw(self, _: str, uid: str) -> None:
        """Take one back."""
        self.held.discard(uid)
