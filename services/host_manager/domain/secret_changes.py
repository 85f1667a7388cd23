"""Secrets that changed after components received them.

Pure: events of ``secrets_backend`` in, views out. Called by ``handlers``, read by ``restarts``. Invariant: of two
versions of a Secret the newer one counts, in any order of arrival.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from trellis.events.secrets import SecretChanged
from trellis.installer_api.parse_int import whole


@dataclass(frozen=True, slots=True)
class SecretChange:
    """A Secret (``namespace/name``) in a new version; ``hosts``: ids of those that received a former one.

    ``namespaces``: of the host groups that these hosts may belong to, empty if unknown.
    """

    secret: str
    version: str
    hosts: frozenset[str]
    namespaces: frozenset[str] = frozenset()

    def with_those_of(self, former: SecretChange | None) -> SecretChange:
        """Return this change merged with an earlier one of the Secret: each replica reports only its own hosts."""
        if former is None:
            return self
        newest = self if is_newer(self.version, former.version) else former
        return replace(newest, hosts=self.hosts | former.hosts, namespaces=self.namespaces | former.namespaces)


def change_of(event: SecretChanged) -> SecretChange:
    """Return the change in an event."""
    namespaces = frozenset(group.namespace for group in event.groups)
    return SecretChange(f"{event.namespace}/{event.name}", event.resource_version, frozenset(event.hosts), namespaces)


def is_newer(version: str, than: str) -> bool:
    """Return whether a resourceVersion is newer: a larger number; if one is not a number, whether they differ."""
    item, other = whole(version), whole(than)
    return version != than if item is None or other is None else item > other
