"""Shared work: concurrent requests with the same key run it once.

In: a coroutine, under a key. Out: its result, for all concurrent requests with the key. Called by ``preparing``.
Invariants: the cancellation of one request does not affect the rest; work without a waiting request is cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


@dataclass(slots=True)
class _Work(Generic[T]):
    task: asyncio.Task[T]
    waiting: int = 0


@dataclass(slots=True)
class SingleFlight(Generic[K, T]):
    """Work in progress, by key."""

    _work: dict[K, _Work[T]] = field(default_factory=dict)

    async def do(self, key: K, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return the result of the work under this key, or raise its error; start it unless it is in progress."""
        item = self._work.get(key)
        if item is None:
            item = self._work[key] = _Work(asyncio.create_task(work(), name="joint"))
        item.waiting += 1
        try:
            return await asyncio.shield(item.task)
        finally:
            item.waiting -= 1
            if (item.task.done() or not item.waiting) and self._work.get(key) is item:
                del self._work[key]  # the next request starts new work
            if not item.waiting:
                item.task.cancel()
