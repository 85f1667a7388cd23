"""Memory of guests: suspends idle guests, and evicts guests when memory is short.

In: controllers after each turn. Out: work for the threads of guests, keys of guests to evict. Called by ``hosting``.
Invariants: guests in a call and pinned guests are not evicted; while the disk refuses writes, guests stay awake, except
those beyond the memory budget: they start cold later.
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
from controller_host.state.disk_space import DISK_FAILED, DISK_FULL, DiskSpace
from trellis.runtime import gc

T = TypeVar("T")


async def giving_back(seconds: float) -> None:
    """Return memory that calls freed to the operating system every ``seconds``."""
    while True:
        await asyncio.sleep(seconds)
        await asyncio.to_thread(gc.give_back)


@dataclass(eq=False)
class Memory:
    """The guests of ``hosted``, by key. ``pool``: the threads of guests; ``wake``: adds a controller to the queue."""

    hosted: dict[str, Hosted]
    residents: Residents
    disk_space: DiskSpace
    outcomes: Outcomes
    pool: Executor
    wake: Callable[[str], None]

    async def in_pool(self, work: Callable[..., T], *arguments: object) -> T:
        """Run ``work`` in a thread of guests, with the trace context of the caller."""
        context = contextvars.copy_context()
        return await asyncio.get_running_loop().run_in_executor(self.pool, lambda: context.run(work, *arguments))

    def may_suspend(self, hosted: Hosted) -> bool:
        """Return whether a suspension can be attempted, considering the backoff after a full disk."""
        return not self.disk_space.wait() and time.monotonic() >= hosted.not_to_disk_before

    def suspended(self, hosted: Hosted, *, written: bool) -> None:
        """Record the result of a suspension."""
        hosted.brought_to_disk(time.monotonic(), self.disk_space.backoff, written=written)

    async def suspend(self, hosted: Hosted) -> None:
        """Suspend a guest, and write its processed versions, unless the disk is in backoff."""
        if not self.may_suspend(hosted):
            return
        if hosted.lifecycle.instance is not None:
            self.suspended(hosted, written=await self.in_pool(hosted.lifecycle.suspend))
        elif hosted.lifecycle.processed.owed:
            await self.in_pool(hosted.lifecycle.settle)

    async def give_way(self, hosted: Hosted) -> None:
        """Suspend a guest that is to be evicted, without waiting for its turn."""
        if not hosted.evict:
            return
        hosted.busy = True
        try:
            await self.suspend(hosted)
        finally:
            hosted.busy = hosted.evict = False
            if not self.outcomes.closing:
                self.count(hosted)

    async def reclaim(self, hosted: Hosted) -> None:
        """Evict a guest that is to be evicted; if the disk refuses it, discard it: it starts cold later."""
        if not hosted.evict or self.outcomes.closing:
            return
        try:
            if hosted.pinned or hosted.lifecycle.instance is None or await self.in_pool(hosted.lifecycle.suspend):
                return
            hosted.disk_full, hosted.listed = max(1, hosted.lifecycle.counters.resident_bytes), False
            await self.in_pool(hosted.lifecycle.discard)
        finally:
            hosted.evict = False  # while true, its memory counts as free
        self.outcomes.without_disk(
            hosted, self.disk_space, "the state of the controller was discarded, it starts cold later"
        )
        self.wake(hosted.key)

    def recovered(self) -> None:
        """Wake the controllers that wait for the disk, after it accepts writes."""
        for item in self.hosted.values():
            if item.stopped is not None and item.stopped.reason in {DISK_FULL, DISK_FAILED}:
                item.not_before = 0.0
                self.wake(item.key)

    def count(self, hosted: Hosted) -> None:
        """Count the memory of a controller, and mark controllers for eviction above the budget."""
        if hosted.lifecycle.instance is None:
            self.residents.remove(hosted.key)
            return
        note = self.residents.weighed if hosted.accounted_at == hosted.used_at else self.residents.used
        note(hosted.key, hosted.lifecycle.counters.resident_bytes)
        hosted.accounted_at = hosted.used_at
        for key in self.residents.surplus(self._may_go, self._is_evicted):
            self.hosted[key].evict = True
            self.wake(key)

    def _may_go(self, key: str) -> bool:
        item = self.hosted.get(key)
        return item is not None and not item.busy and not item.pinned and not item.evict

    def _is_evicted(self, key: str) -> bool:
        item = self.hosted.get(key)
        return item is not None and item.evict
