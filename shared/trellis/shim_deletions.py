"""Which deleted Shims are one user's decision about one Shim, and which are part of a mass deletion.

In: Shims as watched, their CRD from the API server. Out: the Shims whose deletion no circuit breaker holds (ADR 27).
Called by ``node_watcher`` (labels) and ``provisioner`` (installers that run, status).
Invariant: a Shim counts as deleted by itself only if its CRD was read and is not being deleted, and no other Shim was
deleted within ``together`` seconds of it; everything else is left to the circuit breaker.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from trellis.kube.client import Kube
from trellis.kube.errors import Forbidden, NotFound
from trellis.kube.resources import DEFINITIONS, SHIMS
from trellis.node_and_job import unix_seconds
from trellis.shims import ShimView
from trellis.telemetry import get_logger

SHIM_DEFINITION: Final = f"{SHIMS.plural}.{SHIMS.group}"
STANDS: Final = math.inf
"""Instead of the time of its deletion, for a CRD that is not being deleted."""

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class DeletionTimings:
    """Seconds. ``settle``: how long after a Shim's deletion others may follow that belong to it.

    ``together``: Shims deleted within that time of each other are a mass deletion. ``grace``: how long the nodes keep a
    Shim that is gone though its finalizer has not run; it may be re-created.
    """

    settle: float = 2.0
    together: float = 60.0
    grace: float = 300.0


def deleted_alone(shims: Iterable[ShimView], definition: float | None, together: float) -> frozenset[str]:
    """Return the names of the Shims that were deleted by themselves.

    ``definition``: Unix seconds of the CRD's deletion, :data:`STANDS` if it is not being deleted, None if that is not
    known.
    """
    deleting = sorted((shim for shim in shims if shim.deleting), key=lambda shim: shim.deleted_at)
    if definition is None:
        return frozenset()
    times = [-math.inf, *(shim.deleted_at for shim in deleting), math.inf]
    return frozenset(
        shim.name
        for shim, before, after in zip(deleting, times, times[2:], strict=False)
        if shim.deleted_at < definition and min(shim.deleted_at - before, after - shim.deleted_at) > together
    )


@dataclass(eq=False)
class ShimDeletions:
    """The deletions that were seen in one term of leadership."""

    kube: Kube
    timings: DeletionTimings = DeletionTimings()
    clock: Callable[[], float] = time.monotonic
    seen: dict[str, float] = field(default_factory=dict)
    """By uid of a Shim that is being deleted, monotonic: when it was seen first."""
    definition: float | None = None
    """As :func:`deleted_alone` has it; the CRD is always deleted before the Shims that go with it."""

    def __post_init__(self) -> None:
        self._reading = asyncio.Lock()

    async def look(self, shims: Iterable[ShimView]) -> None:
        """Read the CRD if a Shim is being deleted that was not before.

        Raises:
            KubeError: no answer; to be tried again before anything is decided.
        """
        deleting = {shim.uid for shim in shims if shim.deleting}
        if deleting == self.seen.keys():
            return
        async with self._reading:
            if new := deleting - self.seen.keys():
                self.definition = await self._read()
                self.seen |= dict.fromkeys(new, self.clock())
            self.seen = {uid: at for uid, at in self.seen.items() if uid in deleting}

    async def _read(self) -> float | None:
        try:
            found = await self.kube.get(DEFINITIONS, SHIM_DEFINITION)
        except (Forbidden, NotFound) as error:
            _log.warning("the CRD of Shims cannot be read, deletions count as a mass", error=str(error))
            return None
        deleted_at = unix_seconds(found["metadata"].get("deletionTimestamp"))
        return STANDS if deleted_at is None else float(deleted_at)

    def alone(self, shims: Iterable[ShimView]) -> frozenset[str]:
        """Return the names of the Shims whose deletion no circuit breaker holds."""
        return deleted_alone(shims, self.definition, self.timings.together)

    def lasts(self, uid: str) -> float:
        """Return for how many seconds a Shim has been seen to be deleted, whatever the clock on the wall did."""
        return self.clock() - self.seen.get(uid, self.clock())

    def settles_in(self, shim: ShimView) -> float:
        """Return the seconds until it is certain enough that a Shim was deleted by itself, or not; 0 if it is."""
        if not shim.deleting:
            return 0.0
        return max(0.0, self.seen.get(shim.uid, self.clock()) + self.timings.settle - self.clock())
