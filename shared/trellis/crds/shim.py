"""Shim: a Wasm runtime that nodes are to have.

Group ``runtime.spinkube.dev``, as runtime-class-manager defined it: the objects that its definition accepted are
accepted here, but for those that could never work (a rollout of no node at a time, names that Kubernetes takes for
nothing, a selector that the Shim's own label would break). What it does not have is optional. Read by ``provisioner``,
which alone writes the status.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import ConfigDict, Field

from trellis.crds.api import ApiModel, Conditions, IntOrPercent, Quantities, immutable, never, rules

SHA256: Final = r"^[0-9A-Fa-f]{64}$"
SUBDOMAIN: Final = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
LABEL: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
RESERVED_NAME: Final = "kwasm"
"""Stands for the legacy installer image wherever Shims are named."""
RESERVED_HANDLER: Final = "runc"
"""The node's own runtime."""
_ANOTHER: Final = "make another Shim with it, and delete this one"

BASE64: Final = r"^[A-Za-z0-9+/]+={0,2}$"

Sha256 = Annotated[str, Field(pattern=SHA256)]
Signature = Annotated[str, Field(pattern=BASE64, max_length=2048)]


class Arch(StrEnum):
    """Processor architectures, in either spelling."""

    AMD64 = "amd64"
    ARM64 = "arm64"
    X86_64 = "x86_64"
    AARCH64 = "aarch64"


class AnonHttp(ApiModel):
    """One archive for every node, fetched without credentials."""

    location: str
    """Address of the archive or binary: https, or http where the installer is allowed to use it."""
    sha256: Sha256 | None = None
    """Checksum of what is at the location. Without it nothing is installed, unless checksums are not required."""
    signature: Signature | None = None
    """In base64, of what is at the location, as of `cosign sign-blob`; asked for where the platform has named keys."""


class Platform(ApiModel):
    """The archive for nodes of one operating system and architecture."""

    os: Literal["linux"]
    """Operating system of the nodes."""
    arch: Arch
    """Architecture of the nodes."""
    location: str
    """Address of the archive or binary."""
    sha256: str | None = None
    """Checksum of what is at the location: 64 hex digits."""
    signature: Signature | None = None
    """In base64, of what is at the location, as of `cosign sign-blob`; asked for where the platform has named keys."""


class PullSecret(ApiModel):
    """A Secret of type ``kubernetes.io/dockerconfigjson``."""

    name: str = Field(pattern=SUBDOMAIN, max_length=253)
    """Name of the Secret, in the namespace of the installer's Jobs."""


class OciSource(ApiModel):
    """An OCI artifact or image that holds the shim."""

    image: str = Field(min_length=1)
    """Reference, with a digest (``…@sha256:…``) unless checksums are not required."""
    path: str | None = None
    """Path of the binary inside, if it holds several files."""
    pull_secret: PullSecret | None = None
    """Credentials of the registry."""
    signature: Signature | None = None
    """In base64, of the payload; asked for where the platform has named keys."""
    signed_payload: str | None = Field(default=None, pattern=BASE64, max_length=16384)
    """The payload that was signed, in base64; it has to name the digest of the image."""


class ImageSource(ApiModel):
    """A binary inside the installer's own image."""

    path: str = Field(pattern="^/")
    """Absolute path in the installer's image."""
    sha256: Sha256 | None = None
    """Checksum of the binary. Without it nothing is installed, unless checksums are not required."""
    signature: Signature | None = None
    """In base64, of the binary, as of `cosign sign-blob`; asked for where the platform has named keys."""


class FetchStrategy(ApiModel):
    """Where the shim's binary comes from. A node takes what ``platforms`` has for it, else one of the others."""

    type: str | None = None
    """Kept for objects of runtime-class-manager; the fields beside it say all."""
    anon_http: AnonHttp | None = None
    """One archive for every node."""
    platforms: list[Platform] | None = None
    """An archive for each operating system and architecture."""
    oci: OciSource | None = None
    """An OCI artifact or image."""
    image: ImageSource | None = None
    """A binary inside the installer's own image."""


class Overhead(ApiModel):
    """What a pod of this runtime needs besides its containers."""

    pod_fixed: Quantities
    """Quantities by resource name: ``{"memory": "16Mi"}``."""


class RuntimeClassSpec(ApiModel):
    """The RuntimeClass that pods name."""

    name: str = Field(
        pattern=SUBDOMAIN, max_length=253, json_schema_extra=immutable("the name of the RuntimeClass", _ANOTHER)
    )
    """Name of the RuntimeClass. It cannot be changed."""
    handler: str = Field(
        pattern=LABEL,
        max_length=63,
        json_schema_extra=rules(
            ("self == oldSelf", f"the handler cannot be changed: {_ANOTHER}"),
            (f"self != '{RESERVED_HANDLER}'", f"{RESERVED_HANDLER} is the node's own runtime"),
        ),
    )
    """Name of the handler in the container runtime's configuration. It cannot be changed."""
    overhead: Overhead | None = None
    """Overhead of each pod, for the scheduler."""


class Rolling(ApiModel):
    """Limits of a rolling update."""

    max_update: IntOrPercent
    """How many nodes may be in work at once: a number, or a percentage of the nodes that are to have the shim."""
    pause_on_failures: int | None = Field(default=None, ge=0)
    """Begin no further node once so many have failed; 0 never pauses. Without it the service's setting counts."""


class RolloutType(StrEnum):
    """How nodes get a new version."""

    ROLLING = "rolling"
    RECREATE = "recreate"


class RolloutStrategy(ApiModel):
    """How nodes get a new version: a few at a time (rolling), or all at once (recreate)."""

    type: RolloutType
    """``rolling`` or ``recreate``."""
    rolling: Rolling | None = None
    """Limits of a rolling update; without them the service's own number of nodes at a time."""


class Verify(ApiModel):
    """How a node proves that it runs Wasm with this shim."""

    canary: bool | None = None
    """Run a pod with the RuntimeClass on each node. By default wherever the built-in canary fits the handler."""
    canary_image: str | None = Field(default=None, min_length=1)
    """Image of the canary pod, for handlers that run no WASI command; it must end by itself with status 0."""
    timeout: str | None = Field(default=None, pattern=r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$")
    """How long a node has to show the handler and run the canary: ``90s``, ``2m``."""


class RemovalPolicy(StrEnum):
    """What happens to pods that still use the handler when it is taken away."""

    REFUSE = "Refuse"
    DRAIN = "Drain"
    FORCE = "Force"


class StartupTaint(ApiModel):
    """A taint that new nodes start with and that is taken away once they are ready."""

    key: str = Field(min_length=1)
    """Key of the taint."""
    value: str | None = None
    """Value of the taint; without it any value."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]
    """Effect of the taint."""


class ShimSpec(ApiModel):
    """What nodes are to have."""

    node_selector: dict[str, str] | None = None
    """Labels of the nodes that are to have the shim; without it every Linux node. A node annotated
    kwasm.sh/kwasm-node=false has none; a Shim labelled trellis.dev/kwasm-default=true is for nodes annotated true."""
    containerd_runtime_options: dict[str, str] | None = None
    """Options of the runtime in containerd's configuration."""
    fetch_strategy: FetchStrategy
    """Where the shim comes from."""
    runtime_class: RuntimeClassSpec
    """The RuntimeClass that pods name."""
    rollout_strategy: RolloutStrategy
    """How nodes get a new version."""
    paused: bool | None = None
    """Begin no further node while this is true."""
    verify: Verify | None = None
    """How a node proves that it runs Wasm."""
    removal_policy: RemovalPolicy | None = None
    """Pods that still use the handler: refuse the removal (the default), drain them, or force it."""
    startup_taint: StartupTaint | None = Field(
        default=None,
        json_schema_extra=rules(
            ("!self.key.startsWith('node.kubernetes.io/')", "taints of node.kubernetes.io belong to Kubernetes")
        ),
    )
    """A taint that is removed from a node once it is ready."""


class ShimStatus(ApiModel):
    """What nodes have."""

    conditions: Conditions | None = None
    """Ready, Reconciling and Stalled as kstatus defines them; Available, Progressing and Degraded;
    others while they apply."""
    observed_generation: int | None = Field(default=None, ge=0, json_schema_extra={"format": "int64"})
    """The generation of the Shim that this status is about."""
    nodes: int
    """Nodes that are to have the shim."""
    nodes_ready: int
    """Nodes that were proved to run it, in whichever version."""
    nodes_updated: int | None = None
    """Nodes that were proved to run the version of this generation."""
    nodes_failed: int | None = None
    """Nodes whose last attempt at this version failed."""
    digest: str | None = None
    """The version that nodes are brought to, as they name it in the annotation trellis.dev/shims. Where platforms have
    archives of their own there are several, separated by commas."""


class Shim(ApiModel):
    """A Wasm runtime that nodes are to have: where it comes from, which nodes get it, and how it is rolled out."""

    model_config = ConfigDict(
        json_schema_extra=never(
            (
                f"self.metadata.name == '{RESERVED_NAME}'",
                f"the name {RESERVED_NAME} stands for the legacy installer image: name the Shim otherwise",
            ),
            (
                "has(self.spec) && has(self.spec.nodeSelector) && self.metadata.name in self.spec.nodeSelector",
                "spec.nodeSelector has the label that its own nodes get: select by another, or name the Shim otherwise",
            ),
        )
    )

    spec: ShimSpec | None = None
    """What nodes are to have."""
    status: ShimStatus | None = None
    """What nodes have."""
