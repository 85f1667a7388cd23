"""State of a Shim's rollout: the stage of each node, the phase of the whole, the health of the Shim.

Pure. In: the Shim and its status, all Shims, all nodes, the rollout ledger. Out: a standing for people and programs.
Called by ``trellis rollout``, ``explain`` and ``entities``. Invariant: only the state in the cluster counts; a halt, a
failure or a condition of an older spec, or one that was acknowledged, does not count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from trellis.installer_api.spec import WantedShim
from trellis.provisioning.attempts import ShimLimits, failing_on, failure_text, permitted_target, without_attempt
from trellis.provisioning.ledger import Entry, Ledger
from trellis.provisioning.reasons import NODE_UPDATE_REFUSED
from trellis.provisioning.reasons import Reason as NodeReason
from trellis.provisioning.revisions import Revision
from trellis.provisioning.shim_status import BLOCKING, OTHER_CONTROLLER, Condition, Reason, Status
from trellis.provisioning.shims import Refusal, ShimView, content_of, is_for
from trellis.provisioning.targets import stays_on, target_of, wanted_shim_on
from trellis.provisioning.views import FailedAttempt, NodeView, Target
from trellis.provisioning.workload_state import WorkloadHalt
from trellis.read_model.explain.page import Line
from trellis.read_model.health import UNDECIDED, Health, Verdict

_NAMED: Final = 5
_REFUSED: Final = frozenset(
    {
        Reason.RUNTIME_CLASS_REFUSED.value,
        Reason.LEDGER_REFUSED.value,
        NodeReason.JOB_REFUSED.value,
        NodeReason.INSTALLER_REFUSED.value,
        NODE_UPDATE_REFUSED,
    }
)
"""Reasons of Degraded for a write that the API server rejects: it is retried every few seconds."""
_OF_SPEC: Final = frozenset(refusal.value for refusal in Refusal)
"""Reasons for which a node is blocked until the spec of a Shim changes."""


_OF_INSTALLERS: Final = frozenset({NodeReason.JOB_REFUSED.value, NodeReason.INSTALLER_REFUSED.value})
"""Reasons of Degraded for an installer Job, or its pod, that the API server rejects."""


class NodeStage(StrEnum):
    """Stage of one node on its way to the version of the spec."""

    UPDATED = "Updated"
    IN_PROGRESS = "InProgress"
    FAILED = "Failed"
    BLOCKED = "Blocked"
    WAITING = "Waiting"
    REMOVING = "Removing"


class Phase(StrEnum):
    """Phase of a rollout."""

    COMPLETE = "Complete"
    PROGRESSING = "Progressing"
    PAUSED = "Paused"
    HALTED = "Halted"
    DEGRADED = "Degraded"
    REMOVING = "Removing"


@dataclass(frozen=True, slots=True)
class RolloutSnapshot:
    """Input of a standing. ``status`` is that of the Shim; ``revisions`` are oldest first, ``current`` is its own.

    ``causes``: by name of a node, the cause that stops its installer Job.
    """

    shim: ShimView
    status: Status
    shims: tuple[ShimView, ...]
    nodes: tuple[NodeView, ...]
    ledger: Ledger
    revisions: tuple[Revision, ...] = ()
    current: Revision | None = None
    ledger_known: bool = True
    notes: tuple[str, ...] = ()
    causes: Mapping[str, Line] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ShimNode:
    """One node of the rollout; ``message``: why it failed or is blocked; ``attempt``: the last one."""

    name: str
    stage: NodeStage
    attempt: int | None = None
    message: str = ""
    rejected: str = ""

    def document(self) -> dict[str, object]:
        """Return the node for JSON."""
        return {
            "name": self.name,
            "stage": self.stage.value,
            "attempt": self.attempt,
            "message": self.message or None,
        }


@dataclass(frozen=True, slots=True)
class Standing:
    """State of the rollout. ``message``: its cause; ``advice``: the resolution, "" if there is none.

    ``verdict``: health of the Shim, which can be degraded while its rollout progresses.
    """

    shim: str
    phase: Phase
    message: str
    advice: str
    generation: int
    revision: int | None
    nodes: tuple[ShimNode, ...]
    verdict: Verdict = UNDECIDED

    @property
    def counts(self) -> dict[NodeStage, int]:
        """Number of nodes at each stage, for every stage."""
        counted = Counter(node.stage for node in self.nodes)
        return {stage: counted[stage] for stage in NodeStage}

    @property
    def desired(self) -> int:
        """Number of nodes that require the version; those that it is removed from do not count."""
        return len(self.nodes) - self.counts[NodeStage.REMOVING]

    @property
    def settled(self) -> bool:
        """True if the rollout does not continue by itself: a watch ends then."""
        return self.phase not in {Phase.PROGRESSING, Phase.REMOVING}

    @property
    def broken(self) -> bool:
        """True if a user must act."""
        return self.phase in {Phase.HALTED, Phase.DEGRADED}


def document(standing: Standing, snapshot: RolloutSnapshot) -> dict[str, object]:
    """Return the standing for JSON."""
    return {
        "shim": standing.shim,
        "generation": standing.generation,
        "revision": standing.revision,
        "health": standing.verdict.health.value,
        "reason": standing.verdict.reason,
        "phase": standing.phase.value,
        "message": standing.message or None,
        "advice": standing.advice or None,
        "desired": standing.desired,
        "counts": {stage.value: count for stage, count in standing.counts.items()},
        "nodes": [node.document() for node in standing.nodes],
        "revisions": [{"revision": revision.number, "created": revision.created} for revision in snapshot.revisions],
        "notes": snapshot.notes,
    }


@dataclass(frozen=True, slots=True)
class Outlook:
    """Input of each node's stage besides the node and its slot: while it is equal, only changed nodes change stage."""

    shims: tuple[ShimView, ...]
    auto: bool
    halted: bool
    blocked: str
    other_controller: bool
    rejected: str = ""


def outlook_of(snapshot: RolloutSnapshot) -> Outlook:
    """Return the input that all nodes of a rollout share."""
    blocked = _blocking(snapshot)
    return Outlook(
        snapshot.shims,
        _auto_provisioned(snapshot),
        is_halted(snapshot),
        blocked.reason if blocked else "",
        _other_controller(snapshot) is not None,
        rejected.reason if (rejected := _degraded(snapshot, _OF_INSTALLERS)) else "",
    )


def standing_of(snapshot: RolloutSnapshot) -> Standing:
    """Return the state of the rollout."""
    outlook = outlook_of(snapshot)
    return standing_with(
        snapshot, outlook, (found for node in snapshot.nodes if (found := node_of(snapshot, node, outlook)))
    )


def standing_with(snapshot: RolloutSnapshot, outlook: Outlook, found: Iterable[ShimNode]) -> Standing:
    """Return the state of the rollout with these stages of its nodes."""
    nodes = tuple(sorted(found, key=lambda node: node.name))
    phase, message, advice = _phase(snapshot, nodes, outlook.halted)
    revision = snapshot.current.number if snapshot.current else None
    verdict = shim_health(snapshot, nodes, phase, message)
    return Standing(snapshot.shim.name, phase, message, advice, snapshot.shim.generation, revision, nodes, verdict)


def shim_health(snapshot: RolloutSnapshot, nodes: tuple[ShimNode, ...], phase: Phase, message: str) -> Verdict:
    """Return the health of a Shim whose rollout has this phase.

    The order of checks is that of its condition Ready: ``provisioner.domain.shim_status.health_of``.
    """
    if (blocked := _blocking(snapshot)) is not None:
        return Verdict(Health.DEGRADED, blocked.reason, blocked.message)
    if (other := _other_controller(snapshot)) is not None:
        return Verdict(Health.DEGRADED, other.reason, other.message)
    if snapshot.shim.invalid:
        return Verdict(Health.DEGRADED, Refusal.INVALID.value, snapshot.shim.invalid)
    if phase is Phase.PAUSED:
        return Verdict(Health.SUSPENDED, Reason.PAUSED.value, message)
    if phase is Phase.HALTED:
        return Verdict(Health.DEGRADED, Reason.HALTED.value, message)
    failing = any(node.stage is NodeStage.FAILED for node in nodes)
    degraded = _degraded(snapshot)
    if degraded is not None and (degraded.reason != Reason.FAILING or failing or not nodes):
        return Verdict(Health.DEGRADED, degraded.reason, degraded.message)
    return _by_phase(snapshot, nodes, phase, message)


def _by_phase(snapshot: RolloutSnapshot, nodes: tuple[ShimNode, ...], phase: Phase, message: str) -> Verdict:
    failing = [node for node in nodes if node.stage is NodeStage.FAILED]
    refused = [node for node in nodes if node.stage is NodeStage.BLOCKED and node.message in _OF_SPEC]
    match phase:
        case Phase.REMOVING:
            return Verdict(Health.PROGRESSING, Reason.REMOVING.value, message)
        case _ if failing:
            return Verdict(Health.DEGRADED, Reason.FAILING.value, message or f"{failing[0].name}: {failing[0].message}")
        case _ if refused:
            return Verdict(Health.DEGRADED, refused[0].message, message)
        case _ if (stopped := _stopped(snapshot, nodes)) is not None:
            return stopped
        case Phase.COMPLETE:
            return Verdict(
                Health.HEALTHY, (Reason.ALL_READY if _desired(snapshot, nodes) else Reason.NO_NODES).value, message
            )
        case _:
            return Verdict(Health.PROGRESSING, Reason.UPDATING.value, message)


def _stopped(snapshot: RolloutSnapshot, nodes: tuple[ShimNode, ...]) -> Verdict | None:
    """Return the health if an installer Job is stopped on a node that is not updated."""
    for node in nodes:
        if (
            node.stage in {NodeStage.IN_PROGRESS, NodeStage.WAITING}
            and (line := snapshot.causes.get(node.name)) is not None
        ):
            return Verdict(Health.DEGRADED, line.reason, f"node {node.name}: {line.shown}")
    return None


def _desired(snapshot: RolloutSnapshot, nodes: tuple[ShimNode, ...]) -> int:
    return len(nodes) or snapshot.status.counts.nodes


def is_halted(snapshot: RolloutSnapshot) -> bool:
    """Return whether the rollout is halted by failures that still count.

    The ledger can lag: a halt whose failures are all acknowledged, or of an older version, does not count.
    """
    if snapshot.shim.name not in snapshot.ledger.halted:
        return False  # the common case, without reading every node
    if halt_for_pods(snapshot) is not None:
        return True
    last = last_failure(snapshot)
    return last is not None and last > snapshot.shim.acknowledged


def halt_for_pods(snapshot: RolloutSnapshot) -> WorkloadHalt | None:
    """Return the pods for which the rollout of the present version is halted, None if none or if acknowledged."""
    state = snapshot.ledger.workloads.get(snapshot.shim.name)
    if state is None or state.halt is None or state.content != content_of(snapshot.shim):
        return None
    return state.halt if state.halt.at > snapshot.shim.acknowledged else None


def last_failure(snapshot: RolloutSnapshot) -> int | None:
    """Return the time of the last failure of a version that nodes require now, or of a halt, in Unix seconds."""
    auto = _auto_provisioned(snapshot)
    failures = (
        node.failed
        for node in snapshot.nodes
        if is_for(snapshot.shim, node, auto_provision=auto) or snapshot.shim.name in node.installed
        if _failed_target(snapshot, node, auto) is not None
    )
    halt = halt_for_pods(snapshot)
    times = [*(failure.at for failure in failures if failure), *([halt.at] if halt is not None else [])]
    return max(times, default=None)


def _auto_provisioned(snapshot: RolloutSnapshot) -> bool:
    """Return whether the services provision every node, which only their count of nodes shows."""
    shim, status = snapshot.shim, snapshot.status
    if not shim.default or status.observed_generation != shim.generation:
        return False
    counted = (node for node in snapshot.nodes if node.skip is None)
    return sum(is_for(shim, node, auto_provision=False) for node in counted) < status.counts.nodes


def node_of(snapshot: RolloutSnapshot, node: NodeView, outlook: Outlook) -> ShimNode | None:
    """Return the stage of a node, None if the rollout does not concern it."""
    shim, auto, halted = snapshot.shim, outlook.auto, outlook.halted
    wanted = is_for(shim, node, auto_provision=auto) or stays_on(shim, node)
    has = node.installed.get(shim.name)
    entry = snapshot.ledger.entries.get(node.uid)
    entry = entry if entry and shim.name in entry.shims else None
    if not wanted and has is None and entry is None:
        return None
    wanted_shim = wanted_shim_on(shim, node, snapshot.shims, auto_provision=auto, require_checksum=False)
    if wanted and isinstance(wanted_shim, WantedShim) and has == wanted_shim.digest:
        return ShimNode(node.name, NodeStage.UPDATED)
    if wanted and node.skip is not None and entry is None:
        return None
    target = _failed_target(snapshot, node, auto)
    failure, message = (None, "") if target is None else (node.failed, failure_text(node, target, shim.name))
    if entry is not None and not _is_recorded(entry, failure):
        return ShimNode(node.name, NodeStage.IN_PROGRESS, entry.attempt, without_attempt(message), outlook.rejected)
    if failure is not None:
        return ShimNode(node.name, NodeStage.FAILED, failure.attempt, without_attempt(message))
    if not wanted:
        return ShimNode(node.name, NodeStage.REMOVING)
    reason = _block_reason(snapshot, wanted_shim, halted)
    if reason:
        return ShimNode(node.name, NodeStage.BLOCKED, message=reason)
    return ShimNode(node.name, NodeStage.WAITING, rejected=outlook.rejected)


def stages_of(
    nodes: tuple[NodeView, ...], shims: tuple[ShimView, ...], statuses: Mapping[str, Status], ledger: Ledger
) -> dict[str, dict[str, ShimNode]]:
    """Return by node, and by name of a Shim, the stage of its rollout."""
    found: dict[str, dict[str, ShimNode]] = {}
    for shim in shims:
        snapshot = RolloutSnapshot(shim, statuses.get(shim.name, Status()), shims, nodes, ledger)
        outlook = outlook_of(snapshot)
        for node in nodes:
            if (stage := node_of(snapshot, node, outlook)) is not None:
                found.setdefault(node.name, {})[shim.name] = stage
    return found


def stages_of_node(
    node: NodeView, shims: tuple[ShimView, ...], statuses: Mapping[str, Status], ledger: Ledger
) -> dict[str, ShimNode]:
    """Return the stages of one node, by name of a Shim, without the other nodes.

    The ledger alone shows a halt then, and labels of the node show auto-provisioning.
    """
    found = {}
    for shim in shims:
        snapshot = RolloutSnapshot(shim, statuses.get(shim.name, Status()), shims, (node,), ledger)
        auto = shim.default and node.opt_in is None and node.bears_marks
        outlook = replace(outlook_of(snapshot), auto=auto, halted=shim.name in ledger.halted)
        if (stage := node_of(snapshot, node, outlook)) is not None:
            found[shim.name] = stage
    return found


def _is_recorded(entry: Entry, failure: FailedAttempt | None) -> bool:
    """Return whether the failure of exactly this attempt is recorded: then the slot is freed soon."""
    return failure is not None and (failure.digest, failure.attempt) == (entry.digest, entry.attempt)


def _failed_target(snapshot: RolloutSnapshot, node: NodeView, auto: bool) -> Target | None:
    """Return the present target of a node on which the last attempts failed because of this Shim, else None.

    The setting that requires checksums is unknown here: the failure is of the target with it, or of the one without it.
    """
    failure = node.failed
    if failure is None or failure.digest == node.marked_digest:
        return None
    limits = {shim.name: ShimLimits(None, paused=shim.paused) for shim in snapshot.shims}
    for require in (True, False):
        target = target_of(node, snapshot.shims, "", auto_provision=auto, require_checksum=require)
        if target is None:
            continue
        if snapshot.shim.name in failing_on(
            node, target, permitted_target(node, target, limits, snapshot.ledger.halted)
        ):
            return target
    return None


def _block_reason(snapshot: RolloutSnapshot, wanted: WantedShim | Refusal, halted: bool) -> str:
    """Return the reason why a node is blocked, "" if it waits for a slot."""
    if isinstance(wanted, Refusal):
        return wanted.value
    blocked = _blocking(snapshot)
    if blocked is not None and blocked.reason in {Refusal.CHECKSUM_MISSING.value, Refusal.UNSIGNED.value}:
        return blocked.reason
    if _other_controller(snapshot) is not None:
        return OTHER_CONTROLLER
    return Reason.PAUSED.value if snapshot.shim.paused else Reason.HALTED.value if halted else ""


def _blocking(snapshot: RolloutSnapshot) -> Condition | None:
    """Return the condition of this generation that stops the rollout until the spec or the cluster changes."""
    return _degraded(snapshot, BLOCKING)


def _degraded(snapshot: RolloutSnapshot, reasons: frozenset[str] | None = None) -> Condition | None:
    """Return the condition Degraded of this generation if it is True, for these reasons or any."""
    for condition in snapshot.status.conditions:
        fresh = condition.observed_generation == snapshot.shim.generation
        if fresh and condition.type == "Degraded" and condition.status == "True":
            return condition if reasons is None or condition.reason in reasons else None
    return None


def _other_controller(snapshot: RolloutSnapshot) -> Condition | None:
    """Return the condition that another controller manages the Shim, or nodes of it."""
    found = (
        condition
        for condition in snapshot.status.conditions
        if condition.type == OTHER_CONTROLLER and condition.status == "True"
    )
    return next(found, None)


def _phase(snapshot: RolloutSnapshot, nodes: tuple[ShimNode, ...], halted: bool) -> tuple[Phase, str, str]:
    shim, stages = snapshot.shim, Counter(node.stage for node in nodes)
    failing = [node.name for node in nodes if node.stage is NodeStage.FAILED]
    if shim.deleting:
        return _removing(snapshot, nodes)
    edit = f"fix the cause: kubectl edit shim {shim.name}"
    if blocked := _blocking(snapshot):
        return Phase.DEGRADED, f"{blocked.reason}: {blocked.message}", edit
    if shim.invalid:
        return Phase.DEGRADED, f"InvalidShim: {shim.invalid}", edit
    if not nodes and snapshot.status.counts.nodes:
        return _of_status(snapshot)
    if not nodes or stages[NodeStage.UPDATED] == len(nodes):
        return _complete(snapshot, nodes)
    if stopped := _paused(snapshot):
        return Phase.PAUSED, *stopped
    back = f"roll back with: trellis rollout undo {shim.name}"
    if halted:
        message = _halt_text(snapshot, failing)
        advice = f"fix the cause and continue with: trellis rollout resume {shim.name}; or {back}"
        return Phase.HALTED, message, advice
    if not (stages[NodeStage.IN_PROGRESS] or stages[NodeStage.WAITING] or stages[NodeStage.REMOVING]):
        if failing:
            message = f"the last attempt failed on {_listed(failing)}"
            return Phase.DEGRADED, message, f"fix the cause: the nodes are retried automatically; or {back}"
        return Phase.DEGRADED, *_stop_reason(snapshot, nodes)
    observed = snapshot.status.observed_generation == shim.generation
    return Phase.PROGRESSING, *_waiting(snapshot, observed=observed)


def _halt_text(snapshot: RolloutSnapshot, failing: list[str]) -> str:
    if (halt := halt_for_pods(snapshot)) is not None:
        return f"{halt.message}; no further node is started"
    return f"too many nodes failed, no further node is started: {_listed(failing)}".removesuffix(": ")


def _removing(snapshot: RolloutSnapshot, nodes: tuple[ShimNode, ...]) -> tuple[Phase, str, str]:
    """Return the phase of a deletion: it progresses unless the circuit breaker pauses it."""
    if (paused := _degraded(snapshot, frozenset({Reason.MASS_DELETION.value}))) is not None:
        return Phase.DEGRADED, f"{paused.reason}: {paused.message}", ""
    left = f", {len(nodes)} nodes still have it" if nodes else ""  # without nodes: none, or they cannot be read
    return Phase.REMOVING, f"it is being deleted{left}", ""


def _paused(snapshot: RolloutSnapshot) -> tuple[str, str] | None:
    """Return why nothing is started although nothing failed, and the resolution."""
    if other := _other_controller(snapshot):
        return other.message, "the rollout then continues by itself"
    if snapshot.shim.paused:
        return "paused by spec.paused", f"continue with: trellis rollout resume {snapshot.shim.name}"
    return None


def _complete(snapshot: RolloutSnapshot, nodes: tuple[ShimNode, ...]) -> tuple[Phase, str, str]:
    """Return the phase while every node is updated, and nodes report nothing else: pods of the last ones can fail."""
    if snapshot.status.observed_generation != snapshot.shim.generation:
        return Phase.PROGRESSING, "provisioner has not reconciled it yet", "if this persists: trellis status"
    if (found := _degraded(snapshot)) and found.reason != Reason.FAILING:
        return Phase.DEGRADED, f"{found.reason}: {found.message}", f"see: trellis explain shim/{snapshot.shim.name}"
    if other := _other_controller(snapshot):
        return Phase.DEGRADED, other.message, f"see: trellis explain shim/{snapshot.shim.name}"
    if waits := _waits_for_pods(snapshot):
        return Phase.PROGRESSING, waits.message, ""
    return Phase.COMPLETE, "" if nodes else "spec.nodeSelector matches no node", ""


def _of_status(snapshot: RolloutSnapshot) -> tuple[Phase, str, str]:
    """Return the phase of a rollout none of whose nodes can be read, by the counts of its status."""
    counts = snapshot.status.counts
    if counts.updated == counts.nodes:
        return _complete(snapshot, (ShimNode("", NodeStage.UPDATED),))
    message = f"{counts.updated} of {counts.nodes} nodes have this version; the nodes cannot be read"
    return Phase.PAUSED if snapshot.shim.paused else Phase.PROGRESSING, message, ""


def _stop_reason(snapshot: RolloutSnapshot, nodes: tuple[ShimNode, ...]) -> tuple[str, str]:
    """Return why no node is left that the rollout can continue on."""
    blocked_nodes = [node for node in nodes if node.stage is NodeStage.BLOCKED]
    reason = blocked_nodes[0].message
    found = _degraded(snapshot, frozenset({reason}))
    message = f"{reason}: {found.message if found else _listed([node.name for node in blocked_nodes])}"
    return message, f"see: trellis explain shim/{snapshot.shim.name}"


def _waiting(snapshot: RolloutSnapshot, *, observed: bool) -> tuple[str, str]:
    """Return why a rollout in progress waits, and the resolution; "" twice if it does not."""
    if refused := _degraded(snapshot, _REFUSED):
        return f"{refused.reason}: {refused.message}", "the rollout continues by itself once this is permitted"
    if observed:
        return (waits.message, "") if (waits := _waits_for_pods(snapshot)) else ("", "")
    return "provisioner has not reconciled this change yet", "if this persists: trellis status"


def _waits_for_pods(snapshot: RolloutSnapshot) -> Condition | None:
    """Return the condition that names the pods for which the rollout waits, None if it does not."""
    reason = Reason.WAITING_FOR_PODS.value
    return next((item for item in snapshot.status.conditions if item.status == "True" and item.reason == reason), None)


def _listed(known: list[str]) -> str:
    more = len(known) - _NAMED
    return ", ".join(known[:_NAMED]) + (f" and {more} more" if more > 0 else "")
