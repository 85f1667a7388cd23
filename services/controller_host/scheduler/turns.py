"""Work queue of one controller: keys that are ready, and keys that are due later.

Pure: keys and times in, turns out. Called by ``hosting``, in the event loop; ``trellis.bus.consume.queue`` selects the
controller. Invariants: a key is queued once, regardless of the number of its changes; a key that changes during its
call is queued again; a failed key backs off separately, up to a bound, which is lower if the API server refused a
request; the queue uses no tasks or timers, for any number of controllers.
"""

from __future__ import annotations

import heapq
import itertools
from collections import OrderedDict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, replace
from typing import Final, Generic, TypeVar

from trellis.limits.backoff import Backoff
from trellis.limits.token_bucket import TokenBucket

K = TypeVar("K", bound=Hashable)

_STALE_AT_LEAST: Final = 16


@dataclass(frozen=True, slots=True)
class Turn(Generic[K]):
    """The turn of a key. ``attempt``: number of consecutive failures; ``since``: start of its wait."""

    key: K
    attempt: int
    since: float


class WorkQueue(Generic[K]):
    """The keys of one controller; all times are seconds of one monotonic clock."""

    __slots__ = ("_backoff", "_failures", "_heap", "_later", "_order", "_ready", "_refused")

    def __init__(self, backoff: Backoff | None = None) -> None:
        self._backoff = backoff or Backoff()
        self._ready: OrderedDict[K, float] = OrderedDict()
        self._failures: dict[K, int] = {}
        self._refused: dict[K, None] = {}
        self._later: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._order = itertools.count()

    def changed(self, key: K, now: float) -> None:
        """Make a changed key ready, regardless of its backoff."""
        self._later.pop(key, None)
        self._ready.setdefault(key, now)

    def take(self, now: float, most: int) -> list[Turn[K]]:
        """Remove and return the next turns, oldest first."""
        self._ripen(now)
        found: list[Turn[K]] = []
        while self._ready and len(found) < most:
            key, since = self._ready.popitem(last=False)
            found.append(Turn(key, self._failures.get(key, 0), since))
        self._shrink()
        return found

    def put_back(self, turns: Iterable[Turn[K]]) -> None:
        """Return unused turns to the front of the queue, with their original times."""
        for turn in reversed(list(turns)):
            self._later.pop(turn.key, None)
            self._ready[turn.key] = turn.since
            self._ready.move_to_end(turn.key, last=False)

    def done(self, key: K, now: float, again: float | None = None) -> None:
        """Record a success; ``again``: seconds until the next turn of the key, unless it changes before.

        The success of a refused key makes all refused keys ready, as one policy often refuses many.
        """
        self._failures.pop(key, None)
        if key in self._refused:
            del self._refused[key]
            self._hasten(self._refused, now)
        if again is not None:
            self.postpone(key, now, again)

    def failed(self, key: K, now: float, *, most: float | None = None) -> float:
        """Record a failure; return the seconds until the key's next turn: 1 s, doubling, at most 5 min, full jitter.

        ``most``: the maximum delay, set if the API server refused a request.
        """
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        backoff = self._backoff
        self._refused.pop(key, None)
        if most is not None:
            self._refused[key] = None
            backoff = replace(backoff, cap=min(backoff.cap, most))
        delay = backoff.delay(failures)
        self.postpone(key, now, delay)
        return delay

    def postpone(self, key: K, now: float, seconds: float) -> None:
        """Delay a key, unless it is ready or due earlier."""
        when = now + max(0.0, seconds)
        if key in self._ready or self._later.get(key, when + 1) <= when:
            return
        self._later[key] = when
        heapq.heappush(self._heap, (when, next(self._order), key))
        if len(self._heap) > 2 * len(self._later) + _STALE_AT_LEAST:
            self._heap = [entry for entry in self._heap if self._later.get(entry[2]) == entry[0]]
            heapq.heapify(self._heap)

    def retry_now(self, now: float) -> None:
        """Make all failed keys ready and reset their failures, after a change of the spec."""
        self._hasten(self._failures, now)
        self._failures.clear()
        self._refused.clear()

    def _hasten(self, keys: Iterable[K], now: float) -> None:
        """Make those of the keys ready that are due later."""
        for key in keys:
            if self._later.pop(key, None) is not None:
                self._ready.setdefault(key, now)

    def clear(self) -> None:
        """Remove all keys and failures."""
        self._ready.clear()
        self._failures.clear()
        self._refused.clear()
        self._later.clear()
        self._heap.clear()

    def drop(self, key: K) -> None:
        """Remove a key."""
        self._ready.pop(key, None)
        self._failures.pop(key, None)
        self._refused.pop(key, None)
        self._later.pop(key, None)
        self._shrink()

    def wait(self, now: float) -> float | None:
        """Return the seconds until a turn is due, 0 if one is, None if there are no keys."""
        if self._ready:
            return 0.0
        while self._heap and self._later.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return max(0.0, self._heap[0][0] - now) if self._heap else None

    def later(self, key: K) -> float | None:
        """Return the time at which a delayed key is due, None if it is not delayed."""
        return self._later.get(key)

    def attempt(self, key: K) -> int:
        """Return the number of consecutive failures of a key."""
        return self._failures.get(key, 0)

    @property
    def refused(self) -> int:
        """Number of keys whose last call failed because the API server refused a request."""
        return len(self._refused)

    @property
    def failing(self) -> int:
        """Number of keys whose last call failed."""
        return len(self._failures)

    def __len__(self) -> int:
        """Return the number of ready keys, without delayed ones."""
        return len(self._ready)

    def oldest(self) -> float | None:
        """Return the time since which the oldest ready key waits."""
        return next(iter(self._ready.values()), None)

    def _shrink(self) -> None:
        """Release the memory of the table of ready keys if it is empty, as in most queues."""
        if not self._ready:
            self._ready.clear()

    def _ripen(self, now: float) -> None:
        while self._heap and self._heap[0][0] <= now:
            when, _, key = heapq.heappop(self._heap)
            if self._later.get(key) == when:
                del self._later[key]
                self._ready.setdefault(key, when)


@dataclass(slots=True)
class Line:
    """A rate limiter of ``rate`` per second, with a burst of one second, that assigns a time to each request."""

    rate: float
    _last: float = field(default=-1.0)

    def stand(self, now: float) -> float:
        """Reserve the next place; return the seconds until its time."""
        self._last = max(self._last, now - 1.0) + 1.0 / self.rate
        return max(0.0, self._last - now)


@dataclass(slots=True)
class Allowance:
    """A rate limit of messages that counts dropped ones and returns the count with the next allowed one."""

    bucket: TokenBucket
    left_out: int = 0

    def take(self, now: float, tokens: float = 1.0) -> int | None:
        """Return None if the message has to be dropped, else the number of dropped ones since the last allowed one."""
        if not self.bucket.take(now, tokens):
            self.left_out += 1
            return None
        left_out, self.left_out = self.left_out, 0
        return left_out


class Places(Generic[K]):
    """Places that owners share, each for one key at a time; a key without a place waits and is returned by ``leave``.

    An owner holds at most as many places as are free: half of all if it is alone, a quarter each for three busy owners.
    So a new owner finds a free place, for any duration of the calls, and without a configured number per owner.
    """

    def __init__(self, total: int) -> None:
        self._free = total
        self._held: dict[str, int] = {}
        self._given: dict[K, str] = {}
        self._waiting: OrderedDict[str, OrderedDict[K, None]] = OrderedDict()

    def enter(self, owner: str, key: K) -> bool:
        """Return whether a key has a place now; otherwise it waits, and a later ``leave`` returns it."""
        if self._given.pop(key, None) is not None:
            return True
        if self._may(owner):
            self._take(owner)
            return True
        self._waiting.setdefault(owner, OrderedDict())[key] = None
        return False

    def leave(self, owner: str) -> list[K]:
        """Release a place; return the keys that have one now: each has to ``enter``, or to be dropped."""
        self._free += 1
        self._held[owner] -= 1
        if not self._held[owner]:
            del self._held[owner]
        found: list[K] = []
        while (following := self._following()) is not None:
            line = self._waiting.pop(following)
            key, _ = line.popitem(last=False)
            if line:
                self._waiting[following] = line  # at the end
            self._take(following)
            self._given[key] = following
            found.append(key)
        return found

    def drop(self, owner: str, key: K) -> list[K]:
        """Remove a waiting key, or release its assigned place; return the keys that have a place now."""
        line = self._waiting.get(owner, OrderedDict())
        line.pop(key, None)
        if not line:
            self._waiting.pop(owner, None)
        return [] if self._given.pop(key, None) is None else self.leave(owner)

    def _may(self, owner: str) -> bool:
        return self._held.get(owner, 0) < self._free

    def _take(self, owner: str) -> None:
        self._free -= 1
        self._held[owner] = self._held.get(owner, 0) + 1

    def _following(self) -> str | None:
        """Return the next owner: of those that can have a place, the one with the fewest, then the longest wait."""
        able = [owner for owner in self._waiting if self._may(owner)]
        return min(able, key=lambda owner: self._held.get(owner, 0), default=None)
