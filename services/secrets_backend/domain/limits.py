"""Rate limit of the requests of one entity.

Pure: a name and a time in, a verdict out. Called by ``answering``. Invariant: memory is bounded for any number of
names; a dropped name restarts with a full budget, so this limits request loops, and not an attacker with many names.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final

MOST_ENTITIES: Final = 4096


@dataclass(slots=True)
class Limits:
    """Token buckets, one per entity; ``rate``: requests per second, and size of a burst. 0: no limit."""

    rate: float
    _left: OrderedDict[Hashable, tuple[float, float]] = field(default_factory=OrderedDict)

    def allows(self, entity: Hashable, now: float) -> bool:
        """Count a request, and return whether it may be answered; ``now`` in seconds of any monotonic clock.

        ``entity``: its name, with its origin, as the name in a token is claimed and not verified.
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
        """Return the number of stored entities."""
        return len(self._left)
