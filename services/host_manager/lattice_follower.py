"""Follows the lattices of host groups, and stores the time of the last restart of a host without heartbeat.

In: host groups and their Secrets. Out: a view for the snapshot; keys whose lattice changed. Called by ``gather``,
``apply`` and ``app``. Invariants: no caller blocks on a lattice; the lattice of a deleted or unmanaged group is not
followed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from host_manager.domain.group import Group
from host_manager.domain.inputs import Source
from host_manager.domain.snapshot import Snapshot
from host_manager.lattice import lattice_of
from host_manager.timings import Timings
from trellis.lattice.domain.subjects import SubjectError
from trellis.lattice.follow.lattice_watches import Beside, LatticeWatches, Part
from trellis.limits.backoff import Backoff

CONNECTION: Final = "trellis-host-manager"


@dataclass(slots=True)
class Recycling:
    """Backoff of restarts of hosts without heartbeat.

    The pause doubles with each restart, from two minutes to an hour, and ends when all hosts of the group report.
    ``pauses``: by group the end of its pause, and the number of consecutive restarts.
    """

    timings: Timings = Timings()
    pauses: dict[str, tuple[float, int]] = field(default_factory=dict)

    def may(self, key: str, now: float) -> bool:
        """Return whether a host of a group may be restarted."""
        return self.pauses.get(key, (0.0, 0))[0] <= now

    def note_restart(self, key: str, now: float) -> None:
        """Record that a host of a group is restarted now."""
        restarts = self.pauses.get(key, (0.0, 0))[1] + 1
        pause = Backoff(self.timings.recycle_first, self.timings.recycle_most).bound(restarts)
        self.pauses[key] = (now + pause, restarts)

    def reset(self, key: str) -> None:
        """Record that all hosts of a group report, or that it is deleted."""
        self.pauses.pop(key, None)


class LatticeFollower:
    """``wake`` is called with the key of each group whose lattice changed; ``beside`` runs for each lattice."""

    def __init__(self, wake: Callable[[str], None], beside: Beside | None = None, timings: Timings = Timings()) -> None:
        self.lattices: Final[LatticeWatches[str]] = LatticeWatches(
            CONNECTION, wake, beside, parts=(Part.HOSTS, Part.MODELS), timings=timings.lattice
        )
        self.recycling: Final = Recycling(timings)
        self._reasons: dict[str, str] = {}

    async def run(self) -> None:
        """Follow the lattices until cancelled."""
        await self.lattices.run()

    async def follow(self, key: str, group: Group, read: Mapping[Source, Mapping[str, Any] | None]) -> None:
        """Follow a group's lattice from now on, with the credentials that were read."""
        try:
            address = lattice_of(group, read)
        except SubjectError as error:
            self._reasons[key] = str(error)
            await self.lattices.need(key, None)
            return
        self._reasons.pop(key, None)
        await self.lattices.need(key, address)

    async def unfollow(self, key: str) -> None:
        """Stop following the lattice of a group."""
        self._reasons.pop(key, None)
        self.recycling.reset(key)
        await self.lattices.need(key, None)

    def fill(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot with the current state of its lattice."""
        key, now = snapshot.head.key, time.monotonic()
        return replace(
            snapshot,
            lattice=self.lattices.view(key),
            lattice_reason=self._reasons.get(key, ""),
            clock=now,
            may_recycle=self.recycling.may(key, now),
        )
