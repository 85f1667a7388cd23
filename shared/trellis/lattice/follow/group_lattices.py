"""Follows the lattices of host groups, at their current addresses and with their current credentials.

In: keys, of lattices or of host groups, and the host groups of each key. Out: addresses, for the followers of a
service. Called by ``app`` of services, for a queue of keys. Invariants: while a Secret cannot be read, the lattice is
followed with the former address; the oldest of several host groups determines the address.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from trellis.kube.client import Kube
from trellis.lattice.connection.address import LatticeAddress
from trellis.lattice.connection.group_addresses import address_of
from trellis.lattice.domain.group_views import GroupView
from trellis.telemetry import TraceContext

Follow = Callable[[str, LatticeAddress | None], Awaitable[None]]
"""Called with a key and the address of its lattice, None to stop following."""


@dataclass(frozen=True, slots=True)
class GroupLattices:
    """Handler of a key.

    ``groups``: returns the host groups of a key. ``noted``: context of a run, which receives its error. ``seconds``:
    between two reads of the Secrets of a host group.
    """

    kube: Kube
    groups: Callable[[str], Iterable[GroupView]]
    follow: Follow
    noted: Callable[[str], AbstractContextManager[None]]
    seconds: float

    async def run(self, key: str, trace: TraceContext | None) -> float | None:
        """Follow the lattice of a key by its oldest host group; return the seconds until the next read of its Secrets.

        Raises:
            KubeError: a Secret could not be read.
        """
        del trace
        with self.noted(key):
            groups = sorted(self.groups(key), key=lambda item: (item.created, item.key))
            if not groups:
                await self.follow(key, None)
                return None
            address, secret = await address_of(self.kube, groups[0])
            await self.follow(key, address)
            return self.seconds if secret else None
