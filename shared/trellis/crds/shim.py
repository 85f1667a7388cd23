"""Shim: a Wasm runtime (containerd shim) for nodes.

Group ``runtime.spinkube.dev``, as runtime-class-manager defined it: objects that its CRD accepted are accepted here,
except those that could never work (a rollout to zero nodes at a time, names that are invalid in Kubernetes, a selector
that matches the label of the Shim itself). Additional fields are optional. Read by ``provisioner``, which alone writes
the status.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import ConfigDict, Field

from trellis.crds.api import (
    KUBERNETES,
    LABEL_KEY,
    ApiModel,
    Conditions,
    IntOrPercent,
    LabelKey,
    LabelValue,
    Quantities,
    immutable,
    never,
    rules,
)

SHA256: Final = r"^[0-9A-Fa-f]{64}$"
SUBDOMAIN: Final = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
LABEL: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
RESERVED_NAME: Final = "kwasm"
"""Name of the legacy installer image in places that name Shims."""
RESERVED_HANDLER: Final = "runc"
"""The default runtime of the node."""
_ANOTHER: Final = "create another Shim with it, and delete this one"

_MOST: Final = 32
"""Maximum number of labels and tolerations, which the API server needs for the CEL estimate of a rule."""

_SELECTS: Final = (
    "has(self.spec) && has(self.spec.runtimeClass.scheduling) && has(self.spec.runtimeClass.scheduling.nodeSelector)"
)
DURATION: Final = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$"
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
    """Archive or binary for every node, fetched without credentials."""

    location: str
    """URL of the archive or binary: https, or http if the platform allows it."""
    sha256: Sha256 | None = None
    """SHA-256 of the file at the location, 64 hex digits. Required unless the platform accepts shims without
    checksum."""
    signature: Signature | None = None
    """Signature by `cosign sign-blob` of the file at the location, in base64. Required if the platform trusts only
    signed shims."""


class Platform(ApiModel):
    """The archive or binary for nodes of one operating system and architecture."""

    os: Literal["linux"]
    """Operating system of the nodes."""
    arch: Arch
    """Architecture of the nodes."""
    location: str
    """URL of the archive or binary, or its absolute path in the installer's own image."""
    sha256: str | None = None
    """SHA-256 of the file at the location, 64 hex digits. Required unless the platform accepts shims without
    checksum."""
    signature: Signature | None = None
    """Signature by `cosign sign-blob` of the file at the location, in base64. Required if the platform trusts only
    signed shims."""


class PullSecret(ApiModel):
    """A Secret of type ``kubernetes.io/dockerconfigjson``."""

    name: str = Field(pattern=SUBDOMAIN, max_length=253)
    """Name of the Secret, in the namespace of the installer Jobs."""


class OciSource(ApiModel):
    """An OCI artifact or image that contains the shim."""

    image: str = Field(min_length=1)
    """Reference of the image, with a digest (``…@sha256:…``) unless the platform accepts shims without checksum."""
    path: str | None = None
    """Path of the binary in the artifact. Required if it contains several files."""
    pull_secret: PullSecret | None = None
    """Secret with the credentials of the registry. Unset: no credentials."""
    signature: Signature | None = None
    """Signature of signedPayload, in base64. Required if the platform trusts only signed shims."""
    signed_payload: str | None = Field(default=None, pattern=BASE64, max_length=16384)
    """Signed payload, in base64, with the digest of the image. Required with signature."""


class ImageSource(ApiModel):
    """Binary inside the installer's own image."""

    path: str = Field(pattern="^/")
    """Absolute path in the installer's image."""
    sha256: Sha256 | None = None
    """SHA-256 of the binary, 64 hex digits. Required unless the platform accepts shims without checksum."""
    signature: Signature | None = None
    """Signature of the binary by `cosign sign-blob`, in base64. Required if the platform trusts only signed shims."""


class FetchStrategy(ApiModel):
    """Source of the shim's binary. A matching entry of ``platforms`` takes precedence over the other sources."""

    type: str | None = None
    """Ignored: kept for objects of runtime-class-manager."""
    anon_http: AnonHttp | None = None
    """Archive or binary for every node, fetched without credentials. Unset: another source."""
    platforms: list[Platform] | None = None
    """Archives or binaries by operating system and architecture. A node without an entry uses another source. Unset:
    another source for all nodes."""
    oci: OciSource | None = None
    """OCI artifact or image that contains the shim. Unset: another source."""
    image: ImageSource | None = None
    """Binary inside the installer's own image. Unset: another source."""


class Overhead(ApiModel):
    """Resources that a pod of this runtime needs besides its containers."""

    pod_fixed: Quantities
    """Quantities by resource name, such as ``{"memory": "16Mi"}``."""


class Toleration(ApiModel):
    """A taint that pods tolerate, as in the spec of a pod."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            (
                "has(self.key) || (has(self.operator) && self.operator == 'Exists')",
                "a toleration without key needs operator Exists, and tolerates every taint",
            ),
            (
                "!has(self.value) || self.value == '' || !has(self.operator) || self.operator != 'Exists'",
                "a toleration with operator Exists has no value: use operator Equal, or remove the value",
            ),
            (
                "!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')",
                "tolerationSeconds needs effect NoExecute",
            ),
        )
    )

    key: LabelKey | None = None
    """Key of the taint. Unset: every key, with operator Exists."""
    operator: Literal["Exists", "Equal"] | None = None
    """Relation to the value of the taint. Default: Equal."""
    value: LabelValue | None = None
    """Value of the taint, for operator Equal. Default: the empty value."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Effect of the taint. Unset: every effect."""
    toleration_seconds: int | None = Field(default=None, json_schema_extra={"format": "int64"})
    """Time for which a taint NoExecute is tolerated, in seconds. Unset: forever."""


class Scheduling(ApiModel):
    """Nodes for pods of the RuntimeClass. Kubernetes adds them to each new pod; running pods keep their own."""

    node_selector: dict[str, LabelValue] | None = Field(
        default=None,
        max_length=_MOST,
        json_schema_extra=rules((f"self.all(key, key.matches(r'{LABEL_KEY}'))", "each key must be a label key")),
    )
    """Labels that nodes need for pods of the RuntimeClass, besides the label of nodes that are verified to run the
    shim. Unset: no further labels."""
    tolerations: list[Toleration] | None = Field(
        default=None,
        max_length=_MOST,
        json_schema_extra={f"{KUBERNETES}list-type": "atomic"}
        | rules(("self.all(one, self.exists_one(other, other == one))", "tolerations must be different")),
    )
    """Taints of nodes that pods of the RuntimeClass tolerate, besides their own tolerations. Unset: none."""


class RuntimeClassSpec(ApiModel):
    """RuntimeClass of the shim."""

    name: str = Field(
        pattern=SUBDOMAIN, max_length=253, json_schema_extra=immutable("the name of the RuntimeClass", _ANOTHER)
    )
    """Name of the RuntimeClass that provisioner creates. Immutable."""
    handler: str = Field(
        pattern=LABEL,
        max_length=63,
        json_schema_extra=rules(
            ("self == oldSelf", f"the handler cannot be changed: {_ANOTHER}"),
            (f"self != '{RESERVED_HANDLER}'", f"{RESERVED_HANDLER} is the default runtime of the node"),
        ),
    )
    """Name of the handler in the configuration of the container runtime. Immutable."""
    overhead: Overhead | None = None
    """Resources that a pod of the RuntimeClass needs besides its containers, for the scheduler. Unset: none."""
    scheduling: Scheduling | None = None
    """Nodes for pods of the RuntimeClass. Unset: every node that is verified to run the shim and has no taint that a
    pod does not tolerate."""


class WorkloadPolicy(StrEnum):
    """Treatment of pods of the RuntimeClass that are less ready on changed nodes than before."""

    IGNORE = "Ignore"
    WAIT = "Wait"
    HALT = "Halt"


class Rolling(ApiModel):
    """Limits of a rolling update."""

    max_update: IntOrPercent
    """Maximum number of nodes that are changed at the same time: a number, or a percentage of the nodes that require
    the shim."""
    pause_on_failures: int | None = Field(default=None, ge=0)
    """Number of failed nodes at which the rollout halts; 0 never halts it. Default: the setting
    TRELLIS_HALT_AFTER_FAILURES of provisioner."""
    workloads: WorkloadPolicy | None = None
    """Treatment of pods of the RuntimeClass that are less ready than before on changed nodes. Wait (default): no
    further node begins, and the rollout halts after workloadTimeout. Halt: the rollout halts at the first pod that
    fails. Ignore: pods are not evaluated."""
    workload_timeout: str | None = Field(default=None, pattern=DURATION)
    """Time for pods on changed nodes to be as ready as before, and for the drain of one node, as a duration such as
    ``5m``. Default: ``5m``."""
    drain: bool | None = None
    """Evict the pods of the RuntimeClass from a node before it is changed, as their PodDisruptionBudgets allow, and
    schedule none there until the change has ended. Pods of DaemonSets and pods without a controller stay. Default:
    false."""


class RolloutType(StrEnum):
    """Strategy by which nodes get a new version."""

    ROLLING = "rolling"
    RECREATE = "recreate"


class RolloutStrategy(ApiModel):
    """Strategy by which nodes get a new version: a few at a time (rolling), or all at once (recreate)."""

    type: RolloutType
    """``rolling``: some nodes at a time; ``recreate``: all nodes at once."""
    rolling: Rolling | None = None
    """Limits of a rolling update. Default: the setting TRELLIS_MAX_UNAVAILABLE of provisioner."""


class Verify(ApiModel):
    """Verification that a node runs Wasm with this shim."""

    canary: bool | None = None
    """Run a canary pod with the RuntimeClass on each node. Default: true if the handler runs WASI commands."""
    canary_image: str | None = Field(default=None, min_length=1)
    """Image of the canary pod, which must exit with 0. Default: a built-in WASI command."""
    timeout: str | None = Field(default=None, pattern=DURATION)
    """Time within which a node must report the handler and run the canary pod, as a duration such as ``90s``. Default:
    the setting TRELLIS_VERIFY_TIMEOUT of provisioner."""


class RemovalPolicy(StrEnum):
    """Treatment of pods that use the handler when it is removed."""

    REFUSE = "Refuse"
    DRAIN = "Drain"
    FORCE = "Force"


class StartupTaint(ApiModel):
    """A taint that new nodes start with and that is removed once they are ready."""

    key: str = Field(min_length=1)
    """Key of the taint."""
    value: str | None = None
    """Value of the taint. Unset: any value."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]
    """Effect of the taint."""


class ShimSpec(ApiModel):
    """Desired state."""

    node_selector: dict[str, str] | None = None
    """Labels of the nodes that require the shim. Unset: every Linux node. A node annotated kwasm.sh/kwasm-node=false
    requires none; a Shim labelled trellis.dev/kwasm-default=true selects nodes annotated true."""
    containerd_runtime_options: dict[str, str] | None = None
    """Options of the runtime in the configuration of containerd. Unset: none."""
    fetch_strategy: FetchStrategy
    """Source of the shim's binary."""
    runtime_class: RuntimeClassSpec
    """RuntimeClass of the shim."""
    rollout_strategy: RolloutStrategy
    """Strategy by which nodes get a new version."""
    paused: bool | None = None
    """Start no installation on further nodes while true. Default: false."""
    verify: Verify | None = None
    """Verification that a node runs Wasm with the shim. Unset: the defaults of its fields."""
    removal_policy: RemovalPolicy | None = None
    """Removal while pods use the handler: Refuse (default), Drain the pods, or Force it and end them."""
    startup_taint: StartupTaint | None = Field(
        default=None,
        json_schema_extra=rules(
            ("!self.key.startsWith('node.kubernetes.io/')", "taints of node.kubernetes.io are reserved for Kubernetes")
        ),
    )
    """Taint that is removed from a node once all its shims are verified. Unset: none."""


class ShimStatus(ApiModel):
    """Observed state, written by provisioner."""

    conditions: Conditions | None = None
    """Ready, Reconciling and Stalled as kstatus defines them; Available, Progressing and Degraded;
    further ones while they apply."""
    observed_generation: int | None = Field(default=None, ge=0, json_schema_extra={"format": "int64"})
    """Generation of the spec that this status describes."""
    nodes: int
    """Number of nodes that require the shim."""
    nodes_ready: int
    """Number of nodes that were verified to run the shim, in any version."""
    nodes_updated: int | None = None
    """Number of nodes that were verified to run the version of the current spec."""
    nodes_failed: int | None = None
    """Number of nodes on which the last attempt to install the current version failed."""
    digest: str | None = None
    """Digest of the version that is rolled out, as in the annotation trellis.dev/shims of nodes; several, separated by
    commas, if platforms have different archives."""


class Shim(ApiModel):
    """Wasm runtime (containerd shim) that is rolled out to nodes."""

    model_config = ConfigDict(
        json_schema_extra=never(
            (
                f"self.metadata.name == '{RESERVED_NAME}'",
                f"the name {RESERVED_NAME} is reserved for the legacy installer image: use another name",
            ),
            (
                "has(self.spec) && has(self.spec.nodeSelector) && self.metadata.name in self.spec.nodeSelector",
                "spec.nodeSelector contains the label of the Shim's own nodes: use another label or another name",
            ),
            (
                f"{_SELECTS} && self.metadata.name in self.spec.runtimeClass.scheduling.nodeSelector",
                "spec.runtimeClass.scheduling.nodeSelector contains the label of the Shim's own nodes: remove it",
            ),
        )
    )

    spec: ShimSpec | None = None
    """Desired state."""
    status: ShimStatus | None = None
    """Observed state, written by provisioner."""
