"""Inputs of the decision about one host group: the object, its children, its pods, the objects that it refers to.

Pure. Filled by ``gather``; read by ``decide`` and ``status``. Invariant: it contains all inputs of a decision.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from host_manager.domain.children import ChildKey
from host_manager.domain.group import Group, Inputs, Manifest
from host_manager.domain.inputs import Problem, Versions
from host_manager.domain.pods import PodView
from host_manager.domain.secret_changes import SecretChange
from trellis import names
from trellis.crds.host_config import WasmCloudHostConfigSpec
from trellis.lattice.domain.view import LatticeView
from trellis.provisioning.nodes_and_jobs import unix_seconds
from trellis.provisioning.other_controllers import Controller


@dataclass(frozen=True, slots=True)
class Head:
    """Metadata of a host group, with the preconditions of a write. ``created``: in Kubernetes' format.

    ``deleted_at``: Unix seconds of its ``deletionTimestamp``, 0 if it has none.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str
    generation: int
    deleting: bool = False
    finalizers: tuple[str, ...] = ()
    wants_latest: bool = False
    restart_on: str = ""
    created: str = ""
    deleted_at: int = 0

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One host group. ``group``: None if the spec is invalid; ``problems`` has the reason then.

    ``status``: the current one. ``foreign_budget``: a disruption budget of another owner selects the pods. ``refused``:
    message of the API server that rejected the pods in a dry run. ``last_log_line``: of the crashing container.
    ``applied``: by child the fingerprints of the manifest in its last write, and of the child after it.
    ``lattice``: its view, None without an address (``lattice_reason`` has the reason); ``clock``: seconds of the same
    monotonic clock; ``ready_at``: by name since when the watch shows each pod as ready. ``may_recycle``: the pause
    after the last restart of a host without heartbeat is over.
    ``glance``: only the workload was read, for the status; the rest is unchanged since the last full read. ``fresh``:
    only the children in ``applied`` exist, so that children to adopt were not read. ``early``: the group was created
    just now, and its status may wait until the controller of its workload has observed it.
    ``changes``: changed Secrets that its hosts may have received. ``deletion_paused``: it is being deleted, and the
    circuit breaker pauses that. ``retry_pods``: its pods are rejected, and a retry is due now.
    ``rest``: minimum seconds between two rolls for changed Secrets. ``versions``: of the objects that it refers to.
    """

    head: Head
    group: Group | None
    inputs: Inputs
    problems: tuple[Problem, ...]
    children: Mapping[ChildKey, Manifest]
    pods: tuple[PodView, ...]
    status: Mapping[str, Any]
    now: str
    foreign_budget: bool = False
    other: Controller | None = None
    refused: str = ""
    last_log_line: str = ""
    applied: Mapping[ChildKey, tuple[str, str]] = field(default_factory=dict)
    glance: bool = False
    fresh: bool = False
    early: bool = False
    lattice: LatticeView | None = None
    lattice_reason: str = ""
    clock: float = 0.0
    may_recycle: bool = False
    ready_at: Mapping[str, float] = field(default_factory=dict)
    changes: tuple[SecretChange, ...] = ()
    deletion_paused: bool = False
    retry_pods: bool = False
    rest: float = 0.0
    versions: Versions = field(default_factory=dict)


def group_of(head: Head, manifest: Mapping[str, Any]) -> Group | Problem:
    """Return the host group, or the problem with its spec."""
    try:
        spec = WasmCloudHostConfigSpec.model_validate(manifest.get("spec") or {})
    except ValidationError as error:
        fields = ", ".join(
            ".".join(("spec", *map(str, item["loc"]))) + f": {item['msg']}" for item in error.errors()[:3]
        )
        return Problem("InvalidSpec", f"the spec is invalid: {fields}")
    return Group(head.name, head.namespace, head.uid, spec)


def misread(head: Head) -> tuple[Problem, ...]:
    """Return the problems with unsupported values of annotations."""
    if head.restart_on in {"", names.RESTART_ON_CHANGE}:
        return ()
    message = (
        f"annotation {names.ANNOTATION_RESTART_ON} has the unsupported value {head.restart_on!r}: "
        f"set it to {names.RESTART_ON_CHANGE}, or remove it"
    )
    return (Problem("AnnotationUnknown", message, blocks=False),)


def view_head(manifest: Mapping[str, Any]) -> Head:
    """Return the metadata of a host group."""
    metadata = manifest["metadata"]
    annotations = metadata.get("annotations") or {}
    return Head(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        resource_version=metadata["resourceVersion"],
        generation=int(metadata.get("generation") or 0),
        deleting=bool(metadata.get("deletionTimestamp")),
        finalizers=tuple(metadata.get("finalizers") or ()),
        wants_latest=annotations.get(names.ANNOTATION_TEMPLATE) == names.TEMPLATE_LATEST,
        restart_on=str(annotations.get(names.ANNOTATION_RESTART_ON) or ""),
        created=metadata.get("creationTimestamp", ""),
        deleted_at=unix_seconds(metadata.get("deletionTimestamp")) or 0,
    )
