"""Entities by revision, with the difference from each recent revision to the newest.

Pure. In: changed entities by id, None for a deleted one. Out: differences. Each ``live_model`` has one.
Invariants: a difference applied to the state of its ``since`` results in the newest state, after any changes in
between; an equal entity does not count as a change; the memory is bounded, and an older revision is reported as such.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

Entity: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Delta:
    """The difference from one revision to a later one."""

    since: int
    revision: int
    changed: Mapping[str, Entity]
    deleted: tuple[str, ...]


class Journal:
    """The newest state, and the ids that changed in recent revisions. Revision 0 is the empty state."""

    def __init__(self, ids_kept: int) -> None:
        self._most: Final = ids_kept
        self._entities: dict[str, Entity] = {}
        self._changes: deque[tuple[int, tuple[str, ...]]] = deque()
        self._kept = 0
        self._oldest = 0
        self.revision = 0

    @property
    def entities(self) -> Mapping[str, Entity]:
        """The newest state; not to be changed."""
        return self._entities

    def write(self, changes: Mapping[str, Entity | None]) -> bool:
        """Add a revision with the differences from the newest one; return whether there are any."""
        real = tuple(id_ for id_, entity in changes.items() if self._entities.get(id_) != entity)
        if not real:
            return False
        for id_ in real:
            entity = changes[id_]
            if entity is None:
                del self._entities[id_]
            else:
                self._entities[id_] = entity
        self.revision += 1
        self._changes.append((self.revision, real))
        self._kept += len(real)
        while self._kept > self._most and self._changes:
            self._oldest, ids = self._changes.popleft()
            self._kept -= len(ids)
        return True

    def since(self, revision: int) -> Delta | None:
        """Return the difference from a revision; None if it is unknown or too old."""
        if revision == 0:
            return Delta(0, self.revision, dict(self._entities), ())
        if not self._oldest <= revision <= self.revision:
            return None
        touched: dict[str, None] = {}
        for number, ids in reversed(self._changes):
            if number <= revision:
                break
            touched.update(dict.fromkeys(ids))
        changed = {id_: self._entities[id_] for id_ in touched if id_ in self._entities}
        return Delta(revision, self.revision, changed, tuple(id_ for id_ in touched if id_ not in self._entities))
