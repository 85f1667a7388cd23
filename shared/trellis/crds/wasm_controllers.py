"""WasmController: a controller that is a WebAssembly module.

Group ``trellis.dev``. It is in the namespace of the ServiceAccount that it acts as, and has the permissions of that
account. Read by ``controller_host``, which alone writes the status. Secrets cannot be watched: a controller gets single
Secrets that its account may read.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field, WithJsonSchema

from trellis.crds.api import KUBERNETES, ApiModel, Conditions, LabelKey, LabelValue, rules

EVERYWHERE: Final = "*"
"""Entry of ``namespaces`` for all namespaces."""
_API_VERSION: Final = r"^(v1|[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[a-z]([-a-z0-9]*[a-z0-9])?)$"
_SUBDOMAIN: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
_IMAGE: Final = (
    r"^[a-zA-Z0-9.-]+(:[0-9]+)?/[a-z0-9]+([._/-]+[a-z0-9]+)*(:[a-zA-Z0-9_][a-zA-Z0-9_.-]*)?(@sha256:[0-9a-f]{64})?$"
)
_URL: Final = r"^https://[^\s@#\x00-\x1f\x7f]+$"
_PATH: Final = r"^[^\x00-\x1f\x7f]+$"
_DURATION: Final = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$"
_SET: Final[dict[str, Any]] = {f"{KUBERNETES}list-type": "set"}
_BY_NAME: Final[dict[str, Any]] = {f"{KUBERNETES}list-type": "map", f"{KUBERNETES}list-map-keys": ["name"]}
SOURCES: Final = ("oci", "configMap", "url", "pvc", "path")
"""Fields of ``module``, of which exactly one is set."""
_SIZE: Final = "quantity(string(self))"
_FITS: Final = f"{_SIZE}.compareTo(quantity('64Ki')) >= 0 && {_SIZE}.compareTo(quantity('4Gi')) <= 0"
_WATCHES: Final = 16
_MOST: Final = 64
"""Maximum number of entries of a list, which the API server needs for the CEL estimate of a rule."""

Name = Annotated[str, Field(pattern=_SUBDOMAIN, max_length=253)]
Namespace = Annotated[str, Field(pattern=r"^(\*|[a-z0-9]([-a-z0-9]*[a-z0-9])?)$", max_length=63)]
Duration = Annotated[str, Field(pattern=_DURATION, max_length=32)]
Count = Annotated[int, Field(ge=0, json_schema_extra={"format": "int64"})]


def _inside(field: str) -> tuple[str, str]:
    return (
        f"!{field}.startsWith('/') && !('..' in {field}.split('/'))",
        "the path must be relative and must not contain ..",
    )


def _between(least: str, most: str) -> dict[str, Any]:
    return rules(
        (
            f"duration(self) >= duration('{least}') && duration(self) <= duration('{most}')",
            f"needs a duration from {least} to {most}",
        )
    )


Memory = Annotated[
    int | str,
    Field(union_mode="left_to_right"),
    WithJsonSchema(
        {
            f"{KUBERNETES}int-or-string": True,
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": r"^[0-9]+(\.[0-9]+)?(Ki|Mi|Gi|k|M|G)?$",
        }
        | rules(
            (
                _FITS,
                "needs memory from 64Ki (one page) to 4Gi (the maximum of a module)",
            )
        )
    ),
]
"""A quantity of memory: ``64Mi``, or a number of bytes."""


class LocalReference(ApiModel):
    """An object in the namespace of the controller."""

    name: Name
    """Name of the object, in the namespace of the controller."""


class OciModule(ApiModel):
    """A module in a registry: an artifact, or an image with the module as its only file."""

    image: str = Field(pattern=_IMAGE, max_length=1024)
    """Reference of the image, such as registry.example/team/controller:1.2@sha256:…"""
    pull_secret: LocalReference | None = None
    """Secret of type kubernetes.io/dockerconfigjson, which the ServiceAccount must be permitted to get. Unset: none."""


class ConfigMapModule(ApiModel):
    """A module in the binaryData of a ConfigMap, at most 1 MiB."""

    name: Name
    """Name of the ConfigMap, in the namespace of the controller. The ServiceAccount must be permitted to get it."""
    key: str = Field(pattern=r"^[-._a-zA-Z0-9]+$", max_length=253)
    """Key in the binaryData of the ConfigMap."""


class ClaimModule(ApiModel):
    """A module on a volume that the platform has mounted."""

    claim_name: Name
    """Name of the PersistentVolumeClaim, in the namespace of the controller."""
    path: str = Field(pattern=_PATH, max_length=1024, json_schema_extra=rules(_inside("self")))
    """Path of the module on the volume."""


class Module(ApiModel):
    """Source of the module."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            (
                f"[{', '.join(f'has(self.{source})' for source in SOURCES)}].filter(one, one).size() == 1",
                "needs exactly one source of the module: oci, configMap, url, pvc or path",
            ),
            (
                "has(self.sha256) || !(has(self.url) || has(self.pvc) || has(self.path))",
                "needs sha256, the checksum of the module: the content of the source may change",
            ),
            (
                "has(self.sha256) || !has(self.oci) || self.oci.image.contains('@sha256:')",
                "needs an image with a digest (…@sha256:…), or sha256, the checksum of the module: a tag may move",
            ),
        )
    )

    oci: OciModule | None = None
    """Module in a registry. Unset: another source."""
    config_map: ConfigMapModule | None = None
    """Module in a ConfigMap. Unset: another source."""
    url: str | None = Field(default=None, pattern=_URL, max_length=2048)
    """https URL of the module, on a server that the platform permits. Unset: another source."""
    pvc: ClaimModule | None = None
    """Module on a volume. Unset: another source."""
    path: str | None = Field(default=None, pattern=_PATH, max_length=1024, json_schema_extra=rules(_inside("self")))
    """Path of the module in the platform's directory of modules. Unset: another source."""
    sha256: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$", max_length=64)
    """SHA-256 of the module, 64 hex digits. Required for url, pvc and path, and for an image without a digest."""


class LabelRequirement(ApiModel):
    """Requirement for one label."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            (
                "(self.operator in ['In', 'NotIn']) == (has(self.values) && self.values.size() > 0)",
                "In and NotIn need values, Exists and DoesNotExist must not have any",
            )
        )
    )

    key: LabelKey
    """Key of the label."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    """Comparison of the label with the values."""
    values: list[LabelValue] | None = Field(default=None, max_length=_MOST, json_schema_extra=_SET)
    """Values for In and NotIn, which require one. Unset: none, as Exists and DoesNotExist require."""


class LabelSelector(ApiModel):
    """Selector of objects by label; all requirements must hold. As in metav1.LabelSelector."""

    match_labels: dict[str, LabelValue] | None = Field(default=None, max_length=_WATCHES)
    """Labels that objects must have with exactly these values. Unset: none."""
    match_expressions: list[LabelRequirement] | None = Field(default=None, max_length=_WATCHES)
    """Further requirements for labels; all must hold. Unset: none."""


class Watch(ApiModel):
    """Objects that the controller is called for when they change."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            (
                "self.apiVersion != 'v1' || self.kind != 'Secret'",
                "Secrets cannot be watched: get single Secrets in the controller, or list them in secretRefs",
            )
        )
    )

    api_version: str = Field(pattern=_API_VERSION, max_length=317)
    """API version of the objects: ``v1`` or ``<group>/<version>``."""
    kind: str = Field(pattern=r"^[A-Za-z]([-A-Za-z0-9]*[A-Za-z0-9])?$", max_length=63)
    """Kind of the objects, which the platform must permit controllers to watch."""
    namespaces: list[Namespace] | None = Field(
        default=None,
        min_length=1,
        max_length=_MOST,
        json_schema_extra=_SET
        | rules((f"!('{EVERYWHERE}' in self) || self.size() == 1", f"'{EVERYWHERE}' is all: remove the other names")),
    )
    """Namespaces of the objects; "*" is all. Ignored for kinds without namespaces. Default: the namespace of the
    controller."""
    label_selector: LabelSelector | None = None
    """Selects objects by label. Unset: all objects."""


class Limits(ApiModel):
    """Limits of a controller. A call that exceeds a limit ends or waits."""

    memory: Memory | None = None
    """Maximum memory of the instance. Default: 64Mi."""
    cpu_per_call: Duration | None = Field(default=None, json_schema_extra=_between("10ms", "5m"))
    """Maximum CPU time of a call. Default: 1s."""
    time_per_call: Duration | None = Field(default=None, json_schema_extra=_between("10ms", "10m"))
    """Maximum duration of a call, without the time that it waits for requests. Default: 30s."""
    calls_per_second: int | None = Field(default=None, ge=1, le=10000)
    """Maximum number of calls per second. Default: 50."""
    host_calls_per_second: int | None = Field(default=None, ge=1, le=10000)
    """Maximum number of requests to Kubernetes per second. Default: 100."""


class IdlePolicy(StrEnum):
    """Policy for an idle instance."""

    SUSPEND = "Suspend"
    PINNED = "Pinned"


class Idle(ApiModel):
    """Behaviour of an idle instance."""

    suspend_after: Duration | None = None
    """Idle time after which the instance is suspended to disk; 0s: after each call. It may be suspended earlier if
    memory is low. Default: 30s."""
    policy: IdlePolicy | None = None
    """Suspend, or Pinned, which keeps the instance in memory. Default: Suspend."""


class WasmControllerSpec(ApiModel):
    """Desired state."""

    module: Module
    """Source of the module."""
    service_account_name: Name
    """ServiceAccount of this namespace that the controller acts as, with its permissions only."""
    watches: list[Watch] = Field(min_length=1, max_length=_WATCHES)
    """Objects for whose changes the controller is called."""
    config: dict[str, Any] | None = None
    """Configuration that the module receives when it starts, in any form. Unset: empty."""
    config_map_refs: list[LocalReference] | None = Field(default=None, max_length=_WATCHES, json_schema_extra=_BY_NAME)
    """ConfigMaps of this namespace whose data the module receives when it starts; a change restarts it. Unset: none."""
    secret_refs: list[LocalReference] | None = Field(default=None, max_length=_WATCHES, json_schema_extra=_BY_NAME)
    """Secrets of this namespace whose data the module receives when it starts; a change restarts it. The ServiceAccount
    must be permitted to get them. Unset: none."""
    limits: Limits | None = None
    """Limits of the instance and its calls. Unset: the defaults of its fields."""
    idle: Idle | None = None
    """Behaviour of an idle instance. Unset: the defaults of its fields."""
    paused: bool | None = None
    """Do not call the controller while true; it receives missed changes afterwards. Default: false."""


class ModuleStatus(ApiModel):
    """Module that the controller runs."""

    sha256: str
    """SHA-256 of the module."""
    abi: int | None = None
    """ABI version of the module. Unset until the module starts, if only the module itself reports it."""
    bytes: Count
    """Size of the module in bytes."""


class Fault(ApiModel):
    """Error of a call."""

    kind: str
    """Kind of the fault, such as Trapped, CpuExceeded or MemoryExceeded."""
    message: str = Field(max_length=4096)
    """Message of the fault."""
    time: datetime
    """Time of the fault."""


class ControllerState(StrEnum):
    """State of the instance: in memory, on disk, cold (the next call starts it), or failed to start."""

    RESIDENT = "Resident"
    SUSPENDED = "Suspended"
    COLD = "Cold"
    FAILED = "Failed"
    PAUSED = "Paused"


class WasmControllerStatus(ApiModel):
    """Observed state of the controller. Counters are up to a minute old; newer ones are lost if the host is killed."""

    conditions: Conditions | None = None
    """Ready, Reconciling and Stalled as kstatus defines them; Accepted and WatchesGranted."""
    observed_generation: int | None = Field(default=None, ge=0, json_schema_extra={"format": "int64"})
    """Generation of the spec that this status describes."""
    module: ModuleStatus | None = None
    """Module that the controller runs."""
    state: ControllerState | None = None
    """State of the instance: Resident in memory, Suspended to disk, Cold (it starts with the next call), Failed or
    Paused."""
    failing: Count | None = None
    """Number of objects for which the last call failed."""
    resident_bytes: Count | None = None
    """Memory of the instance in bytes."""
    snapshot_bytes: Count | None = None
    """Size of the snapshot on disk in bytes."""
    wakes: Count | None = None
    """Number of restores from disk."""
    wake_p99: str | None = Field(default=None, alias="wakeP99")
    """99th percentile of the duration of restores, such as ``0.41ms``."""
    calls: Count | None = None
    """Number of calls."""
    traps: Count | None = None
    """Number of calls that ended with a fault."""
    last_fault: Fault | None = None
    """Last fault."""


class WasmController(ApiModel):
    """Controller that is a WebAssembly module."""

    spec: WasmControllerSpec
    """Desired state."""
    status: WasmControllerStatus | None = None
    """Observed state, written by controller_host. Counters are up to a minute old."""
