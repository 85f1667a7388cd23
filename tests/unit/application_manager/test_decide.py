"""The side that counts, and the writes to the other one: the nine rules, case by case."""

from __future__ import annotations

from dataclasses import replace

import pytest

from application_manager.domain.actions import (
    AddFinalizer,
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
)
from application_manager.domain.decide import contended, decide, deletes, version_of
from application_manager.domain.progress import Progress
from application_manager.domain.sides import Absence, Base, Model, Object, Side, Standing, Win
from application_manager.domain.snapshot import Snapshot
from application_manager.timings import Timings

A, B, C = ("a" * 64, "b" * 64, "c" * 64)
BASE = Base(A, "v1", deployed=True, newest="v1")
SAME = Object(A, "v1", base=BASE)
WADM = Model((("v1", A),), "v1")
K, W = Side.KUBERNETES, Side.WADM
CONTEST = Timings().contest


def did(decision: Decision) -> list[str]:
    """Return the actions as ``Put v1``."""
    return [
        " ".join(filter(None, (type(action).__name__, getattr(action, "version", "")))).strip()
        for action in decision.actions
    ]


def test_nothing_is_done_if_both_sides_are_equal_and_that_is_recorded() -> None:
    assert decide(Snapshot(SAME, WADM)) == Decision()


def test_a_new_object_gets_its_finalizer_before_it_is_sent_to_wadm() -> None:
    new = Object(A, "v1", finalizer=False)
    assert did(decide(Snapshot(new, Absence.LOST))) == ["AddFinalizer", "Put v1", "Deploy v1"]
    assert did(decide(Snapshot(replace(new, finalizer=True), Absence.LOST))) == ["Put v1", "Deploy v1"]


@pytest.mark.parametrize(
    ("found", "wadm", "done", "winner"),
    [
        (replace(SAME, digest=B), WADM, ["Put v1-bbbbbbbb", "Deploy v1-bbbbbbbb"], K),
        (replace(SAME, digest=B, version="v2"), WADM, ["Put v2", "Deploy v2"], K),
        (replace(SAME, digest=B, version=""), WADM, [f"Put sha-{B[:12]}", f"Deploy sha-{B[:12]}"], K),
        (replace(SAME, version="v2"), WADM, [], None),
        (replace(SAME, undeploy=True), WADM, ["Undeploy"], K),
        (SAME, Model((("v1", A), ("v2", B)), "v2"), ["WriteSpec v2"], W),
        (SAME, Model((("v1", A), ("v2", B)), "v1"), ["Record"], None),
        (SAME, Model((("v1", A),), ""), ["Record"], W),
        (SAME, Absence.DELETED, ["DeleteObject"], W),
        (SAME, Absence.LOST, ["Put v1", "Deploy v1"], None),
        (SAME, Absence.UNAVAILABLE, [], None),
    ],
    ids=[
        "another manifest under the same version",
        "another manifest under another version",
        "another manifest without a version",
        "the same manifest under another version",
        "told not to run",
        "another version deployed with wash",
        "another version put with wash, and not deployed",
        "undeployed with wash",
        "deleted with wash",
        "a bucket lost",
        "wadm away",
    ],
)
def test_the_side_that_changed_counts(found: Object, wadm: Model | Absence, done: list[str], winner: Side) -> None:
    decision = decide(Snapshot(found, wadm))
    assert (did(decision), decision.winner) == (done, winner)


@pytest.mark.parametrize("deployed", ["v1", ""])
def test_an_application_that_wadm_stores_and_does_not_list_is_put_in_a_further_version(deployed: str) -> None:
    found, spare = replace(SAME, base=replace(BASE, deployed=bool(deployed))), f"overridden-{A[:12]}"
    unlisted = Model((("v1", A),), deployed, listed=False)
    assert did(decide(Snapshot(found, unlisted))) == [f"Put {spare}"]
    again = Model((("v1", A), (spare, A)), deployed, listed=False)
    assert did(decide(Snapshot(found, again))) == [f"Put {spare}-2"]
    listed = Model((("v1", A), (spare, A)), deployed)
    assert did(decide(Snapshot(found, listed))) in ([], ["Record"])
    assert listed.shown(found.base) == "v1"


@pytest.mark.parametrize("others", [True, False])
def test_of_two_concurrent_changes_the_one_managed_by_another_controller_wins(others: bool) -> None:
    found = replace(SAME, digest=B, version="v2", others=others)
    decision = decide(Snapshot(found, Model((("v1", A), ("v3", C)), "v3")))
    if others:
        assert did(decision) == ["Put v2", "Deploy v2"]
        assert (decision.winner, decision.lost) == (K, Lost(W, "v3"))
    else:
        assert did(decision) == [f"Put overridden-{B[:12]}", "WriteSpec v3"]
        assert (decision.winner, decision.lost) == (W, Lost(K, f"overridden-{B[:12]}"))


def test_a_version_preserved_for_reading_is_never_taken_for_the_newest() -> None:
    kept = Model((("v1", A), ("v3", C), (f"overridden-{B[:12]}", B)))
    assert kept.shown(None) == "v3"
    assert did(decide(Snapshot(replace(SAME, digest=B, others=False), kept))) == ["WriteSpec v3"]


def test_both_changed_to_the_same_is_only_written_down() -> None:
    found = replace(SAME, digest=B, version="v2")
    assert did(decide(Snapshot(found, Model((("v1", A), ("v2", B)), "v2")))) == ["Record"]


def test_a_change_beside_a_version_that_wash_put_is_pushed_in_a_run_that_the_record_requests() -> None:
    changed = replace(SAME, digest=C, version="v3")
    beside = Model((("v1", A), ("v2", B)), "v1")
    first = decide(Snapshot(changed, beside))
    (record,) = first.actions
    assert isinstance(record, Record)
    assert first.again == 0.0
    assert did(decide(Snapshot(replace(changed, base=record.base), beside))) == ["Put v3", "Deploy v3"]


def test_a_change_and_a_deletion_with_wash_are_reverted_on_managed_objects() -> None:
    changed = replace(SAME, digest=B, version="v2")
    assert did(decide(Snapshot(changed, Absence.DELETED))) == ["Put v2", "Deploy v2"]
    assert did(decide(Snapshot(replace(changed, others=False), Absence.DELETED))) == ["DeleteObject"]


def test_a_lost_model_of_an_undeployed_application_is_put_and_not_deployed() -> None:
    undeployed = replace(SAME, base=replace(BASE, deployed=False))
    assert did(decide(Snapshot(undeployed, Absence.LOST))) == ["Put v1"]


@pytest.mark.parametrize(
    ("bucket", "revision", "done"),
    [("b", 6, ["Put v2", "Deploy v2"]), ("b", 8, ["WriteSpec v1"]), ("another", 6, ["WriteSpec v1"])],
)
def test_an_entry_that_is_older_than_what_both_had_is_no_change_of_wadms(
    bucket: str, revision: int, done: list[str]
) -> None:
    here = Object(B, "v2", base=Base(B, "v2", deployed=True, newest="v2", bucket="b", revision=7))
    there = Model((("v1", A),), "v1", bucket=bucket, revision=revision)
    assert did(decide(Snapshot(here, there))) == done


def test_a_manifest_from_an_earlier_day_is_found_in_its_version() -> None:
    back = Object(A, "", base=Base(B, "v2", deployed=True, newest="v2"))
    assert did(decide(Snapshot(back, Model((("v1", A), ("v2", B)), "v2")))) == ["Deploy v1"]


def test_an_earlier_manifest_that_is_not_to_run_is_written_down_and_nothing_else() -> None:
    back = Object(A, "", undeploy=True, base=Base(B, "v2", deployed=False, newest="v2", undeploy=True))
    (record,) = decide(Snapshot(back, Model((("v1", A), ("v2", B))))).actions
    assert isinstance(record, Record)
    assert (record.base.version, record.base.deployed) == ("v1", False)
    settled = replace(back, base=record.base)
    assert decide(Snapshot(settled, Model((("v1", A), ("v2", B))))) == Decision()


def test_a_model_put_by_wash_gets_an_object_unless_a_tombstone_exists() -> None:
    model = Model((("v1", A), ("v2", B)))
    assert did(decide(Snapshot(None, model))) == ["CreateObject v2"]
    assert did(decide(Snapshot(None, replace(model, deployed="v1")))) == ["CreateObject v1"]
    tombstone = decide(Snapshot(None, model, tombstone=True))
    assert (tombstone.actions, tombstone.waits and tombstone.waits.reason) == ((), Reason.TOMBSTONE)
    assert decide(Snapshot(None, model, Standing.NO_LATTICE)) == Decision()
    assert decide(Snapshot(None, Absence.DELETED)) == Decision()


def test_an_object_that_shows_wadms_and_was_not_written_down_is_not_deployed() -> None:
    made = Object(A, "v1", others=False)
    assert did(decide(Snapshot(made, Model((("v1", A),))))) == ["Record"]


def test_deleting_an_object_deletes_the_model_first_and_waits_for_wadm() -> None:
    deleting = replace(SAME, deleting=True)
    assert did(decide(Snapshot(deleting, WADM))) == ["DeleteModel"]
    assert did(decide(Snapshot(deleting, Absence.DELETED))) == ["RemoveFinalizer"]
    assert did(decide(Snapshot(deleting, Absence.LOST))) == ["RemoveFinalizer"]
    waits = decide(Snapshot(deleting, Absence.UNAVAILABLE)).waits
    assert waits is not None
    assert waits.reason is Reason.WADM_UNAVAILABLE
    assert decide(Snapshot(replace(deleting, finalizer=False), WADM)) == Decision()


def test_an_object_with_an_unknown_lattice_loses_its_finalizer_and_is_recorded() -> None:
    (action,) = decide(Snapshot(replace(SAME, deleting=True), Absence.UNAVAILABLE, Standing.NO_LATTICE)).actions
    assert isinstance(action, RemoveFinalizer)
    assert action.tombstone


@pytest.mark.parametrize("wadm", [WADM, Absence.DELETED, Absence.LOST, Absence.UNAVAILABLE])
def test_without_a_group_of_hosts_nothing_is_done(wadm: Model | Absence) -> None:
    decision = decide(Snapshot(replace(SAME, digest=B), wadm, Standing.NO_LATTICE))
    assert decision.actions == ()
    assert decision.waits is not None
    assert decision.waits.reason is Reason.NO_LATTICE


@pytest.mark.parametrize("found", [SAME, replace(SAME, digest=B), replace(SAME, deleting=True), Object(B), None])
@pytest.mark.parametrize("wadm", [WADM, Model((("v1", A), ("v2", C)), "v2"), *Absence])
def test_a_cluster_that_does_not_own_the_lattice_never_writes_to_wadm(
    found: Object | None, wadm: Model | Absence
) -> None:
    actions = decide(Snapshot(found, wadm, Standing.OWNED_BY_OTHER)).actions
    assert not [
        action for action in actions if isinstance(action, Put | Deploy | Undeploy | DeleteModel | AddFinalizer)
    ]
    assert wadm is not Absence.LOST or not [action for action in actions if isinstance(action, DeleteObject)]


def test_a_cluster_that_does_not_own_the_lattice_shows_what_wadm_has() -> None:
    newer = Model((("v1", A), ("v2", B)), "v2")
    assert did(decide(Snapshot(SAME, newer, Standing.OWNED_BY_OTHER))) == ["WriteSpec v2"]
    assert isinstance(decide(Snapshot(None, newer, Standing.OWNED_BY_OTHER)).actions[0], CreateObject)
    assert isinstance(decide(Snapshot(SAME, Absence.DELETED, Standing.OWNED_BY_OTHER)).actions[0], DeleteObject)


def test_a_change_of_an_application_of_another_cluster_is_kept_and_reported() -> None:
    decision = decide(Snapshot(replace(SAME, digest=C), Model((("v1", A), ("v2", B)), "v2"), Standing.OWNED_BY_OTHER))
    assert decision.actions == ()
    assert decision.waits is not None
    assert decision.waits.reason is Reason.READ_ONLY


def test_deleting_one_side_because_of_the_other_needs_the_circuit_breaker() -> None:
    for snapshot in (Snapshot(replace(SAME, deleting=True), WADM), Snapshot(SAME, Absence.DELETED)):
        assert [deletes(action) for action in decide(snapshot).actions] == [True]
    assert not any(map(deletes, decide(Snapshot(replace(SAME, undeploy=True), WADM)).actions))


def test_a_manifest_sent_to_wadm_for_an_object_that_changed_back_is_no_change_of_wadm() -> None:
    stopped = Model((("v1", A),), "")
    assert did(decide(Snapshot(SAME, stopped))) == ["Record"], "it was undeployed with wash"
    assert did(decide(Snapshot(SAME, stopped, progress=Progress(requested="")))) == ["Deploy v1"]


def test_three_changes_by_turns_are_a_contest_until_one_side_is_quiet() -> None:
    wins = (Win(K, 0.0), Win(W, 100.0), Win(K, 200.0))
    assert contended(wins, 200.0, CONTEST) == CONTEST
    assert contended(wins, 200.0 + CONTEST, CONTEST) == 0
    assert contended((Win(K, 0.0), Win(W, 100.0), Win(K, 601.0)), 601.0, CONTEST) == 0
    assert contended((Win(K, 0.0), Win(K, 1.0), Win(K, 2.0)), 2.0, CONTEST) == 0
    assert contended(wins[:2], 100.0, CONTEST) == 0
    assert contended((*wins, Win(K, 250.0)), 260.0, CONTEST) == CONTEST - 10
    month = 30 * 86_400.0
    assert contended(wins, 200.0 - month, CONTEST) == 0, "the clock that recorded them was a month ahead"
    assert contended(wins, 200.0 + month, CONTEST) == 0


def test_in_a_contest_wadms_side_waits_and_kubernetes_counts() -> None:
    wins = (Win(W, 0.0), Win(K, 100.0), Win(W, 200.0))
    theirs = Model((("v1", A), ("v2", B)), "v2")
    waiting = decide(Snapshot(replace(SAME, wins=wins), theirs, now=300.0))
    assert (waiting.actions, waiting.again) == ((), 500.0)
    assert waiting.waits is not None
    assert waiting.waits.reason is Reason.CONTENDED
    assert decide(Snapshot(replace(SAME, wins=wins), Absence.DELETED, now=300.0)).actions == ()
    ours = replace(SAME, digest=C, version="v3", wins=wins, others=False)
    assert did(decide(Snapshot(ours, theirs, now=300.0))) == ["Put v3", "Deploy v3"]
    assert did(decide(Snapshot(replace(SAME, wins=wins), theirs, now=900.0))) == ["WriteSpec v2"]
    assert isinstance(decide(Snapshot(replace(SAME, wins=wins), theirs, now=900.0)).actions[0], WriteSpec)


@pytest.mark.parametrize(
    ("wanted", "versions", "expected"),
    [
        ("v1", (), "v1"),
        ("v1", (("v1", A),), "v1"),
        ("v1", (("v1", B),), "v1-aaaaaaaa"),
        ("v1", (("v1", B), ("v1-aaaaaaaa", C)), f"v1-{'a' * 12}"),
        ("", (), f"sha-{'a' * 12}"),
        ("", (("x", A), ("y", A), ("z", B)), "y"),
        ("", ((f"overridden-{'a' * 12}", A),), f"sha-{'a' * 12}"),
        ("", ((f"sha-{'a' * 12}", B),), f"sha-{A}"),
    ],
)
def test_a_version_never_gets_other_content(wanted: str, versions: tuple[tuple[str, str], ...], expected: str) -> None:
    assert version_of(wanted, A, Model(versions) if versions else None) == expected
