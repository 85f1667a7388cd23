"""What one run of a key does: which of its checks holds, and if none does, what makes both sides equal.

Pure. In: a snapshot. Out: actions with reasons, or why there are none. Called by ``reconciler``; after actions it is
called again. Invariants: nothing is decided on a storage that does not show what wadm acknowledged; nothing comes back
as if wash had put it, whose object a user let go by force; wadm is not asked at each event for what it refused.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from application_manager.domain.actions import (
    AcceptRemoval,
    Action,
    Decision,
    DeleteModel,
    DeleteObject,
    Reason,
    RemoveFinalizer,
    Said,
    wait,
)
from application_manager.domain.compare import compare
from application_manager.domain.placement import name_of
from application_manager.domain.progress import Awaited
from application_manager.domain.sides import Absence
from application_manager.domain.snapshot import Duty, Snapshot
from application_manager.domain.views import ApplicationView
from trellis import names

APPLICATIONS: Final = "applications"
"""Kind of the circuit breaker: Applications, and what wadm has of them."""
_SILENT: Final = Decision(silent=True)


def decide(snapshot: Snapshot) -> Decision:
    """Return what a run does about one application: what the first check says that holds.

    1. This process may not act, or only removes finalizers.
    2. A user removed our finalizer and the object went: its model must not come back as if wash had put it.
    3. wadm acknowledged a request that its storage does not show yet.
    4. The manifest cannot be read.
    5. wadm refused the same, and it is too soon to ask again.
    6. Both sides are compared.
    """
    progress = snapshot.progress
    if snapshot.duty is Duty.STAND_BY:
        return _SILENT
    if snapshot.duty is Duty.REMOVE_FINALIZERS:
        return _release(snapshot)
    if progress.removed is not None:
        return _accept_removal(snapshot, progress.removed)
    decision = _compare_unless_awaited(snapshot, progress.awaited)
    duplicates = tuple((other, _duplicate(snapshot, other)) for other in snapshot.others)
    return replace(decision, duplicates=duplicates) if duplicates else decision


def destroys(action: Action) -> bool:
    """Return whether an action needs leave of the circuit breaker: one side is deleted because the other one was."""
    return isinstance(action, DeleteModel | DeleteObject)


def paused(action: Action) -> Decision:
    """Return what to report while the circuit breaker pauses an action."""
    keep = f"remove the finalizer {names.FINALIZER_APPLICATIONS} and create the Application again"
    if isinstance(action, DeleteObject):
        keep = "change the Application: it is put into wadm again"
    message = (
        f"{action.said.message}, together with many others, so the circuit breaker pauses its deletion on the other "
        f"side. To confirm it: trellis circuit-breaker close application-manager. To keep the application: {keep}"
    )
    return wait(Reason.MASS_DELETION, message)


def unavailable(snapshot: Snapshot, message: str) -> tuple[Snapshot, Decision]:
    """Return what holds after wadm did not answer a request."""
    why = f"wadm does not answer: {message}"
    return replace(snapshot, wadm=Absence.AWAY, why=why), wait(Reason.WADM_AWAY, why)


def refused_by_kubernetes(message: str) -> Decision:
    """Return what to report while the API server refuses a write."""
    return wait(Reason.WRITE_REFUSED, message)


def _release(snapshot: Snapshot) -> Decision:
    """Remove our finalizer from each object: this service will not be there to do so."""

    def of(view: ApplicationView | None) -> Decision:
        if view is None or not view.object.finalizer:
            return _SILENT
        said = Said(Reason.FINALIZER_REMOVED, "Trellis removes its finalizers: it is to be uninstalled")
        return Decision((RemoveFinalizer(said),), silent=True)

    return replace(of(snapshot.view), duplicates=tuple((other, of(other)) for other in snapshot.others))


def _accept_removal(snapshot: Snapshot, removed: ApplicationView) -> Decision:
    """Store a tombstone if wadm has the application, or may have it; then it is decided again, at once."""
    base, model = removed.object.base, snapshot.model
    revision = None
    if base is not None and (model is not None or snapshot.wadm is Absence.AWAY):
        revision = max(base.revision, 0 if model is None else model.revision)
    said = Said(Reason.FINALIZER_REMOVED, "somebody took its finalizer away")
    return Decision((AcceptRemoval(said, removed, revision),), again=0.0, silent=True)


def _compare_unless_awaited(snapshot: Snapshot, awaited: Awaited | None) -> Decision:
    if awaited is not None:
        return Decision(again=awaited.until - snapshot.monotonic, silent=True)
    view = snapshot.view
    if view is not None and view.problem and not view.object.deleting:
        return Decision()
    decision = compare(snapshot)
    refused = snapshot.progress.refused_before(snapshot.object, decision.actions)
    if refused is None or snapshot.monotonic >= refused.again:
        return decision
    return replace(decision, refused=refused, again=max(refused.again - snapshot.monotonic, snapshot.timings.soon))


def _duplicate(snapshot: Snapshot, other: ApplicationView) -> Decision:
    """Report on a newer object that it names the same application; deleting it concerns nothing else."""
    oldest = snapshot.view.key if snapshot.view is not None else ""
    message = f"{oldest} is the same application of lattice {name_of(snapshot.key.mark)}, older: delete one"
    said = Said(Reason.DUPLICATE, message)
    if not other.object.deleting:
        return Decision(waits=said)
    return Decision((RemoveFinalizer(said),) if other.object.finalizer else (), silent=True)
