"""The status of an Application, from all that can be known of it."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from application_manager.domain.actions import Announcement as Because
from application_manager.domain.actions import Decision, Lost, Put, Reason, Record, Refused
from application_manager.domain.conditions import PHASES, Seen, condition_events, patch_of, status_of
from application_manager.domain.sides import Absence, Base, Model, Side, Standing
from application_manager.domain.snapshot import Snapshot
from application_manager.domain.views import view_application
from support.suite.naming import lacking
from support.wadm.application_objects import seen_of, stored
from trellis.crds.application import Application
from trellis.crds.conditions import MESSAGE_MAX, shortened
from trellis.lattice.domain.replies import (
    Refusal,
    Scaler,
    Status,
    WadmRefusedError,
    read_delete,
    read_deploy,
    read_put,
)
from trellis.lattice.domain.store import StoredManifest, StoredModel

NOW = 1_793_491_200.0
DATA = Path(__file__).parents[2] / "data/lattice/wadm-replies.jsonl"
READERS = {"put": read_put, "deploy": read_deploy, "undeploy": read_deploy, "del": read_delete}
VIEW = view_application(stored())
DIGEST = VIEW.object.digest
BASE = Base(DIGEST, "v1", deployed=True, newest="v1", serial=1, bucket="b")
STORED = StoredModel("web", (("v1", StoredManifest.of({})), ("v2", StoredManifest.of({}))), "v1", 9)
MODEL = Model((("v1", DIGEST),), "v1", "b")
WORKS = Status("deployed", "", (Scaler("SpreadScaler", "echo", "deployed"),))


def seen(**changes: Any) -> Seen:
    """Return what is seen of an application that is equal on both sides and runs."""
    view = changes.pop("view", replace(VIEW, object=replace(VIEW.object, base=BASE)))
    snapshot = changes.pop("snapshot", Snapshot(view.object, MODEL, now=NOW))
    whole: dict[str, Any] = {"model": STORED, "wadm_status": WORKS}
    return seen_of(view, snapshot, **(whole | changes))


def conditions_of(status: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Return verdict and reason of each condition; the status has to be one that our schema takes."""
    Application.model_validate(stored() | {"status": status})
    return {condition["type"]: (condition["status"], condition["reason"]) for condition in status["conditions"]}


def message(status: dict[str, Any], kind: str) -> str:
    return next(str(condition["message"]) for condition in status["conditions"] if condition["type"] == kind)


def test_an_equal_and_running_application_is_ready() -> None:
    status = status_of(seen())
    assert conditions_of(status) == {
        "Ready": ("True", "Deployed"),
        "Reconciling": ("False", "Deployed"),
        "Stalled": ("False", "Deployed"),
        "Synced": ("True", "Synced"),
    }
    assert (status["phase"], status["deployedVersion"], status["lattice"]) == ("Deployed", "v1", "red")
    assert status["versions"] == [{"version": "v1", "deployed": True}, {"version": "v2", "deployed": False}]
    assert status["scalers"] == [{"kind": "SpreadScaler", "name": "echo", "status": "deployed"}]
    assert status["observedGeneration"] == 1


@pytest.mark.parametrize(
    ("reported", "ready", "reconciling", "stalled"),
    [
        ("deployed", "True", "False", "False"),
        ("reconciling", "False", "True", "False"),
        ("waiting", "False", "True", "False"),
        ("unhealthy", "False", "True", "False"),
        ("failed", "False", "False", "True"),
        ("undeployed", "False", "True", "False"),
        ("something new", "False", "True", "False"),
    ],
)
def test_each_word_of_wadms_about_what_is_deployed_has_its_conditions(
    reported: str, ready: str, reconciling: str, stalled: str
) -> None:
    status = status_of(seen(wadm_status=Status(reported, "because")))
    found = conditions_of(status)
    assert (found["Ready"][0], found["Reconciling"][0], found["Stalled"][0]) == (ready, reconciling, stalled)
    assert status["phase"] == (PHASES.get(reported, "Reconciling") if reported != "undeployed" else "Waiting")
    assert status["message"] == "because" or reported == "undeployed"


@pytest.mark.parametrize(
    ("reported", "phase", "named"),
    [
        (None, "Reconciling", ["version v1", "wadm"]),
        (Status("undeployed"), "Waiting", ["version v1", "wadm", "undeployed"]),
        (Status("resting"), "Reconciling", ["wadm", "resting"]),
        (Status("ready"), "Deployed", ["wadm", "Deployed"]),
        (Status("compensating"), "Reconciling", ["wadm", "Reconciling"]),
    ],
)
def test_a_status_of_wadm_is_never_invented(reported: Status | None, phase: str, named: list[str]) -> None:
    status = status_of(seen(wadm_status=reported))
    assert status["phase"] == phase
    assert lacking(message(status, "Ready"), *named) == []


def test_a_new_leader_keeps_wadms_last_status_until_it_receives_one() -> None:
    failed = Status("failed", "no host", (Scaler("SpreadScaler", "echo", "failed", "no host"),))
    for reported in (WORKS, failed, Status("undeployed")):
        first = seen(wadm_status=reported)
        former = status_of(first)
        view = replace(first.view, status=json.dumps(former))
        assert patch_of(former, status_of(seen(view=view, wadm_status=None))) == {}
        changed = replace(STORED, deployed="v2")
        assert status_of(seen(view=view, wadm_status=None, model=changed))["phase"] == "Reconciling"


def test_an_undeployed_application_has_no_scalers_of_its_last_deployment() -> None:
    idle = replace(BASE, deployed=False)
    view = replace(VIEW, object=replace(VIEW.object, base=idle))
    failed = Status("failed", "no host", (Scaler("SpreadScaler", "echo", "failed", "no host"),))
    status = status_of(seen(view=view, model=replace(STORED, deployed=""), wadm_status=failed))
    assert "scalers" not in status
    assert "message" not in status


def test_an_undeployed_application_that_does_not_run_is_ready() -> None:
    idle = replace(BASE, deployed=False)
    view = replace(VIEW, object=replace(VIEW.object, base=idle))
    for reported in ("undeployed", "deployed"):
        status = status_of(seen(view=view, model=replace(STORED, deployed=""), wadm_status=Status(reported)))
        assert conditions_of(status)["Ready"] == ("True", "Undeployed")
        assert status["phase"] == "Undeployed"
        assert "deployedVersion" not in status


def test_while_wadm_is_unavailable_the_last_status_stays_and_readiness_is_unknown() -> None:
    before = status_of(seen())
    view = replace(VIEW, object=replace(VIEW.object, base=BASE), status=json.dumps(before))
    waits = Decision(waits=Because(Reason.WADM_UNAVAILABLE, "wadm does not answer"))
    unavailable = seen(
        view=view, decision=waits, snapshot=Snapshot(view.object, Absence.UNAVAILABLE, now=NOW + 60), model=None
    )
    status = status_of(unavailable)
    assert conditions_of(status)["Synced"] == ("Unknown", "WadmUnavailable")
    assert conditions_of(status)["Ready"] == ("Unknown", "WadmUnavailable")
    assert {key: status[key] for key in ("phase", "scalers", "versions")} == {
        key: before[key] for key in ("phase", "scalers", "versions")
    }


def test_without_a_lattice_it_waits_and_names_the_remedy() -> None:
    waits = Decision(waits=Because(Reason.NO_LATTICE, "none"))
    snapshot = Snapshot(VIEW.object, Absence.UNAVAILABLE, Standing.NO_LATTICE, NOW)
    status = status_of(seen(decision=waits, snapshot=snapshot, model=None, lattice_id="", reason="label it", view=VIEW))
    assert status["phase"] == "Waiting"
    assert conditions_of(status)["Reconciling"] == ("True", "NoLattice")
    assert message(status, "Ready") == "label it"


def refusals() -> list[tuple[str, WadmRefusedError]]:
    """Return every recorded answer with which wadm refused something."""
    found = []
    for line in DATA.read_text().splitlines():
        item = json.loads(line)
        reader = READERS.get(item["subject"].split(".")[4])
        if reader is None:
            continue
        try:
            reader(json.dumps(item["reply"]).encode())
        except WadmRefusedError as error:
            found.append((item["reply"]["message"], error))
    return found


def test_every_recorded_refusal_is_reported_in_wadms_own_words() -> None:
    recorded = refusals()
    assert len(recorded) >= 3
    for found_text, error in recorded:
        refused = Refused(DIGEST, False, error.refusal, str(error))
        status = status_of(seen(view=VIEW, model=None, refused=refused, wadm_status=None))
        found = conditions_of(status)
        assert found["Rejected"] == ("True", error.refusal.value)
        assert found["Synced"] == ("False", error.refusal.value)
        assert found["Ready"][0] == "False"
        complete = found_text.partition("\n\nStack backtrace:")[0].strip()[:1024]
        assert message(status, "Rejected") == shortened(complete)


def test_a_failure_of_wadm_itself_is_retried_and_not_stalled() -> None:
    status = status_of(seen(refused=Refused(DIGEST, False, Refusal.FAILED, "Internal storage error")))
    assert conditions_of(status)["Stalled"][0] == "False"
    assert conditions_of(status)["Reconciling"] == ("True", "WadmFailed")


def test_an_unreadable_manifest_is_reported() -> None:
    status = status_of(seen(view=replace(VIEW, problem="`spec.components` is no list"), model=None, wadm_status=None))
    assert conditions_of(status)["Stalled"] == ("True", "InvalidManifest")
    assert message(status, "Ready") == "`spec.components` is no list"


def test_fields_that_wadm_does_not_know_are_named_up_to_a_number() -> None:
    view = replace(VIEW, object=replace(VIEW.object, base=BASE), ignored=tuple(f"spec.x{n}" for n in range(30)))
    reported = seen(view=view)
    status = status_of(reported)
    assert lacking(message(status, "FieldsIgnored"), "30", "spec.x0") == []
    assert lacking(dict(condition_events(reported, status))["FieldsIgnored"], "30", "spec.x0", "and 10 more") == []


def test_a_message_is_cut_where_names_of_fields_have_no_end() -> None:
    view = replace(VIEW, object=replace(VIEW.object, base=BASE), ignored=("spec." + "x" * 40_000,))
    status = status_of(seen(view=view))
    assert conditions_of(status)["FieldsIgnored"] == ("True", "UnknownToWadm")
    found_text = message(status, "FieldsIgnored")
    assert re.search(r"\bspec\.xxx", found_text)
    assert (len(found_text), found_text[-1]) == (MESSAGE_MAX, "…")


def test_recording_writes_the_synced_version_the_winner_and_the_lost_change() -> None:
    record = Decision((Record(Because(Reason.SYNCED, "equal"), BASE),))
    status = status_of(seen(view=VIEW, decision=record, winner=Side.KUBERNETES, lost=Lost(Side.WADM, "v9")))
    assert status["synced"]["specDigest"] == DIGEST
    assert status["synced"]["kvRevision"] == 9
    assert status["wins"] == [{"side": "Kubernetes", "time": status["synced"]["time"]}]
    assert conditions_of(status)["Overridden"] == ("True", "WadmLost")
    assert conditions_of(status)["Synced"] == ("True", "Synced")
    again = replace(VIEW, object=replace(VIEW.object, base=BASE), status=json.dumps(status))
    assert conditions_of(status_of(seen(view=again)))["Overridden"][0] == "True"
    later = status_of(seen(view=again, decision=record, winner=Side.WADM))
    assert "overridden" not in later
    assert len(later["wins"]) == 2


def test_a_conflict_of_two_writers_is_reported() -> None:
    waits = Decision(waits=Because(Reason.CONTENDED, "by turns"), again=60.0)
    found = conditions_of(status_of(seen(decision=waits)))
    assert found["Contended"] == ("True", "Contended")
    assert found["Synced"] == ("False", "Contended")


def test_the_same_is_written_once_however_much_time_passes() -> None:
    first = status_of(seen())
    view = replace(VIEW, object=replace(VIEW.object, base=BASE), status=json.dumps(first))
    later = status_of(seen(view=view, snapshot=Snapshot(view.object, MODEL, now=NOW + 999)))
    assert patch_of(first, later) == {}


def test_a_patch_removes_outdated_conditions() -> None:
    first = status_of(seen(wadm_status=Status("reconciling", "soon", WORKS.scalers)))
    view = replace(VIEW, object=replace(VIEW.object, base=BASE), status=json.dumps(first))
    patch = patch_of(first, status_of(seen(view=view, wadm_status=Status("deployed"))))
    assert patch["message"] is None
    assert patch["scalers"] is None
    assert "versions" not in patch


def test_reconciling_states_the_action_in_progress() -> None:
    put = Decision((Put(Because(Reason.APPLIED, "it was applied in Kubernetes"), "v1"),))
    status = status_of(seen(view=VIEW, decision=put, model=None, wadm_status=None))
    assert conditions_of(status)["Synced"] == ("False", "Applied")
    assert conditions_of(status)["Reconciling"] == ("True", "Applied")


def test_a_refusal_is_published_once_as_an_event() -> None:
    complete = "no " * 300
    refused = seen(refused=Refused(DIGEST, False, Refusal.REJECTED, complete))
    status = status_of(refused)
    assert dict(condition_events(refused, status)) == {"Rejected": complete}
    assert len(message(status, "Rejected")) <= MESSAGE_MAX
    again = replace(refused, view=replace(refused.view, status=json.dumps(status)))
    assert dict(condition_events(again, status)) == {}


WAITS = [Decision(waits=Because(reason, "for a reason"), again=60.0) for reason in Reason]
WORKS_ON = Decision((Put(Because(Reason.APPLIED, "it was applied in Kubernetes"), "v1"),))
REFUSED = [None, *(Refused(DIGEST, undeploy=False, refusal=item, message="no") for item in Refusal)]
REPORTED = [None, *map(Status, (*PHASES, "something new"))]


@pytest.mark.parametrize("decision", [Decision(), WORKS_ON, *WAITS], ids=str)
def test_exactly_one_of_ready_reconciling_and_stalled_holds(decision: Decision) -> None:
    """kstatus reads Stalled as failed, Reconciling as in progress, Ready as current: two of them contradict."""
    for refused, reported, deployed in itertools.product(REFUSED, REPORTED, ("v1", "")):
        base = replace(BASE, deployed=bool(deployed))
        for problem, wadm in (("", MODEL), ("it is no manifest", MODEL), ("", Absence.UNAVAILABLE)):
            view = replace(VIEW, object=replace(VIEW.object, base=base), problem=problem)
            snapshot = Snapshot(view.object, wadm, now=NOW)
            model = replace(STORED, deployed=deployed)
            item = seen(
                view=view, snapshot=snapshot, decision=decision, model=model, wadm_status=reported, refused=refused
            )
            status = status_of(item)
            verdicts = {kind: verdict for kind, (verdict, _) in conditions_of(status).items()}
            holds = [kind for kind in ("Ready", "Reconciling", "Stalled") if verdicts[kind] == "True"]
            assert len(holds) == 1, (refused, reported, deployed, problem, wadm, verdicts)
            if verdicts["Synced"] != "True":
                assert verdicts["Ready"] != "True"
