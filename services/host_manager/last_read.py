"""Results of a full read of a host group, kept until the next one.

Values with times in monotonic seconds. Created and used by ``gather``.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from host_manager.domain.inputs import Problem, Versions
from host_manager.domain.snapshot import Head


@dataclass(frozen=True, slots=True)
class LastRead:
    """Result of the last full read of a host group, valid until ``until``; only its counts are read in the meantime.

    ``contents``: fingerprints of its workloads. ``versions``: of the objects that it refers to, which are re-read from
    ``sources_due`` on: other versions require a full read. ``early_until``: for a new group, the time at which
    its first status is due.
    """

    uid: str
    generation: int
    problems: tuple[Problem, ...]
    contents: frozenset[str]
    versions: Versions
    until: float
    sources_due: float
    early_until: float = 0.0

    @property
    def due(self) -> float:
        """The time of the next read: of everything, or of the objects that the group refers to, if there are any."""
        return min(self.until, self.sources_due) if self.versions else self.until

    def covers(self, head: Head) -> bool:
        """Return whether the result is still valid for a host group."""
        return (self.uid, self.generation) == (head.uid, head.generation) and self.until > time.monotonic()


@dataclass(frozen=True, slots=True)
class HalfCreated:
    """A new group with the first half of its children, with which hosts can start; ``until``: deadline of the rest."""

    uid: str
    generation: int
    until: float
