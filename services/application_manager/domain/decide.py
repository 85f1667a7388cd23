"""The decision of one reconcile: the first check that applies, otherwise the comparison of both sides.

Pure. In: a snapshot. Out: actions with reasons, or why there are none. Called by ``reconciler``. Another reconcile
follows actions, until both sides are equal and that is recorded: a crash between two actions repeats work and loses
none. Invariants (ADR 41 has all nine rules): the side that differs from the last common state wins, and of two the one
that another writer manages; no clock decides; an object is deleted only if wadm's storage proves the deletion; only a
request of the object or of wash undeploys; an application that wadm never had is put, and one that wadm lost is put
again; an application whose object lost the finalizer to a user does not come back as an application of wash.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from application_manager.domain.actions import (
    AcceptRemoval,
    Action,
    AddFinalizer,
    Announcement,
    CreateObject,
    Decision,
    DeleteModel,
    DeleteObject,
    Deploy,
    Lost,
    Put,
    Reason,
    Record,
    RemoveFinalizer,
    Undeploy,
    WriteSpec,
    wait,
)
from application_manager.domain.progress import Awaited
from application_manager.domain.sides import OVERRIDDEN, Absence, Base, Model, Object, Side, Standing, Win
from application_manager.domain.snapshot import Duty, Snapshot
from application_manager.domain.views import ApplicationView
from trellis import names
from trellis.lattice.domain.group_views import lattice_name

APPLICATIONS: Final = "applications"
"""Kind in the circuit breaker: Applications, and their models in wadm."""
_NOT_CONFIRMED: Final = "wadm does not have it any more, and its deletion is not confirmed: delete this object to do so"
_OLDER: Final = "wadm's storage was restored from a backup, and has an older state of it"
_NOT_LISTED: Final = "wadm stores it and does not list it: a further version makes wadm list it"
_CONTEST: Final = 3
_DIGITS: Final = (8, 12, 64)
"""Digits of a digest in the name of a version, until one is free: wadm accepts no other content for a version."""
_NOTHING: Final = Decision()
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


def _duplicate(snapshot: Snapshot, other: ApplicationView) -> Decision:
    """Report on a newer object that it names the same application; its deletion affects nothing else."""
    oldest = snapshot.view.key if snapshot.view is not None else ""
    message = f"{oldest} is the same application of lattice {lattice_name(snapshot.key.lattice_id)}, older: delete one"
    announcement = Announcement(Reason.DUPLICATE, message)
    if not other.object.deleting:
        return Decision(waits=announcement)
    return Decision((RemoveFinalizer(announcement),) if other.object.finalizer else (), without_status=True)


def _compare_unless_awaited(snapshot: Snapshot, awaited: Awaited | None) -> Decision:
    if awaited is not None:
        return Decision(again=awaited.until - snapshot.monotonic, without_status=True)
    view = snapshot.view
    if view is not None and view.problem and not view.object.deleting:
        return _NOTHING
    decision = _compare(snapshot)
    refused = snapshot.progress.refused_before(snapshot.object, decision.actions)
    if refused is None or snapshot.monotonic >= refused.again:
        return decision
    return replace(decision, refused=refused, again=max(refused.again - snapshot.monotonic, snapshot.timings.soon))


def _compare(snapshot: Snapshot) -> Decision:
    """Return the decision that makes both sides of one application equal."""
    found = snapshot.object
    if found is None:
        return _unseen(snapshot)
    if found.deleting:
        return _deleting(snapshot, found)
    if snapshot.standing is Standing.NO_LATTICE:
        return wait(Reason.NO_LATTICE, "no host group in this namespace has this application's lattice")
    if snapshot.wadm is Absence.UNAVAILABLE:
        return wait(Reason.WADM_UNAVAILABLE, "wadm does not answer: the state of the application may be outdated")
    if snapshot.standing is Standing.OWNED_BY_OTHER:
        return _read_only(snapshot, found)
    wadm = snapshot.wadm
    decision = _both_sides(snapshot, found, wadm) if isinstance(wadm, Model) else _absent(snapshot, found)
    return decision if found.finalizer else _with_finalizer(decision)


def _with_finalizer(decision: Decision) -> Decision:
    """Add the finalizer before requests to wadm, in one reconcile; any other action waits for the next reconcile."""
    first = AddFinalizer(Announcement(Reason.APPLIED, "its deletion is to reach wadm"))
    given = bool(decision.actions) and all(isinstance(action, Put | Deploy | Undeploy) for action in decision.actions)
    return replace(decision, actions=(first, *decision.actions)) if given else Decision((first,))


def _unseen(snapshot: Snapshot) -> Decision:
    """Return the decision without an object: show the application of wadm."""
    if not isinstance(snapshot.wadm, Model) or snapshot.standing is Standing.NO_LATTICE:
        return _NOTHING
    if snapshot.tombstone:
        return wait(Reason.TOMBSTONE, "its object lost the finalizer: it is re-created when wadm's model changes")
    version = snapshot.wadm.shown(None)
    return Decision((CreateObject(Announcement(Reason.FROM_WADM, f"wadm has it in version {version}"), version),))


def _deleting(snapshot: Snapshot, found: Object) -> Decision:
    """Return the decision about a deleted object: its model is deleted first."""
    if not found.finalizer:
        return _NOTHING
    if snapshot.standing is Standing.NO_LATTICE:
        announcement = Announcement(Reason.FINALIZER_REMOVED, "its lattice is unknown, so wadm cannot be notified")
        return Decision((RemoveFinalizer(announcement, tombstone=True),))
    if snapshot.standing is Standing.OWNED_BY_OTHER:
        return Decision(
            (RemoveFinalizer(Announcement(Reason.READ_ONLY, "another cluster owns the lattice's applications")),)
        )
    if snapshot.wadm is Absence.UNAVAILABLE:
        return wait(
            Reason.WADM_UNAVAILABLE, "wadm does not answer: the application is deleted there first, once it does"
        )
    if isinstance(snapshot.wadm, Model):
        return Decision((DeleteModel(Announcement(Reason.DELETED, "its object was deleted in Kubernetes")),))
    return Decision((RemoveFinalizer(Announcement(Reason.DELETED, "wadm does not have it any more")),))


def _read_only(snapshot: Snapshot, found: Object) -> Decision:
    """Return the decision while another cluster owns the lattice's applications: this cluster only shows them."""
    if isinstance(snapshot.wadm, Model):
        version = snapshot.wadm.shown(found.base)
        if found.digest != snapshot.wadm.digests[version] and not found.changed:
            return Decision((WriteSpec(Announcement(Reason.FROM_WADM, f"wadm has it in version {version}"), version),))
        if found.digest == snapshot.wadm.digests[version]:
            return _record(found, snapshot.wadm, version, snapshot.unsettled)
    if snapshot.wadm is Absence.DELETED and not found.changed:
        return Decision((DeleteObject(Announcement(Reason.DELETED_IN_WADM, "it was deleted in wadm")),))
    return wait(Reason.READ_ONLY, "another cluster owns this lattice's applications: change it there, or with wash")


def _absent(snapshot: Snapshot, found: Object) -> Decision:
    """Return the decision if wadm does not have the application: it was deleted, never put, or lost."""
    if snapshot.wadm is not Absence.DELETED or (found.changed and found.others):
        return _push(found, None, found.base is None or found.changed)
    if left := contended(found.wins, snapshot.now, snapshot.timings.contest):
        return _contest(left)
    announcement = Announcement(Reason.DELETED_IN_WADM, "it was deleted in wadm")
    return Decision((DeleteObject(announcement),), winner=Side.WADM)


def _both_sides(snapshot: Snapshot, found: Object, model: Model) -> Decision:
    """Return the decision if both sides have the application."""
    if not model.listed:
        return _list_again(found, model)
    version = model.shown(found.base)
    here, there = (found.digest, found.deployed), (model.digests[version], model.deployed == version)
    if here == there:
        return _record(found, model, version, snapshot.unsettled)
    base = found.base
    if base is not None and snapshot.progress.requested == model.deployed:
        # The model is the former request of the object; a different object is a change in Kubernetes.
        return _push(found, model, True)
    if base is not None and model.restored(base):
        return _push(found, model, found.changed, _OLDER)
    if base is not None and base.bucket != model.bucket and not model.deployed:
        # The application was put again and is not deployed yet: no user undeployed it with wash.
        return _push(found, model, found.changed)
    if base is not None and there == (base.digest, base.deployed) and found.changed:
        if model.deployed and model.newest != base.newest:
            # A version that was put with wash in the meantime and not deployed must not be shown after the undeploy.
            newer = Record(Announcement(Reason.SYNCED, "wadm has a newer version"), replace(base, newest=model.newest))
            return Decision((newer,), again=0.0)  # the change of the object is pushed next
        return _push(found, model, True)
    left = contended(found.wins, snapshot.now, snapshot.timings.contest)
    if not found.changed:
        return _contest(left) if left else _pull(found, model, version)
    if found.others or left:
        decision = _push(found, model, True)
        lost = Lost(Side.WADM, version) if base is not None else None
        return Decision(decision.actions, decision.waits, decision.winner, lost, decision.again)
    return _pull(found, model, version)


def _list_again(found: Object, model: Model) -> Decision:
    """Put a further version, so that wadm lists an application that it only stores.

    wadm stores an application, then its name. It does not write the name if it is killed in between, or after three
    conflicts with other writes. It rejects the same version from then on, and no list request returns the application.
    """
    return Decision((Put(Announcement(Reason.RESTORED, _NOT_LISTED), _spare_version(found.digest, model)),))


def _push(found: Object, model: Model | None, changed: bool, lost: str = _NOT_CONFIRMED) -> Decision:
    """Give wadm the state of Kubernetes; ``changed``: a user changed it there; False: wadm lost it."""
    version = version_of(found.version, found.digest, model)
    reason = Reason.APPLIED if changed else Reason.RESTORED
    cause = "it was applied in Kubernetes" if changed else lost
    announcement, deployed = Announcement(reason, cause), "" if model is None else model.deployed
    actions: list[Put | Deploy | Undeploy] = []
    if model is None or version not in model.digests:
        actions.append(Put(announcement, version))
    if found.deployed and deployed != version:
        actions.append(Deploy(announcement, version))
    if not found.deployed and deployed:
        actions.append(Undeploy(Announcement(reason, "its object has the annotation that undeploys it")))
    if not actions:
        assert model is not None  # otherwise there is a Put
        return _record(found, model, version)
    winner = Side.KUBERNETES if changed and found.base is not None else None
    return Decision(tuple(actions), winner=winner)


def _pull(found: Object, model: Model, version: str) -> Decision:
    """Give Kubernetes the state of wadm; a change in Kubernetes is preserved as a version that does not run."""
    if found.digest == model.digests[version]:
        recorded = _record(found, model, version)
        return Decision(recorded.actions, winner=Side.WADM)
    announcement = Announcement(Reason.FROM_WADM, f"wadm has it in version {version}")
    write = WriteSpec(announcement, version)
    if found.base is None or not found.changed or found.digest == found.base.digest:
        return Decision((write,), winner=Side.WADM)
    holds = [name for name, digest in model.versions if digest == found.digest]
    kept = holds[-1] if holds else _overridden_version(found.digest)
    keep = Put(Announcement(Reason.OVERRIDDEN, "both sides had changed, and wadm's change wins"), kept)
    return Decision((write,) if holds else (keep, write), winner=Side.WADM, lost=Lost(Side.KUBERNETES, kept))


def _record(found: Object, model: Model, version: str, unsettled: float = 0.0) -> Decision:
    """Record that both sides are equal, if that is not recorded yet.

    A newer version that was put and does not run is not recorded for some seconds: it may be deployed next. If no
    reconcile sees that and the application is undeployed then, it is the version to show.
    """
    former = found.base or Base("", "", deployed=False, newest="")
    deployed = model.deployed == version
    waits = bool(unsettled) and deployed and version != model.newest != former.newest
    newest = (former.newest or version) if waits else model.newest
    again = unsettled if waits else None
    base = Base(model.digests[version], version, deployed, newest, found.undeploy, former.serial, model.bucket)
    if base == found.base:
        return Decision(again=again)
    base = replace(base, serial=former.serial + 1)
    return Decision((Record(Announcement(Reason.SYNCED, f"both sides have version {version}"), base),), again=again)


def contended(wins: tuple[Win, ...], now: float, contest: float) -> float:
    """Return the seconds for which the sides are still in a contest, 0 if they are not; ``now`` in Unix seconds.

    ``contest``: seconds within which three changes of alternating sides are a contest, and after which a side is quiet.

    A last win too far in the future was recorded by a wrong clock, and is ignored: the contest would last for months.
    """
    for at in range(len(wins) - _CONTEST + 1):
        first, second, third = wins[at : at + _CONTEST]
        alternate = first.side is third.side is not second.side
        if alternate and third.at - first.at <= contest:
            left = wins[-1].at + contest - now
            return max(0.0, left) if left <= 2 * contest else 0.0
    return 0.0


def _contest(left: float) -> Decision:
    message = "both sides change it by turns: Kubernetes wins until one side has been quiet for ten minutes"
    return wait(Reason.CONTENDED, message, left)


def version_of(wanted: str, digest: str, model: Model | None) -> str:
    """Return the version for a manifest of this digest.

    The annotation, if wadm has no other content under it, else ``<annotation>-<digest8>``; without an annotation the
    newest version with the same content, else ``sha-<digest12>``.

    Args:
        wanted: the annotation, "" if there is none.
        digest: of the manifest, in hex digits.
        model: the model in wadm, None if there is none.
    """
    has = {} if model is None else model.digests
    if not wanted:
        same = [name for name, existing in has.items() if existing == digest and not name.startswith(OVERRIDDEN)]
        if same:
            return same[-1]
    candidates = ([wanted] if wanted else []) + [
        f"{wanted or 'sha'}-{digest[:length]}" for length in (_DIGITS if wanted else _DIGITS[1:])
    ]
    return next((name for name in candidates if has.get(name, digest) == digest), candidates[-1])


def _overridden_version(digest: str) -> str:
    """Return the version that preserves an overridden manifest."""
    return f"{OVERRIDDEN}{digest[:12]}"


def _spare_version(digest: str, model: Model) -> str:
    """Return a new version for a manifest that is only stored, and never shown or run."""
    plain, has = _overridden_version(digest), model.digests
    numbered = (f"{plain}-{number}" for number in range(2, len(has) + 3))
    return next(name for name in (plain, *numbered) if name not in has)


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
