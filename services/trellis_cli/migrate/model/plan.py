"""What a retired operator left in a cluster, and what taking it over means.

Pure. In: raw manifests. Out: frozen views, steps of a plan. Called by ``migration_kwasm`` and ``migration_rcm``, which
plan, and by ``migrate``, which reads, asks and writes.
Invariants: nothing is installed or removed on any node; a node is taken over only where nothing says that the runtime
is missing there; each write names the very object, in the very state, that it was planned on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

import node_watcher.domain.marks
from provisioner.domain.resources import Installer
from provisioner.domain.shim_snapshot import RuntimeClassView
from trellis import names
from trellis.kube.preconditions import only_if
from trellis.provisioning.attempts import changes_of
from trellis.provisioning.nodes_and_jobs import unix_seconds, view_job
from trellis.provisioning.other_controllers import Peer, in_charge, view_controller
from trellis.provisioning.shims import ShimView
from trellis.provisioning.targets import target_of, wanted_on
from trellis.provisioning.views import JobState, NodeView, Proof, Target, encode_digests
from trellis_cli.migrate.model.writes import CreateObject, DeleteObject, PatchObject

Manifest = dict[str, Any]
PatchOps = tuple[dict[str, Any], ...]

RECENT_SECONDS: Final = 300.0
"""How long after its last write a controller counts as one that still writes."""
_PREFIXES: Final = ("spinkube.dev", "kwasm.sh")
"""Of the labels of runtime-class-manager's Jobs: at present, and before it had its name."""
_MANAGERS: Final = frozenset({"manager", "kwasm-operator", "runtime-class-manager", "shim-operator"})
"""Names under which these operators write: that of their binary, and the one that runtime-class-manager gives."""


class Doing(StrEnum):
    """What becomes of an object."""

    TAKE_OVER = "take over"
    DELETE = "delete"
    KEEP = "keep"
    LEAVE = "leave"
    FINALIZER_REMOVED = "remove finalizer"
    DEFINE = "define"


class Listed(StrEnum):
    """Whether the kubelet lists a handler: proof, disproof, or nothing either way."""

    YES = "Yes"
    NO = "No"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class PeerJob:
    """An installer Job that Trellis does not manage. ``shim`` "" is KWasm's; ``node_uid`` "" if no Node owns it."""

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
        """Say whether it works, or worked, on this very Node."""
        return self.node == node.name and self.node_uid in {"", node.uid}


@dataclass(frozen=True, slots=True)
class PatchNode:
    """Write our marks on a Node."""

    name: str
    ops: PatchOps


@dataclass(frozen=True, slots=True)
class PatchShim:
    """Put our finalizer in the place of another's."""

    name: str
    ops: PatchOps


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """Delete a Job that ended, as it was read."""

    job: PeerJob


@dataclass(frozen=True, slots=True)
class PatchDeployment:
    """Mark the Deployment of an operator as one that Trellis may work beside."""

    namespace: str
    name: str
    ops: PatchOps


@dataclass(frozen=True, slots=True)
class Step:
    """One object: what it is, what becomes of it, why. ``node``: whose marks have to be written before."""

    object: str
    what: str
    doing: Doing
    why: str
    write: PatchNode | PatchShim | PatchDeployment | DeleteJob | PatchObject | DeleteObject | CreateObject | None = None
    node: str = ""

    @property
    def key(self) -> tuple[str, Doing]:
        """What a person agreed to: the object and what becomes of it."""
        return (self.object, self.doing)

    def document(self) -> dict[str, str]:
        """Return the step for JSON."""
        return {"object": self.object, "what": self.what, "do": self.doing.value, "why": self.why}


@dataclass(frozen=True, slots=True)
class Rules:
    """How the provisioner of this cluster is set: by it both work out the same."""

    installer: Installer
    auto_provision: bool
    require_checksum: bool


@dataclass(frozen=True, slots=True)
class World:
    """All that a plan may depend on."""

    nodes: tuple[NodeView, ...]
    shims: tuple[ShimView, ...]
    jobs: tuple[PeerJob, ...]
    classes: tuple[RuntimeClassView, ...]
    rules: Rules

    def wanted(self, node: NodeView) -> frozenset[str]:
        """Return the names of the Shims that the services want on a node."""
        return wanted_on(node, self.shims, auto_provision=self.rules.auto_provision)

    def legacy_digest(self, image: str) -> str:
        """Return the digest that the provisioner gives to a legacy installer image."""
        return replace(self.rules.installer, image=image).digest or ""

    def still_missing(self, node: NodeView) -> tuple[str, ...]:
        """Return what the provisioner would install on a node, or remove from it, as it is marked."""
        target = target_of(
            node,
            self.shims,
            self.rules.installer.digest,
            auto_provision=self.rules.auto_provision,
            require_checksum=self.rules.require_checksum,
        )
        return changes_of(node, target) if target else ()


def listed(node: NodeView, handler: str | None) -> Listed:
    """Say whether a node shows a handler. A kubelet or runtime that is too old shows none at all (KEP-4216)."""
    if handler is None or not node.handlers:
        return Listed.UNKNOWN
    return Listed.YES if handler in node.handlers else Listed.NO


def take_over(world: World, node: NodeView, shims: Mapping[str, str], proof: Proof, what: tuple[str, str]) -> Step:
    """Return the step that marks a node as having these Shims beside what it has; ``what`` is what it is, and why.

    The proof of a node is that of the best proved of its Shims, as after a Job of Trellis. The step writes nothing
    if the node is marked so already.
    """
    had = node.installed
    if had and node.proof and node.proof is not Proof.JOB:
        proof = node.proof
    shims = {**had, **shims}
    ops = node_watcher.domain.marks.take_over(node, shims, proof, world.wanted(node))
    marked = replace(
        node,
        digest=Target(tuple(sorted(shims.items()))).digest,
        shims=encode_digests(shims),
        verified=proof.value,
        marked_uid=node.uid,
    )
    described, why = what
    if missing := world.still_missing(marked):
        why += f"; Trellis will still roll out {', '.join(missing)} there"
    return Step(f"Node {node.name}", described, Doing.TAKE_OVER, why, PatchNode(node.name, ops) if ops else None)


def view_peer_job(manifest: Manifest) -> PeerJob | None:
    """Project a Job of KWasm or runtime-class-manager; None for any other."""
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
    """Return the steps that let the provisioner work although the operator runs, one for each of its Deployments."""
    steps = []
    for item in deployments:
        controller, metadata = view_controller(item, (peer,)), item["metadata"]
        if controller is None or controller.taken_over:
            continue
        marks = [] if metadata.get("annotations") else [{"op": "add", "path": "/metadata/annotations", "value": {}}]
        mark = names.ANNOTATION_TAKEN_OVER
        path = f"/metadata/annotations/{mark.replace('/', '~1')}"
        ops = (
            *only_if(controller.uid, metadata["resourceVersion"]),
            *marks,
            {"op": "add", "path": path, "value": "true"},
        )
        what = f"runs {peer.value}"
        why = f"annotated {mark}=true: Trellis works beside it; take the annotation away to stop that"
        write = PatchDeployment(controller.namespace, controller.name, ops)
        steps.append(Step(controller.place, what, Doing.TAKE_OVER, why, write))
    return steps


def still_writing(peer: Peer, deployments: Iterable[Manifest], objects: Iterable[Manifest], now: float) -> list[str]:
    """Return what shows that the operator still writes: its Deployment, or young entries of it in managedFields.

    A Deployment that a person has taken over already is no news.
    ``objects``: raw Nodes and Shims. Of a Node only the operator's own label counts, because ``manager`` is the name
    of many a controller. ``now`` in Unix seconds.
    """
    found = [
        f"{controller.place} runs it: delete it, or scale it to 0"
        for controller in in_charge(view_controller(item, (peer,)) for item in deployments)
    ]
    shims = {item["metadata"]["name"] for item in objects if item["kind"] == "Shim"}
    keys = {f"f:{names.LABEL_PROVISIONED}"} if peer is Peer.KWASM else {f"f:{names.shim_label(name)}" for name in shims}
    written = [age for item in objects for age in _young_writes(peer, item, keys, now)]
    if written:
        found.append(
            f"it wrote to {len(written)} objects in the last {RECENT_SECONDS:.0f} s, last {min(written):.0f} s ago: "
            "wait, or find out where it runs"
        )
    return found


def _young_writes(peer: Peer, item: Manifest, keys: set[str], now: float) -> list[float]:
    """Return how many seconds ago the operator wrote an object, [] if that is long ago or it never did."""
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
