"""What wakes secrets_backend from Kubernetes: groups of hosts, SecretGrants; and where each group's link is.

In: changes from the informers, keys of groups. Out: links. Called by ``app``. Invariants: a group of which nothing can
be read keeps the link it was on; a grant counts from the moment it is seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from secrets_backend.domain.decide import Grant, view_grant
from secrets_backend.gather import Known
from secrets_backend.links import Links
from trellis.kube.client import Kube
from trellis.kube.informer import Change, Informer
from trellis.kube.permissions import MissingPermissions
from trellis.kube.resources import HOST_CONFIGS, SECRET_GRANTS
from trellis.kube.watch_timings import WatchTimings
from trellis.lattice.connection.address import LatticeAddress
from trellis.lattice.domain.group_views import GroupView, view_group


def on_group(known: Known, wake: Callable[[Change[GroupView]], None]) -> Callable[[Change[GroupView]], None]:
    """Return the handler of changes of groups."""

    def handle(change: Change[GroupView]) -> None:
        known.changed()
        wake(change)
        if change.new is None:
            known.seen.discard(change.key)

    return handle


class Watches:
    """The informers. Both kinds are optional: without host groups there is nobody to answer."""

    def __init__(
        self,
        kube: Kube,
        known: Known,
        wake: Callable[[Change[GroupView]], None],
        on_grant: Callable[[Change[Grant]], None],
        timings: WatchTimings,
    ) -> None:
        self.groups = Informer(
            kube,
            HOST_CONFIGS,
            view_group,
            on_group(known, wake),
            optional=True,
            needed=known.needs_groups,
            timings=timings,
            objects=known.groups,
        )
        self.grants = Informer(
            kube,
            SECRET_GRANTS,
            view_grant,
            on_grant,
            optional=True,
            needed=known.needs_grants,
            timings=timings,
            objects=known.grants,
        )

    def __iter__(self) -> Iterator[Informer[Any]]:
        """Yield every informer."""
        yield from (self.groups, self.grants)


@dataclass(frozen=True, slots=True)
class LinksOfGroups:
    """Where the link of each group is, for ``GroupLattices``: its keys are those of groups."""

    known: Known
    links: Links
    rights: MissingPermissions

    def groups(self, key: str) -> list[GroupView]:
        """Return the group of a key, if it has a lattice."""
        group = self.known.groups.get(key)
        return [] if group is None or group.spec is None else [group]

    async def follow(self, key: str, address: LatticeAddress | None) -> None:
        """Put a group on its link."""
        self.links.need(key, None if address is None else address.link)

    @contextmanager
    def noted(self, key: str) -> Iterator[None]:
        """Note a right that is missing, and that the group's link was looked for."""
        with self.rights.noted(key):
            try:
                yield
            finally:
                self.known.seen.add(key)
