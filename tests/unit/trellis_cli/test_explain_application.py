"""The state of an Application and its cause, and the row of `trellis status` for all of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from support.suite.naming import lacking
from support.wadm.application_objects import managed, stored
from trellis import names
from trellis.lattice.domain.service_views import ServiceView
from trellis.read_model.explain.application import (
    MANAGER,
    AppSnapshot,
    explain_application,
    explain_no_application,
    is_named,
)
from trellis.read_model.explain.page import Explanation, Leader
from trellis.read_model.explain.service import Warned
from trellis.read_model.explain.subject import Absence, Beside
from trellis.read_model.tables.apps import row_of
from trellis_cli.apps.row import applications_part, causes_of

Manifest = dict[str, Any]


def condition(kind: str, status: str, reason: str = "Reason", message: str = "") -> Manifest:
    return {"type": kind, "status": status, "reason": reason, "message": message}


def app(*conditions: Manifest, **status: Any) -> Manifest:
    whole = {
        "observedGeneration": 1,
        "phase": "Deployed",
        "lattice": "east",
        "deployedVersion": "v1",
        "versions": [{"version": "v1", "deployed": True}],
        "synced": {"wadmVersion": "v1", "time": "2026-11-22T07:00:00Z"},
        "scalers": [{"kind": "SpreadScaler", "name": "echo", "status": "deployed"}],
        "conditions": [condition("Synced", "True", "Synced", "Kubernetes and wadm have version v1"), *conditions],
    }
    return stored() | {"status": whole | status}


GROUP: Manifest = {
    "metadata": {"namespace": "team", "name": "group"},
    "spec": {"lattice": "east"},
    "status": {"readyReplicas": 2, "desiredReplicas": 2, "conditions": []},
}
SERVICE = ServiceView("team", "web", "uid-web", "1", "web", "east/1")
UNAVAILABLE = condition("HostsReporting", "Unknown", "LatticeUnreachable", "refused")
SILENT = condition("HostsReporting", "False", "HeartbeatMissing", "none is heard")
LED = Beside([Leader(MANAGER, "pod-1", "both sides are not kept equal")])
UNLED = Beside([replace(LED.leaders[0], holder="")])
WELL = AppSnapshot(app(), [GROUP], [SERVICE], beside=LED)


def troubles(page: Explanation) -> list[str]:
    return [f"{line.about}: {line.shown}" for line in page.lines if line.ok is False]


def test_of_one_that_runs_the_whole_chain_is_healthy() -> None:
    page = explain_application(WELL)
    lines = page.lines
    assert troubles(page) == []
    assert (page.subject, page.cause) == ("application team/web", None)
    assert [line.about for line in lines] == [
        "application", "observed", "hosts", "sync", "wadm", "scaler", "service", "application-manager",
    ]  # fmt: skip
    assert lacking(lines[0].text, "kubectl") == []
    assert lacking(lines[2].text, "2 of 2") == []
    assert lacking(lines[4].text, "v1") == []
    assert "trellis explain service/web -n team" in lines[6].text


def test_the_leader_may_be_unknown() -> None:
    page = explain_application(replace(WELL, beside=Beside([replace(LED.leaders[0], holder=None)])))
    assert troubles(page) == []
    assert lacking(page.lines[-1].text, "Lease") == []


def with_metadata(**metadata: Any) -> Manifest:
    found = app()
    return found | {"metadata": found["metadata"] | metadata}


REASONS: dict[str, tuple[AppSnapshot, str, list[str]]] = {
    "nobody leads": (replace(WELL, beside=UNLED), "application-manager", ["trellis run application-manager"]),
    "never looked at": (replace(WELL, app=stored()), "observed", ["application-manager"]),
    "looked at before": (replace(WELL, app=with_metadata(generation=3)), "observed", ["1", "3"]),
    "being deleted": (
        replace(WELL, app=with_metadata(deletionTimestamp="2026-11-22T07:00:00Z")),
        "application",
        ["team/web"],
    ),
    "no hosts": (replace(WELL, groups=[]), "hosts", ["namespace team", "lattice east"]),
    "hosts elsewhere": (
        replace(WELL, groups=[GROUP | {"metadata": {"namespace": "other", "name": "g"}}]),
        "hosts",
        ["namespace team", "lattice east"],
    ),
    "hosts of several lattices": (
        replace(WELL, app=app(lattice=""), groups=[GROUP | {"spec": {"lattice": name}} for name in ("west", "east")]),
        "hosts",
        ["namespace team", "east, west", "trellis.dev/lattice"],
    ),
    "no host ready": (
        replace(WELL, groups=[GROUP | {"status": {"readyReplicas": 0, "desiredReplicas": 2}}]),
        "hosts",
        ["0 of 2"],
    ),
    "lattice away": (
        replace(
            WELL,
            groups=[
                GROUP
                | {
                    "status": GROUP["status"]
                    | {"conditions": [condition("HostsReporting", "Unknown", "LatticeUnreachable", "refused")]}
                }
            ],
        ),
        "lattice",
        ["LatticeUnreachable: refused"],
    ),
    "not equal": (
        replace(WELL, app=app(conditions=[condition("Synced", "False", "Applied", "it was applied")])),
        "sync",
        ["it was applied", "2026-11-22T07:00:00Z", "v1"],
    ),
    "refused": (
        replace(WELL, app=app(condition("Rejected", "True", "Rejected", "no such link target"))),
        "Rejected",
        ["no such link target"],
    ),
    "failed": (
        replace(
            WELL,
            app=app(
                phase="Failed",
                message="no host fits",
                scalers=[{"kind": "SpreadScaler", "name": "echo", "status": "failed", "message": "none"}],
            ),
        ),
        "scaler",
        ["SpreadScaler echo", "failed: none"],
    ),
}


@pytest.mark.parametrize(("world", "about", "named"), REASONS.values(), ids=REASONS)
def test_each_problem_is_named(world: AppSnapshot, about: str, named: list[str]) -> None:
    shown = [line.shown for line in explain_application(world).lines if line.about == about and line.ok is False]
    assert [lacking(item, *named) for item in shown] == [[]]


CAUSES: dict[str, tuple[AppSnapshot, str, list[str]]] = {
    "unknown lattice": (
        replace(WELL, groups=[GROUP | {"spec": {"lattice": "west"}}]),
        "hosts",
        ["namespace team", "lattice east", "west", "WasmCloudHostConfig", "spec.lattice: east", "trellis.dev/lattice"],
    ),
    "wadm away": (
        replace(WELL, app=app(conditions=[condition("Synced", "Unknown", "WadmUnavailable", "no answer in time")])),
        "sync",
        ["lattice east", "no answer in time", "2026-11-22T07:00:00Z", "v1"],
    ),
    "credentials refused": (
        replace(
            WELL,
            groups=[
                GROUP
                | {
                    "spec": {"lattice": "east", "secretName": "creds"},
                    "status": GROUP["status"]
                    | {
                        "conditions": [
                            condition("HostsReporting", "Unknown", "LatticeUnreachable", "NATS refused the user")
                        ]
                    },
                }
            ],
        ),
        "lattice",
        ["LatticeUnreachable: NATS refused the user", "Secret team/creds"],
    ),
    "its hosts lack a Secret": (
        replace(
            WELL,
            groups=[
                GROUP
                | {
                    "status": {
                        "desiredReplicas": 2,
                        "conditions": [
                            condition(
                                "Degraded",
                                "True",
                                "SecretMissing",
                                "Secret team/x is missing: create it, or name another",
                            )
                        ],
                    }
                }
            ],
        ),
        "hosts",
        ["team/group", "lattice east", "0 of 2", "Secret team/x is missing"],
    ),
    "nobody leads and it was never looked at": (
        replace(WELL, app=stored(), beside=UNLED),
        "application-manager",
        ["trellis run application-manager"],
    ),
}


STATUS_TELLS = [CAUSES[name][0] for name in ("unknown lattice", "wadm away", "credentials refused")]


@pytest.mark.parametrize("world", STATUS_TELLS)
def test_the_status_names_the_same_cause(world: AppSnapshot) -> None:
    cause = explain_application(world).cause
    assert cause is not None
    assert causes_of([world.app], world.groups) == {"team/web": cause.text}
    assert causes_of([WELL.app], WELL.groups) == {}


@pytest.mark.parametrize(("world", "about", "named"), CAUSES.values(), ids=CAUSES)
def test_the_first_line_names_the_cause_and_what_to_do(world: AppSnapshot, about: str, named: list[str]) -> None:
    page = explain_application(world)
    assert page.cause is not None
    assert (page.subject, page.cause.about) == ("application team/web", about)
    assert lacking(page.headline, *named) == []


def test_events_about_its_service_are_shown_and_are_not_its_own_cause() -> None:
    warning = Warned("team/group", "LoopbackAddress", "application web of lattice east: it listens on 127.0.0.1")
    page = explain_application(replace(WELL, services=[], warnings=[warning]))
    assert page.cause is None
    assert any("LoopbackAddress" in line.text for line in page.lines)


def test_it_is_found_by_its_name_in_wadm() -> None:
    item = with_metadata(annotations={names.ANNOTATION_APP_NAME: "Web", names.ANNOTATION_UNDEPLOY: "true"})
    assert is_named(item, "Web")
    assert is_named(item, "web")
    assert not is_named(item, "other")
    [line, *_] = explain_application(replace(WELL, app=item)).lines
    assert lacking(line.text, "Web") == []
    running = explain_application(replace(WELL, app=with_metadata(annotations={names.ANNOTATION_APP_NAME: "Web"})))
    assert running.lines[0].text != line.text, "it is told that it shall not run"


def test_for_a_missing_service_its_creator_is_named() -> None:
    page = explain_no_application("web", "team", Absence(), LED)
    assert page.cause is not None
    assert lacking(page.cause.text, 'Application "web"', "namespace team") == []
    assert "`trellis apps`" in page.cause.do
    assert lacking(page.headline, page.cause.text) == []
    assert "application-manager" in explain_no_application("web", None, Absence(), UNLED).headline
    assert "--live" in page.lines[1].text


def test_changes_with_wash_and_their_events_are_reported() -> None:
    item = with_metadata(managedFields=[managed(names.FIELD_MANAGER_WADM)])
    event = {
        "type": "Warning",
        "reason": "Overridden",
        "message": "both",
        "involvedObject": {"uid": item["metadata"]["uid"]},
    }
    other = event | {"involvedObject": {"uid": "another"}, "message": "not this"}
    lines = explain_application(replace(WELL, app=item, beside=replace(LED, events=[event, other]))).lines
    assert lacking(lines[0].text, "wash", "wadm") == []
    assert [line.text for line in lines if line.about == "event"] == ["Overridden: both"]


def test_the_status_row_counts_phases_and_names_what_does_not_go_on() -> None:
    rows = [row_of(item) for item in (app(), app(phase="Failed"), stored("new"))]
    part = applications_part(rows, {"team/new": "nobody knows it"}, "pod-1")
    assert lacking(part.text, "1 Deployed", "1 Failed", "1 NotEvaluated", "application-manager", "pod-1") == []
    assert part.data["unhealthy"] == ["team/new", "team/web"]
    assert lacking(part.problem, "team/new", "team/web", "team/new: nobody knows it") == []
    assert part.problem.endswith("`trellis explain application/new -n team`")
    assert part.data["causes"]["team/new"] == "nobody knows it"
    assert "trellis run application-manager" in applications_part(rows[:1], {}, "").problem
    assert applications_part(rows[:1], {}, None).problem == "", "who leads may not be known"
    assert applications_part([], {}, "").problem == ""
    many = [row_of(app() | {"metadata": stored(f"a{number}")["metadata"]}) for number in range(9)]
    assert "and 4 more" in applications_part(many, {row.key: "" for row in many}, "x").problem


MANY = "it was deleted, together with many others"


def test_a_paused_deletion_precedes_missing_heartbeats() -> None:
    silent = GROUP | {"status": {"readyReplicas": 2, "desiredReplicas": 2, "conditions": [SILENT]}}
    held = app(conditions=[condition("Synced", "False", "MassDeletion", MANY)])
    cause = explain_application(replace(WELL, app=held, groups=[silent])).cause
    assert cause is not None
    assert cause.text.startswith(f"MassDeletion: {MANY}")
    assert causes_of([held], [silent]) == {"team/web": cause.text}
    deleted = held | {"metadata": held["metadata"] | {"deletionTimestamp": "2026-11-22T07:00:00Z"}}
    assert row_of(deleted).problem.startswith("MassDeletion: ")
