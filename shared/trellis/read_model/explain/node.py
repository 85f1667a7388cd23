"""Why a node can, or cannot, run Wasm: the whole chain from its opting in to its proof.

Pure. In: the Node, its Jobs, their pods and Events, the Shims, the ledger. Out: the page. Called by ``explain``.
Invariant: what hinders now comes before what failed before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from trellis import names
from trellis.installer_api.spec import WantedShim
from trellis.provisioning.ledger import Ledger
from trellis.provisioning.nodes_and_jobs import view_job, view_node
from trellis.provisioning.reasons import NO_POD, NODE_UPDATE_REFUSED
from trellis.provisioning.shims import ShimView, is_for
from trellis.provisioning.targets import wish_on
from trellis.provisioning.views import (
    SUPPORTED_OS,
    JobState,
    NodeView,
    OptIn,
    newest,
    opt_in_of,
    proved_of,
)
from trellis.read_model.explain.job import failure_line, job_lines, refusal_advice, refused_job, since_outcome
from trellis.read_model.explain.page import Explanation, Line, Rank, condition, told_since, warnings_of, words
from trellis.read_model.explain.subject import Beside, Subject
from trellis.read_model.tables.nodes import KUBELET_AWAY, NodeState, row_of

Manifest = Mapping[str, Any]

SUBJECT: Final = Subject("Node", "node", "kubectl get nodes", "ready to run Wasm")
_TOLD: Final = frozenset(
    {
        *("InstallerJobChanged", "InstallerRefused", NODE_UPDATE_REFUSED),
        *("OtherControllerActive", "NothingToInstall", "RuntimeInUse", "DrainBlocked"),
    }
)
"""Reasons of Events on a Node that say what keeps provisioner from it."""
_BEGUN: Final = frozenset({NodeState.PROVISIONING, NodeState.VERIFYING, NodeState.FAILED})


@dataclass(frozen=True, slots=True)
class NodeSnapshot:
    """What stands in the cluster. ``installers``: namespace of the Jobs; ``jobs``, ``pods``: those of the node.

    ``held``: by name the Shims of which nothing goes on, on any node, and why.
    """

    node: Manifest
    installers: str
    jobs: Sequence[Manifest] = ()
    pods: Sequence[Manifest] = ()
    shims: Sequence[ShimView] = ()
    held: Mapping[str, str] = field(default_factory=dict)
    ledger: Ledger = field(default_factory=lambda: Ledger({}))
    beside: Beside = field(default_factory=Beside)


def explain_node(world: NodeSnapshot) -> Explanation:
    """Return the page of a node."""
    return SUBJECT.page(world.node, _chain(world), world.beside)


def _chain(world: NodeSnapshot) -> Iterator[Line]:
    view = view_node(dict(world.node))
    jobs = tuple(view_job(dict(job)) for job in world.jobs)
    row = row_of(view, jobs, world.ledger.entries.get(view.uid), world.shims)
    yield _kubelet(world.node, view)
    if view.skip is not None:
        yield Line("skipped", f"{view.skip.reason.value}: {view.skip.message}", well=False, rank=Rank.CAUSE)
    yield from _leaving(world, view)
    yield _wish(world, view, concern=row.concern and row.wish is OptIn.IN)
    yield from _shims(world, view, begun=row.state in _BEGUN)
    job = newest(jobs)
    raw = next((one for one in world.jobs if job is not None and one["metadata"]["uid"] == job.uid), None)
    events = since_outcome(world.beside.events, view)
    told = warnings_of(told_since(events, raw), view.uid)
    yield from _hold(world, view, row.state, told)
    if raw is not None and row.state is not NodeState.READY:
        yield from job_lines(raw, world.pods, events)
    if row.state in {NodeState.WAITING, NodeState.PROVISIONING} and job is None:
        refused = refused_job(events, view.uid, world.installers)
        if refused is not None:
            yield refused
    failure = (view.failure if view.failed and view.failed.digest != view.marked_digest else "") or (
        job.failure if job is not None and job.state is JobState.FAILED else ""
    )
    if failure:
        yield failure_line(failure, job)
    unlabelled = any(one.get("reason") == NODE_UPDATE_REFUSED for one in told)
    yield _state(view, row.state, row.message, unlabelled=unlabelled)


def _kubelet(node: Manifest, view: NodeView) -> Line:
    about = f"{view.operating_system}/{view.architecture or 'unknown'}, {view.runtime_version or 'runtime unknown'}"
    if view.ready:
        return Line("kubelet", f"ready; {about}", well=True)
    said = words(condition(node.get("status") or {}, "Ready")) or "it has not said anything yet"
    text = f"{KUBELET_AWAY}: {said}; {about}"
    do = f"mend the kubelet: `kubectl describe node {view.name}`; work goes on by itself once it is ready"
    return Line("kubelet", text, well=False, do=do, rank=Rank.CAUSE)


def _leaving(world: NodeSnapshot, view: NodeView) -> Iterator[Line]:
    """Yield the Shims of the node that are being deleted, where the circuit breaker holds that."""
    for name in sorted(shim.name for shim in world.shims if shim.deleting and shim.name in world.held):
        if name in view.installed:
            yield _held(world, name, "it is being deleted and still here")


def _held(world: NodeSnapshot, name: str, what: str) -> Line:
    """Return why nothing goes on with a Shim; its own page says what to do."""
    return Line("shim", f"{name}: {what}: {world.held[name]}", False, f"`trellis explain shim/{name}`", Rank.CAUSE)


def _wish(world: NodeSnapshot, view: NodeView, *, concern: bool) -> Line:
    if view.operating_system != SUPPORTED_OS:
        text = f"only {SUPPORTED_OS} nodes are provisioned, this one runs {view.operating_system}"
        return Line("opted in", text, well=False, rank=Rank.CAUSE)
    match opt_in_of(view, auto_provision=False):
        case OptIn.INVALID:
            text = f"its annotation {names.ANNOTATION_OPT_IN} has {view.opt_in!r}, which is neither true nor false"
            do = f"`kubectl annotate node {view.name} --overwrite {names.ANNOTATION_OPT_IN}=true`"
            return Line("opted in", text, well=False, do=do, rank=Rank.CAUSE)
        case OptIn.IN:
            return Line("opted in", f"by its annotation {names.ANNOTATION_OPT_IN}", well=True)
        case _:
            chosen = [shim.name for shim in world.shims if is_for(shim, view, auto_provision=False)]
            if chosen:
                return Line("opted in", f"by the nodeSelector of Shim {', '.join(sorted(chosen))}", well=True)
            if concern and view.opt_in is None:
                return Line("opted in", "by auto-provisioning, as far as its marks tell", well=True)
    text = f"it is not opted in: {_out(view)}"
    do = f"`kubectl annotate node {view.name} --overwrite {names.ANNOTATION_OPT_IN}=true`, or label it for a Shim"
    return Line("opted in", text, well=False, do=do, rank=Rank.CAUSE)


def _out(view: NodeView) -> str:
    if view.opt_in is not None:
        return f"its annotation {names.ANNOTATION_OPT_IN} says {view.opt_in!r}"
    return f"it has no annotation {names.ANNOTATION_OPT_IN}, and no Shim's nodeSelector is for it"


def _shims(world: NodeSnapshot, view: NodeView, *, begun: bool) -> Iterator[Line]:
    """Yield what each Shim that is for the node has come to there; ``begun``: an installer is, or was, at work."""
    proved = proved_of(view.installed)
    for shim in sorted(world.shims, key=lambda one: one.name):
        if shim.invalid or not is_for(shim, view, auto_provision=False):
            continue
        wish = wish_on(shim, view, world.shims, auto_provision=False, require_checksum=False)
        has = proved.get(shim.name)
        if not isinstance(wish, WantedShim):
            text = f"{shim.name} is not installed here, {wish.value}"
            yield Line("shim", text, False, f"`trellis explain shim/{shim.name}`", Rank.CAUSE)
        elif has == wish.digest:
            yield Line("shim", f"{shim.name}: proved by {view.verified}", well=True)
        else:
            text = "another version is proved here" if has else "not proved here yet"
            held = shim.name in world.held and not begun
            yield _held(world, shim.name, text) if held else Line("shim", f"{shim.name}: {text}", well=False)


def _hold(world: NodeSnapshot, view: NodeView, state: NodeState, told: Sequence[Manifest]) -> Iterator[Line]:
    """Yield what keeps the node from going on: a halt, a pause, another operator, a refusal.

    ``told``: the warnings about the node since its newest Job was created, the newest first.
    """
    entry = world.ledger.entries.get(view.uid)
    if entry is not None:
        yield Line("rollout", f"it has a slot for {entry.digest}, attempt {entry.attempt}", well=True)
    mine = {shim.name for shim in world.shims if is_for(shim, view, auto_provision=False)}
    halted = [name for name in world.ledger.halted if name in mine or not mine]
    if halted and entry is None and state is not NodeState.READY:
        text = f"the rollout of {', '.join(halted)} is halted, because too many nodes failed, and this one waits for it"
        do = f"`trellis explain shim/{halted[0]}` names the failure; then `trellis rollout resume {halted[0]}`"
        yield Line("rollout", text, well=False, do=do, rank=Rank.CAUSE)
    paused = [shim.name for shim in world.shims if shim.name in mine and shim.paused]
    if paused and entry is None and state is NodeState.WAITING:
        text = f"the rollout of {', '.join(sorted(paused))} is paused by spec.paused"
        yield Line("rollout", text, False, f"`trellis rollout resume {min(paused)}`", Rank.CAUSE)
    if state is not NodeState.READY:
        for one in told:
            message = str(one.get("message") or "")
            if one.get("reason") in _TOLD and NO_POD not in message:
                do = refusal_advice(message, world.installers) if one.get("reason") == NODE_UPDATE_REFUSED else ""
                yield Line("held", words(one), well=False, do=do, rank=Rank.CAUSE)
                return


def _state(view: NodeView, state: NodeState, message: str, *, unlabelled: bool) -> Line:
    if state is NodeState.READY:
        handlers = ", ".join(sorted(filter(None, view.handlers))) or "none"
        return Line("proof", f"by {view.verified}; its runtime lists the handlers: {handlers}", well=True)
    if unlabelled and state is NodeState.VERIFYING:
        return Line("proof", "the installer is done, and the API server refuses to have that written here", well=False)
    words_ = {
        NodeState.WAITING: "it waits for its turn: nothing was begun yet",
        NodeState.PROVISIONING: "the installer is at work",
        NodeState.VERIFYING: "the installer is done, and its proof is waited for: the handler, or a canary pod",
    }.get(state, message or state.value)
    return Line("proof", words_, well=False)
