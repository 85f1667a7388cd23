"""WasmController: a controller that is a WebAssembly module.

Group ``trellis.dev``. It stands in the namespace of the ServiceAccount that it acts as, which its own rights come from.
Read by ``controller_host``, which alone writes the status. No Secret can be watched: a controller reads those that its
account may read, one by one.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field, WithJsonSchema

from trellis.crds.api import KUBERNETES, ApiModel, Conditions, rules

EVERYWHERE: Final = "*"
"""The one entry of ``namespaces`` that means all of them."""
_API_VERSION: Final = r"^(v1|[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[a-z]([-a-z0-9]*[a-z0-9])?)$"
_SUBDOMAIN: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
_IMAGE: Final = (
    r"^[a-zA-Z0-9.-]+(:[0-9]+)?/[a-z0-9]+([._/-]+[a-z0-9]+)*(:[a-zA-Z0-9_][a-zA-Z0-9_.-]*)?(@sha256:[0-9a-f]{64})?$"
)
_URL: Final = r"^https://[^\s@#\x00-\x1f\x7f]+$"
_PATH: Final = r"^[^\x00-\x1f\x7f]+$"
_DURATION: Final = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$"
_LABEL_KEY: Final = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
_LABEL_VALUE: Final = r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$"
_SET: Final[dict[str, Any]] = {f"{KUBERNETES}list-type": "set"}
_BY_NAME: Final[dict[str, Any]] = {f"{KUBERNETES}list-type": "map", f"{KUBERNETES}list-map-keys": ["name"]}
SOURCES: Final = ("oci", "configMap", "url", "pvc", "path")
"""Fields of ``module``, of which exactly one is given."""
_SIZE: Final = "quantity(string(self))"
_FITS: Final = f"{_SIZE}.compareTo(quantity('64Ki')) >= 0 && {_SIZE}.compareTo(quantity('4Gi')) <= 0"
_WATCHES: Final = 16
_MOST: Final = 64
"""Entries of a list: the API server has to know how much a rule can cost."""

Name = Annotated[str, Field(pattern=_SUBDOMAIN, max_length=253)]
Namespace = Annotated[str, Field(pattern=r"^(\*|[a-z0-9]([-a-z0-9]*[a-z0-9])?)$", max_length=63)]
LabelKey = Annotated[str, Field(pattern=_LABEL_KEY, max_length=317)]
LabelValue = Annotated[str, Field(pattern=_LABEL_VALUE, max_length=63)]
Duration = Annotated[str, Field(pattern=_DURATION, max_length=32)]
Count = Annotated[int, Field(ge=0, json_schema_extra={"format": "int64"})]


def _inside(field: str) -> tuple[str, str]:
    return (
        f"!{field}.startsWith('/') && !('..' in {field}.split('/'))",
        "the path is to be below the directory: no / before it, and no .. in it",
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
                "needs memory from 64Ki, which is one page, to 4Gi, which is all that there can be",
            )
        )
    ),
]
"""A quantity of memory: ``64Mi``, or a number of bytes."""


class LocalReference(ApiModel):
    """An object of the controller's own namespace."""

    name: Name
    """Name of the object."""


class OciModule(ApiModel):
    """A module in a registry: an artifact, or an image whose only file it is."""

    image: str = Field(pattern=_IMAGE, max_length=1024)
    """Reference: registry.example/team/controller:1.2@sha256:…"""
    pull_secret: LocalReference | None = None
    """A Secret of type kubernetes.io/dockerconfigjson of the controller's namespace, which its account can get."""


class ConfigMapModule(ApiModel):
    """A module in the binaryData of a ConfigMap, which has room for 1 MiB."""

    name: Name
    """Name of the ConfigMap, in the controller's namespace; its account has to be able to get it."""
    key: str = Field(pattern=r"^[-._a-zA-Z0-9]+$", max_length=253)
    """Key in its binaryData."""


class ClaimModule(ApiModel):
    """A module on a volume that the platform has mounted."""

    claim_name: Name
    """Name of the PersistentVolumeClaim, in the controller's namespace."""
    path: str = Field(pattern=_PATH, max_length=1024, json_schema_extra=rules(_inside("self")))
    """Path of the file on the volume."""


class Module(ApiModel):
    """Where the module comes from."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            (
                f"[{', '.join(f'has(self.{source})' for source in SOURCES)}].filter(one, one).size() == 1",
                "say exactly one of oci, configMap, url, pvc and path: where the module comes from",
            ),
            (
                "has(self.sha256) || !(has(self.url) || has(self.pvc) || has(self.path))",
                "say sha256, the checksum of the module: what is there may change",
            ),
            (
                "has(self.sha256) || !has(self.oci) || self.oci.image.contains('@sha256:')",
                "say the digest of the image (…@sha256:…) or sha256, the checksum of the module: a tag may move",
            ),
        )
    )

    oci: OciModule | None = None
    """A registry."""
    config_map: ConfigMapModule | None = None
    """A ConfigMap."""
    url: str | None = Field(default=None, pattern=_URL, max_length=2048)
    """An address: https, of a server that the platform lets modules come from."""
    pvc: ClaimModule | None = None
    """A volume."""
    path: str | None = Field(default=None, pattern=_PATH, max_length=1024, json_schema_extra=rules(_inside("self")))
    """A file below the platform's directory of modules."""
    sha256: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$", max_length=64)
    """Checksum of the module, 64 hex digits. Needed for url, pvc and path, and for an image without a digest."""


class LabelRequirement(ApiModel):
    """A condition on one label."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            (
                "(self.operator in ['In', 'NotIn']) == (has(self.values) && self.values.size() > 0)",
                "In and NotIn need values, Exists and DoesNotExist take none",
            )
        )
    )

    key: LabelKey
    """Key of the label."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    """How the label is compared."""
    values: list[LabelValue] | None = Field(default=None, max_length=_MOST, json_schema_extra=_SET)
    """What it is compared with."""


class LabelSelector(ApiModel):
    """Which objects, by their labels; all conditions have to hold. As in metav1.LabelSelector."""

    match_labels: dict[str, LabelValue] | None = Field(default=None, max_length=_WATCHES)
    """Labels with exactly these values."""
    match_expressions: list[LabelRequirement] | None = Field(default=None, max_length=_WATCHES)
    """Further conditions."""


class Watch(ApiModel):
    """Objects that the controller is called for when they change."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            (
                "self.apiVersion != 'v1' || self.kind != 'Secret'",
                "Secrets cannot be watched: get those that the controller needs, one by one, or say them in secretRefs",
            )
        )
    )

    api_version: str = Field(pattern=_API_VERSION, max_length=317)
    """``v1`` or ``<group>/<version>``."""
    kind: str = Field(pattern=r"^[A-Za-z]([-A-Za-z0-9]*[A-Za-z0-9])?$", max_length=63)
    """Kind of the objects; one of those that the platform lets controllers watch."""
    namespaces: list[Namespace] | None = Field(
        default=None,
        min_length=1,
        max_length=_MOST,
        json_schema_extra=_SET
        | rules(
            (f"!('{EVERYWHERE}' in self) || self.size() == 1", f"'{EVERYWHERE}' is all: leave out the names beside it")
        ),
    )
    """Namespaces of the objects; without it the controller's own, "*" is all. Of no matter for kinds without one."""
    label_selector: LabelSelector | None = None
    """Which of them, by their labels; without it all."""


class Limits(ApiModel):
    """What a controller may use. Beyond it a call ends, or waits."""

    memory: Memory | None = None
    """Memory of the instance; without it 64Mi."""
    cpu_per_call: Duration | None = Field(default=None, json_schema_extra=_between("10ms", "5m"))
    """Processor time of one call; without it 1s."""
    time_per_call: Duration | None = Field(default=None, json_schema_extra=_between("10ms", "10m"))
    """Time of one call by the clock, apart from what it waits for requests; without it 30s."""
    calls_per_second: int | None = Field(default=None, ge=1, le=10000)
    """How often it is called; without it 50."""
    host_calls_per_second: int | None = Field(default=None, ge=1, le=10000)
    """How many requests to Kubernetes it may make; without it 100."""


class IdlePolicy(StrEnum):
    """What happens to an instance that has nothing to do."""

    SUSPEND = "Suspend"
    PINNED = "Pinned"


class Idle(ApiModel):
    """What happens to the instance while it has nothing to do."""

    suspend_after: Duration | None = None
    """It is put to disk when nothing has come for so long; 0s: after each call. Without it 30s, and at any time if
    memory is short."""
    policy: IdlePolicy | None = None
    """Suspend, which is what happens without it; Pinned stays in memory always."""


class WasmControllerSpec(ApiModel):
    """What runs, as whom, and what it is called for."""

    module: Module
    """Where the module comes from."""
    service_account_name: Name
    """ServiceAccount of this namespace that it acts as: what that may not do or see, the controller may not either."""
    watches: list[Watch] = Field(min_length=1, max_length=_WATCHES)
    """What it is called for."""
    config: dict[str, Any] | None = None
    """What the module is told when it starts: whatever it reads."""
    config_map_refs: list[LocalReference] | None = Field(default=None, max_length=_WATCHES, json_schema_extra=_BY_NAME)
    """ConfigMaps of this namespace whose data it is told when it starts; it starts anew when they change."""
    secret_refs: list[LocalReference] | None = Field(default=None, max_length=_WATCHES, json_schema_extra=_BY_NAME)
    """The same for Secrets, which its account has to be able to get."""
    limits: Limits | None = None
    """What it may use."""
    idle: Idle | None = None
    """What happens to the instance while it has nothing to do."""
    paused: bool | None = None
    """Call it not at all while this is true. What it missed it is told afterwards."""


class ModuleStatus(ApiModel):
    """The module that runs."""

    sha256: str
    """Its checksum."""
    abi: int | None = None
    """The version of the ABI that it was made for; not known before it starts, if only the module itself can tell."""
    bytes: Count
    """Its size."""


class Fault(ApiModel):
    """What went wrong in a call."""

    kind: str
    """What it was: Trapped, CpuExceeded, MemoryExceeded and so on."""
    message: str = Field(max_length=4096)
    """The same for people."""
    time: datetime
    """When it happened."""


class ControllerState(StrEnum):
    """Where the instance is: in memory, on disk, nowhere (it starts cold with the next call), or it cannot start."""

    RESIDENT = "Resident"
    SUSPENDED = "Suspended"
    COLD = "Cold"
    FAILED = "Failed"
    PAUSED = "Paused"


class WasmControllerStatus(ApiModel):
    """How the controller is. Figures are as old as a minute; those since then are lost if the host is killed."""

    conditions: Conditions | None = None
    """Ready, Reconciling and Stalled as kstatus defines them; Accepted and WatchesGranted."""
    observed_generation: int | None = Field(default=None, ge=0, json_schema_extra={"format": "int64"})
    """The generation that this status is about."""
    module: ModuleStatus | None = None
    """The module that runs."""
    state: ControllerState | None = None
    """Resident, Suspended, Cold, Failed or Paused."""
    failing: Count | None = None
    """How many objects it failed on when it was last called for them."""
    resident_bytes: Count | None = None
    """Memory of the instance."""
    snapshot_bytes: Count | None = None
    """What it takes on disk."""
    wakes: Count | None = None
    """How often it was brought back from disk."""
    wake_p99: str | None = Field(default=None, alias="wakeP99")
    """How long that took, of 100 times but one at most: ``0.41ms``."""
    calls: Count | None = None
    """How often it was called."""
    traps: Count | None = None
    """How often a call ended by a fault."""
    last_fault: Fault | None = None
    """The last of them."""


class WasmController(ApiModel):
    """A controller that is a WebAssembly module: what runs, as whom, and what it is called for."""

    spec: WasmControllerSpec
    """What runs, as whom, and what it is called for."""
    status: WasmControllerStatus | None = None
    """How the controller is."""
