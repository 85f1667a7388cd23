"""One timer per key, all on one handle of the event loop.

In: keys and their due times. Out: one call per key when it is due. Called by the keyed queue. Invariants: a key has at
most one timer, the earliest requested one; a hundred thousand keys need one handle instead of a task each; memory is
bounded by the number of keys with a timer.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import Callable, Hashable
from typing import Final, Generic, Protocol, TypeVar

K = TypeVar("K", bound=Hashable)

_STALE_AT_LEAST: Final = 64
# After a long pause of the process every timer is due at once: the event loop must run in between.
_AT_ONCE: Final = 1000


class Cancellable(Protocol):
    """A pending timer."""

    def cancel(self) -> None:
        """Cancel the timer; no effect if it has run."""


class Timers(Protocol):
    """A clock with timers: those of the event loop, or of a test."""

    def now(self) -> float:
        """Return monotonic seconds."""

    def call_at(self, when: float, call: Callable[[], None]) -> Cancellable:
        """Schedule ``call`` for ``when``, in the seconds of ``now``."""


class LoopTimers:
    """Timers of the running event loop."""

    def now(self) -> float:
        """Return ``time.monotonic``."""
        return time.monotonic()

    def call_at(self, when: float, call: Callable[[], None]) -> Cancellable:
        """Use ``call_later`` of the running loop."""
        return asyncio.get_running_loop().call_later(max(0.0, when - self.now()), call)


class TimerHeap(Generic[K]):
    """The earliest timer of each key. ``due`` is called with the key, from the event loop."""

    def __init__(self, timers: Timers, due: Callable[[K], None]) -> None:
        self._timers = timers
        self._due = due
        self._when: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._order = itertools.count()
        self._armed: tuple[float, Cancellable] | None = None

    def __len__(self) -> int:
        return len(self._when)

    def __contains__(self, key: object) -> bool:
        return key in self._when

    def set(self, key: K, delay: float) -> None:
        """Set the timer of the key to ``delay`` seconds, unless it has an earlier one."""
        when = self._timers.now() + max(0.0, delay)
        if (present := self._when.get(key)) is not None and present <= when:
            return
        self._when[key] = when
        heapq.heappush(self._heap, (when, next(self._order), key))
        self._compact()
        self._arm()

    def discard(self, key: K) -> None:
        """Remove the timer of the key, if there is one."""
        if self._when.pop(key, None) is not None:
            self._compact()
            self._arm()

    def clear(self) -> None:
        """Remove all timers."""
        self._when.clear()
        self._heap.clear()
        self._arm()

    def _compact(self) -> None:
        """Drop stale entries once they are most of the heap."""
        if len(self._heap) > 2 * len(self._when) + _STALE_AT_LEAST:
            self._heap = [entry for entry in self._heap if self._when.get(entry[2]) == entry[0]]
            heapq.heapify(self._heap)

    def _arm(self) -> None:
        """Schedule the handle for the earliest valid timer."""
        # An entry is valid only if it is the current one of its key: moved and discarded ones remain in the heap.
        while self._heap and self._when.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        first = self._heap[0][0] if self._heap else None
        if self._armed is not None:
            if self._armed[0] == first:
                return
            self._armed[1].cancel()
            self._armed = None
        if first is not None:
            self._armed = (first, self._timers.call_at(first, self._fire))

    def _fire(self) -> None:
        self._armed = None
        now = self._timers.now()
        due: list[K] = []
        while self._heap and self._heap[0][0] <= now and len(due) < _AT_ONCE:
            when, _, key = heapq.heappop(self._heap)
            if self._when.get(key) == when:
                del self._when[key]
                due.append(key)
        self._arm()
        for key in due:
            self._due(key)
