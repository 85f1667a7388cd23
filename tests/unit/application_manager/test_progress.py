"""The states of one application between runs: what leads into each, and what ends it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from application_manager.domain.actions import (
    Announcement,
    Decision,
    DeleteModel,
    Deploy,
    Lost,
    Put,
    Reason,
    Undeploy,
    wait,
)
from application_manager.domain.progress import SETTLED, Awaited, Progress, State
from application_manager.domain.sides import Base, Model, Object, Side
from application_manager.domain.views import view_application
from application_manager.timings import Timings
from support.wadm.application_objects import stored
from trellis.lattice.domain.replies import Refusal
from trellis.lattice.domain.store import StoredModel

TIMES = Timings()
BECAUSE = Announcement(Reason.APPLIED, "it was applied in Kubernetes")
PUT, DEPLOY = Put(BECAUSE, "v1"), Deploy(BECAUSE, "v1")
FOUND = Object("a" * 64, "v1")
MODEL = StoredModel("web", (("v1", {}),), "v1", 3)
REFUSED = SETTLED.refused_as(FOUND, Refusal.FAILED, "no", 10.0, TIMES)
AWAITED = SETTLED.with_request(DEPLOY).acknowledged(PUT, 20.0).acknowledged(DEPLOY, 20.0)

LEADS_INTO: dict[State, Progress] = {
    State.SETTLED: SETTLED,
    State.CHANGING: SETTLED.decided(FOUND, Decision((PUT,), winner=Side.KUBERNETES)),
    State.AWAITED: AWAITED,
    State.REFUSED: REFUSED,
    State.UNAVAILABLE: SETTLED.reporting(wait(Reason.WADM_UNAVAILABLE, ""), 10.0),
    State.UNLISTED: SETTLED.list_read(listed=False, now=10.0),
    State.UNDECIDED: SETTLED.newest_read(Model((("v1", "a"), ("v2", "b")), "v1"), None, 10.0),
    State.FINALIZER_REMOVED: SETTLED.removed_by_user(view_application(stored())),
}
ENDS: dict[State, Progress] = {
    State.CHANGING: LEADS_INTO[State.CHANGING].recorded(),
    State.AWAITED: replace(AWAITED, requested=None).storage_read(MODEL, answered=True, now=11.0),
    State.REFUSED: REFUSED.decided(FOUND, Decision()),
    State.UNAVAILABLE: LEADS_INTO[State.UNAVAILABLE].reporting(Decision(), 12.0),
    State.UNLISTED: LEADS_INTO[State.UNLISTED].list_read(listed=True, now=11.0),
    State.UNDECIDED: LEADS_INTO[State.UNDECIDED].newest_read(Model((("v1", "a"), ("v2", "b")), "v2"), None, 11.0),
    State.FINALIZER_REMOVED: LEADS_INTO[State.FINALIZER_REMOVED].removal_accepted(view_application(stored())),
}


@pytest.mark.parametrize("state", State)
def test_each_state_is_entered_and_left(state: State) -> None:
    assert LEADS_INTO[state].state is state
    assert state is State.SETTLED or ENDS[state] == SETTLED


def test_of_two_states_that_hold_the_next_run_acts_on_the_first() -> None:
    both = AWAITED.refused_as(FOUND, Refusal.FAILED, "no", 10.0, TIMES)
    assert both.state is State.AWAITED
    shown = both.storage_read(MODEL, answered=True, now=11.0)
    assert shown.state is State.REFUSED
    assert both.removed_by_user(view_application(stored())).state is State.FINALIZER_REMOVED


@pytest.mark.parametrize(
    ("awaited", "model", "shown"),
    [
        ({"version": "v2", "deployed": None, "deleted": False}, MODEL, False),
        ({"version": "v1", "deployed": "v1", "deleted": False}, MODEL, True),
        ({"version": None, "deployed": "", "deleted": False}, MODEL, False),
        ({"version": None, "deployed": None, "deleted": True}, MODEL, False),
        ({"version": None, "deployed": None, "deleted": True}, None, True),
        ({"version": "v1", "deployed": None, "deleted": False}, None, False),
    ],
)
def test_a_storage_that_does_not_show_what_wadm_acknowledged_is_awaited(
    awaited: dict[str, Any], model: StoredModel | None, shown: bool
) -> None:
    before = Progress(awaited=Awaited(**awaited, until=20.0))
    assert (before.storage_read(model, answered=True, now=19.0).awaited is None) is shown
    assert before.storage_read(model, answered=True, now=20.0).awaited is None, "for so long it may lag behind"
    assert before.storage_read(model, answered=False, now=19.0).awaited is None, "wadm is asked first when it is back"


@pytest.mark.parametrize(("requested", "kept"), [("v1", "v1"), ("v9", None), ("", None)])
def test_a_request_to_wadm_is_forgotten_once_wadm_has_another_version(requested: str, kept: str | None) -> None:
    before = Progress(requested=requested, awaited=Awaited(None, None, deleted=False, until=0.0))
    assert before.storage_read(MODEL, answered=True, now=1.0).requested == kept


def test_the_requested_version_is_known_before_wadm_answers() -> None:
    assert SETTLED.with_request(DEPLOY).requested == "v1"
    assert SETTLED.with_request(Undeploy(BECAUSE)).requested == ""
    assert SETTLED.with_request(PUT) == SETTLED.with_request(DeleteModel(BECAUSE)) == SETTLED


def test_acknowledgements_of_one_run_are_awaited_together() -> None:
    assert AWAITED.awaited == Awaited("v1", "v1", deleted=False, until=20.0)
    assert AWAITED.acknowledged(Undeploy(BECAUSE), 21.0).awaited == Awaited("v1", "", deleted=False, until=21.0)
    assert AWAITED.acknowledged(DeleteModel(BECAUSE), 21.0).awaited == Awaited(None, None, deleted=True, until=21.0)
    unlisted = Progress(unlisted_since=1.0)
    assert unlisted.acknowledged(PUT, 20.0).unlisted_since is None
    assert unlisted.acknowledged(DEPLOY, 20.0).unlisted_since == 1.0


@pytest.mark.parametrize(
    ("found", "actions", "kept"),
    [
        (FOUND, (PUT,), True),
        (replace(FOUND, digest="b" * 64), (PUT,), False),
        (replace(FOUND, undeploy=True), (PUT,), False),
        (None, (PUT,), False),
        (FOUND, (), False),
    ],
    ids=["the same", "another manifest", "not to run any more", "no object any more", "nothing to ask"],
)
def test_a_refusal_is_of_one_manifest_and_counted(found: Object | None, actions: tuple[Put, ...], kept: bool) -> None:
    after = REFUSED.decided(found, Decision(actions))
    assert (after.refused is not None) is kept
    again = after.refused_as(FOUND, Refusal.FAILED, "no", 20.0, TIMES).refused
    assert again is not None
    assert (again.times, again.again) == ((2, 28.0) if kept else (1, 24.0))


@pytest.mark.parametrize("refusal", [Refusal.REJECTED, Refusal.TOO_LARGE])
def test_a_refusal_that_only_another_manifest_resolves_is_retried_late(refusal: Refusal) -> None:
    refused = SETTLED.refused_as(FOUND, refusal, "no", 10.0, TIMES).refused
    assert refused is not None
    assert refused.again == 10.0 + TIMES.refused_most


def test_a_change_that_is_not_carried_out_as_wadm_refused_it_wins_nothing() -> None:
    assert REFUSED.refused is not None
    lost = Lost(Side.WADM, "v1")
    decision = Decision((PUT,), winner=Side.KUBERNETES, lost=lost)
    assert REFUSED.decided(FOUND, replace(decision, refused=REFUSED.refused)) == REFUSED
    carried = REFUSED.decided(FOUND, decision)
    assert (carried.winner, carried.lost) == (Side.KUBERNETES, lost)
    assert carried.decided(FOUND, Decision((DEPLOY,))) == carried, "until it is recorded"


def test_an_unavailable_wadm_is_reported_after_a_while() -> None:
    unavailable = SETTLED.reporting(wait(Reason.WADM_UNAVAILABLE, ""), 10.0)
    assert unavailable.reporting(wait(Reason.WADM_UNAVAILABLE, ""), 12.0) == unavailable
    assert unavailable.unreported(12.0, TIMES) == TIMES.unreported - 2.0
    assert unavailable.unreported(10.0 + TIMES.unreported, TIMES) is None
    assert SETTLED.unreported(12.0, TIMES) is None


def test_a_newer_version_that_was_recorded_may_not_be_deployed_next_any_more() -> None:
    model = Model((("v1", "a"), ("v2", "b")), "v1")
    newer = SETTLED.newest_read(model, None, 10.0)
    assert newer.newest_read(model, None, 12.0) == newer
    assert newer.unsettled(12.0, TIMES) == TIMES.settle - 2.0
    assert newer.newest_read(model, Base("a", "v1", deployed=True, newest="v2"), 12.0) == SETTLED
    assert newer.newest_read(None, None, 12.0) == SETTLED


def test_for_a_deleted_application_only_its_tombstone_remains_to_write() -> None:
    removed = view_application(stored())
    assert AWAITED.removed_by_user(removed).deleted() == Progress(removed=removed)
