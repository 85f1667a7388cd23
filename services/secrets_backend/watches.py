"""Watch handlers of secrets_backend: host groups and their lattice connections, SecretGrants.

In: changes from the informers, keys of host groups. Out: connections. Called by ``app``. Invariants: a host group whose
Secrets are unreadable keeps its connection; a grant takes effect as soon as the watch shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from secrets_backend.domain.decide import Grant, view_grant
from secrets_backend.gather import Cache
from secrets_backend.lattice_connections import GroupConnections
from trellis.kube.client import Kube
from trellis.kube.informer import Change, Informer
from trellis.kube.permissions import MissingPermissions
from trellis.kube.resources import HOST_CONFIGS, SECRET_GRANTS
from trellis.kube.watch_timings import WatchTimings
from trellis.lattice.connection.address import LatticeAddress
from trellis.lattice.domain.group_views import GroupView, view_group


def on_group(cache: Cache, wake: Callable[[Change[GroupView]], None]) -> Callable[[Change[GroupView]], None]:
    """Return the handler of changes of host groups."""

    def handle(change: Change[GroupView]) -> None:
        cache.changed()
        wake(change)
        if change.new is None:
            cache.seen.discard(change.key)

    return handle


class Watches:
    """The informers. Both CRDs are optional: without host groups there are no requests."""

    def __init__(
        self,
        kube: Kube,
        cache: Cache,
        wake: Callable[[Change[GroupView]], None],
        on_grant: Callable[[Change[Grant]], None],
        timings: WatchTimings,
    ) -> None:
        self.groups = Informer(
            kube,
            HOST_CONFIGS,
            view_group,
            on_group(cache, wake),
            optional=True,
            needed=cache.needs_groups,
            timings=timings,
            objects=cache.groups,
        )
        self.grants = Informer(
            kube,
            SECRET_GRANTS,
            view_grant,
            on_grant,
            optional=True,
            states=True,
            needed=cache.needs_grants,
            timings=timings,
            objects=cache.grants,
        )

    def __iter__(self) -> Iterator[Informer[Any]]:
        """Yield every informer."""
        yield from (self.groups, self.grants)


@dataclass(frozen=True, slots=True)
class ConnectionsOfGroups:
    """Connection of each host group, for ``GroupLattices``; its keys are those of host groups."""

    cache: Cache
    links: GroupConnections
    permissions: MissingPermissions

    def groups(self, key: str) -> list[GroupView]:
        """Return the host group of a key, if it has a lattice."""
        group = self.cache.groups.get(key)
        return [] if group is None or group.spec is None else [group]

    async def follow(self, key: str, address: LatticeAddress | None) -> None:
        """Assign a host group to its connection."""
        self.links.need(key, None if address is None else address.nats)

    @contextmanager
    def noted(self, key: str) -> Iterator[None]:
        """Record a missing permission, and that the connection of the host group was resolved."""
        with self.permissions.noted(key):
            try:
                yield
            finally:
                self.cache.seen.add(key)
