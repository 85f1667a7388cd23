"""What is known of one group when it is decided on: the object, its children, its pods, what it names.

Pure. Filled by ``gather``; read by ``decide`` and ``status``. Invariant: all that a decision may depend on is in here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from host_manager.domain.children import ChildKey
from host_manager.domain.group import Group, Inputs, Manifest
from host_manager.domain.inputs import Problem
from host_manager.domain.pods import PodView
from host_manager.domain.secret_changes import SecretChange
from trellis import names
from trellis.crds.host_config import WasmCloudHostConfigSpec
from trellis.lattice.domain.view import LatticeView
from trellis.provisioning.nodes_and_jobs import unix_seconds
from trellis.provisioning.other_controllers import Controller


@dataclass(frozen=True, slots=True)
class Head:
    """What a write to the group must name, and what its metadata says. ``created``: when, as Kubernetes writes it.

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
    """One group. ``group`` is None if the spec cannot be read; then ``problems`` says why.

    ``status``: as it stands. ``foreign_budget``: a disruption budget of another owner selects the pods. ``refused``:
    what the API server said of the pods in a dry run. ``last_words``: of the container that keeps crashing.
    ``applied``: by child what it said when we wrote it last, and the digest of what we wrote.
    ``lattice``: what it tells, None if it has no address (``lattice_why`` says why); ``clock``: seconds of the
    monotonic clock, as there; ``ready_at``: by name since when we see each pod ready. ``may_recycle``: enough time went
    by since a silent host was restarted.
    ``glance``: only what runs the pods was read, for the status; the rest is as it was a moment ago. ``fresh``: nothing
    of it was ever made but what ``applied`` says, so what could only be taken over was not looked for. ``early``: that
    was a moment ago, and what there is to say of it may wait until the pods' controller has seen it.
    ``changes``: Secrets that its hosts may have been given, and that changed since. ``held``: it is being deleted, and
    the circuit breaker holds that. ``retry_pods``: its pods are refused, and are to be tried again now.
    ``rest``: seconds between two rolls for changed Secrets.
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
    last_words: str = ""
    applied: Mapping[ChildKey, tuple[str, str]] = field(default_factory=dict)
    glance: bool = False
    fresh: bool = False
    early: bool = False
    lattice: LatticeView | None = None
    lattice_why: str = ""
    clock: float = 0.0
    may_recycle: bool = False
    ready_at: Mapping[str, float] = field(default_factory=dict)
    changes: tuple[SecretChange, ...] = ()
    held: bool = False
    retry_pods: bool = False
    rest: float = 0.0


def group_of(head: Head, manifest: Mapping[str, Any]) -> Group | Problem:
    """Return the group, or why its spec cannot be read."""
    try:
        spec = WasmCloudHostConfigSpec.model_validate(manifest.get("spec") or {})
    except ValidationError as error:
        fields = ", ".join(".".join(("spec", *map(str, one["loc"]))) + f": {one['msg']}" for one in error.errors()[:3])
        return Problem("InvalidSpec", f"the spec is invalid: {fields}")
    return Group(head.name, head.namespace, head.uid, spec)


def misread(head: Head) -> tuple[Problem, ...]:
    """Return what annotations of a group ask for that nobody knows."""
    if head.restart_on in {"", names.RESTART_ON_CHANGE}:
        return ()
    message = (
        f"annotation {names.ANNOTATION_RESTART_ON} is {head.restart_on!r}, and has no meaning: "
        f"write {names.RESTART_ON_CHANGE}, or take it away"
    )
    return (Problem("AnnotationUnknown", message, blocks=False),)


def view_head(manifest: Mapping[str, Any]) -> Head:
    """Project the metadata of a group."""
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
