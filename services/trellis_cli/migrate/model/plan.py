"""Objects of a retired operator in a cluster, and the steps to take them over.

Pure. In: raw manifests. Out: frozen views, steps of a plan. Called by ``model.kwasm`` and ``model.rcm``, which plan,
and by ``migrate``, which reads, asks for confirmation and writes.
Invariants: nothing is installed on or removed from a node; a node is taken over only if nothing shows that the runtime
is missing there; each write has the uid and the resourceVersion of the object in the plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

import node_watcher.domain.node_patch
from provisioner.domain.resources import Installer
from provisioner.domain.shim_snapshot import RuntimeClassView
from trellis import names
from trellis.kube.preconditions import only_if
from trellis.provisioning.attempts import changes_of
from trellis.provisioning.nodes_and_jobs import unix_seconds, view_job
from trellis.provisioning.other_controllers import Peer, in_charge, view_controller
from trellis.provisioning.shims import ShimView
from trellis.provisioning.targets import target_of, wanted_on
from trellis.provisioning.views import JobState, NodeView, Target, VerifiedBy, encode_digests
from trellis_cli.migrate.model.writes import CreateObject, DeleteObject, PatchObject

Manifest = dict[str, Any]
PatchOps = tuple[dict[str, Any], ...]

RECENT_SECONDS: Final = 300.0
"""Seconds after its last write during which a controller counts as still active."""
_PREFIXES: Final = ("spinkube.dev", "kwasm.sh")
"""Label prefixes of the Jobs of runtime-class-manager: the current one, and that of its former name."""
_MANAGERS: Final = frozenset({"manager", "kwasm-operator", "runtime-class-manager", "shim-operator"})
"""Field managers of these operators: that of their binary, and the one that runtime-class-manager sets."""


class Doing(StrEnum):
    """Action for an object."""

    TAKE_OVER = "take over"
    DELETE = "delete"
    KEEP = "keep"
    LEAVE = "leave"
    FINALIZER_REMOVED = "remove finalizer"
    DEFINE = "define"


class Listed(StrEnum):
    """Result of the handler check in the Node status: listed, not listed, or unknown."""

    YES = "Yes"
    NO = "No"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class PeerJob:
    """An installer Job that Trellis does not manage. ``shim``: "" for KWasm; ``node_uid``: "" without an owner Node."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    node: str
    node_uid: str
    shim: str
    operation: str
    image: str
    state: JobState

    @property
    def place(self) -> str:
        """Return ``Job namespace/name``."""
        return f"Job {self.namespace}/{self.name}"

    def is_on(self, node: NodeView) -> bool:
        """Return whether the Job runs, or ran, on this Node."""
        return self.node == node.name and self.node_uid in {"", node.uid}


@dataclass(frozen=True, slots=True)
class PatchNode:
    """Write the labels and annotations of Trellis to a Node."""

    name: str
    ops: PatchOps


@dataclass(frozen=True, slots=True)
class PatchShim:
    """Replace the finalizer of another operator with that of Trellis."""

    name: str
    ops: PatchOps


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """Delete a finished Job if it is unchanged."""

    job: PeerJob


@dataclass(frozen=True, slots=True)
class PatchDeployment:
    """Annotate the Deployment of an operator so that Trellis runs next to it."""

    namespace: str
    name: str
    ops: PatchOps


@dataclass(frozen=True, slots=True)
class Step:
    """One object, the action and the reason. ``node``: the Node that has to be written first."""

    object: str
    what: str
    doing: Doing
    reason: str
    write: PatchNode | PatchShim | PatchDeployment | DeleteJob | PatchObject | DeleteObject | CreateObject | None = None
    node: str = ""

    @property
    def key(self) -> tuple[str, Doing]:
        """Identity of a confirmed step: the object and the action."""
        return (self.object, self.doing)

    def document(self) -> dict[str, str]:
        """Return the step for JSON."""
        return {"object": self.object, "what": self.what, "do": self.doing.value, "reason": self.reason}


@dataclass(frozen=True, slots=True)
class Rules:
    """Settings of the provisioner of this cluster; with them, both get the same result."""

    installer: Installer
    auto_provision: bool
    require_checksum: bool


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """All inputs of a plan."""

    nodes: tuple[NodeView, ...]
    shims: tuple[ShimView, ...]
    jobs: tuple[PeerJob, ...]
    classes: tuple[RuntimeClassView, ...]
    rules: Rules

    def wanted(self, node: NodeView) -> frozenset[str]:
        """Return the names of the Shims that the services assign to a node."""
        return wanted_on(node, self.shims, auto_provision=self.rules.auto_provision)

    def legacy_digest(self, image: str) -> str:
        """Return the digest that the provisioner uses for a legacy installer image."""
        return replace(self.rules.installer, image=image).digest or ""

    def still_missing(self, node: NodeView) -> tuple[str, ...]:
        """Return the Shims that the provisioner would install on a node or remove from it, by its labels."""
        target = target_of(
            node,
            self.shims,
            self.rules.installer.digest,
            auto_provision=self.rules.auto_provision,
            require_checksum=self.rules.require_checksum,
        )
        return changes_of(node, target) if target else ()


def listed(node: NodeView, handler: str | None) -> Listed:
    """Return whether a node lists a handler. Older kubelets and runtimes list none (KEP-4216)."""
    if handler is None or not node.handlers:
        return Listed.UNKNOWN
    return Listed.YES if handler in node.handlers else Listed.NO


def take_over(
    snapshot: ClusterSnapshot, node: NodeView, shims: Mapping[str, str], verified_by: VerifiedBy, what: tuple[str, str]
) -> Step:
    """Return the step that records on a node these Shims in addition to its own; ``what``: description and reason.

    The verification of a node is the best one of its Shims, as after a Job of Trellis. The step has no write if the
    node already has these labels.
    """
    had = node.installed
    if had and node.verified_by and node.verified_by is not VerifiedBy.JOB:
        verified_by = node.verified_by
    shims = {**had, **shims}
    ops = node_watcher.domain.node_patch.take_over(node, shims, verified_by, snapshot.wanted(node))
    marked = replace(
        node,
        digest=Target(tuple(sorted(shims.items()))).digest,
        shims=encode_digests(shims),
        verified=verified_by.value,
        marked_uid=node.uid,
    )
    described, reason = what
    if missing := snapshot.still_missing(marked):
        reason += f"; Trellis will still roll out {', '.join(missing)} there"
    return Step(f"Node {node.name}", described, Doing.TAKE_OVER, reason, PatchNode(node.name, ops) if ops else None)


def view_peer_job(manifest: Manifest) -> PeerJob | None:
    """Convert a Job of KWasm or runtime-class-manager; return None for any other."""
    metadata = manifest["metadata"]
    labels: Mapping[str, str] = metadata.get("labels") or {}
    if names.LABEL_NODE_UID in labels:
        return None
    prefix = next((prefix for prefix in _PREFIXES if f"{prefix}/shimName" in labels), "")
    if not prefix and labels.get(names.LABEL_JOB) != "true":
        return None
    pod = manifest["spec"]["template"]["spec"]
    owners = metadata.get("ownerReferences") or ()
    return PeerJob(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        resource_version=metadata["resourceVersion"],
        node=pod.get("nodeName") or "",
        node_uid=next((owner["uid"] for owner in owners if owner.get("kind") == "Node"), ""),
        shim=labels.get(f"{prefix}/shimName", "") if prefix else "",
        operation=labels.get(f"{prefix}/operation", "install") if prefix else "install",
        image=next((container.get("image") or "" for container in pod.get("containers") or ()), ""),
        state=view_job(manifest).state,
    )


def take_over_controllers(peer: Peer, deployments: Iterable[Manifest]) -> list[Step]:
    """Return the steps that let the provisioner run next to the operator, one for each of its Deployments."""
    steps = []
    for item in deployments:
        controller, metadata = view_controller(item, (peer,)), item["metadata"]
        if controller is None or controller.taken_over:
            continue
        create_annotations = (
            [] if metadata.get("annotations") else [{"op": "add", "path": "/metadata/annotations", "value": {}}]
        )
        annotation = names.ANNOTATION_TAKEN_OVER
        path = f"/metadata/annotations/{annotation.replace('/', '~1')}"
        ops = (
            *only_if(controller.uid, metadata["resourceVersion"]),
            *create_annotations,
            {"op": "add", "path": path, "value": "true"},
        )
        what = f"runs {peer.value}"
        reason = f"annotated {annotation}=true: Trellis runs next to it; remove the annotation to stop that"
        write = PatchDeployment(controller.namespace, controller.name, ops)
        steps.append(Step(controller.place, what, Doing.TAKE_OVER, reason, write))
    return steps


def still_writing(peer: Peer, deployments: Iterable[Manifest], objects: Iterable[Manifest], now: float) -> list[str]:
    """Return signs that the operator is still active: its Deployment, or recent entries of it in managedFields.

    A Deployment that the user has already taken over is omitted.
    ``objects``: raw Nodes and Shims. On a Node only the label of the operator counts, because ``manager`` is a common
    name of controllers. ``now``: Unix time in seconds.
    """
    found = [
        f"{controller.place} runs the operator: delete it, or scale it to 0"
        for controller in in_charge(view_controller(item, (peer,)) for item in deployments)
    ]
    shims = {item["metadata"]["name"] for item in objects if item["kind"] == "Shim"}
    keys = {f"f:{names.LABEL_PROVISIONED}"} if peer is Peer.KWASM else {f"f:{names.shim_label(name)}" for name in shims}
    written = [age for item in objects for age in _young_writes(peer, item, keys, now)]
    if written:
        found.append(
            f"it wrote to {len(written)} objects in the last {RECENT_SECONDS:.0f} s, last {min(written):.0f} s ago: "
            "wait, or find and stop it"
        )
    return found


def _young_writes(peer: Peer, item: Manifest, keys: set[str], now: float) -> list[float]:
    """Return how many seconds ago the operator wrote an object, [] if long ago or never."""
    of_shim = item["kind"] == "Shim"
    if of_shim and peer is Peer.KWASM:
        return []
    ages = []
    for entry in item["metadata"].get("managedFields") or ():
        if entry.get("manager") not in _MANAGERS:
            continue
        labels = ((entry.get("fieldsV1") or {}).get("f:metadata") or {}).get("f:labels") or {}
        age = now - (unix_seconds(entry.get("time")) or 0)
        if (of_shim or not keys.isdisjoint(labels)) and age < RECENT_SECONDS:
            ages.append(max(age, 0.0))
    return [min(ages)] if ages else []
