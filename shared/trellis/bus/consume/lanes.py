"""The order in which waiting keys get a worker: new keys and retries in two lanes, in turn.

In: keys that need a run. Out: the next key. Called by the keyed queue. Pure. Invariants: a key waits in one lane; each
lane is first in, first out; no lane waits until the other is empty, so that failing keys delay a healthy key by at most
one run.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Lanes(Generic[K]):
    """Keys that wait for a worker."""

    def __init__(self) -> None:
        # Ordered dictionaries, not deques: a key must be found and moved in constant time.
        self._new: OrderedDict[K, None] = OrderedDict()
        self._retries: OrderedDict[K, None] = OrderedDict()
        self._turn_of_retries = False

    def __len__(self) -> int:
        return len(self._new) + len(self._retries)

    def add(self, key: K, *, retry: bool = False) -> None:
        """Add the key; a waiting key keeps its place, but a new add moves it out of the lane of retries."""
        if not retry:
            self._retries.pop(key, None)
            self._new.setdefault(key)
        elif key not in self._new:
            self._retries.setdefault(key)

    def take(self) -> K:
        """Remove and return the next key; raises KeyError if there is none."""
        lane = self._retries if self._retries and (self._turn_of_retries or not self._new) else self._new
        self._turn_of_retries = lane is self._new
        return lane.popitem(last=False)[0]
