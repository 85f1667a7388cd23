"""What waits for one controller: keys that are to be worked on now, and those whose time comes later.

Pure: keys and times in, turns out. Called by ``hosting``, in the event loop; which controller is next is the business
of ``trellis.bus.consume.queue``, whose key is the controller. Invariants: a key waits once, however often it changed; a
key that changes while it is worked on waits again; what failed waits longer each time, apart from its neighbours, up to
a bound that is lower where the API server refused something; nothing here costs a task or a timer, whatever the number
of controllers.
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
    """One key whose turn it is. ``attempt``: how often it failed in a row; ``since``: when it began to wait."""

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
        """Let a key have its turn: something about it is new, so what it waited for counts no more."""
        self._later.pop(key, None)
        self._ready.setdefault(key, now)

    def take(self, now: float, most: int) -> list[Turn[K]]:
        """Return the next turns, oldest first; these keys wait no more."""
        self._ripen(now)
        found: list[Turn[K]] = []
        while self._ready and len(found) < most:
            key, since = self._ready.popitem(last=False)
            found.append(Turn(key, self._failures.get(key, 0), since))
        return found

    def put_back(self, turns: Iterable[Turn[K]]) -> None:
        """Let turns that were not used be the next ones again, as old as they were."""
        for turn in reversed(list(turns)):
            self._later.pop(turn.key, None)
            self._ready[turn.key] = turn.since
            self._ready.move_to_end(turn.key, last=False)

    def done(self, key: K, now: float, again: float | None = None) -> None:
        """Note a success; ``again``: seconds after which the key wants a turn, if it does not change before.

        The success of a key that was refused has the others tried at once, as one policy refuses many.
        """
        self._failures.pop(key, None)
        if key in self._refused:
            del self._refused[key]
            self._hasten(self._refused, now)
        if again is not None:
            self.postpone(key, now, again)

    def failed(self, key: K, now: float, *, most: float | None = None) -> float:
        """Note a failure; returns the seconds until the key's next turn: 1 s, doubling, at most 5 min, full jitter.

        ``most``: the longest wait, given if the API server refused something.
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
        """Let a key wait, unless it waits for its turn already; of two times the earlier counts."""
        when = now + max(0.0, seconds)
        if key in self._ready or self._later.get(key, when + 1) <= when:
            return
        self._later[key] = when
        heapq.heappush(self._heap, (when, next(self._order), key))
        if len(self._heap) > 2 * len(self._later) + _STALE_AT_LEAST:
            self._heap = [entry for entry in self._heap if self._later.get(entry[2]) == entry[0]]
            heapq.heapify(self._heap)

    def forgive(self, now: float) -> None:
        """Let everything that failed have its turn now, as if it had not: what it failed on is another by now."""
        self._hasten(self._failures, now)
        self._failures.clear()
        self._refused.clear()

    def _hasten(self, keys: Iterable[K], now: float) -> None:
        """Let those of the keys that wait for their time have their turn now."""
        for key in keys:
            if self._later.pop(key, None) is not None:
                self._ready.setdefault(key, now)

    def clear(self) -> None:
        """Forget all that waits, and all failures."""
        self._ready.clear()
        self._failures.clear()
        self._refused.clear()
        self._later.clear()
        self._heap.clear()

    def drop(self, key: K) -> None:
        """Forget one key."""
        self._ready.pop(key, None)
        self._failures.pop(key, None)
        self._refused.pop(key, None)
        self._later.pop(key, None)

    def wait(self, now: float) -> float | None:
        """Return the seconds until a turn is due, 0 if one is, None if nothing waits."""
        if self._ready:
            return 0.0
        while self._heap and self._later.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return max(0.0, self._heap[0][0] - now) if self._heap else None

    def later(self, key: K) -> float | None:
        """Return when a key is due that waits for its time, None if it waits for none."""
        return self._later.get(key)

    def attempt(self, key: K) -> int:
        """Return how often a key failed in a row."""
        return self._failures.get(key, 0)

    @property
    def refused(self) -> int:
        """How many keys failed last because the API server refused something."""
        return len(self._refused)

    @property
    def failing(self) -> int:
        """How many keys failed last."""
        return len(self._failures)

    def __len__(self) -> int:
        """Return how many keys wait for their turn, those with a time of their own apart."""
        return len(self._ready)

    def oldest(self) -> float | None:
        """Return since when the oldest key waits for its turn."""
        return next(iter(self._ready.values()), None)

    def _ripen(self, now: float) -> None:
        while self._heap and self._heap[0][0] <= now:
            when, _, key = heapq.heappop(self._heap)
            if self._later.get(key) == when:
                del self._later[key]
                self._ready.setdefault(key, when)


@dataclass(slots=True)
class Line:
    """Those who wait for something that there is ``rate`` times a second, and as often at once as comes in a second.

    Each is told once when its turn is.
    """

    rate: float
    _last: float = field(default=-1.0)

    def stand(self, now: float) -> float:
        """Take the next place; returns the seconds until it is its turn."""
        self._last = max(self._last, now - 1.0) + 1.0 / self.rate
        return max(0.0, self._last - now)


@dataclass(slots=True)
class Allowance:
    """What may be said of somebody: what is too much is counted, and the count said with the next that is not."""

    bucket: TokenBucket
    left_out: int = 0

    def take(self, now: float, tokens: float = 1.0) -> int | None:
        """Return None if it is too much now, else how much was left out since the last that was not."""
        if not self.bucket.take(now, tokens):
            self.left_out += 1
            return None
        left_out, self.left_out = self.left_out, 0
        return left_out


class Places(Generic[K]):
    """Places that owners share, each for one key at a time; who may not have one waits, and is told when it has.

    An owner holds no more than are free beside: alone half of all, as one of three who want many a quarter. So whoever
    comes next finds one, however long the others keep theirs, and nobody has to say how many there are to be for each.
    """

    def __init__(self, total: int) -> None:
        self._free = total
        self._held: dict[str, int] = {}
        self._given: dict[K, str] = {}
        self._waiting: OrderedDict[str, OrderedDict[K, None]] = OrderedDict()

    def enter(self, owner: str, key: K) -> bool:
        """Return whether a key has a place now; else it waits, once, and a later ``leave`` names it."""
        if self._given.pop(key, None) is not None:
            return True
        if self._may(owner):
            self._take(owner)
            return True
        self._waiting.setdefault(owner, OrderedDict())[key] = None
        return False

    def leave(self, owner: str) -> list[K]:
        """Give back a place; returns those that have one now: each is to ``enter``, or to be dropped."""
        self._free += 1
        self._held[owner] -= 1
        if not self._held[owner]:
            del self._held[owner]
        found: list[K] = []
        while (following := self._following()) is not None:
            line = self._waiting.pop(following)
            key, _ = line.popitem(last=False)
            if line:
                self._waiting[following] = line  # behind the others
            self._take(following)
            self._given[key] = following
            found.append(key)
        return found

    def drop(self, owner: str, key: K) -> list[K]:
        """Forget a key that waits, or was given a place and will not enter; returns as ``leave`` does."""
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
        """Return who is next: of those that may have one the owner that has fewest, and waits longest."""
        able = [owner for owner in self._waiting if self._may(owner)]
        return min(able, key=lambda owner: self._held.get(owner, 0), default=None)
