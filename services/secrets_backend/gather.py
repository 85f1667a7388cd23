"""The cache of secrets_backend: host groups, their lattice connections, shared accounts, SecretGrants.

In: objects of the informers, addresses, connections to the same account. Out: the grant of a connection. Called by
``watches``, ``lattice_connections`` and ``serving``. Invariants: connections to one account have one grant, as each may
receive the requests of all; a connection with an unknown account has its own grant; unknown state grants nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from secrets_backend.domain.decide import ConnectionGrant, Grant
from trellis.lattice.connection.address import NatsAddress
from trellis.lattice.domain.group_views import GroupView


@dataclass(slots=True)
class Cache:
    """``groups``, ``grants``: objects of the informers; the rest is derived. Call ``changed`` after each change."""

    groups: dict[str, GroupView]
    grants: dict[str, Grant]
    addresses: dict[str, NatsAddress] = field(default_factory=dict)
    """By ``namespace/name`` of a host group: the address of its connection."""
    shared: dict[NatsAddress, set[NatsAddress]] = field(default_factory=dict)
    """By connection: the other connections to its account."""
    seen: set[str] = field(default_factory=set)
    """Host groups whose connection was resolved, successfully or not."""
    tried: set[NatsAddress] = field(default_factory=set)
    """Connections whose account was determined, or cannot be determined now."""
    grants_known: Callable[[], bool] = lambda: True
    """Returns True if SecretGrants can be listed and their CRD exists, so that a missing SecretGrant does not exist,
    and if neither SecretGrants nor host groups are outdated."""
    deleted: dict[str, Grant] = field(default_factory=dict)
    """Deleted SecretGrants, perhaps deleted with their CRD: their namespaces are closed until that is known."""
    recreated: bool = False
    """True if the CRD of SecretGrants was re-created, so that those deleted with the former one are unknown."""
    _found: dict[NatsAddress, ConnectionGrant] = field(default_factory=dict)

    def changed(self) -> None:
        """Drop all derived grants."""
        self._found.clear()

    def looked_for(self, address: NatsAddress) -> None:
        """Record that the account of a connection was determined, or that it is unreachable."""
        self.tried.add(address)

    def record_account(self, address: NatsAddress, other: NatsAddress, *, yes: bool) -> None:
        """Record whether two connections lead into one account."""
        if yes == (other in self.of_its_account(address)):
            return
        for key, its in ((address, other), (other, address)):
            found = self.shared.setdefault(key, set())
            (found.add if yes else found.discard)(its)
        self.changed()

    def of_its_account(self, address: NatsAddress) -> frozenset[NatsAddress]:
        """Return the other connections that lead into a connection's account."""
        return frozenset(self.shared.get(address, ()))

    def connection_removed(self, address: NatsAddress) -> None:
        """Drop a connection that no host group needs."""
        self.tried.discard(address)
        for other in self.shared.pop(address, set()):
            self.shared[other].discard(address)
        self.changed()

    def settled(self) -> bool:
        """Return whether all host groups are resolved and all connections tried, so that grants are complete."""
        looked_for = self.groups.keys() <= self.seen and self.tried.issuperset(self.addresses.values())
        return looked_for and self.grants_known()

    def connection_grant(self, address: NatsAddress) -> ConnectionGrant:
        """Return the grant for the requests on a connection."""
        found = self._found.get(address)
        if found is None:
            found = self._found[address] = self._connection_grant(address)
        return found if self.grants_known() else replace(found, known=False)

    def needs_groups(self) -> str | None:
        """Return why host groups have to be listed: a SecretGrant names their namespaces; None if there is none."""
        first = min(self.grants, default=None)
        return None if first is None else f"SecretGrant {first} is for host groups: Secrets are denied"

    def needs_grants(self) -> str | None:
        """Return why SecretGrants have to be listed: a host group may request Secrets; None if there is none."""
        first = min(self.groups, default=None)
        return None if first is None else f"host group {first} may request Secrets: Secrets are denied"

    def _connection_grant(self, address: NatsAddress) -> ConnectionGrant:
        same = {address, *self.of_its_account(address)}
        on = [group for key, group in self.groups.items() if self.addresses.get(key) in same]
        groups = frozenset((group.namespace, group.spec.lattice) for group in on if group.spec is not None)
        grants = tuple(grant for grant in self.grants.values() if grant.is_for(groups))
        home = frozenset(namespace for namespace, _ in groups)
        unsure = frozenset(grant.namespace for grant in self.deleted.values() if grant.is_for(groups))
        if self.recreated:
            unsure |= home - {grant.namespace for grant in grants}
        return ConnectionGrant(home, groups, grants, unsure=unsure)
