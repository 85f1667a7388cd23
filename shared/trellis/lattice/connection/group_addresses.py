"""Returns the address of the lattice of a host group, with the current credentials of its Secrets.

In: a host group. Out: an address. Called by services that follow lattices. Invariants: Secrets are read one by one,
never listed; a missing Secret is not an error, an unreadable one is.
"""

from __future__ import annotations

from trellis.kube.client import Kube
from trellis.kube.errors import NotFound
from trellis.kube.resources import SECRETS, Manifest
from trellis.lattice.connection.address import LatticeAddress
from trellis.lattice.connection.groups import lattice_address
from trellis.lattice.domain.group_views import GroupView
from trellis.lattice.domain.subjects import SubjectError
from trellis.telemetry import get_logger

_log = get_logger(__name__)


async def read_secrets(kube: Kube, group: GroupView) -> dict[str, Manifest | None]:
    """Return the Secrets of the lattice address of a host group by name, None for a missing Secret.

    Raises:
        KubeError: a Secret could not be read.
    """
    assert group.spec is not None  # a group without one has no lattice
    secrets: dict[str, Manifest | None] = {}
    for name in group.spec.secrets:
        try:
            secrets[name] = await kube.get(SECRETS, name, group.namespace)
        except NotFound:
            secrets[name] = None
    return secrets


async def address_of(kube: Kube, group: GroupView) -> tuple[LatticeAddress | None, bool]:
    """Return the lattice address of a host group, None if its name is invalid in subjects; and whether it uses Secrets.

    Raises:
        KubeError: a Secret could not be read.
    """
    assert group.spec is not None  # a group without one has no lattice
    secrets = await read_secrets(kube, group)
    try:
        return lattice_address(group.spec, group.namespace, secrets), bool(secrets)
    except SubjectError as error:
        _log.warning("lattice connection not configured", group=group.key, reason=str(error))
        return None, bool(secrets)
