"""Reconciles followed lattices: those of host groups, and for a grace period those without a host group.

In: lattice IDs. Out: addresses for :class:`LatticeFollowers`. Called by ``app``, for the queue of lattices. Invariant:
while host groups cannot be listed, a lattice without one is followed as before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from service_reflector.gather import Cache
from service_reflector.lattice_followers import Wake
from service_reflector.metrics import ServiceMetrics
from trellis.kube.errors import KubeError
from trellis.lattice.connection.address import LatticeAddress
from trellis.lattice.domain.group_views import GroupView
from trellis.lattice.follow.group_lattices import GroupLattices
from trellis.telemetry import TraceContext


@dataclass(frozen=True, slots=True)
class LatticeReconciler:
    """Reconciler of a lattice ID. ``wake`` is called for each of them, because its host groups may have changed."""

    cache: Cache
    wake: Wake
    seconds: float
    metrics: ServiceMetrics

    async def run(self, lattice_id: str, trace: TraceContext | None) -> float | None:
        """Follow a lattice as its oldest host group defines; return the seconds until its Secrets are re-read.

        Raises:
            KubeError: a Secret could not be read.
        """
        cache = self.cache
        if lattice_id in cache.followers.lattice_ids and self._may_follow() and not self._groups(lattice_id):
            if not cache.groups_known():
                return None  # it is followed as before
            if cache.waits_for_group(lattice_id):
                # Still followed: an application that is undeployed in the meantime loses its Service at once.
                self.wake(lattice_id, None, None)
                return cache.grace_left(lattice_id)
        lattices = GroupLattices(cache.kube, self._groups, self._follow, self._noted, self.seconds)
        return await lattices.run(lattice_id, trace)

    def _may_follow(self) -> bool:
        return self.cache.controller is None and not self.cache.remove_finalizers

    def _groups(self, lattice_id: str) -> Collection[GroupView]:
        return self.cache.by_lattice.get(lattice_id, {}).values() if self._may_follow() else ()

    async def _follow(self, lattice_id: str, address: LatticeAddress | None) -> None:
        self.cache.unreadable.pop(lattice_id, None)
        if address is None and self._groups(lattice_id):
            self.cache.unreadable[lattice_id] = "its name or its prefix is not valid in a NATS subject"
        await self.cache.followers.follow(lattice_id, address)
        self.metrics.follow(lattice_id, address)
        self.wake(lattice_id, None, None)

    @contextmanager
    def _noted(self, lattice_id: str) -> Iterator[None]:
        try:
            yield
        except KubeError as error:
            self.cache.unreadable[lattice_id] = self.cache.kube.describe_error(error)
            self.wake(lattice_id, None, None)
            raise
