"""Distinguishes the deletion of a single object by a user from a mass deletion.

In: objects as watched, their CRD from the API server. Out: objects whose deletion no circuit breaker pauses (ADR 27).
Called by ``node_watcher`` (labels), ``provisioner`` (running installers, status) and ``host_manager`` (host groups).
Invariant: a deletion counts as a single one only if the CRD was read and is not being deleted, and no other object of
the kind was deleted within ``together`` seconds; the circuit breaker decides about all other deletions.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, Protocol

from trellis.config.timings import DeletionTimings
from trellis.kube.client import Kube
from trellis.kube.errors import Forbidden, NotFound
from trellis.kube.resources import DEFINITIONS, Resource
from trellis.provisioning.nodes_and_jobs import unix_seconds
from trellis.telemetry import get_logger

STANDS: Final = math.inf
"""Instead of the time of its deletion, for a CRD that is not being deleted."""

_log = get_logger(__name__)


class Deletable(Protocol):
    """A watched object.

    ``name``: with its namespace if it has one. ``deleted_at``: Unix seconds of its deletion, 0 if it is not deleted.
    """

    @property
    def name(self) -> str: ...  # noqa: D102

    @property
    def uid(self) -> str: ...  # noqa: D102

    @property
    def deleting(self) -> bool: ...  # noqa: D102

    @property
    def deleted_at(self) -> int: ...  # noqa: D102


def deleted_alone(objects: Iterable[Deletable], definition: float | None, together: float) -> frozenset[str]:
    """Return the names of the objects that were deleted individually.

    ``definition``: Unix seconds of the CRD's deletion, :data:`STANDS` if it is not being deleted, None if unknown.
    """
    deleting = sorted((item for item in objects if item.deleting), key=lambda item: item.deleted_at)
    if definition is None:
        return frozenset()
    times = [-math.inf, *(item.deleted_at for item in deleting), math.inf]
    return frozenset(
        item.name
        for item, before, after in zip(deleting, times, times[2:], strict=False)
        if item.deleted_at < definition and min(item.deleted_at - before, after - item.deleted_at) > together
    )


@dataclass(eq=False)
class Deletions:
    """The deletions of one kind that were observed in one leadership term."""

    kube: Kube
    kind: Resource | None
    """None: the CRD cannot be read, so every deletion counts as a mass deletion."""
    timings: DeletionTimings = DeletionTimings()
    clock: Callable[[], float] = time.monotonic
    seen: dict[str, float] = field(default_factory=dict)
    """By uid of an object that is being deleted: monotonic time of its first observation."""
    definition: float | None = None
    """See :func:`deleted_alone`; a CRD is always deleted before its objects."""

    def __post_init__(self) -> None:
        self._reading = asyncio.Lock()

    async def look(self, objects: Iterable[Deletable]) -> None:
        """Read the CRD if the deletion of an object is observed for the first time.

        Raises:
            KubeError: no answer; the caller has to retry before a decision.
        """
        deleting = {item.uid for item in objects if item.deleting}
        if deleting == self.seen.keys():
            return
        async with self._reading:
            if new := deleting - self.seen.keys():
                self.definition = await self._read()
                self.seen |= dict.fromkeys(new, self.clock())
            self.seen = {uid: at for uid, at in self.seen.items() if uid in deleting}

    async def _read(self) -> float | None:
        if self.kind is None:
            return None
        try:
            found = await self.kube.get(DEFINITIONS, self.kind.definition)
        except (Forbidden, NotFound) as error:
            _log.warning(
                "CRD cannot be read, treating the deletions as a mass deletion",
                crd=self.kind.definition,
                error=str(error),
            )
            return None
        deleted_at = unix_seconds(found["metadata"].get("deletionTimestamp"))
        return STANDS if deleted_at is None else float(deleted_at)

    def alone(self, objects: Iterable[Deletable]) -> frozenset[str]:
        """Return the names of the objects whose deletion no circuit breaker pauses."""
        return deleted_alone(objects, self.definition, self.timings.together)

    def lasts(self, uid: str) -> float:
        """Return the seconds since the deletion of an object was observed, independent of the wall clock."""
        return self.clock() - self.seen.get(uid, self.clock())

    def settles_in(self, deletable: Deletable) -> float:
        """Return the seconds until a deletion can be classified as single or mass deletion; 0 if it can be."""
        if not deletable.deleting:
            return 0.0
        return max(0.0, self.seen.get(deletable.uid, self.clock()) + self.timings.settle - self.clock())
