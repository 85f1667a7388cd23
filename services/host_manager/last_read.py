"""Results of a full read of a host group, kept until the next one.

Values with times in monotonic seconds. Created and used by ``gather``.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from host_manager.domain.inputs import Problem
from host_manager.domain.snapshot import Head


@dataclass(frozen=True, slots=True)
class LastRead:
    """Result of the last full read of a host group; until the next one only its counts are read.

    ``contents``: fingerprints of its workloads. ``early_until``: for a new group, the time at which its first status
    is due.
    """

    uid: str
    generation: int
    problems: tuple[Problem, ...]
    contents: frozenset[str]
    until: float
    early_until: float = 0.0

    def covers(self, head: Head) -> bool:
        """Return whether the result is still valid for a host group."""
        return (self.uid, self.generation) == (head.uid, head.generation) and self.until > time.monotonic()


@dataclass(frozen=True, slots=True)
class HalfCreated:
    """A new group with the first half of its children, with which hosts can start; ``until``: deadline of the rest."""

    uid: str
    generation: int
    until: float
