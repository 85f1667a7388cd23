"""Startup taints, late and lost verification of the Shims of a node.

Pure. In: a Node, its target Shims, its verified state. Out: operations of a JSON patch, a verification. Called by
``decide`` and ``node_patch``. Invariant: a taint is removed only when every Shim of the node that names it is verified,
and is never restored.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from trellis.provisioning.shims import ShimView, Taint
from trellis.provisioning.views import KWASM, JobState, JobView, NodeTaint, NodeView, VerifiedBy, verified_digests

PatchOp = dict[str, Any]


def removable_startup_taints(
    node: NodeView, shims: Iterable[ShimView], verified: Collection[str]
) -> tuple[NodeTaint, ...]:
    """Return the startup taints to remove: those of which every Shim that names them is in ``verified`` (names)."""
    named = [(shim.name, shim.startup_taint) for shim in shims if shim.startup_taint is not None]

    def over(found: NodeTaint) -> bool:
        waits = [name for name, taint in named if _is(found, taint)]
        return bool(waits) and all(name in verified for name in waits)

    return tuple(filter(over, node.taints))


def remove_taints(node: NodeView, removed: Collection[NodeTaint]) -> tuple[PatchOp, ...]:
    """Return the operations that remove taints, () for none.

    Taints are one atomic list: the patch tests it as it was read and replaces it as a whole.
    """
    if not removed:
        return ()
    path, before = "/spec/taints", [taint.manifest() for taint in node.taints]
    left = [taint.manifest() for taint in node.taints if taint not in removed]
    test = {"op": "test", "path": path, "value": before}
    return (test, {"op": "replace", "path": path, "value": left} if left else {"op": "remove", "path": path})


def verification_by_now(node: NodeView, shims: Iterable[ShimView]) -> VerifiedBy | None:
    """Return the verification of a marked node, which may be stronger than the one in its marks.

    A node that was taken over while its kubelet listed no handlers is marked as verified by a Job alone. It counts as
    verified by handler once the kubelet lists the handlers of all installed Shims. The handler of a legacy installer
    image is unknown, so its verification does not change.
    """
    if node.verified_by is not VerifiedBy.JOB:
        return node.verified_by
    handlers, installed = {shim.name: shim.handler for shim in shims}, verified_digests(node.installed)
    shown = installed and all(name != KWASM and handlers.get(name) in node.handlers for name in installed)
    return VerifiedBy.HANDLER if shown else VerifiedBy.JOB


def vanished(
    node: NodeView, job: JobView | None, wanted: Collection[str], handlers: Mapping[str, str]
) -> tuple[str, ...]:
    """Return the names of target Shims that the node is marked with but whose handlers it no longer lists.

    Causes: distributions that re-create /etc at each boot (GKE's COS, Bottlerocket) lose the configuration of
    containerd, and users edit it. A node that lists no handlers at all proves nothing; nothing is concluded while a Job
    runs, because its restart of containerd makes handlers disappear temporarily.

    ``handlers``: of the known Shims, by name. ``job``: the newest of the node.
    """
    if not node.handlers or (job is not None and (job.deleting or job.state is not JobState.FAILED)):
        return ()
    marked = sorted(name for name in verified_digests(node.installed) if name in wanted and name in handlers)
    return tuple(name for name in marked if handlers[name] not in node.handlers)


def _is(found: NodeTaint, taint: Taint) -> bool:
    same = (found.key, found.effect) == (taint.key, taint.effect)
    return same and taint.value in {None, found.value or ""}
