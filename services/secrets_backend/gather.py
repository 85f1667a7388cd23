"""The cache of secrets_backend: host groups, their lattice connections, shared accounts, SecretGrants.

In: objects of the informers, addresses, connections to the same account. Out: the grant of a connection. Called by
``watches``, ``links`` and ``serving``. Invariants: connections to one account have one grant, as each may receive
requests of the others; a connection with an unknown account stands for itself; unknown state grants nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from secrets_backend.domain.decide import Grant, LinkGrant
from trellis.lattice.connection.address import LinkAddress
from trellis.lattice.domain.group_views import GroupView


@dataclass(slots=True)
class Cache:
    """``groups`` and ``grants`` are the informers' objects; the rest is found out. ``changed`` after each change."""

    groups: dict[str, GroupView]
    grants: dict[str, Grant]
    addresses: dict[str, LinkAddress] = field(default_factory=dict)
    """By ``namespace/name`` of a group: the link that it is on."""
    shared: dict[LinkAddress, set[LinkAddress]] = field(default_factory=dict)
    """By link: the others that lead into its account."""
    seen: set[str] = field(default_factory=set)
    """Groups whose link was looked for, found or not."""
    tried: set[LinkAddress] = field(default_factory=set)
    """Links of which it is known which others lead into their account, or that it cannot be known now."""
    grants_known: Callable[[], bool] = lambda: True
    """Whether SecretGrants can be listed and their CRD stands, so that what is in neither place does not exist; and
    neither they nor host groups are outdated."""
    deleted: dict[str, Grant] = field(default_factory=dict)
    """SecretGrants that are gone, perhaps with their CRD: their namespaces are closed until that is known."""
    recreated: bool = False
    """Whether the CRD of SecretGrants was created again, and those that went with the former one are not known."""
    _found: dict[LinkAddress, LinkGrant] = field(default_factory=dict)

    def changed(self) -> None:
        """Forget what was made of what is known."""
        self._found.clear()

    def looked_for(self, address: LinkAddress) -> None:
        """Note that the other links of this one's account were looked for, or that it is unreachable."""
        self.tried.add(address)

    def one_account(self, one: LinkAddress, other: LinkAddress, *, yes: bool) -> None:
        """Note whether two links lead into one account."""
        if yes == (other in self.of_its_account(one)):
            return
        for address, its in ((one, other), (other, one)):
            found = self.shared.setdefault(address, set())
            (found.add if yes else found.discard)(its)
        self.changed()

    def of_its_account(self, address: LinkAddress) -> frozenset[LinkAddress]:
        """Return the other links that lead into a link's account."""
        return frozenset(self.shared.get(address, ()))

    def link_gone(self, address: LinkAddress) -> None:
        """Forget a link that no group needs."""
        self.tried.discard(address)
        for other in self.shared.pop(address, set()):
            self.shared[other].discard(address)
        self.changed()

    def settled(self) -> bool:
        """Return whether every group's link was looked for, and every link tried: from then on grants are whole."""
        looked_for = self.groups.keys() <= self.seen and self.tried.issuperset(self.addresses.values())
        return looked_for and self.grants_known()

    def link_grant(self, address: LinkAddress) -> LinkGrant:
        """Return what the requests that come over a link may name."""
        found = self._found.get(address)
        if found is None:
            found = self._found[address] = self._link_grant(address)
        return found if self.grants_known() else replace(found, known=False)

    def needs_groups(self) -> str | None:
        """Return why host groups have to be listed: a SecretGrant names their namespaces; None if there is none."""
        first = min(self.grants, default=None)
        return None if first is None else f"SecretGrant {first} is for host groups: no Secret is given"

    def needs_grants(self) -> str | None:
        """Return why SecretGrants have to be listed: a host group may ask for Secrets; None if there is none."""
        first = min(self.groups, default=None)
        return None if first is None else f"host group {first} may ask for Secrets: no Secret is given"

    def _link_grant(self, address: LinkAddress) -> LinkGrant:
        same = {address, *self.of_its_account(address)}
        on = [group for key, group in self.groups.items() if self.addresses.get(key) in same]
        groups = frozenset((group.namespace, group.spec.lattice) for group in on if group.spec is not None)
        grants = tuple(grant for grant in self.grants.values() if grant.is_for(groups))
        home = frozenset(namespace for namespace, _ in groups)
        unsure = frozenset(grant.namespace for grant in self.deleted.values() if grant.is_for(groups))
        if self.recreated:
            unsure |= home - {grant.namespace for grant in grants}
        return LinkGrant(home, groups, grants, unsure=unsure)
