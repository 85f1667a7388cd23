"""Sees to it that each lattice which groups name is followed, with the credentials they have now.

In: marks of lattices. Out: addresses for :class:`Following`. Called by ``app``, for the queue of lattices.
Invariant: a Secret that cannot be read changes nothing: the lattice is followed as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from application_manager.following import Following, Wake
from application_manager.metrics import Measures
from trellis.kube.client import Kube
from trellis.kube.rights import MissingRights
from trellis.lattice.connection.group_addresses import address_of
from trellis.lattice.domain.group_views import GroupView
from trellis.telemetry import TraceContext


@dataclass(frozen=True, slots=True)
class FollowLattices:
    """One run of a lattice's mark. ``groups`` returns those that name the lattice of a mark.

    ``wake`` is told of each lattice that was looked at: its groups may be others. ``seconds``: between two looks at the
    Secrets of a group.
    """

    kube: Kube
    following: Following
    groups: Callable[[str], Iterable[GroupView]]
    wake: Wake
    rights: MissingRights
    measures: Measures
    seconds: float

    async def run(self, mark: str, trace: TraceContext | None) -> float | None:
        """Follow a lattice as its oldest group says; returns when to look at its Secrets again.

        Raises:
            KubeError: a Secret could not be read.
        """
        del trace
        with self.rights.noted(f"lattice {mark}"):
            return await self._run(mark)

    async def _run(self, mark: str) -> float | None:
        groups = sorted(self.groups(mark), key=lambda one: (one.created, one.key))
        if not groups:
            await self.following.follow(mark, None)
            self.measures.follow(mark, None)
            self.wake(mark, None)
            return None
        address, secret = await address_of(self.kube, groups[0])
        await self.following.follow(mark, address)
        self.measures.follow(mark, address)
        self.wake(mark, None)
        return self.seconds if secret else None
