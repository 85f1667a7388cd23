"""Decides about the patch of a Node and its events.

Pure. In: a frozen snapshot (the Node, its installer Job, published events). Out: actions, each with its reason. Called
by ``app`` between gather and apply. Invariants: labels follow the verification, never only the exit of a Job if a
handler is known; a replaced Node of the same name starts from nothing; at most one patch of a Node per decision.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from node_watcher.domain.actions import (
    Action,
    GuardedDeletion,
    PatchNode,
    Publish,
    PublishedState,
    Reason,
    RecordEvent,
    Snapshot,
)
from node_watcher.domain.node_patch import (
    Changes,
    VerifiedState,
    no_failure,
    patch_of,
    remove_metadata,
    takes_label,
    verified_annotations,
    verified_labels,
    verified_state_of,
)
from node_watcher.domain.shims import removable_startup_taints, vanished, verification_by_now
from trellis import names
from trellis.events.node import NodeGone, NodeOptedIn, NodeOptedOut, NodeReady, NodeReplaced
from trellis.limits.breaker import Deletion
from trellis.provisioning.leftovers import marks_after, unwanted_left
from trellis.provisioning.views import (
    KWASM,
    FailedAttempt,
    JobState,
    JobView,
    NodeTaint,
    NodeView,
    OptIn,
    VerifiedBy,
    decode_digests,
    encode_digests,
    opt_in_of,
    verification_of,
    verified_digests,
)

NODES = "nodes"
"""Kind of the circuit breaker that guards the labels of ready nodes."""


def decide(snapshot: Snapshot) -> list[Action]:
    """Return the actions on one node name, in order."""
    node, published = snapshot.node, snapshot.published
    if node is None:
        return _deleted_event(snapshot.name, published)
    if snapshot.unknown:
        return []  # a Shim that cannot be listed does not count as deleted
    actions: list[Action] = []
    if published is not None and published.uid != node.uid:
        actions += _replaced(node, published)
        published = None
    if node.marked_uid is not None and node.marked_uid != node.uid:
        message = f"labels and annotations of a former Node {node.name} (uid {node.marked_uid}) removed"
        return [
            *actions,
            *_unmark(node, PatchNode(node, remove_metadata(node), Reason.REPLACED, message)),
        ]
    if snapshot.wanted:
        return [*actions, *_opted_in(node, published, snapshot)]
    actions += _opted_out(node, published, snapshot)
    if opt_in_of(node, auto_provision=False) is OptIn.INVALID:
        actions += _invalid(node, published)
    return actions


def _deleted_event(name: str, published: PublishedState | None) -> list[Action]:
    """Return the event for a deleted Node that had opted in."""
    if published is None or not published.opted_in:
        return []
    event = NodeGone(name=name, uid=published.uid, resource_version="")
    return [Publish(event, f"{published.uid}.gone", None)]


def _replaced(node: NodeView, published: PublishedState) -> list[Action]:
    """Return the event, once, that another Node has the name, if the former Node had opted in."""
    if not published.opted_in:
        return []
    event = NodeReplaced(name=node.name, uid=node.uid, resource_version=node.resource_version, former_uid=published.uid)
    return [Publish(event, f"{node.uid}.{published.uid}.replaced", PublishedState(node.uid))]


def _opted_in(node: NodeView, published: PublishedState | None, snapshot: Snapshot) -> list[Action]:
    """Return the actions on an opted-in node: publish that once, mark verified Shims, report failures."""
    job, wanted = snapshot.job, snapshot.wanted
    actions: list[Action] = []
    published = published or PublishedState(node.uid)
    if not published.opted_in:
        published = replace(published, opted_in=True, complained=None)
        actions.append(
            Publish(_opted_in_event(node, wanted), f"{node.uid}.{node.resource_version}.opted_in", published)
        )
    if snapshot.missing - published.missing:
        published = replace(published, missing=snapshot.missing)
        actions.append(RecordEvent(node.uid, True, Reason.SHIM_MISSING, _missing(snapshot), published))
    verified_by = verification_of(job, node) if job else None
    if job and verified_by and node.installed != job.shims:
        return [*actions, *_record(node, job, verified_by, snapshot)]
    if left := unwanted_left(job, node, wanted):
        return [*actions, *_record_left(node, left, wanted)]
    if lost := vanished(node, job, wanted, snapshot.handlers):
        return [*actions, *_withdraw(node, published, lost, snapshot)]
    if node.marked_digest and not _removes(job, node, wanted) and (by_now := verification_by_now(node, snapshot.shims)):
        if repair := _restore(node, VerifiedState(node.marked_digest, by_now, node.installed), snapshot):
            return [*actions, *repair]
        if published.ready != node.marked_digest and verified_digests(node.installed):
            actions.append(_ready(node, published))
    if job and job.failure and job.node_uid == node.uid and node.marked_digest != job.digest:
        actions += _failed(node, job, wanted)
    return actions


def _removes(job: JobView | None, node: NodeView, wanted: frozenset[str]) -> bool:
    """Return whether a Job removes a target Shim: its runtime may be gone before the node records that."""
    if job is None or job.node_uid != node.uid or job.installs is None or job.state is JobState.FAILED:
        return False
    return bool((node.installed.keys() & wanted) - job.shims.keys())


def _missing(snapshot: Snapshot) -> str:
    seconds = f"{snapshot.look_in:.0f} s" if snapshot.look_in else "now"
    return (
        f"Shim {', '.join(sorted(snapshot.missing))} no longer exists, but it was not uninstalled from this node: "
        "provisioner did not remove its finalizer. Re-create the Shim to keep it on the node; otherwise it is removed "
        f"after {seconds}, as the circuit breaker permits"
    )


def _withdraw(node: NodeView, published: PublishedState, lost: tuple[str, ...], snapshot: Snapshot) -> list[Action]:
    """Remove the labels of Shims that are no longer verified; no pod is scheduled for them, they are reinstalled."""
    handlers = ", ".join(repr(snapshot.handlers[name]) for name in lost)
    message = (
        f"the node no longer lists the runtime handler {handlers} of {', '.join(lost)} (it lists: "
        f"{', '.join(sorted(filter(None, node.handlers))) or 'none'}): labels removed, reinstallation follows"
    )
    shims = {name: digest for name, digest in node.installed.items() if name not in lost}
    ops = remove_metadata(node)
    if shims:
        state = verified_state_of(node, shims)
        labels = verified_labels(node, state, snapshot.wanted, snapshot.drained)
        ops = patch_of(node, labels, verified_annotations(node, state))
    event = RecordEvent(node.uid, True, Reason.HANDLER_VANISHED, message, replace(published, ready=None))
    return _unmark(node, PatchNode(node, ops, Reason.HANDLER_VANISHED, message), event)


def _opted_in_event(node: NodeView, wanted: frozenset[str]) -> NodeOptedIn:
    return NodeOptedIn(
        name=node.name,
        uid=node.uid,
        resource_version=node.resource_version,
        architecture=node.architecture,
        operating_system=node.operating_system,
        runtime_version=node.runtime_version,
        labels=node.label_values(),
        by="Annotation" if node.opt_in is not None else "AutoProvision" if KWASM in wanted else "NodeSelector",
    )


def _ready(node: NodeView, published: PublishedState) -> Publish:
    digest = node.marked_digest or ""
    event = NodeReady(
        name=node.name,
        uid=node.uid,
        resource_version=node.resource_version,
        digest=digest,
        verified=node.verified or "",
    )
    return Publish(event, f"{node.uid}.{node.resource_version}.ready", replace(published, ready=digest))


def _record(node: NodeView, job: JobView, verified_by: VerifiedBy, snapshot: Snapshot) -> list[Action]:
    """Record the verified state on the Node, and remove the record of failures.

    An unwanted Shim that stays keeps its label for now: the label is removed under the circuit breaker. The drain of a
    Shim that the Job changed ends.
    """
    wanted = snapshot.wanted
    if not job.shims:
        message = f"Job {job.namespace}/{job.name} removed every runtime that Trellis had installed"
        event = RecordEvent(node.uid, False, Reason.REMOVED, message)
        return [PatchNode(node, remove_metadata(node), Reason.REMOVED, message), event]
    state = VerifiedState(job.digest, verified_by, job.shims)
    # A Shim that this attempt left out, because an earlier attempt failed on it, remains failed.
    still = any(name in wanted and not _changes(node, job, name) for name in node.blamed)
    annotations = {**verified_annotations(node, state), **({} if still else no_failure(node))}
    what = ", ".join(sorted(verified_digests(job.shims))) if job.installs is not None else "Wasm runtime"
    message = f"{what} {job.digest} is provisioned (verified: {verified_by.value})"
    removed_taints = removable_startup_taints(node, snapshot.shims, state.ready)
    stay = {name for name in node.installed if name != KWASM and _labelled(node, name)}
    drained = frozenset(name for name in snapshot.drained if not _changes(node, job, name))
    ops = patch_of(node, verified_labels(node, state, wanted | stay, drained), annotations, removed_taints)
    event = RecordEvent(node.uid, False, Reason.PROVISION_SUCCEEDED, f"{message} by Job {job.namespace}/{job.name}")
    return [PatchNode(node, ops, Reason.PROVISION_SUCCEEDED, f"{message}{_without(removed_taints)}"), event]


def _record_left(node: NodeView, left: Mapping[str, str], wanted: frozenset[str]) -> list[Action]:
    """Record on the Node the unwanted Shims that a Job left there, without labels, so that they are removed.

    These Shims are not verified; a node that is marked already keeps its verification.
    """
    state = verified_state_of(node, {**node.installed, **left})
    ops = patch_of(node, verified_labels(node, state, wanted), verified_annotations(node, state))
    message = f"{', '.join(sorted(left))} is on the node but no longer wanted: uninstallation follows"
    return _unmark(node, PatchNode(node, ops, Reason.OPTED_OUT, message))


def _restore(node: NodeView, state: VerifiedState, snapshot: Snapshot) -> list[Action]:
    """Restore the labels and annotations of a verified Node, and remove the labels of Shims to uninstall or to drain.

    The record of failures stays. A Shim loses its label before it is uninstalled, so that no further pod is scheduled
    to the node for it. The deletion of a Shim affects all of its nodes, and the circuit breaker does not pause it
    (ADR 27). Nor does it pause a drain, as the limits of the rollout bound it (ADR 126).
    """
    wanted = snapshot.wanted
    removed_taints = removable_startup_taints(node, snapshot.shims, state.ready)
    labels, annotations = verified_labels(node, state, wanted, snapshot.drained), verified_annotations(node, state)
    ops = patch_of(node, labels, annotations, removed_taints)
    if not ops:
        return []
    deleting = sorted(name for name in state.shims if name not in wanted and name != KWASM)
    if deleting:
        message = f"{', '.join(deleting)} no longer wanted: labels removed, uninstallation follows"
        patch = PatchNode(node, ops, Reason.OPTED_OUT, message)
        leaves = {name for name in state.shims if name not in wanted and (name != KWASM or not wanted)}
        return [patch] if leaves <= snapshot.deleting else _unmark(node, patch)
    if drained := sorted(name for name in snapshot.drained if _labelled(node, name)):
        message = f"{', '.join(drained)} is drained for its change: label removed until the node records the outcome"
        event = RecordEvent(node.uid, False, Reason.DRAINED, message)
        return [PatchNode(node, ops, Reason.DRAINED, message), event]
    if state.verified_by is not node.verified_by:
        message = (
            f"{', '.join(sorted(state.shims))}: the kubelet lists the handlers (verified: {state.verified_by.value})"
        )
        return [PatchNode(node, ops, Reason.PROVISION_SUCCEEDED, f"{message}{_without(removed_taints)}")]
    if not patch_of(node, labels, annotations):
        message = f"Wasm runtime {state.digest} is ready{_without(removed_taints)}"
        return [PatchNode(node, ops, Reason.STARTUP_TAINT_REMOVED, message)]
    message = (
        f"labels of Wasm runtime {state.digest} restored, after a drain or a change by another client"
        f"{_without(removed_taints)}"
    )
    return [PatchNode(node, ops, Reason.LABELS_RESTORED, message)]


def _labelled(node: NodeView, name: str) -> bool:
    """Return whether a node has the label of a Shim."""
    return names.shim_label(name) in node.label_values()


def _without(removed: tuple[NodeTaint, ...]) -> str:
    taints = ", ".join(f"{taint.key}:{taint.effect}" for taint in removed)
    return f", startup taint {taints} removed" if removed else ""


def _changes(node: NodeView, job: JobView, name: str) -> bool:
    """Return whether a Job changes a Shim, instead of leaving it as it is."""
    return job.shims.get(name) != node.installed.get(name)


def _failed(node: NodeView, job: JobView, wanted: frozenset[str]) -> list[Action]:
    """Record a failed attempt once: on the Node for users and for the count of attempts, and as an Event.

    The Shims that the attempt left are recorded, too: no pod may be scheduled for an unverified version, and it is
    removed once it is no longer wanted.
    """
    attempt = FailedAttempt(job.digest, job.attempt, job.finished_at or job.created_at, job.disruptive)
    if (former := node.failed) and (former.digest, former.attempt) == (attempt.digest, attempt.attempt):
        return []
    failure = f"attempt {job.attempt}: {job.failure}"
    # Shims blamed for earlier attempts stay recorded, unless this attempt changed them and blames other Shims.
    named = decode_digests(job.blamed)
    blamed = {name: of for name, of in node.blamed.items() if not named or not _changes(node, job, name)} | named
    annotations = {
        names.ANNOTATION_BLAMED: (node.failed_shims, encode_digests(blamed) or None),
        names.ANNOTATION_NODE_UID: (node.marked_uid, node.uid),
        names.ANNOTATION_FAILURE: (node.failure, failure),
        names.ANNOTATION_FAILED_ATTEMPT: (node.failed_attempt, attempt.encode()),
    }
    labels: Changes = {}
    if (left := marks_after(job, node)) != node.installed:
        state = verified_state_of(node, left)
        labels, annotations = verified_labels(node, state, wanted), {**verified_annotations(node, state), **annotations}
    patch = PatchNode(node, patch_of(node, labels, annotations), Reason.FAILED, failure)
    event = RecordEvent(node.uid, True, Reason.FAILED, f"{failure} (Job {job.namespace}/{job.name}; retried later)")
    return _unmark(node, patch, event)


def _opted_out(node: NodeView, published: PublishedState | None, snapshot: Snapshot) -> list[Action]:
    """Return the actions on a node without opt-in: publish the change, if any, and remove its labels and annotations.

    The labels of installed Shims are removed at once, the record of the Shims only after their verified removal.
    """
    actions: list[Action] = []
    was_in = (published is not None and published.opted_in) or (published is None and node.bears_marks)
    if was_in:
        event = NodeOptedOut(name=node.name, uid=node.uid, resource_version=node.resource_version)
        then = PublishedState(node.uid, opted_in=False)
        actions.append(Publish(event, f"{node.uid}.{node.resource_version}.opted_out", then))
    if left := unwanted_left(snapshot.job, node, ()):
        return [*actions, *_record_left(node, left, frozenset())]
    if not node.bears_marks:
        return actions
    shims = node.installed
    if node.verified_by and node.marked_digest and shims.keys() - {KWASM}:
        return [*actions, *_removing(node, VerifiedState(node.marked_digest, node.verified_by, shims), snapshot)]
    steps: list[PatchNode | RecordEvent] = []
    if node.marked_digest:
        steps.append(RecordEvent(node.uid, False, Reason.RUNTIME_LEFT, _left_in_place(node)))
    steps.append(PatchNode(node, remove_metadata(node), Reason.OPTED_OUT, "opted out: labels and annotations removed"))
    return [*actions, *_unmark(node, *steps)]


def _removing(node: NodeView, state: VerifiedState, snapshot: Snapshot) -> list[Action]:
    """Return the actions on a node with Shims but without opt-in: labels first, then the outcome of the removal."""
    nothing, job = frozenset[str](), snapshot.job
    verified_by = verification_of(job, node) if job else None
    if job and verified_by and state.shims != job.shims and set(job.shims) < set(state.shims):
        return _record(node, job, verified_by, snapshot)
    if unlabel := _restore(node, state, snapshot):
        return unlabel
    return _failed(node, job, nothing) if job and job.failure and job.node_uid == node.uid else []


def _unmark(node: NodeView, *steps: PatchNode | RecordEvent) -> list[Action]:
    """Return the steps that change a node, under the circuit breaker if they remove a label of a ready node.

    A patch that changes only the record of installed Shims is not counted: it does not affect scheduling.
    """
    if not any(isinstance(step, PatchNode) and takes_label(step.ops) for step in steps):
        return list(steps)
    target = Deletion(NODES, node.name, node.uid, "removal of the labels of a ready node", "v1", "Node")
    return [GuardedDeletion(target, steps)]


def _left_in_place(node: NodeView) -> str:
    return (
        f"opted out: labels removed, but the runtime {node.marked_digest} stays on the disk of the node, "
        "because its installer image has no uninstall"
    )


def _invalid(node: NodeView, published: PublishedState | None) -> list[Action]:
    """Return a warning about an invalid opt-in annotation, once per value."""
    if published is not None and published.complained == node.opt_in:
        return []
    message = (
        f"annotation {names.ANNOTATION_OPT_IN} has {node.opt_in!r}: "
        "use 'true' to opt the node in, or 'false' or no annotation to opt it out; until then it counts as 'false'"
    )
    then = PublishedState(node.uid, opted_in=False, complained=node.opt_in)
    return [RecordEvent(node.uid, True, Reason.INVALID_ANNOTATION, message, then)]
