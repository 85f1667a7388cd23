"""Decides about one Shim: its finalizer, its RuntimeClass, its status.

Pure. In: a frozen snapshot of one Shim, its nodes, its RuntimeClass. Out: actions, each with its reason. Called by
``app`` between gather and apply; nodes get slots from ``plan`` and Jobs from ``decide``, never from here.
Invariants: the finalizer stays until no reachable node has the Shim; a RuntimeClass of another owner is left
unchanged; the status is written only if it differs.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from provisioner.domain.other_controller import keeps_off_all
from provisioner.domain.shim_snapshot import RuntimeClassView, Snapshot
from provisioner.domain.shim_status import BAD_NEWS, conflict_of, listed, status_of
from trellis import names
from trellis.provisioning.revisions import Manifest, Revision, next_number, same_as, surplus
from trellis.provisioning.shim_status import Reason, Status
from trellis.provisioning.shims import ShimView


@dataclass(frozen=True, slots=True)
class SetFinalizer:
    """Add or remove the finalizer of Trellis."""

    shim: ShimView
    present: bool
    message: str = ""


@dataclass(frozen=True, slots=True)
class ApplyRuntimeClass:
    """Write the RuntimeClass; ``former``: the object as read. A handler is immutable: then ``former`` is replaced."""

    shim: ShimView
    former: RuntimeClassView | None


@dataclass(frozen=True, slots=True)
class DeleteRuntimeClass:
    """Delete the RuntimeClass that the Shim owns."""

    former: RuntimeClassView


@dataclass(frozen=True, slots=True)
class WriteStatus:
    """Write the status."""

    shim: ShimView
    status: Status


@dataclass(frozen=True, slots=True)
class RecordShimEvent:
    """Record an Event on the Shim."""

    shim: ShimView
    reason: str
    message: str
    warning: bool = True


@dataclass(frozen=True, slots=True)
class KeepRevision:
    """Store a version under a number; ``former``: the revision that has it already, under an older one."""

    shim: ShimView
    version: Manifest = field(hash=False)
    number: int
    former: Revision | None


@dataclass(frozen=True, slots=True)
class DropRevision:
    """Delete a revision beyond the limit."""

    former: Revision


Action = (
    SetFinalizer | ApplyRuntimeClass | DeleteRuntimeClass | WriteStatus | RecordShimEvent | KeepRevision | DropRevision
)


def decide(snapshot: Snapshot) -> list[Action]:
    """Return the actions on one Shim, in order."""
    shim = snapshot.shim
    if keeps_off_all(snapshot.other):
        return _status(snapshot)
    if shim.deleting:
        return _deleting(snapshot)
    actions: list[Action] = []
    if names.FINALIZER not in shim.finalizers and not shim.invalid:
        actions.append(SetFinalizer(shim, present=True))
    if not shim.invalid and not conflict_of(snapshot) and _differs(shim, snapshot.runtime_class):
        actions.append(ApplyRuntimeClass(shim, snapshot.runtime_class))
    return [*actions, *_status(snapshot), *_history(snapshot)]


def _history(snapshot: Snapshot) -> list[Action]:
    """Store the version of the spec as the newest revision; beyond the limit, keep only those that nodes still have."""
    shim, version, revisions = snapshot.shim, snapshot.version, snapshot.revisions
    if shim.invalid or revisions is None:
        return []
    number = next_number(revisions, version)
    keep = [] if number is None else [KeepRevision(shim, version, number, same_as(revisions, version))]
    return [*keep, *(DropRevision(former) for former in surplus(revisions, version, snapshot.in_use_revisions))]


def _deleting(snapshot: Snapshot) -> list[Action]:
    """Remove the finalizer once no node has the Shim; the wait for unreachable nodes is limited."""
    shim = snapshot.shim
    if names.FINALIZER not in shim.finalizers:
        return []
    concerned = {node.uid: node for node in (*snapshot.holders, *snapshot.in_progress)}.values()
    if any((node.ready and node.skip is None) or not snapshot.patience_over for node in concerned):
        return _status(snapshot)
    message = ""
    actions: list[Action] = []
    if concerned:
        message = f"not removed from nodes that are not ready, or that no installer runs on: {listed(concerned)}"
        actions.append(RecordShimEvent(shim, Reason.UNREACHABLE_LEFT.value, message))
    if snapshot.runtime_class is not None and snapshot.runtime_class.owner == shim.uid:
        # The garbage collector would delete it, but discovers a new kind only after a while.
        actions.append(DeleteRuntimeClass(snapshot.runtime_class))
    return [*actions, SetFinalizer(shim, present=False, message=message)]


def _status(snapshot: Snapshot) -> list[Action]:
    """Write the status if it changed; record one Event for each new problem and for each completed rollout."""
    status = status_of(snapshot)
    if status == snapshot.status:
        return []
    actions: list[Action] = [WriteStatus(snapshot.shim, status)]
    former = {(condition.type, condition.status, condition.reason) for condition in snapshot.status.conditions}
    for condition in status.conditions:
        news = (condition.type, condition.status, condition.reason) not in former
        if condition.type in BAD_NEWS and condition.status == "True" and news:
            actions.append(RecordShimEvent(snapshot.shim, condition.reason, condition.message))
        was = ("Progressing", "True", Reason.UPDATING.value) in former
        if was and (condition.type, condition.reason) == ("Progressing", Reason.UPDATED.value):
            message = f"the rollout is complete: {condition.message}"
            actions.append(RecordShimEvent(snapshot.shim, Reason.ROLLOUT_COMPLETE.value, message, warning=False))
    return actions


def wanted_selector(shim: ShimView) -> tuple[tuple[str, str], ...]:
    """Return the label of nodes that are verified to run the Shim."""
    return ((names.shim_label(shim.name), names.SHIM_PROVISIONED),)


def _differs(shim: ShimView, found: RuntimeClassView | None) -> bool:
    if found is None or found.owner != shim.uid:
        return True
    wanted = (shim.handler, shim.overhead, wanted_selector(shim))
    return wanted != (found.handler, found.overhead, found.selector)
