"""The decision of one reconcile: the first check that applies, otherwise the comparison of both sides.

Pure. In: a snapshot. Out: actions with reasons, or why there are none. Called by ``reconciler``, and once more after
actions. Invariants: no decision uses a storage that does not show yet what wadm acknowledged; an application whose
object lost the finalizer to a user does not come back as an application of wash; a rejected request is not sent to wadm
at each event.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from application_manager.domain.actions import (
    AcceptRemoval,
    Action,
    Announcement,
    Decision,
    DeleteModel,
    DeleteObject,
    Reason,
    RemoveFinalizer,
    wait,
)
from application_manager.domain.compare import compare
from application_manager.domain.progress import Awaited
from application_manager.domain.sides import Absence
from application_manager.domain.snapshot import Duty, Snapshot
from application_manager.domain.views import ApplicationView
from trellis import names
from trellis.lattice.domain.group_views import lattice_name

APPLICATIONS: Final = "applications"
"""Kind in the circuit breaker: Applications, and their models in wadm."""
_WITHOUT_STATUS: Final = Decision(without_status=True)


def decide(snapshot: Snapshot) -> Decision:
    """Return the decision about one application: that of the first check that applies.

    1. This process may not act, or only removes finalizers.
    2. A user removed the finalizer, and the object was deleted: its model must not come back as one of wash.
    3. wadm acknowledged a request that its storage does not show yet.
    4. The manifest cannot be read.
    5. wadm rejected the same request, and its retry delay has not passed.
    6. Both sides are compared.
    """
    progress = snapshot.progress
    if snapshot.duty is Duty.STAND_BY:
        return _WITHOUT_STATUS
    if snapshot.duty is Duty.REMOVE_FINALIZERS:
        return _release(snapshot)
    if progress.removed is not None:
        return _accept_removal(snapshot, progress.removed)
    decision = _compare_unless_awaited(snapshot, progress.awaited)
    duplicates = tuple((other, _duplicate(snapshot, other)) for other in snapshot.others)
    return replace(decision, duplicates=duplicates) if duplicates else decision


def deletes(action: Action) -> bool:
    """Return whether an action needs the circuit breaker: one side is deleted because the other side was."""
    return isinstance(action, DeleteModel | DeleteObject)


def paused(action: Action) -> Decision:
    """Return the decision to report while the circuit breaker pauses an action."""
    undo = f"remove finalizer {names.FINALIZER_APPLICATIONS}, re-create it"
    if isinstance(action, DeleteObject):
        undo = "change the Application, it is then put into wadm"
    message = (
        f"{action.announcement.message}; mass deletion paused: `trellis circuit-breaker close application-manager` "
        f"confirms it; to undo: {undo}"
    )
    return wait(Reason.MASS_DELETION, message)


def unavailable(snapshot: Snapshot, message: str) -> tuple[Snapshot, Decision]:
    """Return the snapshot and the decision to report after wadm did not answer a request."""
    reason = f"wadm does not answer: {message}"
    return replace(snapshot, wadm=Absence.UNAVAILABLE, reason=reason), wait(Reason.WADM_UNAVAILABLE, reason)


def refused_by_kubernetes(message: str) -> Decision:
    """Return the decision to report while the API server rejects a write."""
    return wait(Reason.WRITE_REFUSED, message)


def _release(snapshot: Snapshot) -> Decision:
    """Remove the finalizer from each object, as this service will be uninstalled."""

    def of(view: ApplicationView | None) -> Decision:
        if view is None or not view.object.finalizer:
            return _WITHOUT_STATUS
        announcement = Announcement(Reason.FINALIZER_REMOVED, "Trellis removes its finalizers: it is to be uninstalled")
        return Decision((RemoveFinalizer(announcement),), without_status=True)

    return replace(of(snapshot.view), duplicates=tuple((other, of(other)) for other in snapshot.others))


def _accept_removal(snapshot: Snapshot, removed: ApplicationView) -> Decision:
    """Store a tombstone if wadm has the application, or may have it; the next decision follows at once."""
    base, model = removed.object.base, snapshot.model
    revision = None
    if base is not None and (model is not None or snapshot.wadm is Absence.UNAVAILABLE):
        revision = max(base.revision, 0 if model is None else model.revision)
    announcement = Announcement(Reason.FINALIZER_REMOVED, "a user removed its finalizer")
    return Decision((AcceptRemoval(announcement, removed, revision),), again=0.0, without_status=True)


def _compare_unless_awaited(snapshot: Snapshot, awaited: Awaited | None) -> Decision:
    if awaited is not None:
        return Decision(again=awaited.until - snapshot.monotonic, without_status=True)
    view = snapshot.view
    if view is not None and view.problem and not view.object.deleting:
        return Decision()
    decision = compare(snapshot)
    refused = snapshot.progress.refused_before(snapshot.object, decision.actions)
    if refused is None or snapshot.monotonic >= refused.again:
        return decision
    return replace(decision, refused=refused, again=max(refused.again - snapshot.monotonic, snapshot.timings.soon))


def _duplicate(snapshot: Snapshot, other: ApplicationView) -> Decision:
    """Report on a newer object that it names the same application; its deletion affects nothing else."""
    oldest = snapshot.view.key if snapshot.view is not None else ""
    message = f"{oldest} is the same application of lattice {lattice_name(snapshot.key.lattice_id)}, older: delete one"
    announcement = Announcement(Reason.DUPLICATE, message)
    if not other.object.deleting:
        return Decision(waits=announcement)
    return Decision((RemoveFinalizer(announcement),) if other.object.finalizer else (), without_status=True)
