"""Secrets that components were given, and that changed since.

Pure: events of ``secrets_backend`` in, views out. Called by ``handlers``, read by ``restarts``. Invariant: of two
versions of a Secret the newer counts, in whichever order they come.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from trellis.events.secrets import SecretChanged
from trellis.installer_api.parse_int import whole


@dataclass(frozen=True, slots=True)
class SecretChange:
    """A Secret (``namespace/name``) in a new version; ``hosts``: ids of those that were given a former one.

    ``namespaces``: of the groups that those may belong to, none if that is not known.
    """

    secret: str
    version: str
    hosts: frozenset[str]
    namespaces: frozenset[str] = frozenset()

    def with_those_of(self, former: SecretChange | None) -> SecretChange:
        """Return what is known of the Secret now, if this was known before: replicas tell of their own hosts each."""
        if former is None:
            return self
        newest = self if is_newer(self.version, former.version) else former
        return replace(newest, hosts=self.hosts | former.hosts, namespaces=self.namespaces | former.namespaces)


def change_of(fact: SecretChanged) -> SecretChange:
    """Return what an event says."""
    namespaces = frozenset(one.namespace for one in fact.groups)
    return SecretChange(f"{fact.namespace}/{fact.name}", fact.resource_version, frozenset(fact.hosts), namespaces)


def is_newer(version: str, than: str) -> bool:
    """Return whether a resourceVersion is newer: they are numbers that grow; what is none is another one at most."""
    one, other = whole(version), whole(than)
    return version != than if one is None or other is None else one > other
