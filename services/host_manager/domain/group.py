"""Inputs of a host group's children: its object, and the Secrets and ConfigMaps that it refers to.

Pure. Filled by ``gather``; read by all modules that build manifests. Invariant: no ``repr`` contains credentials.
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
"""Revision of the pod template of wasmcloud-operator, without its plain-text credentials."""
LATEST: Final = 2
"""Revision of the pod template of Trellis."""


@dataclass(frozen=True, slots=True)
class Group:
    """One WasmCloudHostConfig, as the input of its children."""

    name: str
    namespace: str
    uid: str
    spec: WasmCloudHostConfigSpec

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    def runs_as_daemonset(self, revision: int) -> bool:
        """Return whether each node runs a host.

        ``spec.daemonset`` is the former place; wasmcloud-operator 0.5 ignores it, and so do groups of revision 1.
        """
        options = self.spec.scheduling_options
        former = bool(self.spec.daemonset) and revision >= LATEST
        return former or (options is not None and options.daemonset)


@dataclass(frozen=True, slots=True)
class Registry:
    """Credentials of a registry for components."""

    server: str
    user: str = field(repr=False)
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Inputs:
    """Contents of Secrets and ConfigMaps.

    ``credentials``: the NATS Secret has credentials; ``seed``: it has a cluster seed. ``authorities``: for each of
    ``spec.certificates.authorities`` the keys with certificates in its Secret, and in its ConfigMap. ``tls_keys``: keys
    of the Secret for the leaf's TLS. ``checksum``: of all contents; ``former_checksum``: with the former salt, which
    remains in use for pods that have it.
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
    """A host group, its inputs, and the revision of its template.

    ``managed_by``: label value of its pods, which revision 1 does not change. ``restarted_for``: changed Secrets for
    which they were restarted, "" for none; ``restarted_at``: time of the last such restart.
    """

    group: Group
    inputs: Inputs
    revision: int
    managed_by: str = names.WADM_OPERATOR
    restarted_for: str = ""
    restarted_at: str = ""
