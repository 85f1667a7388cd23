"""Work that several ask for at once and that is done once.

In: what is to be done, under a key. Out: its result, for all who ask for that key in the meantime. Called by
``preparing``. Invariants: who goes away takes nothing from the others; work that nobody waits for any more ends.
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
class Joint(Generic[K, T]):
    """What is in progress."""

    _work: dict[K, _Work[T]] = field(default_factory=dict)

    async def do(self, key: K, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return what the work under this key gives, which begins unless it is in progress; raises what it raises."""
        one = self._work.get(key)
        if one is None:
            one = self._work[key] = _Work(asyncio.create_task(work(), name="joint"))
        one.waiting += 1
        try:
            return await asyncio.shield(one.task)
        finally:
            one.waiting -= 1
            if (one.task.done() or not one.waiting) and self._work.get(key) is one:
                del self._work[key]  # who asks from now on restarts
            if not one.waiting:
                one.task.cancel()
