"""A number of places shared by tenants: each tenant holds at most its share, waiting tenants are served in turn.

In: the owner of a task. Out: a place, as soon as one is free for the owner. Called by code that runs long tasks for
tenants. Invariants: no owner holds more than ``each`` places; a free place goes to the owner that was served longest
ago, however many tasks of others wait; a cancelled waiter holds nothing.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Shares:
    """Places for one event loop. ``total``: of all owners together; ``each``: of one of them."""

    def __init__(self, total: int, each: int) -> None:
        self.total = total
        self.each = each
        self._held: dict[str, int] = {}
        self._free = total
        # By owner, in the order in which they are served. While a place is free, all who wait have their share.
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @asynccontextmanager
    async def hold(self, owner: str) -> AsyncIterator[None]:
        """Hold a place while the block runs; waits until there is one."""
        await self.take(owner)
        try:
            yield
        finally:
            self.give_back(owner)

    def held(self, owner: str) -> int:
        """Return how many places an owner holds."""
        return self._held.get(owner, 0)

    @property
    def waiting(self) -> int:
        """How many wait for a place."""
        return sum(map(len, self._waiting.values()))

    def take_free(self, owner: str) -> bool:
        """Take a place if there is one for the owner now; whoever has one gives it back."""
        if not self._free or self.held(owner) >= self.each:
            return False
        self._give(owner)
        return True

    async def take(self, owner: str) -> None:
        """Take a place as soon as there is one; whoever has one gives it back."""
        if self.take_free(owner):
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line = self._waiting.setdefault(owner, deque())
        line.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self.give_back(owner)  # it was given while he was called away
            elif place in line:
                line.remove(place)
                if not line:
                    del self._waiting[owner]
            raise

    def _give(self, owner: str) -> None:
        self._free -= 1
        self._held[owner] = self.held(owner) + 1

    def give_back(self, owner: str) -> None:
        """Give back a place that was taken, to whose turn it is."""
        self._free += 1
        self._held[owner] -= 1
        if not self._held[owner]:
            del self._held[owner]
        while self._free and (following := self._following()) is not None:
            line = self._waiting[following]
            place = line.popleft()
            if not place.done():  # else he was called away, and does not know it yet
                self._waiting.move_to_end(following)
                self._give(following)
                place.set_result(None)
            if not line:
                del self._waiting[following]

    def _following(self) -> str | None:
        """Return whose turn it is of those who wait, None if all of them have their share."""
        return next((owner for owner in self._waiting if self.held(owner) < self.each), None)
