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
    Target,
    VerifiedBy,
    encode_digests,
    verified_digests,
)

PatchOp = dict[str, Any]
Changes = Mapping[str, tuple[str | None, str | None]]


@dataclass(frozen=True, slots=True)
class VerifiedState:
    """Verified state of a node: total digest, kind of verification, digests by Shim name."""

    digest: str
    verified_by: VerifiedBy
    shims: Mapping[str, str]

    @property
    def ready(self) -> frozenset[str]:
        """The Shims for which pods may be scheduled; none if only a Job verified them."""
        return frozenset() if self.verified_by is VerifiedBy.JOB else frozenset(verified_digests(self.shims))


def verified_state_of(node: NodeView, shims: Mapping[str, str]) -> VerifiedState:
    """Return the state with these Shims with the previous verification; nothing new is verified."""
    return VerifiedState(Target(tuple(sorted(shims.items()))).digest, node.verified_by or VerifiedBy.JOB, shims)


def take_over(
    node: NodeView, shims: Mapping[str, str], verified_by: VerifiedBy, wanted: frozenset[str]
) -> tuple[PatchOp, ...]:
    """Return the patch that records on a Node the Shims that another installer left there, digests by Shim name.

    () if they are recorded already. For ``trellis migrate``: the result equals that of a Job of Trellis, so that the
    services change nothing.
    """
    state = VerifiedState(Target(tuple(sorted(shims.items()))).digest, verified_by, shims)
    annotations = {**verified_annotations(node, state), **no_failure(node)}
    return patch_of(node, verified_labels(node, state, wanted), annotations)


def verified_labels(
    node: NodeView, state: VerifiedState, wanted: frozenset[str], drained: frozenset[str] = frozenset()
) -> Changes:
    """Return the labels of a verified Node, without those of the Shims that are ``drained`` there (ADR 126).

    ``trellis.dev/wasm`` requires more verification than a Job, because a RuntimeClass may select on it. The label of
    KWasm is set in both cases, as its users expect; each Shim has its own label, that of runtime-class-manager. A Shim
    that is no longer verified has no label.
    """
    has = node.label_values()
    stays = {name for name in verified_digests(state.shims) if name in wanted or (name == KWASM and wanted)}
    ready = names.WASM_READY if stays and state.verified_by is not VerifiedBy.JOB else None
    labels: dict[str, tuple[str | None, str | None]] = {
        names.LABEL_PROVISIONED: (node.provisioned, names.provisioned_label_value(node.name) if stays else None),
        names.LABEL_WASM_READY: (node.wasm, ready),
    }
    for name in {*state.shims, *node.recorded} - {KWASM}:
        label = names.shim_label(name)
        labels[label] = (has.get(label), names.SHIM_PROVISIONED if name in stays - drained else None)
    return labels


def verified_annotations(node: NodeView, state: VerifiedState) -> Changes:
    """Return the annotations that record the Shims on a Node and their verification."""
    if not state.shims:
        return _nothing_installed(node)
    shortened = names.provisioned_label_value(node.name) != node.name
    shims = None if tuple(state.shims) == (KWASM,) else encode_digests(state.shims)
    return {
        names.LABEL_PROVISIONED: (node.provisioned_name, node.name if shortened else None),
        names.ANNOTATION_DIGEST: (node.digest, state.digest),
        names.ANNOTATION_SHIMS: (node.shims, shims),
        names.ANNOTATION_VERIFIED: (node.verified, state.verified_by.value),
        names.ANNOTATION_NODE_UID: (node.marked_uid, node.uid),
    }


def no_failure(node: NodeView) -> Changes:
    """Return the annotation changes that remove the record of failures."""
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


def remove_metadata(node: NodeView) -> tuple[PatchOp, ...]:
    """Return the patch that removes every label and annotation of Trellis."""
    has = node.label_values()
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

    The circuit breaker counts these nodes.
    """
    shims = node.recorded
    by_shim = bool(shims) and any(names.shim_label(name) in node.label_values() for name in shims)
    return node.bears_marks and (node.provisioned is not None or node.wasm is not None or by_shim)


def takes_label(ops: Iterable[PatchOp]) -> bool:
    """Return whether a patch removes a label of Trellis by which pods may be scheduled to the node."""
    return any(op["op"] == "remove" and op["path"].startswith("/metadata/labels/") for op in ops)


def patch_of(
    node: NodeView, labels: Changes, annotations: Changes, removed_taints: tuple[NodeTaint, ...] = ()
) -> tuple[PatchOp, ...]:
    """Return the JSON patch to the target state, with tests that the Node is as read; () if nothing differs."""
    ops: list[PatchOp] = list(remove_taints(node, removed_taints))
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
