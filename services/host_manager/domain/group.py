"""What a host group is made from: its object, and what was read of the Secrets and ConfigMaps it names.

Pure. Filled by ``gather``; read by everything that makes manifests. Invariant: credentials are shown by no ``repr``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from trellis import names
from trellis.crds.host_config import WasmCloudHostConfigSpec

Manifest = dict[str, Any]

API_VERSION: Final = "k8s.wasmcloud.dev/v1alpha1"
KIND: Final = "WasmCloudHostConfig"
ADOPTED: Final = 1
"""Revision of the pod template that is wasmcloud-operator's, without the credentials it shows."""
LATEST: Final = 2
"""Revision of our own."""


@dataclass(frozen=True, slots=True)
class Group:
    """One WasmCloudHostConfig as its children are made from it."""

    name: str
    namespace: str
    uid: str
    spec: WasmCloudHostConfigSpec

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    def runs_as_daemonset(self, revision: int) -> bool:
        """Return whether there is to be a host on each node.

        ``spec.daemonset`` is the place of old; wasmcloud-operator 0.5 took no notice of it, so neither do its groups.
        """
        options = self.spec.scheduling_options
        former = bool(self.spec.daemonset) and revision >= LATEST
        return former or (options is not None and options.daemonset)


@dataclass(frozen=True, slots=True)
class Registry:
    """Credentials of a registry that components come from."""

    server: str
    user: str = field(repr=False)
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Inputs:
    """What was read besides the object.

    ``credentials``: the Secret for NATS has credentials; ``seed``: it has a cluster seed. ``authorities``: for each of
    ``spec.certificates.authorities`` the keys with certificates of its Secret, and of its ConfigMap. ``tls_keys``: keys
    of the Secret for the leaf's TLS. ``checksum``: of the contents of all that was read; ``former_checksum``: the same
    as it was salted before, which is kept where pods have it.
    """

    credentials: bool = False
    seed: bool = False
    authorities: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = ()
    registries: tuple[Registry, ...] = ()
    tls_keys: tuple[str, ...] = ()
    checksum: str = ""
    former_checksum: str = ""


@dataclass(frozen=True, slots=True)
class HostGroupSpec:
    """A group, what was read for it, and the revision of the template that it is to have.

    ``managed_by``: who its pods say manages them, which revision 1 leaves as it is. ``restarted_for``: the changed
    Secrets that they were restarted for, "" for none, and ``restarted_at``: when the last time.
    """

    group: Group
    inputs: Inputs
    revision: int
    managed_by: str = names.WADM_OPERATOR
    restarted_for: str = ""
    restarted_at: str = ""
