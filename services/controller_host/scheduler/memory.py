"""Whose guests are in memory: puts to disk who has nothing to do, and takes memory back when it is short.

In: controllers after each turn. Out: work for the threads of guests, keys of those that are to go. Called by
``hosting``. Invariants: who is in a call, or pinned, is not named; while the disk takes nothing, guests stay awake, but
for those that the budget has no room for: they begin cold later.
Source: ADR 54 and 60.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TypeVar

from controller_host.domain.residents import Residents
from controller_host.scheduler.hosted import Hosted
from controller_host.scheduler.outcomes import Outcomes
from controller_host.state.disk_space import DISK_FAILED, DISK_FULL, Room
from trellis.runtime import gc as heap

T = TypeVar("T")


async def giving_back(seconds: float) -> None:
    """Give back, now and then, the memory that calls needed."""
    while True:
        await asyncio.sleep(seconds)
        await asyncio.to_thread(heap.give_back)


@dataclass(eq=False)
class Memory:
    """The guests of ``hosted``, by key. ``pool``: the threads of guests; ``wake``: puts a controller into the queue."""

    hosted: dict[str, Hosted]
    residents: Residents
    room: Room
    outcomes: Outcomes
    pool: Executor
    wake: Callable[[str], None]

    async def in_pool(self, work: Callable[..., T], *arguments: object) -> T:
        """Have a thread of guests do it, as part of the trace of who asks."""
        context = contextvars.copy_context()
        return await asyncio.get_running_loop().run_in_executor(self.pool, lambda: context.run(work, *arguments))

    def may_suspend(self, one: Hosted) -> bool:
        """Return whether it is time to bring it to disk: nobody tries before who found that the disk is full."""
        return not self.room.wait() and time.monotonic() >= one.not_to_disk_before

    def suspended(self, one: Hosted, *, taken: bool) -> None:
        """Take word of what the disk did that it was brought to."""
        one.brought_to_disk(time.monotonic(), self.room.backoff, taken=taken)

    async def suspend(self, one: Hosted) -> None:
        """Put it to disk, and what it has seen, if it is time to."""
        if not self.may_suspend(one):
            return
        if one.life.instance is not None:
            self.suspended(one, taken=await self.in_pool(one.life.suspend))
        elif one.life.marks.owed:
            await self.in_pool(one.life.settle)

    async def give_way(self, one: Hosted) -> None:
        """Put to disk who was named; whoever has no turn yet does not wait for one with that."""
        if not one.evict:
            return
        one.busy = True
        try:
            await self.suspend(one)
        finally:
            one.busy = one.evict = False
            if not self.outcomes.closing:
                self.count(one)

    async def take_back(self, one: Hosted) -> None:
        """Have the memory of one that was named, whatever else holds for it: where there is no disk it begins cold."""
        if not one.evict or self.outcomes.closing:
            return
        try:
            if one.pinned or one.life.instance is None or await self.in_pool(one.life.suspend):
                return
            one.no_room, one.listed = max(1, one.life.figures.resident_bytes), False
            await self.in_pool(one.life.give_up)
        finally:
            one.evict = False  # until then its memory counts as free
        self.outcomes.without_disk(one, self.room, "it is neither in memory nor on disk, and begins cold later")
        self.wake(one.key)

    def recovered(self) -> None:
        """Take word that the disk takes again what is written: those that wait for it need not any longer."""
        for one in self.hosted.values():
            if one.stopped is not None and one.stopped.reason in {DISK_FULL, DISK_FAILED}:
                one.not_before = 0.0
                self.wake(one.key)

    def count(self, one: Hosted) -> None:
        """Count what a controller has, and name those who are to go if that is too much."""
        if one.life.instance is None:
            self.residents.gone(one.key)
            return
        note = self.residents.weighed if one.accounted_at == one.used_at else self.residents.used
        note(one.key, one.life.figures.resident_bytes)
        one.accounted_at = one.used_at
        for key in self.residents.surplus(self._may_go, self._is_going):
            self.hosted[key].evict = True
            self.wake(key)

    def _may_go(self, key: str) -> bool:
        one = self.hosted.get(key)
        return one is not None and not one.busy and not one.pinned and not one.evict

    def _is_going(self, key: str) -> bool:
        one = self.hosted.get(key)
        return one is not None and one.evict
