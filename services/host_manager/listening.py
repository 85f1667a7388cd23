"""Listens to the lattices of groups, and remembers when a silent host was last restarted.

In: groups and what they name. Out: a view for the snapshot; keys whose lattice has news. Called by ``gather``,
``apply`` and ``app``. Invariants: nobody waits for a lattice; a group that is gone, or another owner's, is not
listened for.
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
from trellis.lattice.connection.lattices import Beside, Lattices, Part
from trellis.lattice.domain.subjects import SubjectError
from trellis.limits.backoff import Backoff

CONNECTION: Final = "trellis-host-manager"


@dataclass(slots=True)
class Recycling:
    """When silent hosts of a group may be restarted: a restart that does not help is not repeated at once.

    The pause doubles with each, from two minutes to an hour, and ends when every host of the group is heard.
    ``pauses``: by group the end of its pause and how many restarts in a row there were.
    """

    timings: Timings = Timings()
    pauses: dict[str, tuple[float, int]] = field(default_factory=dict)

    def may(self, key: str, now: float) -> bool:
        """Return whether a host of a group may be restarted."""
        return self.pauses.get(key, (0.0, 0))[0] <= now

    def begun(self, key: str, now: float) -> None:
        """A host of a group is restarted now."""
        restarts = self.pauses.get(key, (0.0, 0))[1] + 1
        pause = Backoff(self.timings.recycle_first, self.timings.recycle_most).bound(restarts)
        self.pauses[key] = (now + pause, restarts)

    def calm(self, key: str) -> None:
        """Every host of a group is heard, or it is gone."""
        self.pauses.pop(key, None)


class Listening:
    """``wake`` is called with the key of each group whose lattice has news; ``beside`` runs for each lattice."""

    def __init__(self, wake: Callable[[str], None], beside: Beside | None = None, timings: Timings = Timings()) -> None:
        self.lattices: Final[Lattices[str]] = Lattices(
            CONNECTION, wake, beside, parts=(Part.HOSTS, Part.MODELS), timings=timings.lattice
        )
        self.recycling: Final = Recycling(timings)
        self._why: dict[str, str] = {}

    async def run(self) -> None:
        """Listen until cancelled."""
        await self.lattices.run()

    async def follow(self, key: str, group: Group, read: Mapping[Source, Mapping[str, Any] | None]) -> None:
        """Listen to a group's lattice from now on, with the credentials that were read."""
        try:
            address = lattice_of(group, read)
        except SubjectError as error:
            self._why[key] = str(error)
            await self.lattices.need(key, None)
            return
        self._why.pop(key, None)
        await self.lattices.need(key, address)

    async def leave(self, key: str) -> None:
        """Do not listen for a group any more."""
        self._why.pop(key, None)
        self.recycling.calm(key)
        await self.lattices.need(key, None)

    def fill(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot with what is known of its lattice now."""
        key, now = snapshot.head.key, time.monotonic()
        return replace(
            snapshot,
            lattice=self.lattices.view(key),
            lattice_why=self._why.get(key, ""),
            clock=now,
            may_recycle=self.recycling.may(key, now),
        )
