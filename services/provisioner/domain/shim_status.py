"""Computes the status of a Shim: counts, the conditions Available, Progressing, Degraded, and their summary.

Pure. In: a snapshot of the Shim. Out: its status, each condition with its reason and a message for users. Called by
``shim_decide``. Invariants: Degraded names only what keeps nodes from the current spec; Ready, Reconciling and Stalled
follow from the other conditions alone; a message begins with the cause.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from provisioner.domain.other_controller import keeps_off_all, verdict
from provisioner.domain.refused import without_job
from provisioner.domain.shim_snapshot import Snapshot
from trellis import names
from trellis.crds.conditions import MESSAGE_MAX, Health, State, cause_of_refusal, shortened, summary, with_context
from trellis.provisioning.attempts import cause_for, without_attempt
from trellis.provisioning.shim_status import (
    BLOCKING,
    NODES_SKIPPED,
    OTHER_CONTROLLER,
    Condition,
    Counts,
    Reason,
    Status,
)
from trellis.provisioning.shims import Refusal
from trellis.provisioning.views import NodeView
from trellis.provisioning.workload_state import WorkloadHalt

PROBLEM_TYPES: Final = frozenset({"Degraded", OTHER_CONTROLLER})
"""Conditions that report a problem when they are True."""
_NOT_PROGRESSING: Final = {
    Reason.PAUSED.value: State.SUSPENDED,
    Reason.HALTED.value: State.STALLED,
}
"""Reasons of Progressing=False other than that the rollout is complete."""
_NAMED: Final = 3
"""Number of nodes that a message names; further ones are counted."""


def status_of(snapshot: Snapshot) -> Status:
    """Return the target status; a condition keeps the time of its last change of status.

    If another controller writes the Shim itself, only its condition and the summary change: it writes counts, too.
    """
    conditions = _with_summary(snapshot, own_conditions(snapshot))
    if keeps_off_all(snapshot.other):
        replaced = {condition.type for condition in conditions}
        others = (condition for condition in snapshot.status.conditions if condition.type not in replaced)
        return replace(snapshot.status, conditions=(*others, *conditions))
    return Status(_counts(snapshot), conditions, snapshot.shim.generation, _digest(snapshot))


def own_conditions(snapshot: Snapshot) -> tuple[Condition, ...]:
    """Return the conditions that the summary follows from, without times and with complete messages."""
    if keeps_off_all(snapshot.other):
        return _other_controller(snapshot)
    counts = _counts(snapshot)
    own = (_available(snapshot, counts), _progressing(snapshot, counts), _degraded(snapshot))
    return (*own, *_nodes_skipped(snapshot), *_other_controller(snapshot))


def health_of(conditions: Iterable[Condition]) -> Health:
    """Return the summary of a Shim's conditions, with the one that explains it; the first check that applies wins.

    1. Degraded with a reason that no retry changes: stalled.
    2. Another controller works on the Shim or on its nodes: stalled until it is removed.
    3. The rollout does not continue: paused by a user, or halted after failures.
    4. Any other Degraded: retried.
    5. The rollout is in progress, or not every node runs the shim.
    6. Ready, also if no node requires the Shim: as a DaemonSet that selects no node.
    """
    found = {condition.type: condition for condition in conditions}
    available, progressing, degraded = (found.get(kind) for kind in ("Available", "Progressing", "Degraded"))
    other, wrong = found.get(OTHER_CONTROLLER), degraded is not None and degraded.status == "True"
    if degraded is not None and wrong and degraded.reason in BLOCKING:
        return Health(State.STALLED, degraded.reason, degraded.message)
    if other is not None and other.status == "True":
        return Health(State.STALLED, other.reason, other.message)
    assert available is not None
    assert progressing is not None
    if progressing.status == "False" and (state := _NOT_PROGRESSING.get(progressing.reason)) is not None:
        # A rollout that halted is explained by the failure.
        failed = degraded is not None and wrong and progressing.reason == Reason.HALTED.value
        return Health(state, progressing.reason, degraded.message if degraded and failed else progressing.message)
    if degraded is not None and wrong:
        return Health(State.RECONCILING, degraded.reason, degraded.message)
    if progressing.status == "True":
        return Health(State.RECONCILING, progressing.reason, progressing.message)
    ready = available.status == "True" or available.reason == Reason.NO_NODES.value
    state = State.READY if ready else State.RECONCILING
    return Health(state, available.reason, available.message)


def _with_summary(snapshot: Snapshot, own: tuple[Condition, ...]) -> tuple[Condition, ...]:
    """Return the conditions with Ready, Reconciling and Stalled before them, all dated."""
    former = {condition.type: condition for condition in snapshot.status.conditions}
    found = (*(Condition(*verdict) for verdict in summary(health_of(own))), *own)
    return tuple(_dated(condition, former.get(condition.type), snapshot) for condition in found)


def _other_controller(snapshot: Snapshot) -> tuple[Condition, ...]:
    reported = any(condition.type == OTHER_CONTROLLER for condition in snapshot.status.conditions)
    found = verdict(snapshot.other, reported_before=reported)
    return (Condition(OTHER_CONTROLLER, *found),) if found else ()


def _nodes_skipped(snapshot: Snapshot) -> tuple[Condition, ...]:
    """Return the condition that names the nodes on which no installer can run; none if there are none."""
    if not (skipped := snapshot.nodes.skipped) or snapshot.shim.deleting:
        return ()
    by_reason: dict[str, list[NodeView]] = {}
    for node in skipped:
        if node.skip is not None:
            by_reason.setdefault(node.skip.reason.value, []).append(node)
    reason = max(by_reason, key=lambda name: (len(by_reason[name]), name))
    text = "; ".join(f"{name}: {listed(nodes)}" for name, nodes in sorted(by_reason.items()))
    return (Condition(NODES_SKIPPED, "True", reason, f"no installer can run on {text}"),)


def _digest(snapshot: Snapshot) -> str:
    """Return the target version of nodes; several if platforms have their own archives."""
    return ",".join(sorted(snapshot.nodes.digests))


def _counts(snapshot: Snapshot) -> Counts:
    nodes = snapshot.nodes
    return Counts(nodes.nodes, nodes.ready, nodes.updated, len(snapshot.failing))


def _available(snapshot: Snapshot, counts: Counts) -> Condition:
    shim = snapshot.shim
    if shim.invalid:
        return Condition("Available", "False", Refusal.INVALID.value, shim.invalid)
    if not counts.nodes:
        return Condition(
            "Available",
            "False",
            Reason.NO_NODES.value,
            "no node requires this Shim: its nodeSelector matches none, or no node opted in",
        )
    text = f"{counts.ready} of {counts.nodes} nodes run the shim"
    if not snapshot.nodes.placeable:
        text += (
            "; spec.runtimeClass.scheduling.nodeSelector matches none of them, so no pod with RuntimeClass "
            f"{shim.runtime_class} is scheduled"
        )
    if counts.ready == counts.nodes:
        return Condition("Available", "True", Reason.ALL_READY.value, text)
    return Condition("Available", "False", Reason.NOT_ALL_READY.value, text)


def _progressing(snapshot: Snapshot, counts: Counts) -> Condition:
    """Return the state of the rollout; False once it is complete, or does not continue."""
    shim, kind = snapshot.shim, "Progressing"
    at_work = f"{len(snapshot.in_progress)} in progress{_not_ready_text(snapshot)}"
    text = f"{counts.updated} of {counts.nodes} nodes have this version, {at_work}"
    if shim.deleting:
        text = f"{snapshot.nodes.holding} nodes still have the shim, {at_work}"
        return Condition(kind, "True", Reason.REMOVING.value, text)
    if counts.updated == counts.nodes and not snapshot.nodes.to_remove:
        if snapshot.waits is not None and not snapshot.halted:
            return _waiting(text, snapshot.waits)
        return Condition(kind, "False", Reason.UPDATED.value, text)
    if snapshot.other is not None and not snapshot.in_progress:
        return Condition(
            kind, "False", OTHER_CONTROLLER, f"provisioner waits until {snapshot.other.peer.value} is removed: {text}"
        )
    if shim.paused:
        return Condition(kind, "False", Reason.PAUSED.value, f"spec.paused pauses the rollout: {text}")
    if snapshot.halted:
        cause = snapshot.halt.message if snapshot.halt is not None else "too many nodes failed"
        return Condition(kind, "False", Reason.HALTED.value, f"{cause}, so no further node is started: {text}")
    if snapshot.waits is not None:
        return _waiting(text, snapshot.waits)
    return Condition(kind, "True", Reason.UPDATING.value, text)


def _waiting(text: str, waits: WorkloadHalt) -> Condition:
    """Return the state of a rollout that waits for pods, also for those of its last nodes."""
    return Condition("Progressing", "True", Reason.WAITING_FOR_PODS.value, f"{text}; {waits.message}")


def _not_ready_text(snapshot: Snapshot) -> str:
    """Return the nodes with pending work that are not ready, as the end of a sentence; "" if none."""
    unavailable = snapshot.nodes.unavailable
    return f"; nodes that are not ready wait: {listed(unavailable)}" if unavailable else ""


def _degraded(snapshot: Snapshot) -> Condition:
    """Return the most severe cause that keeps the Shim from its nodes."""
    shim, kind = snapshot.shim, "Degraded"
    if shim.invalid:
        return Condition(kind, "True", Refusal.INVALID.value, f"the spec is invalid: {shim.invalid}")
    if conflict := _conflict(snapshot):
        return conflict
    if snapshot.class_refused:
        context = f"; the API server refuses RuntimeClass {shim.runtime_class!r}"
        message = with_context(cause_of_refusal(snapshot.class_refused), context)
        return Condition(kind, "True", Reason.RUNTIME_CLASS_REFUSED.value, message)
    if snapshot.ledger_refused and not shim.paused:
        context = "; the API server refuses the rollout ledger, so no node is started"
        message = with_context(cause_of_refusal(snapshot.ledger_refused), context)
        return Condition(kind, "True", Reason.LEDGER_REFUSED.value, message)
    if snapshot.refused:
        node, reason, text = snapshot.refused[-1]
        message = with_context(cause_of_refusal(without_job(text)), *_on(node, len(snapshot.refused)))
        return Condition(kind, "True", reason, message)
    if snapshot.paused_nodes:
        return Condition(kind, "True", Reason.MASS_DELETION.value, _paused_text(snapshot))
    if refused := _refused(snapshot):
        return refused
    if stopped := _stopped_by_pods(snapshot) or _failing(snapshot):
        return stopped
    if snapshot.in_use:
        node, cause = min(snapshot.in_use, key=lambda pair: pair[0].name)
        message = with_context(cause, *_on(node, len(snapshot.in_use), "the shim cannot be removed from "))
        return Condition(kind, "True", Reason.IN_USE.value, message)
    return Condition(kind, "False", Reason.HEALTHY.value, "")


def _failing(snapshot: Snapshot) -> Condition | None:
    if not (failing := snapshot.failing):
        return None
    first, failure = failing[0]
    contexts = _on(first, len(failing))
    message = f"{without_attempt(failure)}{contexts[0]}"
    if len(message) > MESSAGE_MAX:
        message = with_context(cause_for(snapshot.shim.name, failure), *contexts)  # the Node has the whole text
    return Condition("Degraded", "True", Reason.FAILING.value, message)


def _stopped_by_pods(snapshot: Snapshot) -> Condition | None:
    """Return the pods that stop the rollout: they are less ready than before, cannot be read, or cannot be evicted."""
    kind, waits = "Degraded", snapshot.waits
    unread = waits if waits is not None and waits.reason == Reason.WORKLOADS_UNKNOWN.value else None
    if (found := snapshot.halt or unread) is not None:
        return Condition(kind, "True", found.reason, found.message)
    if snapshot.drain_blocked:
        node, cause = min(snapshot.drain_blocked, key=lambda pair: pair[0].name)
        message = with_context(cause, *_on(node, len(snapshot.drain_blocked), "pods are not evicted from "))
        return Condition(kind, "True", Reason.DRAIN_BLOCKED.value, message)
    return None


def _conflict(snapshot: Snapshot) -> Condition | None:
    """Return a conflict over the handler, the label or the RuntimeClass: a copy of a Shim has no own handler either."""
    shim, kind = snapshot.shim, "Degraded"
    if nodes := snapshot.nodes.refused.get(Refusal.HANDLER_CONFLICT):
        message = (
            f"Shim {', '.join(snapshot.nodes.rivals)} has handler {shim.handler!r}, too: select other nodes, or create "
            f"{shim.name} with another handler; not installed on {listed(nodes)}"
        )
        return Condition(kind, "True", Refusal.HANDLER_CONFLICT.value, message)
    if nodes := snapshot.nodes.refused.get(Refusal.LABEL_CONFLICT):
        message = (
            f"Shim {', '.join(snapshot.nodes.rivals)} selects nodes by the label {names.shim_label(shim.name)!r}, "
            f"which {shim.name} would set to {names.SHIM_PROVISIONED!r}: create it with another name; not installed on "
            f"{listed(nodes)}"
        )
        return Condition(kind, "True", Refusal.LABEL_CONFLICT.value, message)
    if conflict := conflict_of(snapshot):
        return Condition(kind, "True", Reason.RUNTIME_CLASS_CONFLICT.value, conflict)
    return None


def _paused_text(snapshot: Snapshot) -> str:
    nodes = snapshot.paused_nodes
    return (
        f"the circuit breaker paused this mass deletion on {len(nodes)} nodes: `trellis circuit-breaker close "
        f"node-watcher` confirms it; to keep the shim, remove finalizer {names.FINALIZER} and re-create the Shim"
    )


def _refused(snapshot: Snapshot) -> Condition | None:
    """Return the cause in the Shim's own spec that keeps it from nodes that it is for; None if there is none."""
    refused, kind = snapshot.nodes.refused, "Degraded"
    if nodes := refused.get(Refusal.CHECKSUM_MISSING):
        message = (
            "the source has no sha256, or the image no digest: add it, or allow missing checksums with "
            f"TRELLIS_REQUIRE_CHECKSUM=false; not installed on {listed(nodes)}"
        )
        return Condition(kind, "True", Refusal.CHECKSUM_MISSING.value, message)
    if nodes := refused.get(Refusal.UNSIGNED):
        message = (
            "no key of TRELLIS_SHIM_KEYS signed the source: sign it by `cosign sign-blob` (an image by `cosign sign`) "
            f"and set signature; not installed on {listed(nodes)}"
        )
        return Condition(kind, "True", Refusal.UNSIGNED.value, message)
    if nodes := refused.get(Refusal.NO_SOURCE):
        archs = ", ".join(sorted({node.architecture or "unknown" for node in nodes}))
        message = f"spec.fetchStrategy has no source for linux/{archs}: {listed(nodes)}"
        return Condition(kind, "True", Refusal.NO_SOURCE.value, message)
    return None


def _on(node: NodeView, count: int, before: str = "") -> tuple[str, str]:
    """Return ``count`` nodes as contexts of a message: with the name of one of them, then by their number."""
    more = f" and {count - 1} more" if count > 1 else ""
    return f" ({before}node {node.name}{more})", f" ({before}{count} node{'s' if count > 1 else ''})"


def listed(nodes: Iterable[NodeView]) -> str:
    """Return the names of nodes for users: the first few, and how many more there are."""
    known = sorted(node.name for node in nodes)
    more = len(known) - _NAMED
    return ", ".join(known[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _dated(condition: Condition, former: Condition | None, snapshot: Snapshot) -> Condition:
    """Return the condition as written: with the time of its last change of status, and a limited message."""
    same = former is not None and former.status == condition.status and bool(former.since)
    since = former.since if same and former else snapshot.now
    message = shortened(condition.message)
    return replace(condition, message=message, since=since, observed_generation=snapshot.shim.generation)


def conflict_of(snapshot: Snapshot) -> str:
    """Return why Trellis cannot manage the RuntimeClass of the Shim; "" if it can.

    1. The Shim owns it, or a former Shim of its name did: the Shim was re-created.
    2. Another object owns it.
    3. It exists without owner and has another handler; with the same handler it is taken over.
    4. An older Shim gets it, as it has no owner yet.
    """
    shim, found = snapshot.shim, snapshot.runtime_class
    if found is not None and (found.owner == shim.uid or found.owner_name == shim.name):
        return ""
    of, advice = "", ""
    if found is not None and found.owner:
        of = f"belongs to Shim {found.owner_name}" if found.owner_name else "belongs to another object"
        advice = f"delete Shim {found.owner_name}" if found.owner_name else "delete the RuntimeClass"
    elif found is not None and found.handler != shim.handler:
        of, advice = f"is not managed by Trellis (handler {found.handler!r})", "delete the RuntimeClass"
    elif snapshot.class_rival and not shim.deleting:
        of, advice = f"belongs to Shim {snapshot.class_rival}, which is older", f"delete Shim {snapshot.class_rival}"
    another = f"create a Shim with another spec.runtimeClass.name in place of {shim.name}"
    return f"RuntimeClass {shim.runtime_class} {of}: {another}, or {advice}" if of else ""
