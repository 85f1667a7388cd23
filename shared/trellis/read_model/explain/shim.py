"""State of a Shim, and its cause: its spec, its RuntimeClass, its rollout, each node that fails.

Pure. In: the Shim, nodes, the causes that stop Jobs. Out: the page. Called by ``explain``. Its health is that of
``trellis rollout status``. Source of the conditions: ``provisioner.domain.shim_status``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from trellis.provisioning.ledger import Ledger
from trellis.provisioning.shim_status import OTHER_CONTROLLER as OTHER
from trellis.provisioning.shim_status import Reason, read_status
from trellis.provisioning.shims import ShimView, view_shim
from trellis.provisioning.views import NodeView
from trellis.read_model.explain.job import failure_line
from trellis.read_model.explain.page import Explanation, Line, Rank, condition, reason_and_message
from trellis.read_model.explain.subject import Beside, Subject, looked_at
from trellis.read_model.health import Health
from trellis.read_model.tables.nodes import NODE_NOT_READY
from trellis.read_model.tables.rollout import NodeStage, Phase, RolloutSnapshot, ShimNode, Standing, standing_of

Manifest = Mapping[str, Any]

SUBJECT: Final = Subject("Shim", "shim", "kubectl get shims", "ready on all its nodes")
_NODE: Final = "Node"
_SHOWN: Final = 10
_NODES_FAIL: Final = "NodesFailing"
_STOPPING: Final = frozenset({Reason.MASS_DELETION.value, Reason.LEDGER_REFUSED.value})
_FIX: Final[Mapping[str, str]] = {
    "InvalidShim": "correct the spec: `kubectl edit shim {name}`",
    "ChecksumMissing": "set sha256 of the source, or a digest of the image",
    "Unsigned": "sign it with a trusted key, and store the signature next to the source",
    "RuntimeInUse": "end the pods that use it, or set spec.removalPolicy to drain",
}


@dataclass(frozen=True, slots=True)
class ShimSnapshot:
    """Objects in the cluster. ``shims``: all of them; ``causes``: by node, the cause that stops its Job.

    ``unread``: why not all objects of a kind (Node) were read.
    """

    shim: Manifest
    nodes: Sequence[NodeView] = ()
    shims: Sequence[ShimView] = ()
    causes: Mapping[str, Line] = field(default_factory=dict)
    ledger: Ledger = field(default_factory=lambda: Ledger({}))
    beside: Beside = field(default_factory=Beside)
    unread: Mapping[str, str] = field(default_factory=dict)


def explain_shim(snapshot: ShimSnapshot) -> Explanation:
    """Return the page of a Shim."""
    standing = _standing(snapshot)
    return SUBJECT.page(snapshot.shim, _chain(snapshot, standing), snapshot.beside, standing.verdict)


def _standing(snapshot: ShimSnapshot) -> Standing:
    view, status = view_shim(dict(snapshot.shim)), read_status(dict(snapshot.shim))
    return standing_of(
        RolloutSnapshot(
            view,
            status,
            tuple(snapshot.shims) or (view,),
            tuple(snapshot.nodes),
            snapshot.ledger,
            causes=snapshot.causes,
        )
    )


def shim_cause(shim: Manifest) -> Line | None:
    """Return the problem of the Shim itself, or of the cluster for all its nodes; None if none is reported."""
    return next(_spec(shim.get("status") or {}, str(shim["metadata"]["name"])), None)


def stopped_shims(shims: Iterable[Manifest]) -> dict[str, str]:
    """Return by name the Shims that make no progress on any node, and the reason."""
    degraded = {str(shim["metadata"]["name"]): condition(shim.get("status") or {}, "Degraded") for shim in shims}
    return {
        name: reason_and_message(item)
        for name, item in degraded.items()
        if item.get("status") == "True" and item["reason"] in _STOPPING
    }


def _chain(snapshot: ShimSnapshot, standing: Standing) -> Iterator[Line]:
    view, status = view_shim(dict(snapshot.shim)), snapshot.shim.get("status") or {}
    text = f"handler {view.handler or 'unknown'}, RuntimeClass {view.runtime_class or 'unknown'}"
    if view.deleting:
        text = f"it is being deleted, and stays until it is removed from {_left(snapshot, view)}; {text}"
    yield Line("shim", text, ok=not view.deleting, reason=Reason.REMOVING.value)
    yield looked_at(snapshot.shim, "provisioner")
    yield from _spec(status, view.name)
    yield from _nodes(snapshot, view, standing)
    yield from _rollout(status, view, standing)
    available = condition(status, "Available")
    if available and not view.deleting:
        healthy = standing.verdict.health is Health.HEALTHY
        ok = available.get("status") == "True" or (None if healthy else False)
        yield Line("nodes", str(available.get("message") or ""), ok=ok, reason=str(available.get("reason") or ""))


def _left(snapshot: ShimSnapshot, view: ShimView) -> str:
    """Return the number of nodes that a Shim is still installed on, or why it is unknown."""
    if unknown := snapshot.unread.get(_NODE):
        return f"its nodes, whose number is unknown ({unknown})"
    return f"{sum(view.name in node.installed for node in snapshot.nodes)} nodes"


def _spec(status: Manifest, name: str) -> Iterator[Line]:
    """Yield the problems of the Shim itself, or of the cluster for all its nodes."""
    other = condition(status, OTHER)
    if other.get("status") == "True":
        yield Line(
            "other controller", reason_and_message(other), False, "", Rank.CAUSE, str(other.get("reason") or OTHER)
        )
    degraded = condition(status, "Degraded")
    reason = str(degraded.get("reason") or "")
    if degraded.get("status") == "True" and reason != _NODES_FAIL:
        yield Line(
            "degraded", reason_and_message(degraded), False, _FIX.get(reason, "").format(name=name), Rank.CAUSE, reason
        )


def _nodes(snapshot: ShimSnapshot, view: ShimView, standing: Standing) -> Iterator[Line]:
    """Yield each node that fails or is stopped; the first is the cause."""
    views = {node.name: node for node in snapshot.nodes}
    lines = [line for item in standing.nodes if (line := _node(snapshot, views[item.name], item)) is not None]
    yield from lines[:_SHOWN]
    if len(lines) > _SHOWN:
        yield Line("node", f"and {len(lines) - _SHOWN} more: `trellis nodes`", ok=False, reason=_NODES_FAIL)
    if not standing.nodes and not view.deleting and not view.invalid and _NODE not in snapshot.unread:
        text, do = "its nodeSelector matches no node", "label a node, or change spec.nodeSelector"
        yield Line("nodes", text, False, do, Rank.ASIDE, Reason.NO_NODES.value)


def _node(snapshot: ShimSnapshot, node: NodeView, shim_node: ShimNode) -> Line | None:
    if shim_node.stage in {NodeStage.UPDATED, NodeStage.REMOVING}:
        return None
    # A node that is blocked for a reason of this Shim does not wait for the Job there, which is of other Shims.
    found = None if shim_node.stage is NodeStage.BLOCKED else snapshot.causes.get(node.name)
    if found is None and shim_node.stage is NodeStage.FAILED:
        found = failure_line(shim_node.message, None)
    if found is None and not node.ready:
        text, do = "its kubelet does not report it as ready", f"`kubectl describe node {node.name}`"
        found = Line("kubelet", text, False, do, Rank.CAUSE, NODE_NOT_READY)
    if found is None:
        return None
    text = f"node {node.name}: {found.text}"
    return Line("node", text, False, found.do or f"`trellis explain node/{node.name}`", Rank.CAUSE, found.reason)


def _rollout(status: Manifest, view: ShimView, standing: Standing) -> Iterator[Line]:
    progressing = condition(status, "Progressing")
    resume = f"`trellis rollout resume {view.name}`"
    if view.paused:
        reason, stopped = Reason.PAUSED.value, standing.phase is Phase.PAUSED
        ok = False if stopped else None
        yield Line("rollout", "it is paused by spec.paused", ok, resume, Rank.SERVICE, reason, Health.SUSPENDED)
    elif standing.phase is Phase.HALTED:
        text = f"it is halted: {standing.message}"
        yield Line("rollout", text, False, resume, Rank.SERVICE, Reason.HALTED.value, Health.DEGRADED)
    elif progressing:
        # A rollout in progress is no trouble; the count of nodes shows that it is not complete.
        yield Line(
            "rollout", reason_and_message(progressing), ok=True if progressing.get("status") == "False" else None
        )
