"""The checks of a run before it compares both sides, in this order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from application_manager.domain.actions import AcceptRemoval, Decision, Put, Reason, RemoveFinalizer, Undeploy
from application_manager.domain.decide import decide
from application_manager.domain.progress import SETTLED, Awaited, Progress
from application_manager.domain.sides import Absence, Base, Model
from application_manager.domain.snapshot import Duty, Snapshot
from application_manager.domain.views import ApplicationView, view_application
from application_manager.timings import Timings
from support.wadm.application_objects import stored
from trellis.lattice.domain.replies import Refusal
from trellis.lattice.domain.store import StoredModel

VIEW = view_application(stored())
DIGEST = VIEW.object.digest
BASE = Base(DIGEST, "v1", deployed=True, newest="v1", bucket="b", revision=7)
SYNCED = replace(VIEW, object=replace(VIEW.object, base=BASE))
DELETED = view_application(stored("other", deletionTimestamp="2026-11-01T00:00:00Z"))
MODEL = StoredModel("web", (("v1", {}),), "v1", 9)
AWAITED = Awaited("v1", None, deleted=False, until=12.0)
REMOVED = Progress(removed=SYNCED)
OTHER = view_application(stored("other"))


def snapshot(view: ApplicationView | None = SYNCED, **changes: Any) -> Snapshot:
    """Return an application that is not to run any more, at ten seconds."""
    found = None if view is None else replace(view.object, undeploy=True)
    whole: dict[str, Any] = {"wadm": Model((("v1", DIGEST),), "v1", "b"), "monotonic": 10.0, "view": view}
    return Snapshot(found, **(whole | changes))


def kinds(decision: Decision) -> list[type[Any]]:
    return [type(action) for action in decision.actions]


def test_without_a_reason_against_it_both_sides_are_compared() -> None:
    assert kinds(decide(snapshot())) == [Undeploy]


@pytest.mark.parametrize("progress", [SETTLED, REMOVED, Progress(awaited=AWAITED)])
def test_nothing_is_done_while_this_process_stands_by(progress: Progress) -> None:
    found = snapshot(progress=progress, duty=Duty.STAND_BY, others=(OTHER,))
    assert decide(found) == Decision(without_status=True)


def test_finalizers_are_removed_from_all_objects_and_nothing_else_is_done() -> None:
    bare = replace(OTHER, object=replace(OTHER.object, finalizer=False))
    found = snapshot(progress=REMOVED, duty=Duty.REMOVE_FINALIZERS, others=(OTHER, bare))
    decision = decide(found)
    assert (kinds(decision), decision.without_status, decision.again) == ([RemoveFinalizer], True, None)
    assert [(view, kinds(about), about.without_status) for view, about in decision.duplicates] == [
        (OTHER, [RemoveFinalizer], True),
        (bare, [], True),
    ]
    assert decide(replace(found, view=None, others=())).actions == ()


@pytest.mark.parametrize(
    ("wadm", "model", "base", "revision"),
    [
        (Absence.UNAVAILABLE, None, BASE, 7),
        (Absence.UNAVAILABLE, None, None, None),
        (Absence.DELETED, None, BASE, None),
        (Model((("v1", DIGEST),)), MODEL, BASE, 9),
        (Model((("v1", DIGEST),)), replace(MODEL, revision=0), BASE, 7),
    ],
    ids=["wadm away", "never in wadm", "deleted in wadm", "changed in wadm", "no revision known"],
)
def test_an_object_without_its_finalizer_gets_a_tombstone_if_wadm_may_have_its_model(
    wadm: Any, model: StoredModel | None, base: Base | None, revision: int | None
) -> None:
    removed = replace(VIEW, object=replace(VIEW.object, base=base))
    progress = Progress(removed=removed, awaited=AWAITED)
    decision = decide(snapshot(None, wadm=wadm, model=model, progress=progress, others=(OTHER,)))
    [action] = decision.actions
    assert isinstance(action, AcceptRemoval)
    assert (action.view, action.revision) == (removed, revision)
    assert (decision.without_status, decision.again, decision.duplicates) == (True, 0.0, ())


def test_nothing_is_decided_before_the_storage_shows_what_wadm_acknowledged() -> None:
    decision = decide(snapshot(progress=Progress(awaited=AWAITED), others=(OTHER,)))
    assert (decision.actions, decision.again, decision.without_status) == ((), 2.0, True)
    assert [view for view, _ in decision.duplicates] == [OTHER], "which concern nothing in wadm"


@pytest.mark.parametrize("deleting", [True, False])
def test_a_manifest_that_cannot_be_read_is_not_carried_over_but_deleted(deleting: bool) -> None:
    view = replace(DELETED if deleting else VIEW, problem="`spec.components` is no list")
    assert (decide(snapshot(view)).actions == ()) is not deleting


@pytest.mark.parametrize(("until", "again"), [(15.0, 5.0), (10.1, Timings().soon)], ids=["later", "at once"])
def test_a_refusal_of_wadm_is_reported_and_not_retried_early(until: float, again: float) -> None:
    requested = snapshot()
    refused = SETTLED.refused_as(requested.object, Refusal.FAILED, "no", until - 4.0, Timings()).refused
    decision = decide(replace(requested, progress=Progress(refused=refused)))
    assert (decision.refused, decision.again, kinds(decision)) == (refused, again, [Undeploy])
    later = replace(requested, progress=Progress(refused=refused), monotonic=until)
    assert decide(later) == decide(requested), "its time has come"
    other = replace(VIEW.object, digest="b" * 64, base=BASE)
    assert Put in kinds(decide(replace(requested, object=other, progress=Progress(refused=refused)))), "it is another"


def test_a_newer_object_of_the_same_application_is_reported_and_loses_its_finalizer_when_deleted() -> None:
    removed = replace(DELETED, object=replace(DELETED.object, finalizer=False))
    decision = decide(snapshot(others=(OTHER, DELETED, removed)))
    reported, deleted, without = [about for _, about in decision.duplicates]
    assert reported.waits is not None
    assert (reported.waits.reason, reported.actions, reported.without_status) == (Reason.DUPLICATE, (), False)
    assert VIEW.key in reported.waits.message
    assert (kinds(deleted), deleted.without_status) == ([RemoveFinalizer], True)
    assert (kinds(without), without.without_status) == ([], True)
    assert kinds(decision) == [Undeploy], "of the oldest one"
