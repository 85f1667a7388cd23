"""Sees to it that each lattice which groups name is followed, with the credentials they have now.

In: marks of lattices. Out: addresses for :class:`Following`. Called by ``app``, for the queue of lattices.
Invariant: a Secret that cannot be read changes nothing: the lattice is followed as it was.
"""

from __future__ import annotations

from dataclasses import dataclass

from service_reflector.following import Wake
from service_reflector.gather import Known
from service_reflector.metrics import Measures
from trellis.kube.errors import KubeError
from trellis.lattice.connection.group_addresses import address_of
from trellis.telemetry import TraceContext


@dataclass(frozen=True, slots=True)
class FollowLattices:
    """One run of a lattice's mark. ``wake`` is told of each lattice that was looked at: its groups may be others."""

    known: Known
    wake: Wake
    seconds: float
    measures: Measures

    async def run(self, mark: str, trace: TraceContext | None) -> float | None:
        """Follow a lattice as its oldest group says; returns when to look at its Secrets again.

        Raises:
            KubeError: a Secret could not be read.
        """
        del trace
        known = self.known
        groups = sorted(known.by_lattice.get(mark, {}).values(), key=lambda one: (one.created, one.key))
        if not groups and mark in known.following.marks and not known.let_go and known.controller is None:
            if not known.groups_known():
                return None  # it is followed as it was
            if known.waits_for_group(mark):
                # Still followed: an application that is undeployed meanwhile loses its Service at once.
                self.wake(mark, None, None)
                return known.grace_left(mark)
        if not groups or known.controller is not None or known.let_go:
            known.unreadable.pop(mark, None)
            await known.following.follow(mark, None)
            self.measures.follow(mark, None)
            self.wake(mark, None, None)
            return None
        try:
            address, secret = await address_of(known.kube, groups[0])
        except KubeError as error:
            known.unreadable[mark] = known.kube.words(error)
            self.wake(mark, None, None)
            raise
        known.unreadable.pop(mark, None)
        if address is None:
            known.unreadable[mark] = "its name or its prefix can be in no subject of NATS"
        await known.following.follow(mark, address)
        self.measures.follow(mark, address)
        self.wake(mark, None, None)
        return self.seconds if secret else None
