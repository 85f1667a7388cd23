"""What is remembered of a look at a group until the next one.

Values with a time: seconds of the monotonic clock. Made and asked by ``gather``.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from host_manager.domain.inputs import Problem
from host_manager.domain.snapshot import Head


@dataclass(frozen=True, slots=True)
class Looked:
    """What the last look at a whole group found: until the next only its counts are read.

    ``contents``: fingerprints of what runs its pods. ``early_until``: of a group that is being made, when its first
    status is due.
    """

    uid: str
    generation: int
    problems: tuple[Problem, ...]
    contents: frozenset[str]
    until: float
    early_until: float = 0.0

    def covers(self, head: Head) -> bool:
        """Return whether it still tells how a group is."""
        return (self.uid, self.generation) == (head.uid, head.generation) and self.until > time.monotonic()


@dataclass(frozen=True, slots=True)
class HalfMade:
    """A group of which only what lets hosts start is made; ``until``: how long the rest may wait."""

    uid: str
    generation: int
    until: float
