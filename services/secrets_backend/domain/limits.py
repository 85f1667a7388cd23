"""How often one entity may ask.

Pure: a name and a time in, a verdict out. Called by ``answering``. Invariant: bounded in memory, whatever names there
are; a name that was forgotten restarts, so this is a fence against circles and not against who makes up names.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final

MOST_ENTITIES: Final = 4096


@dataclass(slots=True)
class Limits:
    """Token buckets, one for each entity; ``rate`` is requests a second, and how many may come at once. 0: no limit."""

    rate: float
    _left: OrderedDict[Hashable, tuple[float, float]] = field(default_factory=OrderedDict)

    def allows(self, entity: Hashable, now: float) -> bool:
        """Count a request, and return whether it may be answered; ``now`` in seconds of any clock that goes on.

        ``entity``: its name, with what tells it from one of the same name elsewhere: names are claimed, not proved.
        """
        if not self.rate:
            return True
        most = max(1.0, self.rate)
        left, at = self._left.pop(entity, (most, now))
        left = min(most, left + max(0.0, now - at) * self.rate)
        allowed = left >= 1.0
        self._left[entity] = (left - 1.0 if allowed else left, now)
        if len(self._left) > MOST_ENTITIES:
            self._left.popitem(last=False)
        return allowed

    def __len__(self) -> int:
        """Return how many entities are remembered."""
        return len(self._left)
