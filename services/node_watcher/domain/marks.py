"""Labels, annotations and taints of Trellis on a Node, and the JSON patch that changes them.

Pure. In: a Node as read, its verified state. Out: operations of a JSON patch. Called by ``decide`` and by ``trellis
migrate``. Invariants: a patch tests what was read and changes only keys of Trellis; no label without verification.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from node_watcher.domain.shims import remove_taints
from trellis import names
from trellis.kube.preconditions import only_if
from trellis.provisioning.views import (
    KWASM,
    NodeTaint,
    NodeView,
    Proof,
    Target,
    encode_digests,
    proved_of,
)

PatchOp = dict[str, Any]
Changes = Mapping[str, tuple[str | None, str | None]]


@dataclass(frozen=True, slots=True)
class Marks:
    """What is proved of a node: the digest of all of it, how, and the digests by Shim name."""

    digest: str
    proof: Proof
    shims: Mapping[str, str]

    @property
    def ready(self) -> frozenset[str]:
        """The Shims that pods may be started with: a Job alone is not enough to let them come."""
        return frozenset() if self.proof is Proof.JOB else frozenset(proved_of(self.shims))


def marks_of(node: NodeView, shims: Mapping[str, str]) -> Marks:
    """Return marks that name these Shims by what was proved before: nothing new is proved by them."""
    return Marks(Target(tuple(sorted(shims.items()))).digest, node.proof or Proof.JOB, shims)


def take_over(node: NodeView, shims: Mapping[str, str], proof: Proof, wanted: frozenset[str]) -> tuple[PatchOp, ...]:
    """Return the patch that marks a Node with what another installer left there, digests by Shim name.

    () if it is marked so already. For ``trellis migrate``: the marks are those of a Job of Trellis, so that no service
    finds anything to do.
    """
    marks = Marks(Target(tuple(sorted(shims.items()))).digest, proof, shims)
    annotations = {**proof_annotations(node, marks), **no_failure(node)}
    return patch_of(node, proof_labels(node, marks, wanted), annotations)


def proof_labels(node: NodeView, marks: Marks, wanted: frozenset[str]) -> Changes:
    """Return the labels of a proved Node.

    ``trellis.dev/wasm`` comes only with more proof than a Job: a RuntimeClass may select on it. KWasm's own label
    comes with either, as its users expect, and each Shim's with the Shim (runtime-class-manager's). A Shim of which
    nothing is proved any more has none.
    """
    has = dict(node.labels)
    stays = {name for name in proved_of(marks.shims) if name in wanted or (name == KWASM and wanted)}
    ready = names.WASM_READY if stays and marks.proof is not Proof.JOB else None
    labels: dict[str, tuple[str | None, str | None]] = {
        names.LABEL_PROVISIONED: (node.provisioned, names.provisioned_label_value(node.name) if stays else None),
        names.LABEL_WASM_READY: (node.wasm, ready),
    }
    for name in {*marks.shims, *node.recorded} - {KWASM}:
        label = names.shim_label(name)
        labels[label] = (has.get(label), names.SHIM_PROVISIONED if name in stays else None)
    return labels


def proof_annotations(node: NodeView, marks: Marks) -> Changes:
    """Return the annotations that say what is on a Node, and how it was proved."""
    if not marks.shims:
        return _nothing_installed(node)
    shortened = names.provisioned_label_value(node.name) != node.name
    shims = None if tuple(marks.shims) == (KWASM,) else encode_digests(marks.shims)
    return {
        names.LABEL_PROVISIONED: (node.provisioned_name, node.name if shortened else None),
        names.ANNOTATION_DIGEST: (node.digest, marks.digest),
        names.ANNOTATION_SHIMS: (node.shims, shims),
        names.ANNOTATION_VERIFIED: (node.verified, marks.proof.value),
        names.ANNOTATION_NODE_UID: (node.marked_uid, node.uid),
    }


def no_failure(node: NodeView) -> Changes:
    """Return what takes the record of failures away."""
    return {
        names.ANNOTATION_FAILURE: (node.failure, None),
        names.ANNOTATION_FAILED_ATTEMPT: (node.failed_attempt, None),
        names.ANNOTATION_BLAMED: (node.failed_shims, None),
    }


def _nothing_installed(node: NodeView) -> Changes:
    return {
        names.LABEL_PROVISIONED: (node.provisioned_name, None),
        names.ANNOTATION_DIGEST: (node.digest, None),
        names.ANNOTATION_SHIMS: (node.shims, None),
        names.ANNOTATION_VERIFIED: (node.verified, None),
    }


def remove_marks(node: NodeView) -> tuple[PatchOp, ...]:
    """Return the patch that takes every mark of Trellis away."""
    has = dict(node.labels)
    of_shims = (names.shim_label(name) for name in node.recorded)
    labels = {
        names.LABEL_PROVISIONED: (node.provisioned, None),
        names.LABEL_WASM_READY: (node.wasm, None),
        **{label: (has.get(label), None) for label in of_shims},
    }
    uid = {names.ANNOTATION_NODE_UID: (node.marked_uid, None)}
    return patch_of(node, labels, {**_nothing_installed(node), **uid, **no_failure(node)})


def labelled_ready(node: NodeView) -> bool:
    """Return whether pods may be scheduled to the node because of labels of Trellis.

    A mass of these is not taken away.
    """
    shims = node.recorded
    by_shim = bool(shims) and any(names.shim_label(name) in dict(node.labels) for name in shims)
    return node.bears_marks and (node.provisioned is not None or node.wasm is not None or by_shim)


def takes_label(ops: Iterable[PatchOp]) -> bool:
    """Return whether a patch takes a label of Trellis away, by which pods may be scheduled to the node."""
    return any(op["op"] == "remove" and op["path"].startswith("/metadata/labels/") for op in ops)


def patch_of(
    node: NodeView, labels: Changes, annotations: Changes, taints_gone: tuple[NodeTaint, ...] = ()
) -> tuple[PatchOp, ...]:
    """Return the JSON patch from what is to what shall be, on nothing but what was read; () if nothing differs."""
    ops: list[PatchOp] = list(remove_taints(node, taints_gone))
    for part, present, changes in (
        ("labels", node.has_labels, labels),
        ("annotations", node.has_annotations, annotations),
    ):
        if not present and any(after is not None for _, after in changes.values()):
            ops.append({"op": "add", "path": f"/metadata/{part}", "value": {}})
        for key, (before, after) in changes.items():
            path = f"/metadata/{part}/{key.replace('~', '~0').replace('/', '~1')}"
            if after is None and before is not None:
                ops.append({"op": "remove", "path": path})
            elif after is not None and after != before:
                ops.append({"op": "add", "path": path, "value": after})
    return (*only_if(node.uid, node.resource_version), *ops) if ops else ()
