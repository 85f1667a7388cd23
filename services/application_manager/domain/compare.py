"""Comparison of both sides: the side that changed since both were equal, and the actions on the other side.

Pure. In: both sides of one application. Out: actions with reasons. Called by ``decide``; after actions it is called
once more, until both sides are equal and only that is to be recorded. So a crash between two actions repeats work and
loses none. Invariants (the nine rules): the side that differs from the base wins, and of two the one that another
writer manages; no clock decides; an object is deleted only if wadm's storage proves the deletion; only a request of the
object or of wash undeploys; an application that wadm never had is put, and one that wadm lost is put again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from application_manager.domain.actions import (
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
from application_manager.domain.sides import OVERRIDDEN, Absence, Base, Model, Object, Side, Standing, Win
from application_manager.domain.snapshot import Snapshot

NOT_CONFIRMED: Final = "wadm does not have it any more, and its deletion is not confirmed: delete this object to do so"
OLDER: Final = "wadm's storage was restored from a backup, and has an older state of it"
NOT_LISTED: Final = "wadm stores it and does not list it: a further version makes wadm list it"
_CONTEST: Final = 3
_DIGITS: Final = (8, 12, 64)
"""Digits of a digest in the name of a version, until one is free: wadm accepts no other content for a version."""
_NOTHING: Final = Decision()


def compare(snapshot: Snapshot) -> Decision:
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
    decision = _compare(snapshot, found, wadm) if isinstance(wadm, Model) else _absent(snapshot, found)
    return decision if found.finalizer else _with_finalizer(decision)


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


def _compare(snapshot: Snapshot, found: Object, model: Model) -> Decision:
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
        return _push(found, model, found.changed, OLDER)
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
    return Decision((Put(Announcement(Reason.RESTORED, NOT_LISTED), _spare_version(found.digest, model)),))


def _push(found: Object, model: Model | None, changed: bool, lost: str = NOT_CONFIRMED) -> Decision:
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
    names = ([wanted] if wanted else []) + [
        f"{wanted or 'sha'}-{digest[:length]}" for length in (_DIGITS if wanted else _DIGITS[1:])
    ]
    return next((name for name in names if has.get(name, digest) == digest), names[-1])


def _overridden_version(digest: str) -> str:
    """Return the version that preserves an overridden manifest."""
    return f"{OVERRIDDEN}{digest[:12]}"


def _spare_version(digest: str, model: Model) -> str:
    """Return a new version for a manifest that is only stored, and never shown or run."""
    plain, has = _overridden_version(digest), model.digests
    numbered = (f"{plain}-{number}" for number in range(2, len(has) + 3))
    return next(name for name in (plain, *numbered) if name not in has)
