"""Follows the lattices of host groups: their applications in wadm.

In: the addresses of lattices. Out: a store and a wadm client for each, and notifications of changes. Called by
``gather``, ``apply`` and ``app``. Invariants: no caller blocks on a lattice; an unreachable lattice keeps its state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from trellis.bus.accounts.naming import consumer_name
from trellis.events.subjects import APPLICATION_MANAGER
from trellis.lattice.connection.address import LatticeAddress
from trellis.lattice.connection.lattice_connection import LatticeConnection
from trellis.lattice.domain.store import ModelStore
from trellis.lattice.follow.lattice_claim import LatticeClaim
from trellis.lattice.follow.lattice_watches import LatticeWatches
from trellis.lattice.storage.bucket import Bucket
from trellis.lattice.storage.lattice_store import LatticeStore
from trellis.lattice.timings import LatticeTimings
from trellis.lattice.wadm.client import Wadm
from trellis.lattice.wadm.probe import WadmProbe

CONNECTION: Final = "trellis-application-manager"

_READER: Final = "models"

Wake = Callable[[str, Iterable[str] | None], None]
"""Called with the ``lattice_id`` of a lattice and the names of applications that may have changed, None for all."""


@dataclass(frozen=True, slots=True)
class _Followed:
    store: LatticeStore
    claim: LatticeClaim


class LatticeFollowers:
    """``wake`` is called in the event loop. ``cluster`` is the name of this cluster, the owner in lattice claims."""

    def __init__(self, wake: Wake, cluster: str, timings: LatticeTimings = LatticeTimings()) -> None:
        self._timings = timings
        self._wake = wake
        self._cluster = cluster
        self._lattices: Final[LatticeWatches[str]] = LatticeWatches(
            CONNECTION, self._on_view, self._follow, self._read, timings=timings
        )
        self._needs: dict[str, LatticeAddress] = {}
        self._followed: dict[LatticeAddress, _Followed] = {}
        self._buckets: dict[LatticeConnection, Bucket] = {}
        self._probes: dict[tuple[LatticeConnection, str], WadmProbe] = {}

    @property
    def lattice_ids(self) -> list[str]:
        """The lattices that are followed."""
        return list(self._needs)

    @property
    def stores(self) -> Mapping[str, ModelStore]:
        """Applications of each followed lattice, by ``lattice_id``."""
        return {lattice_id: found.store for lattice_id in self._needs if (found := self._of(lattice_id)) is not None}

    async def run(self) -> None:
        """Follow until cancelled."""
        await self._lattices.run()

    async def follow(self, lattice_id: str, address: LatticeAddress | None) -> None:
        """Follow a lattice at an address; None stops following it."""
        if address is None:
            self._needs.pop(lattice_id, None)
        else:
            self._needs[lattice_id] = address
        await self._lattices.need(lattice_id, address)

    def store(self, lattice_id: str) -> ModelStore | None:
        """Return the applications of a lattice, None if it is not followed (yet)."""
        found = self._of(lattice_id)
        return None if found is None else found.store

    def wadm(self, lattice_id: str) -> Wadm | None:
        """Return the wadm client of a lattice, None if it is not followed (yet)."""
        found = self._of(lattice_id)
        return None if found is None else found.store.wadm

    def linked(self, lattice_id: str) -> bool:
        """Return whether the connection to a lattice's NATS is up."""
        view = self._lattices.view(lattice_id) if lattice_id in self._needs else None
        return view is not None and view.connected_since is not None

    def owner(self, lattice_id: str) -> str | None:
        """Return the cluster that owns a lattice's applications, None while the owner is unknown."""
        found = self._of(lattice_id)
        return None if found is None else found.claim.owner

    def owns(self, lattice_id: str) -> bool:
        """Return whether this cluster may write to a lattice now; checked before each write."""
        found = self._of(lattice_id)
        return found is not None and found.claim.owned

    def _of(self, lattice_id: str) -> _Followed | None:
        address = self._needs.get(lattice_id)
        return None if address is None else self._followed.get(address)

    async def _follow(self, address: LatticeAddress, connection: LatticeConnection) -> None:
        def changed(names: Iterable[str] | None) -> None:
            affected = None if names is None else list(names)
            for lattice_id in [lattice_id for lattice_id, need in self._needs.items() if need == address]:
                self._wake(lattice_id, affected)

        bucket, probe = self._bucket(connection), self._probe(connection, address.account)
        store = LatticeStore(address, connection, bucket, probe, changed, self._timings)
        claim = LatticeClaim(address, connection, self._cluster, lambda: changed(None), self._timings.claim)
        followed = self._followed[address] = _Followed(store, claim)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(store.run())
                tasks.create_task(claim.run())
        finally:
            if self._followed.get(address) is followed:
                del self._followed[address]

    def _bucket(self, connection: LatticeConnection) -> Bucket:
        """Return wadm's storage on a lattice connection, created on first use."""
        if connection not in self._buckets:
            name = f"trellis-{consumer_name(APPLICATION_MANAGER, _READER, self._cluster)}"
            self._buckets[connection] = Bucket(connection, name, self._timings.bucket)
        return self._buckets[connection]

    def _probe(self, connection: LatticeConnection, account: str) -> WadmProbe:
        """Return the probe of the wadm of a connection, for one tenant if it is multitenant; created on first use."""
        return self._probes.setdefault((connection, account), WadmProbe(connection, self._timings.probe))

    async def _read(self, connection: LatticeConnection) -> None:
        try:
            await self._bucket(connection).run()
        finally:
            del self._buckets[connection]
            self._probes = {key: probe for key, probe in self._probes.items() if key[0] is not connection}

    def _on_view(self, lattice_id: str) -> None:
        """Pass a lost or restored lattice connection on to the store and the claim."""
        found = self._of(lattice_id)
        if found is not None:
            found.store.connection_changed()
            found.claim.connection_changed()
