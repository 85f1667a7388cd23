"""Rate-limits Events: combines those that differ in the message only, and limits those of an object.

Pure. In: an Event to record, and the time (seconds of a monotonic clock). Out: whether it is combined with similar
ones, and whether it may be written. Called by ``recorder``. Invariant: memory is bounded; an evicted entry starts from
zero. Source: the correlator of ``tools/record`` of client-go, with its keys and limits.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from trellis.kube.timings import EventTimings

MOST_ALIKE: Final = 10
"""Events per object and reason that are written individually within ``EventTimings.alike``."""
BURST: Final = 25
"""Burst of Event writes per object; afterwards one per ``EventTimings.refill``."""
_REMEMBERED: Final = 4096

T = TypeVar("T")


class _Recent(Generic[T]):
    """A bounded map that evicts the least recently used key."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, T] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        found = self._kept.setdefault(key, make()) if key not in self._kept else self._kept[key]
        self._kept.move_to_end(key)
        while len(self._kept) > _REMEMBERED:
            self._kept.popitem(last=False)
        return found


@dataclass(slots=True)
class _Group:
    """Names of similar Events, and the time of the last one."""

    at: float
    names: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _Left:
    tokens: float
    at: float


class SimilarEvents:
    """Recent Events of one component."""

    def __init__(self, timings: EventTimings) -> None:
        self._timings = timings
        self._groups: _Recent[_Group] = _Recent()
        self._left: _Recent[_Left] = _Recent()

    def too_many(self, group: Hashable, name: str, now: float) -> bool:
        """Record an Event, with equal ``name`` for equal messages; return whether its group is full."""
        found = self._groups.get(group, lambda: _Group(now))
        if now - found.at > self._timings.alike:
            found.names.clear()
        found.at = now
        if len(found.names) < MOST_ALIKE:
            found.names.add(name)
        return name not in found.names

    def may_write(self, uid: str, now: float) -> bool:
        """Take a token of an object; return whether there was one."""
        left = self._left.get(uid, lambda: _Left(float(BURST), now))
        left.tokens = min(float(BURST), left.tokens + (now - left.at) / self._timings.refill)
        left.at = now
        if left.tokens < 1.0:
            return False
        left.tokens -= 1.0
        return True
