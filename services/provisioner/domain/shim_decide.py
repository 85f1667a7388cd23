"""Decides about one Shim: its finalizer, its RuntimeClass, its status.

Pure. In: a frozen snapshot of one Shim, its nodes, its RuntimeClass. Out: actions, each with its reason. Called by
``app`` between gather and apply; nodes get slots from ``plan`` and Jobs from ``decide``, never from here.
Invariants: the finalizer stays until no reachable node has the Shim; a RuntimeClass of another owner is left
unchanged, that of the Shim follows its spec, regardless of other clients; the status is written only if it differs.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from provisioner.domain.other_controller import keeps_off_all
from provisioner.domain.shim_snapshot import RuntimeClassView, Snapshot
from provisioner.domain.shim_status import PROBLEM_TYPES, conflict_of, listed, own_conditions, status_of
from trellis import names
from trellis.provisioning.placement import Placement
from trellis.provisioning.quantities import same_amount
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


_UPDATING: Final = (Reason.UPDATING, Reason.WAITING_FOR_PODS)
_FIELDS: Final = (
    *("handler", "overhead", "scheduling.nodeSelector", "scheduling.tolerations"),
    *("metadata.labels", "metadata.ownerReferences"),
)
"""Fields of a RuntimeClass that its Shim determines."""
_OWN_MARKS: Final = frozenset({"metadata.labels", "metadata.ownerReferences"})
"""Fields that former versions of Trellis wrote differently: a change of them alone is not reported."""

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
    if not shim.invalid and not conflict_of(snapshot):
        actions += _runtime_class(snapshot)
    return [*actions, *_status(snapshot), *_history(snapshot)]


def _runtime_class(snapshot: Snapshot) -> list[Action]:
    """Write the RuntimeClass if it differs from the spec; record an Event if another client changed or deleted it."""
    shim, found = snapshot.shim, snapshot.runtime_class
    changed = _changes(shim, found)
    if not changed:
        return []
    actions: list[Action] = [ApplyRuntimeClass(shim, found)]
    written = snapshot.status.observed_generation == shim.generation and not snapshot.class_refused
    fields = [name for name in changed if name not in _OWN_MARKS]
    if written and fields and not _conflicted(snapshot.status):
        what = f"was changed ({', '.join(fields)})" if found is not None else "was deleted"
        message = (
            f"RuntimeClass {shim.runtime_class} {what} by another client and is restored: change "
            f"spec.runtimeClass of Shim {shim.name}"
        )
        actions.append(RecordShimEvent(shim, Reason.RUNTIME_CLASS_RESTORED.value, message))
    return actions


def _conflicted(status: Status) -> bool:
    """Return whether the RuntimeClass belonged to another object before: then the Shim gets it only now."""
    return any(condition.reason == Reason.RUNTIME_CLASS_CONFLICT.value for condition in status.conditions)


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
    for condition in own_conditions(snapshot):  # an Event has the complete message
        is_new = (condition.type, condition.status, condition.reason) not in former
        if condition.type in PROBLEM_TYPES and condition.status == "True" and is_new:
            actions.append(RecordShimEvent(snapshot.shim, condition.reason, condition.message))
        was = any(("Progressing", "True", reason.value) in former for reason in _UPDATING)
        if was and (condition.type, condition.reason) == ("Progressing", Reason.UPDATED.value):
            message = f"the rollout is complete: {condition.message}"
            actions.append(RecordShimEvent(snapshot.shim, Reason.ROLLOUT_COMPLETE.value, message, warning=False))
    return actions


def wanted_placement(shim: ShimView) -> Placement:
    """Return the placement of the Shim's pods: only on nodes with the label of nodes that are verified to run it."""
    own = {names.shim_label(shim.name): names.SHIM_PROVISIONED}
    return replace(shim.placement, selector=tuple(sorted({**dict(shim.placement.selector), **own}.items())))


def wanted_labels(shim: ShimView) -> tuple[tuple[str, str], ...]:
    """Return the labels of the RuntimeClass of a Shim."""
    return ((names.LABEL_MANAGED_BY, names.MANAGED_BY), (names.LABEL_SHIM, names.shim_label(shim.name)))


def _changes(shim: ShimView, found: RuntimeClassView | None) -> tuple[str, ...]:
    """Return the fields in which a RuntimeClass differs from the spec of its Shim; all if it does not exist."""
    if found is None:
        return _FIELDS
    placement = wanted_placement(shim)
    same = (
        found.handler == shim.handler,
        _same_amounts(found.overhead, shim.overhead),
        found.placement.selector == placement.selector,
        found.placement.tolerations == placement.tolerations,
        set(wanted_labels(shim)) <= set(found.labels),
        found.owner == shim.uid,
    )
    return tuple(name for name, is_same in zip(_FIELDS, same, strict=True) if not is_same)


def _same_amounts(one: tuple[tuple[str, str], ...], other: tuple[tuple[str, str], ...]) -> bool:
    found, wanted = dict(one), dict(other)
    return found.keys() == wanted.keys() and all(same_amount(found[name], wanted[name]) for name in found)
