"""A semaphore shared by tenants: each tenant holds at most its share of slots, waiting tenants are served in turn.

In: the owner of a task. Out: a slot, as soon as one is free for the owner. Called by code that runs long tasks for
tenants. Invariants: no owner holds more than ``each`` slots; a free slot goes to the least recently served owner,
regardless of the number of waiting tasks; a cancelled waiter holds no slot.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class FairShare:
    """Slots for one event loop. ``total``: limit of all owners together; ``each``: limit of one owner."""

    def __init__(self, total: int, each: int) -> None:
        self.total = total
        self.each = each
        self._held: dict[str, int] = {}
        self._free = total
        # By owner, in the order of service. While a slot is free, all waiting owners have their share.
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @asynccontextmanager
    async def hold(self, owner: str) -> AsyncIterator[None]:
        """Hold a slot during the block; waits until one is free."""
        await self.take(owner)
        try:
            yield
        finally:
            self.give_back(owner)

    def held(self, owner: str) -> int:
        """Return the number of slots that an owner holds."""
        return self._held.get(owner, 0)

    @property
    def waiting(self) -> int:
        """Number of tasks that wait for a slot."""
        return sum(map(len, self._waiting.values()))

    def take_free(self, owner: str) -> bool:
        """Acquire a slot if one is free for the owner; return False otherwise. The caller must release it."""
        if not self._free or self.held(owner) >= self.each:
            return False
        self._give(owner)
        return True

    async def take(self, owner: str) -> None:
        """Acquire a slot as soon as one is free for the owner. The caller must release it."""
        if self.take_free(owner):
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line = self._waiting.setdefault(owner, deque())
        line.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self.give_back(owner)  # it was assigned during the cancellation
            elif place in line:
                line.remove(place)
                if not line:
                    del self._waiting[owner]
            raise

    def _give(self, owner: str) -> None:
        self._free -= 1
        self._held[owner] = self.held(owner) + 1

    def give_back(self, owner: str) -> None:
        """Release a slot, which goes to the next waiting owner."""
        self._free += 1
        self._held[owner] -= 1
        if not self._held[owner]:
            del self._held[owner]
        while self._free and (following := self._following()) is not None:
            line = self._waiting[following]
            place = line.popleft()
            if not place.done():  # otherwise the waiter is cancelled, but not removed yet
                self._waiting.move_to_end(following)
                self._give(following)
                place.set_result(None)
            if not line:
                del self._waiting[following]

    def _following(self) -> str | None:
        """Return the next waiting owner, or None if all of them have their share."""
        return next((owner for owner in self._waiting if self.held(owner) < self.each), None)
