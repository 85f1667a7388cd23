"""Why a Shim is, or is not, on all its nodes: its spec, its RuntimeClass, its rollout, each node that fails.

Pure. In: the Shim, rows of nodes, what holds Jobs up. Out: the page. Called by ``explain``.
Source of the conditions: ``provisioner.domain.shim_status``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from trellis.provisioning.ledger import Ledger
from trellis.provisioning.shim_status import OTHER_CONTROLLER as OTHER
from trellis.provisioning.shim_status import Reason
from trellis.provisioning.shims import ShimView, is_for, view_shim
from trellis.provisioning.views import NodeView, proved_of
from trellis.read_model.explain.job import failure_line
from trellis.read_model.explain.page import Explanation, Line, Rank, condition, words
from trellis.read_model.explain.subject import Beside, Subject, looked_at

Manifest = Mapping[str, Any]

SUBJECT: Final = Subject("Shim", "shim", "kubectl get shims", "ready on all its nodes")
_SHOWN: Final = 10
_NODES_FAIL: Final = "NodesFailing"
_HELD: Final = frozenset({Reason.MASS_DELETION.value, Reason.LEDGER_REFUSED.value})
_MEND: Final[Mapping[str, str]] = {
    "InvalidShim": "mend the spec: `kubectl edit shim {name}`",
    "ChecksumMissing": "give the source a sha256, or the image a digest",
    "Unsigned": "sign it with a key that the platform trusts, and put the signature beside the source",
    "RuntimeInUse": "end the pods that run with it, or set spec.removalPolicy to drain",
}


@dataclass(frozen=True, slots=True)
class ShimSnapshot:
    """What stands in the cluster. ``held``: by node, what holds up its Job."""

    shim: Manifest
    nodes: Sequence[NodeView] = ()
    held: Mapping[str, Line] = field(default_factory=dict)
    ledger: Ledger = field(default_factory=lambda: Ledger({}))
    beside: Beside = field(default_factory=Beside)


def explain_shim(world: ShimSnapshot) -> Explanation:
    """Return the page of a Shim."""
    return SUBJECT.page(world.shim, _chain(world), world.beside)


def shim_cause(shim: Manifest) -> Line | None:
    """Return what is wrong with a Shim itself, or with the cluster for all its nodes; None if nothing is reported."""
    return next(_spec(shim.get("status") or {}, str(shim["metadata"]["name"])), None)


def held_shims(shims: Iterable[Manifest]) -> dict[str, str]:
    """Return by name the Shims of which nothing goes on, on any node, and why."""
    said = {str(one["metadata"]["name"]): condition(one.get("status") or {}, "Degraded") for one in shims}
    return {name: words(one) for name, one in said.items() if one.get("status") == "True" and one["reason"] in _HELD}


def _chain(world: ShimSnapshot) -> Iterator[Line]:
    view, status = view_shim(dict(world.shim)), world.shim.get("status") or {}
    text = f"handler {view.handler or 'unknown'}, RuntimeClass {view.runtime_class or 'unknown'}"
    if view.deleting:
        left = sum(view.name in node.installed for node in world.nodes)
        text = f"it is being deleted, and goes once no node has it: {left} nodes still have it; {text}"
    yield Line("shim", text, well=not view.deleting)
    yield looked_at(world.shim, "provisioner")
    mine = [node for node in world.nodes if is_for(view, node, auto_provision=False)]
    yield from _spec(status, view.name)
    yield from _nodes(world, view, mine)
    yield from _rollout(world, status, view)
    available = condition(status, "Available")
    if available and not view.deleting:
        yield Line("nodes", str(available.get("message") or ""), well=available.get("status") == "True")


def _spec(status: Manifest, name: str) -> Iterator[Line]:
    """Yield what is wrong with the Shim itself, or with the cluster for all its nodes."""
    other = condition(status, OTHER)
    if other.get("status") == "True":
        yield Line("held", words(other), well=False, rank=Rank.CAUSE)
    degraded = condition(status, "Degraded")
    reason = str(degraded.get("reason") or "")
    if degraded.get("status") == "True" and reason != _NODES_FAIL:
        yield Line("degraded", words(degraded), False, _MEND.get(reason, "").format(name=name), Rank.CAUSE)


def _nodes(world: ShimSnapshot, view: ShimView, mine: Sequence[NodeView]) -> Iterator[Line]:
    """Yield each node that fails or is held up; the first is why."""
    lines = [line for node in mine if (line := _node(world, view, node)) is not None]
    yield from lines[:_SHOWN]
    if len(lines) > _SHOWN:
        yield Line("node", f"and {len(lines) - _SHOWN} more: `trellis nodes`", well=False)
    if not mine and not view.deleting and not view.invalid:
        text = "no node is to have it: its nodeSelector fits none"
        yield Line("nodes", text, well=False, do="label a node so, or change spec.nodeSelector", rank=Rank.CAUSE)


def _node(world: ShimSnapshot, view: ShimView, node: NodeView) -> Line | None:
    found = world.held.get(node.name)
    if found is None and node.failed is not None and node.failed.digest != node.marked_digest:
        found = failure_line(node.failure or "the last attempt failed", None)
    if found is None and not node.ready and view.name not in proved_of(node.installed):
        text, do = "its kubelet does not report it ready", f"`kubectl describe node {node.name}`"
        found = Line("kubelet", text, False, do, Rank.CAUSE)
    if found is None:
        return None
    text = f"node {node.name}: {found.text}"
    return Line("node", text, False, found.do or f"`trellis explain node/{node.name}`", Rank.CAUSE)


def _rollout(world: ShimSnapshot, status: Manifest, view: ShimView) -> Iterator[Line]:
    progressing = condition(status, "Progressing")
    resume = f"`trellis rollout resume {view.name}`"
    if view.paused:
        yield Line("rollout", "it is paused by spec.paused", False, resume, Rank.SERVICE)
    elif view.name in world.ledger.halted:
        yield Line("rollout", "it is halted, because too many nodes failed", False, resume, Rank.SERVICE)
    elif progressing:
        # What goes on is no trouble; that it is not done yet, the count of nodes tells.
        yield Line("rollout", words(progressing), well=True if progressing.get("status") == "False" else None)
