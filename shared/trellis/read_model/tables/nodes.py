"""Rows of nodes: state, health, the version, and the cause.

Pure. In: views of Nodes and installer Jobs, the ledger, Shims. Out: a row per node. Called by ``trellis nodes``,
``trellis status``, ``explain``, ``entities`` and the demo. Invariant: only the state in the cluster counts; settings of
services (auto-provisioning) are not guessed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from trellis import names
from trellis.crds.conditions import shortened
from trellis.provisioning.attempts import without_attempt
from trellis.provisioning.ledger import Entry, Ledger
from trellis.provisioning.reasons import Reason
from trellis.provisioning.shim_status import Reason as ShimReason
from trellis.provisioning.shim_status import Status
from trellis.provisioning.shims import ShimView, is_for
from trellis.provisioning.views import (
    KWASM,
    SUPPORTED_OS,
    FailedAttempt,
    JobState,
    JobView,
    NodeView,
    OptIn,
    newest,
    opt_in_of,
    verified_digests,
)
from trellis.read_model.explain.job import failure_line
from trellis.read_model.explain.page import READ_INCOMPLETE, Line
from trellis.read_model.health import UNDECIDED, Health, Verdict
from trellis.read_model.tables.rollout import NodeStage, ShimNode, stages_of

KUBELET_NOT_READY: Final = "its kubelet does not report it as ready, so nothing is installed on it"
NODE_NOT_READY: Final = "NodeNotReady"


NOTHING_TO_INSTALL: Final = (
    f"no Shim is labelled {names.LABEL_KWASM_DEFAULT}=true or selects the node, and no installer of an image of KWasm "
    "(TRELLIS_INSTALLER_IMAGE) was started"
)


class NodeState(StrEnum):
    """State of a node on its way to run Wasm, in this order."""

    UNKNOWN = "Unknown"
    """Without annotation, while Shims cannot be read: one can select it."""
    NOT_OPTED_IN = "NotOptedIn"
    INVALID_ANNOTATION = "InvalidAnnotation"
    WAITING = "Waiting"
    PROVISIONING = "Provisioning"
    VERIFYING = "Verifying"
    READY = "Ready"
    FAILED = "Failed"


UNFINISHED: Final = frozenset({NodeState.WAITING, NodeState.PROVISIONING, NodeState.VERIFYING})
"""States of nodes that neither failed nor are ready."""
UNSUPPORTED_OS: Final = "UnsupportedOperatingSystem"
_SKIPPED: Final = frozenset(
    {
        UNSUPPORTED_OS,
        *(Reason.FARGATE_NODE.value, Reason.VIRTUAL_KUBELET_NODE.value),
        *(Reason.NODE_SCALING_DOWN.value, Reason.NODE_DELETING.value),
    }
)
"""Reasons for which no installer runs on a node."""
_HEALTH_BY_REASON: Final[Mapping[str, Health]] = {
    ShimReason.PAUSED.value: Health.SUSPENDED,
    ShimReason.HALTED.value: Health.SUSPENDED,
}
"""Health of a node by the reason that a Shim is blocked there; Degraded for any other."""
_STATE_TEXTS: Final[Mapping[NodeState, str]] = {
    NodeState.READY: "ready",
    NodeState.PROVISIONING: "provisioning",
    NodeState.VERIFYING: "verifying",
    NodeState.WAITING: "waiting",
    NodeState.FAILED: "failed",
    NodeState.INVALID_ANNOTATION: "with an invalid annotation",
    NodeState.NOT_OPTED_IN: "not opted in",
    NodeState.UNKNOWN: "unknown",
}


_OPT_IN: Final[Mapping[OptIn, str]] = {OptIn.IN: "true", OptIn.OUT: "false", OptIn.INVALID: "invalid"}


@dataclass(frozen=True, slots=True)
class NodeRow:
    """One node. ``by``: source of the opt-in: ``Annotation``, ``Shim`` for a nodeSelector, "" for neither.

    ``digest`` and ``attempt`` are those in progress, else of the verified version, else of the last failure.
    ``reason`` and ``message`` (one line): why the last attempt failed, or why the node waits.
    """

    name: str
    opt_in_state: OptIn
    by: str
    state: NodeState
    verified: str | None = None
    digest: str | None = None
    attempt: int | None = None
    message: str = ""
    kubelet_ready: bool = True
    concern: bool = True
    """True if the node is relevant for Wasm: opted in, invalid, marked, in progress or failed."""
    reason: str = ""
    verdict: Verdict = UNDECIDED

    @property
    def opt_in(self) -> str:
        """``true``, ``false``, ``invalid`` or ``unknown``."""
        return "unknown" if self.state is NodeState.UNKNOWN else _OPT_IN[self.opt_in_state]

    def document(self) -> dict[str, object]:
        """Return the row for JSON; absent values are null."""
        return {
            "name": self.name,
            "opt_in": self.opt_in,
            "opted_in_by": self.by or None,
            "state": self.state.value,
            "health": self.verdict.health.value,
            "reason": self.verdict.reason or None,
            "verified": self.verified,
            "digest": self.digest,
            "attempt": self.attempt,
            "message": self.message or None,
        }


def rows_of(
    nodes: Iterable[NodeView],
    jobs: Mapping[str, tuple[JobView, ...]],
    ledger: Ledger | None,
    shims: Collection[ShimView] | None,
    statuses: Mapping[str, Status] | None = None,
) -> list[NodeRow]:
    """Return a row per node, by name. ``jobs`` by uid of their Node; ``statuses`` of Shims by name.

    ``ledger``, ``shims``: None if they cannot be read.
    """
    found, every, known = sorted(nodes, key=lambda node: node.name), tuple(shims or ()), ledger or Ledger({})
    stages = stages_of(tuple(found), every, statuses or {}, known)
    rows, kwasm = [], shims is None or ledger is None or installs_kwasm(known, found)
    for node in found:
        own, unserved = stages.get(node.name, {}), is_unserved(node, every, kwasm=kwasm)
        rows.append(row_of(node, jobs.get(node.uid, ()), known.entries.get(node.uid), shims, own, unserved=unserved))
    return rows


def is_unserved(node: NodeView, shims: Collection[ShimView], *, kwasm: bool) -> bool:
    """Return whether a node is opted in by its annotation, and there is nothing to install.

    ``kwasm``: an installer image of KWasm is in use, or it is unknown whether one is.
    """
    if node.opt_in is None or opt_in_of(node, auto_provision=False) is not OptIn.IN:
        return False
    if any(shim.default or is_for(shim, node, auto_provision=False) for shim in shims):
        return False
    return not kwasm


def installs_kwasm(ledger: Ledger, nodes: Iterable[NodeView]) -> bool:
    """Return whether an installer image of KWasm is in use: its rollout is in progress or halted, or a node has it.

    The image is a setting of provisioner, which is not in the cluster otherwise.
    """
    if KWASM in ledger.halted or any(KWASM in entry.shims for entry in ledger.entries.values()):
        return True
    return any(KWASM in node.installed for node in nodes)


def row_of(
    node: NodeView,
    jobs: tuple[JobView, ...],
    entry: Entry | None,
    shims: Collection[ShimView] | None = (),
    stages: Mapping[str, ShimNode] | None = None,
    *,
    unserved: bool = False,
) -> NodeRow:
    """Return the row of one node, its Jobs and its slot in the ledger.

    ``shims``: those whose nodeSelectors count, None if they cannot be read; ``stages``: by name of a Shim, the stage of
    its rollout on the node; ``unserved``: there is nothing to install.
    """
    job = newest(jobs)
    entry = entry if entry is not None and not entry.is_recorded_on(node) else None
    chosen = any(is_for(shim, node, auto_provision=False) for shim in shims or ())
    touched = chosen or node.bears_marks or job is not None or entry is not None
    # Without annotation and Shim, only auto-provisioning, or an opt-out of this moment, leaves marks on a node.
    wanted = opt_in_of(node, auto_provision=touched)
    state = _state(node, job, entry) if wanted is OptIn.IN else _apart(wanted)
    if shims is None and state is NodeState.NOT_OPTED_IN and node.opt_in is None:
        state = NodeState.UNKNOWN
    current = _current(node, job, entry)
    reason, message = _message(node, job, state, unserved=unserved)
    row = NodeRow(
        name=node.name,
        opt_in_state=wanted,
        by="Annotation" if node.opt_in is not None else "Shim" if chosen else "",
        state=state,
        verified=node.verified_by.value if node.verified_by and node.marked_digest else None,
        digest=current[0] if current else None,
        attempt=current[1] if current else None,
        message=_one_line(message),
        kubelet_ready=node.ready,
        concern=touched or wanted is not OptIn.OUT,
        reason=reason,
    )
    found = stages or {}
    if job is not None and job.has_pods:  # the rejection of another node's pod
        found = {name: replace(item, rejected="") for name, item in found.items()}
    return replace(row, verdict=node_health(row, found))


def node_health(row: NodeRow, stages: Mapping[str, ShimNode], cause: Line | None = None) -> Verdict:
    """Return the health of a node. ``stages`` by name of a Shim; ``cause``: the cause that stops its installer Job."""
    if row.state is NodeState.NOT_OPTED_IN:
        return Verdict(Health.NOT_OPTED_IN, row.reason or row.state.value, row.message)
    if row.state is NodeState.INVALID_ANNOTATION:
        return Verdict(Health.DEGRADED, row.state.value, row.message)
    if row.state is NodeState.UNKNOWN:
        return Verdict(Health.UNKNOWN, row.reason, row.message)
    if row.reason in _SKIPPED:
        return Verdict(Health.SUSPENDED, row.reason, row.message)
    if not row.kubelet_ready:
        return Verdict(Health.DEGRADED, NODE_NOT_READY, KUBELET_NOT_READY)
    if cause is not None and row.state in UNFINISHED:
        return cause.verdict
    if row.state is NodeState.FAILED or row.reason == Reason.NOTHING_TO_INSTALL:
        return Verdict(Health.DEGRADED, row.reason, row.message)
    return _shim_obstacle(row, stages) or _progress(row, stages)


def _shim_obstacle(row: NodeRow, stages: Mapping[str, ShimNode]) -> Verdict | None:
    """Return the health if a Shim is blocked on the node, or its installers are rejected."""
    for name, item in sorted(stages.items()):
        if item.stage is NodeStage.BLOCKED:
            return Verdict(
                _HEALTH_BY_REASON.get(item.message, Health.DEGRADED), item.message, f"Shim {name} is not installed"
            )
        if item.rejected and row.state in UNFINISHED:
            return Verdict(Health.DEGRADED, item.rejected, f"`trellis explain shim/{name}` shows the rejection")
    return None


def _progress(row: NodeRow, stages: Mapping[str, ShimNode]) -> Verdict:
    if row.state is NodeState.READY and all(stage.stage is NodeStage.UPDATED for stage in stages.values()):
        return Verdict(Health.HEALTHY, row.state.value, row.message)
    state = NodeState.PROVISIONING if row.state is NodeState.READY else row.state
    return Verdict(Health.PROGRESSING, state.value, row.message)


def with_causes(rows: Iterable[NodeRow], causes: Mapping[str, Line]) -> list[NodeRow]:
    """Return the rows with the causes that stop nodes that are not ready; ``causes``: by name of a node."""
    found = []
    for row in rows:
        line = causes.get(row.name) if row.state in UNFINISHED else None
        if line is None:
            found.append(row)
            continue
        message = row.message or " ".join(line.text.split())  # not cut: a policy's own message comes last
        found.append(replace(row, message=message, verdict=node_health(row, {}, line)))
    return found


def tally(rows: Iterable[NodeRow]) -> dict[NodeState, int]:
    """Return the number of nodes in each state, for every state."""
    counted = Counter(row.state for row in rows)
    return {state: counted[state] for state in NodeState}


def summary(rows: Sequence[NodeRow]) -> str:
    """Return one line: ``12 ready, 3 provisioning, 1 failed``."""
    counted = tally(rows)
    return ", ".join(f"{counted[state]} {word}" for state, word in _STATE_TEXTS.items() if counted[state]) or "no nodes"


def _apart(opt_in: OptIn) -> NodeState:
    return NodeState.INVALID_ANNOTATION if opt_in is OptIn.INVALID else NodeState.NOT_OPTED_IN


def _state(node: NodeView, job: JobView | None, entry: Entry | None) -> NodeState:
    """Return the state of an opted-in node: work in progress comes first, then a failure, then a verification."""
    if job is not None and job.digest != node.marked_digest:
        if job.state is JobState.ACTIVE:
            return NodeState.PROVISIONING
        if job.state is JobState.COMPLETE and job.failure is None:
            return NodeState.VERIFYING
        if entry is None or (entry.digest, entry.attempt) == (job.digest, job.attempt):
            return NodeState.FAILED
    if entry is not None:
        return NodeState.PROVISIONING
    if _failure(node) is not None:
        return NodeState.FAILED
    # An unverified version (ADR 29) does not count.
    return NodeState.READY if verified_digests(node.installed) else NodeState.WAITING


def _failure(node: NodeView) -> FailedAttempt | None:
    """Return the recorded failure, unless that version is verified now."""
    failure = node.failed
    return failure if failure is not None and failure.digest != node.marked_digest else None


def _current(node: NodeView, job: JobView | None, entry: Entry | None) -> tuple[str, int | None] | None:
    """Return digest and attempt that the row shows."""
    if entry is not None:
        return entry.digest, entry.attempt
    if job is not None and job.digest != node.marked_digest:
        return job.digest, job.attempt
    if failure := _failure(node):
        return failure.digest, failure.attempt
    return (node.marked_digest, None) if node.marked_digest else None


def _message(node: NodeView, job: JobView | None, state: NodeState, *, unserved: bool) -> tuple[str, str]:
    """Return reason and message of a state, "" twice if there is nothing to add."""
    match state:
        case NodeState.FAILED:
            message = (node.failure if _failure(node) else None) or _verdict(job) or "the last attempt failed"
            return failure_line(message, None).reason or state.value, without_attempt(message)
        case NodeState.INVALID_ANNOTATION:
            return state.value, f"{names.ANNOTATION_OPT_IN} has {node.opt_in!r}: use 'true' or 'false'"
        case NodeState.UNKNOWN:
            return READ_INCOMPLETE, "the Shims that can select it cannot be read"
        case NodeState.WAITING if node.operating_system != SUPPORTED_OS:
            text = f"only {SUPPORTED_OS} nodes are provisioned, this one runs {node.operating_system}"
            return UNSUPPORTED_OS, text
        case NodeState.WAITING | NodeState.PROVISIONING if node.skip is not None:
            return node.skip.reason.value, f"{node.skip.reason.value}: {node.skip.message}"
        case NodeState.WAITING | NodeState.PROVISIONING if not node.ready:
            return NODE_NOT_READY, KUBELET_NOT_READY
        case NodeState.WAITING if unserved:
            return Reason.NOTHING_TO_INSTALL.value, NOTHING_TO_INSTALL
        case NodeState.NOT_OPTED_IN if node.bears_marks or job is not None:
            return "RemovalPending", "labels, annotations or Jobs of Trellis are not removed yet"
        case _:
            return "", ""


def _verdict(job: JobView | None) -> str | None:
    return (job.failure or job.condition) if job is not None else None


def _one_line(text: str) -> str:
    return shortened(" ".join(text.split()))  # the Node has the whole text
