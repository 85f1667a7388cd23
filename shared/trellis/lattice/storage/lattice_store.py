"""The applications of one lattice: from the storage of wadm, or from answers of wadm without access to it.

In: the address and connection of a lattice. Out: a :class:`trellis.lattice.domain.store.ModelStore`, and notifications
of changes. Called by services that manage applications, for each lattice of a connection. Invariants: no caller waits
for a lattice; the state of an unreachable lattice stays, and ``synced_at`` shows its age; without the storage no
deletion is detected.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from typing import Final

from trellis.lattice.connection.address import LatticeAddress
from trellis.lattice.connection.lattice_connection import LatticeConnection
from trellis.lattice.domain.replies import Status
from trellis.lattice.domain.store import AbsenceReason, StoredModel
from trellis.lattice.storage.bucket import Bucket
from trellis.lattice.storage.portion import Portion
from trellis.lattice.timings import LatticeTimings
from trellis.lattice.wadm.client import Wadm
from trellis.lattice.wadm.listing import Listing
from trellis.lattice.wadm.probe import WadmProbe
from trellis.lattice.wadm.statuses import Statuses

Changed = Callable[[Iterable[str] | None], None]
"""Called in the event loop with the names of applications that may have changed, None for all."""


class LatticeStore:
    """A ``ModelStore``.

    ``bucket``: reader of the wadm storage for all lattices of the connection; callers run it. ``probe``: that of
    the wadm of this lattice, which other lattices share.
    """

    def __init__(
        self,
        address: LatticeAddress,
        connection: LatticeConnection,
        bucket: Bucket,
        probe: WadmProbe,
        changed: Changed,
        timings: LatticeTimings = LatticeTimings(),
    ) -> None:
        self.wadm: Final = Wadm(address, connection, self._wrote, timings.wadm)
        self._lattice = address.lattice
        self._connection = connection
        self._changed = changed
        self._bucket = bucket
        self._portion = Portion(address, connection, self._on_models, timings.report)
        self._statuses = Statuses(self.wadm, connection, self, changed, timings)
        self._listing = Listing(self.wadm, connection, self._statuses, timings.listing)
        self._probe = probe
        self._there = False

    @property
    def lattice(self) -> str:
        """Name of the lattice."""
        return self._lattice

    @property
    def bucket(self) -> str:
        """Creation time of the storage, as RFC 3339; "" if unknown."""
        return "" if self._listed else self._portion.stored.bucket

    @property
    def synced_at(self) -> float | None:
        """Time of the last complete read, in Unix seconds; None while the data may be incomplete."""
        return self._portion.synced_at or (self._listing.synced_at if self._listed else None)

    @property
    def reason(self) -> str:
        """The reason why the data is incomplete, or deletions cannot be detected, for users; "" if neither applies."""
        if self._connection.since is None:
            return self._connection.reason
        if self._portion.unreadable.is_set() and self._listing.reason:
            return f"{self._portion.reason}; {self._listing.reason}"
        if self._listed:
            return f"deletions cannot be verified: {self._portion.reason}"
        return self._portion.reason

    @property
    def unavailable(self) -> str:
        """The reason why wadm does not answer, for users, "" if it does."""
        return self._probe.reason

    def find(self, name: str) -> StoredModel | None:
        """Return an application by name, None if it does not exist."""
        return self._listing.find(name) if self._listed else self._portion.stored.find(name)

    def absence(self, name: str) -> AbsenceReason:
        """Return the reason of a missing application; must not be called while ``synced_at`` is None."""
        return AbsenceReason.UNKNOWN if self._listed else self._portion.stored.absence(name)

    def listed(self, name: str) -> bool:
        """Return whether wadm lists an application; always True for applications from its answers."""
        return self._listed or self._portion.stored.listed(name)

    def names(self) -> Collection[str]:
        """Return the names of all applications."""
        return self._listing.names() if self._listed else self._portion.stored.names()

    def status(self, name: str) -> Status | None:
        """Return the last status of the deployed version of an application, None if there is none."""
        return self._statuses.find(name)

    def connection_changed(self) -> None:
        """Update the readers after a change of the connection."""
        self._bucket.connection_changed()
        self._listing.want()
        self._statuses.want()
        there = self._connection.since is not None
        if self._there and not there:
            self._changed(None)  # the data may be outdated from now on
        self._there = there

    async def run(self) -> None:
        """Follow the lattice until cancelled."""
        self._bucket.join(self._portion)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._list())
                tasks.create_task(self._statuses.run(self._lattice))
                tasks.create_task(self._probe.run(self.wadm, lambda: self._changed(None)))
        finally:
            self._bucket.leave(self._portion)

    @property
    def _listed(self) -> bool:
        """True if answers of wadm replace its unreadable storage."""
        return self._portion.unreadable.is_set() and self._listing.known

    async def _list(self) -> None:
        while True:
            await self._portion.unreadable.wait()
            await self._listing.run(self._lattice, lambda: not self._portion.unreadable.is_set(), self._on_models)

    def _wrote(self) -> None:
        self._listing.want()

    def _on_models(self, names: Iterable[str] | None) -> None:
        self._statuses.models_changed(names)
        self._changed(names)
