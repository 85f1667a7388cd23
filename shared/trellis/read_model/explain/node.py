"""State of a node, and its cause, from its opt-in to its verification.

Pure. In: the Node, its Jobs, their pods and Events, the Shims, the ledger. Out: the page. Called by ``explain``.
Invariants: a present obstacle comes before a past failure; nothing is concluded from objects that could not be read.
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
from trellis.provisioning.reasons import Reason as NodeReason
from trellis.provisioning.shim_status import Reason, Status
from trellis.provisioning.shims import ShimView, is_for
from trellis.provisioning.targets import wanted_shim_on
from trellis.provisioning.views import (
    SUPPORTED_OS,
    JobState,
    JobView,
    NodeView,
    OptIn,
    newest,
    opt_in_of,
    verified_digests,
)
from trellis.read_model.explain.job import failure_line, job_lines, refusal_advice, refused_job, since_outcome
from trellis.read_model.explain.page import (
    READ_INCOMPLETE,
    Explanation,
    Line,
    Rank,
    condition,
    events_since,
    reason_and_message,
    warnings_of,
)
from trellis.read_model.explain.subject import Beside, Subject, cause_of
from trellis.read_model.health import Health, Verdict
from trellis.read_model.tables.nodes import (
    KUBELET_NOT_READY,
    NODE_NOT_READY,
    UNSUPPORTED_OS,
    NodeRow,
    NodeState,
    is_unserved,
    row_of,
)
from trellis.read_model.tables.rollout import ShimNode, stages_of_node

Manifest = Mapping[str, Any]

SUBJECT: Final = Subject("Node", "node", "kubectl get nodes", "ready to run Wasm")
SHIM: Final = "Shim"
JOB: Final = "Job"
LEDGER: Final = "ConfigMap"
"""Kind of the rollout ledger."""
_REPORTED_REASONS: Final = frozenset(
    {
        *("InstallerJobChanged", "InstallerRefused", NODE_UPDATE_REFUSED),
        *(NodeReason.OTHER_CONTROLLER, NodeReason.NOTHING_TO_INSTALL, NodeReason.IN_USE, NodeReason.DRAIN_BLOCKED),
    }
)
"""Reasons of Events on a Node that stop provisioner there."""
_STARTED: Final = frozenset({NodeState.PROVISIONING, NodeState.VERIFYING, NodeState.FAILED})


@dataclass(frozen=True, slots=True)
class NodeSnapshot:
    """Objects in the cluster. ``installers``: namespace of the Jobs; ``jobs``, ``pods``: those of the node.

    ``statuses``: of Shims by name; ``stopped``: by name the Shims without progress on any node, and the reason;
    ``unread``: why not all objects of a kind (:data:`SHIM`, :data:`JOB`, :data:`LEDGER`) were read; ``kwasm``: an
    installer image of KWasm is in use, or it is unknown whether one is.
    """

    node: Manifest
    installers: str
    jobs: Sequence[Manifest] = ()
    pods: Sequence[Manifest] = ()
    shims: Sequence[ShimView] = ()
    stopped: Mapping[str, str] = field(default_factory=dict)
    statuses: Mapping[str, Status] = field(default_factory=dict)
    ledger: Ledger = field(default_factory=lambda: Ledger({}))
    beside: Beside = field(default_factory=Beside)
    unread: Mapping[str, str] = field(default_factory=dict)
    kwasm: bool = False

    def unknown(self, *kinds: str) -> str:
        """Return the reasons for which objects are unknown, "" if all were read."""
        return "; ".join(self.unread[kind] for kind in kinds if kind in self.unread)


def explain_node(snapshot: NodeSnapshot) -> Explanation:
    """Return the page of a node."""
    view = view_node(dict(snapshot.node))
    jobs = tuple(view_job(dict(job)) for job in snapshot.jobs)
    stages = stages_of_node(view, tuple(snapshot.shims), snapshot.statuses, snapshot.ledger)
    unserved = not snapshot.unknown(SHIM, LEDGER) and is_unserved(view, snapshot.shims, kwasm=snapshot.kwasm)
    row = row_of(view, jobs, snapshot.ledger.entries.get(view.uid), snapshot.shims, stages, unserved=unserved)
    chain = [*_chain(snapshot, view, jobs, row, stages)]
    return SUBJECT.page(snapshot.node, chain, snapshot.beside, _verdict(chain, row))


def _verdict(chain: Sequence[Line], row: NodeRow) -> Verdict:
    """Return the health of the row, unless that depends on objects that could not be read."""
    unknown = next((line for line in chain if line.reason == READ_INCOMPLETE), None)
    if unknown is None:
        return row.verdict
    cause = cause_of(chain)
    return cause.verdict if cause is not None and cause.rank is Rank.CAUSE else unknown.verdict


def _chain(
    snapshot: NodeSnapshot, view: NodeView, jobs: tuple[JobView, ...], row: NodeRow, stages: Mapping[str, ShimNode]
) -> Iterator[Line]:
    yield _kubelet(snapshot.node, view)
    if view.skip is not None:
        reason = view.skip.reason.value
        yield Line("skipped", f"{reason}: {view.skip.message}", False, "", Rank.CAUSE, reason, Health.SUSPENDED)
    yield from _deleting_shims(snapshot, view)
    yield _opted_in_line(snapshot, view, concern=row.concern and row.opt_in_state is OptIn.IN)
    yield from _shims(snapshot, view, started=row.state in _STARTED)
    job = newest(jobs)
    raw = next((item for item in snapshot.jobs if job is not None and item["metadata"]["uid"] == job.uid), None)
    events = since_outcome(snapshot.beside.events, view)
    warnings = warnings_of(events_since(events, raw), view.uid)
    yield from _obstacles(snapshot, view, row.state, [item for item in warnings if _is_current(snapshot, item, stages)])
    if row.reason == NodeReason.NOTHING_TO_INSTALL:
        do = f"`kubectl label shim NAME {names.LABEL_KWASM_DEFAULT}=true`; `trellis shims add` creates a Shim"
        yield Line("shim", row.message, False, do, Rank.CAUSE, row.reason)
    if raw is not None and row.state is not NodeState.READY:
        yield from job_lines(raw, snapshot.pods, events)
    if row.state in {NodeState.WAITING, NodeState.PROVISIONING} and job is None:
        refused = refused_job(events, view.uid, snapshot.installers)
        if refused is not None:
            yield refused
    failure = (view.failure if view.failed and view.failed.digest != view.marked_digest else "") or (
        job.failure if job is not None and job.state is JobState.FAILED else ""
    )
    if failure:
        yield failure_line(failure, job)
    unlabelled = any(item.get("reason") == NODE_UPDATE_REFUSED for item in warnings)
    yield _unknown_state(snapshot, view, row.state, job) or _state(view, row, unlabelled=unlabelled)


def _kubelet(node: Manifest, view: NodeView) -> Line:
    about = f"{view.operating_system}/{view.architecture or 'unknown'}, {view.runtime_version or 'runtime unknown'}"
    if view.ready:
        return Line("kubelet", f"ready; {about}", ok=True)
    reported = reason_and_message(condition(node.get("status") or {}, "Ready")) or "it has not reported yet"
    text = f"{KUBELET_NOT_READY}: {reported}; {about}"
    do = f"repair the kubelet: `kubectl describe node {view.name}`; provisioning continues once it is ready"
    return Line("kubelet", text, False, do, Rank.CAUSE, NODE_NOT_READY)


def _deleting_shims(snapshot: NodeSnapshot, view: NodeView) -> Iterator[Line]:
    """Yield the Shims of the node that are being deleted, if the circuit breaker pauses that."""
    for name in sorted(shim.name for shim in snapshot.shims if shim.deleting and shim.name in snapshot.stopped):
        if name in view.installed:
            yield _shim_obstacle(snapshot, name, "it is being deleted and still installed here")


def _shim_obstacle(snapshot: NodeSnapshot, name: str, what: str) -> Line:
    """Return why a Shim makes no progress; its own page has the resolution."""
    text, reason = f"{name}: {what}: {snapshot.stopped[name]}", snapshot.stopped[name].partition(":")[0]
    return Line("shim", text, False, f"`trellis explain shim/{name}`", Rank.CAUSE, reason)


def _opted_in_line(snapshot: NodeSnapshot, view: NodeView, *, concern: bool) -> Line:
    if view.operating_system != SUPPORTED_OS:
        text = f"only {SUPPORTED_OS} nodes are provisioned, this one runs {view.operating_system}"
        return Line("opted in", text, False, "", Rank.CAUSE, UNSUPPORTED_OS, Health.SUSPENDED)
    match opt_in_of(view, auto_provision=False):
        case OptIn.INVALID:
            text = f"its annotation {names.ANNOTATION_OPT_IN} has {view.opt_in!r}, which is neither true nor false"
            do = f"`kubectl annotate node {view.name} --overwrite {names.ANNOTATION_OPT_IN}=true`"
            return Line("opted in", text, False, do, Rank.CAUSE, NodeState.INVALID_ANNOTATION.value)
        case OptIn.IN:
            return Line("opted in", f"by its annotation {names.ANNOTATION_OPT_IN}", ok=True)
        case _:
            chosen = [shim.name for shim in snapshot.shims if is_for(shim, view, auto_provision=False)]
            if chosen:
                return Line("opted in", f"by the nodeSelector of Shim {', '.join(sorted(chosen))}", ok=True)
            if view.opt_in is None and (unknown := snapshot.unknown(SHIM)):
                return _opt_in_unknown(unknown, concern=concern)
            if concern and view.opt_in is None:
                return Line("opted in", "by auto-provisioning, according to its labels", ok=True)
    text = f"it is not opted in: {_out(view)}"
    if view.opt_in is None and (unknown := snapshot.unknown(JOB, LEDGER)):
        text = f"{text}; the state of auto-provisioning is unknown: {unknown}"
    do = f"`kubectl annotate node {view.name} --overwrite {names.ANNOTATION_OPT_IN}=true`, or label it for a Shim"
    return Line("opted in", text, False, do, Rank.CAUSE, NodeState.NOT_OPTED_IN.value, Health.NOT_OPTED_IN)


def _opt_in_unknown(unknown: str, *, concern: bool) -> Line:
    """Return the step of a node without annotation while Shims, which can select it, are ``unknown``."""
    if concern:
        text = f"it has labels, annotations or a Job of Trellis; its selection by Shims is unknown: {unknown}"
        return Line("opted in", text)
    text = f"it has no annotation {names.ANNOTATION_OPT_IN}, and its selection by Shims is unknown: {unknown}"
    return Line("opted in", text, False, "", Rank.SYMPTOM, READ_INCOMPLETE, Health.UNKNOWN)


def _out(view: NodeView) -> str:
    if view.opt_in is not None:
        return f"its annotation {names.ANNOTATION_OPT_IN} is {view.opt_in!r}"
    return f"it has no annotation {names.ANNOTATION_OPT_IN}, and no Shim's nodeSelector matches it"


def _shims(snapshot: NodeSnapshot, view: NodeView, *, started: bool) -> Iterator[Line]:
    """Yield the state of each Shim that selects the node; ``started``: an installer runs, or ran."""
    verified = verified_digests(view.installed)
    for shim in sorted(snapshot.shims, key=lambda item: item.name):
        if shim.invalid or not is_for(shim, view, auto_provision=False):
            continue
        wanted = wanted_shim_on(shim, view, snapshot.shims, auto_provision=False, require_checksum=False)
        has = verified.get(shim.name)
        if not isinstance(wanted, WantedShim):
            text = f"{shim.name} is not installed here, {wanted.value}"
            yield Line("shim", text, False, f"`trellis explain shim/{shim.name}`", Rank.CAUSE, wanted.value)
        elif has == wanted.digest:
            yield Line("shim", f"{shim.name}: verified by {view.verified}", ok=True)
        else:
            text = "another version is verified here" if has else "not verified here yet"
            stopped = shim.name in snapshot.stopped and not started
            yield (
                _shim_obstacle(snapshot, shim.name, text) if stopped else Line("shim", f"{shim.name}: {text}", ok=False)
            )


def _obstacles(
    snapshot: NodeSnapshot, view: NodeView, state: NodeState, warnings: Sequence[Manifest]
) -> Iterator[Line]:
    """Yield the obstacles of the node: a halt, a pause, another operator, a rejection.

    ``warnings``: the warnings about the node since its newest Job was created, newest first.
    """
    entry = snapshot.ledger.entries.get(view.uid)
    if entry is not None:
        yield Line("rollout", f"it has a slot for {entry.digest}, attempt {entry.attempt}", ok=True)
    own = {shim.name for shim in snapshot.shims if is_for(shim, view, auto_provision=False)}
    halted = [name for name in snapshot.ledger.halted if name in own or not own]
    if halted and entry is None and state is not NodeState.READY:
        text = f"the rollout of {', '.join(halted)} is halted, because too many nodes or pods failed"
        do = f"`trellis explain shim/{halted[0]}` names the failure; then `trellis rollout resume {halted[0]}`"
        if unknown := snapshot.unknown(SHIM):
            yield Line("rollout", f"{text}; the effect on this node is unknown: {unknown}", rank=Rank.ASIDE)
        else:
            text = f"{text}, and this node waits for it"
            yield Line("rollout", text, False, do, Rank.CAUSE, Reason.HALTED.value, Health.SUSPENDED)
    paused = [shim.name for shim in snapshot.shims if shim.name in own and shim.paused]
    if paused and entry is None and state is NodeState.WAITING:
        text = f"the rollout of {', '.join(sorted(paused))} is paused by spec.paused"
        do = f"`trellis rollout resume {min(paused)}`"
        yield Line("rollout", text, False, do, Rank.CAUSE, Reason.PAUSED.value, Health.SUSPENDED)
    if state is not NodeState.READY:
        for item in warnings:
            message = str(item.get("message") or "")
            if item.get("reason") in _REPORTED_REASONS and NO_POD not in message:
                do = refusal_advice(message, snapshot.installers) if item.get("reason") == NODE_UPDATE_REFUSED else ""
                yield Line("event", reason_and_message(item), False, do, Rank.CAUSE, str(item.get("reason") or ""))
                return


def _is_current(snapshot: NodeSnapshot, event: Manifest, stages: Mapping[str, ShimNode]) -> bool:
    """Return whether an Event, which stays for an hour, is still true, as far as the objects show it.

    ``stages``: of the Shims on the node; none on a node that gets an installer image of KWasm.
    """
    reason = event.get("reason")
    observed = [name for name in stages if name in snapshot.statuses and snapshot.statuses[name].conditions]
    if reason == NodeReason.OTHER_CONTROLLER and observed:
        return any(item.message == reason for item in stages.values())
    return reason != NodeReason.NOTHING_TO_INSTALL or bool(snapshot.unknown(SHIM, LEDGER))  # else the row has it


def _unknown_state(snapshot: NodeSnapshot, view: NodeView, state: NodeState, job: JobView | None) -> Line | None:
    """Return the last step if it depends on objects that could not be read, None if it does not."""
    if state is NodeState.PROVISIONING and job is None and (unknown := snapshot.unknown(JOB)):
        return Line("verification", f"it has a slot; its installer is unknown: {unknown}", False, reason=state.value)
    if state is NodeState.WAITING:
        unknown = snapshot.unknown(JOB, SHIM, LEDGER)
    else:
        unknown = snapshot.unknown(SHIM) if state is NodeState.NOT_OPTED_IN and view.opt_in is None else ""
    if not unknown:
        return None
    text = f"not verified here; its obstacles are not fully known: {unknown}"
    return Line("verification", text, False, "", Rank.SYMPTOM, READ_INCOMPLETE, Health.UNKNOWN)


def _state(view: NodeView, row: NodeRow, *, unlabelled: bool) -> Line:
    state = row.state
    if state is NodeState.READY:
        handlers = ", ".join(sorted(filter(None, view.handlers))) or "none"
        return Line("verification", f"by {view.verified}; its runtime lists the handlers: {handlers}", ok=True)
    if unlabelled and state is NodeState.VERIFYING:
        text = "the installer succeeded, but the API server rejects the labels of this node"
        return Line("verification", text, ok=False, reason=state.value)
    free = row.verdict.health is Health.PROGRESSING
    text = {
        NodeState.WAITING: f"{'it waits for a free slot: ' if free else ''}no installer was started yet",
        NodeState.PROVISIONING: "the installer runs",
        NodeState.VERIFYING: "the installer succeeded, the verification (handler, or canary pod) is pending",
    }.get(state, row.message or "no Shim is verified on it")
    return Line("verification", text, ok=False, reason=state.value)
