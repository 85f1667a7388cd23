"""The output of `nodes`, `status` and `events tail`, from values."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from rich.console import Console

from support.suite.naming import lacking
from trellis.bus.streams.stream_stats import StreamCount
from trellis.bus.streams.tail import TailedEvent
from trellis.provisioning.ledger import Entry, Ledger
from trellis.read_model.health import Health, Verdict
from trellis.read_model.reading.leaders import Leadership, claim_of
from trellis.read_model.tables.nodes import rows_of
from trellis_cli.common.output import Format
from trellis_cli.common.rollout_state import Rollout
from trellis_cli.events import line_of
from trellis_cli.nodes import show, table_of
from trellis_cli.status.command import Status
from trellis_cli.status.row import Part
from trellis_cli.status.rows import bus_part, claim_part, hosts_part, rollout_part, secrets_part, service_part
from trellis_dev.testing.builders import DIGEST, a_job, a_node, failed, opted_in, verified_node

BUSY = opted_in(a_node("busy"))
BROKEN = failed(opted_in(a_node("broken")))
WORLD = [verified_node(opted_in(a_node("done"))), BUSY, BROKEN, a_node("idle"), a_node("odd", opt_in="[bold]yes")]
LEDGER = Ledger({BUSY.uid: Entry(DIGEST, 1, 1000)})
ROLLOUT = Rollout(rows_of(WORLD, {BUSY.uid: (a_job(BUSY),)}, LEDGER, []), LEDGER)


def test_the_table_shows_nodes_of_concern_and_counts_all(capsys: pytest.CaptureFixture[str]) -> None:
    show(ROLLOUT, Format.TABLE, every=False)
    out = capsys.readouterr().out
    assert "idle" not in out
    assert [line.split()[0] for line in out.splitlines()[:5]] == ["NODE", "broken", "busy", "done", "odd"]
    assert re.findall(r"\d+", out.splitlines()[-1]) == ["1"] * 5
    assert lacking(out.splitlines()[-1], "ready", "provisioning", "failed", "annotation") == []


def test_a_problem_without_a_message_is_shown_by_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    [row] = rows_of([BUSY], {}, Ledger({}), [])
    conflict = replace(row, message="", verdict=Verdict(Health.DEGRADED, "HandlerConflict", "Shim spin"))
    for verdict in (conflict.verdict, Verdict(Health.PROGRESSING, "Waiting")):
        show(Rollout([replace(conflict, verdict=verdict)], Ledger({})), Format.TABLE, every=False, no_headers=True)
    problem, waiting = capsys.readouterr().out.splitlines()
    assert lacking(problem, "HandlerConflict", "Shim spin") == []
    assert waiting.endswith(" -")


def test_names_are_for_other_commands_and_wide_has_more_columns(capsys: pytest.CaptureFixture[str]) -> None:
    show(ROLLOUT, Format.NAME, every=False)
    assert capsys.readouterr().out.splitlines() == ["node/broken", "node/busy", "node/done", "node/odd"]
    show(ROLLOUT, Format.WIDE, every=False)
    wide = capsys.readouterr().out.splitlines()[0].split()
    show(ROLLOUT, Format.TABLE, every=False, no_headers=True)
    rows = capsys.readouterr().out.splitlines()
    assert "DIGEST" in wide
    assert [(row.split()[0], row.split()[1]) for row in rows] == [
        ("broken", "true"),
        ("busy", "true"),
        ("done", "true"),
        ("odd", "invalid"),
    ]


def test_all_shows_every_node(capsys: pytest.CaptureFixture[str]) -> None:
    show(ROLLOUT, Format.TABLE, every=True)
    assert "idle" in capsys.readouterr().out


def test_text_from_the_cluster_is_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    show(ROLLOUT, Format.TABLE, every=False)
    assert "'[bold]yes'" in capsys.readouterr().out


def test_a_cluster_without_wasm_shows_the_first_step(capsys: pytest.CaptureFixture[str]) -> None:
    show(Rollout(rows_of([a_node()], {}, Ledger({}), []), Ledger({})), Format.TABLE, every=False)
    assert "kubectl annotate node" in capsys.readouterr().out


def test_unreadable_parts_are_reported_below_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    show(replace(ROLLOUT, notes=("no Jobs",)), Format.TABLE, every=False)
    out, err = capsys.readouterr()
    assert "no Jobs" not in out
    assert err == "Note: no Jobs\n"


def test_json_is_one_document_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    show(replace(ROLLOUT, notes=("no Jobs",)), Format.JSON, every=False)
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert err == ""
    assert document["notes"] == ["no Jobs"]
    assert document["counts"]["Ready"] == 1
    assert document["counts"]["Waiting"] == 0
    assert [node["name"] for node in document["nodes"]] == ["broken", "busy", "done", "odd"]


def test_a_long_node_name_is_never_cut() -> None:
    name = "ip-" + "0123456789-" * 10 + "end"
    console = Console(width=80, color_system=None)
    with console.capture() as captured:
        console.print(table_of(rows_of([opted_in(a_node(name))], {}, Ledger({}), [])))
    cells = "".join(line[: line.find(" ")] if " " in line else line for line in captured.get().splitlines()[1:])
    assert cells == name


@pytest.mark.parametrize(
    ("lead", "problem"),
    [
        (Leadership("me", 1.0, 10.0), ""),
        (Leadership("me", 11.0, 10.0), "does not renew"),
        (Leadership("me", None, 10.0), "does not renew"),
        (Leadership("", 1.0, 1.0), "was stopped"),
        (Leadership("other", 1.0, 10.0, foreign=True), "other software"),
        (None, "never ran in namespace trellis-system"),
    ],
    ids=["renews", "expired", "never renewed", "released", "a stranger", "no lease"],
)
def test_a_service_without_a_live_leader_is_a_problem(lead: Leadership | None, problem: str) -> None:
    part = service_part("provisioner", lead, "trellis-system")
    assert (problem in part.problem) if problem else not part.problem
    assert part.document()["name"] == "provisioner"
    assert part.document()["ok"] is not bool(problem)


def test_a_lease_of_the_future_is_a_problem_and_no_negative_age() -> None:
    part = service_part("provisioner", Leadership("stranger", -413468944.0, 10), "trellis-system")
    assert "stranger" in part.text
    assert "-4134" not in part.text + part.problem
    assert part.problem
    skewed = service_part("provisioner", Leadership("pod-1", -3.0, 10), "trellis-system")
    assert "-3" not in skewed.text
    assert not skewed.problem


def nodes_lease(holder: str, renewed: str) -> dict[str, Any]:
    spec = {"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": 30}
    return {"metadata": {"name": "trellis-nodes", "resourceVersion": "1"}, "spec": spec}


@pytest.mark.parametrize(
    ("holder", "renewed", "ok", "shown"),
    [
        ("trellis-system", "2026-11-25T09:00:00.000000Z", True, "trellis-system"),
        ("trellis-old", "2026-11-25T09:00:00.000000Z", False, "trellis-old"),
        ("trellis-old", "2027-11-25T09:00:00.000000Z", False, "trellis-old"),
        ("trellis-system", "2027-11-25T09:00:00.000000Z", False, "trellis-system"),
        ("trellis-old", "2026-11-25T08:00:00.000000Z", True, None),
    ],
    ids=["its own", "another one", "another one of the future", "its own of the future", "expired"],
)
def test_a_claim_on_the_nodes_that_is_renewed_in_the_future_has_its_holder(
    holder: str, renewed: str, ok: bool, shown: str | None
) -> None:
    claim = claim_of(nodes_lease(holder, renewed), datetime(2026, 11, 25, 9, 0, 1, tzinfo=UTC))
    document = claim_part(claim, "trellis-system").document()
    assert (document["ok"], document["holder"]) == (ok, shown)


def held_shim(name: str, kind: str, reason: str) -> dict[str, Any]:
    conditions = [{"type": kind, "status": "True", "reason": reason, "message": "the API server refuses it"}]
    return {"metadata": {"name": name}, "status": {"conditions": conditions}}


@pytest.mark.parametrize(
    ("kind", "reason", "stuck", "reported"),
    [
        ("Degraded", "LedgerRefused", False, True),
        ("Degraded", "LedgerRefused", True, True),
        ("Degraded", "NoSourceForPlatform", False, True),
        ("Degraded", "MassDeletion", False, True),
        ("OtherControllerActive", "RuntimeClassManagerRuns", False, True),
        ("Degraded", "InstallerRefused", False, True),
        ("Degraded", "InstallerRefused", True, False),
        ("Degraded", "NodesFailing", False, False),
    ],
)
def test_a_halted_shim_is_a_problem_of_the_rollout(kind: str, reason: str, stuck: bool, reported: bool) -> None:
    busy = Rollout(rows_of([BUSY], {}, LEDGER, []), LEDGER, shims=(held_shim("spin", kind, reason),))
    part = rollout_part(busy, {"busy": "it is refused"} if stuck else {})
    assert [*part.data["shims"]] == (["spin"] if reported else [])
    assert ("trellis explain shim/spin" in part.problem) is reported


def test_a_halted_rollout_is_a_problem_that_names_the_digest() -> None:
    part = rollout_part(replace(ROLLOUT, ledger=Ledger(LEDGER.entries, halted=(DIGEST,))))
    assert DIGEST in part.problem
    assert part.data["halted"] == (DIGEST,)
    assert part.data["in_progress"] == 1


def test_failed_nodes_and_invalid_annotations_are_problems_and_work_is_none() -> None:
    assert lacking(rollout_part(ROLLOUT).problem, "1 failed", "annotation") == []
    busy = Rollout(rows_of([BUSY], {}, LEDGER, []), LEDGER)
    assert rollout_part(busy).problem == ""


def test_the_rollout_names_the_cause_of_the_first_node_and_the_command_for_details() -> None:
    problem = rollout_part(ROLLOUT).problem
    assert lacking(problem, "1 failed", "broken", "it broke", "trellis explain node/broken") == []
    part = rollout_part(ROLLOUT, {"busy": "its image cannot be pulled", "done": "what was, is no trouble any more"})
    assert lacking(part.problem, "busy: its image cannot be pulled", "trellis explain node/busy") == []
    assert part.data["causes"] == {"broken": "it broke", "busy": "its image cannot be pulled"}
    unavailable = Rollout(rows_of([opted_in(a_node("away", ready=False))], {}, Ledger({}), []), Ledger({}))
    assert lacking(rollout_part(unavailable).problem, "1", "away", "kubelet") == []


def test_a_node_without_anything_to_install_is_a_problem() -> None:
    part = rollout_part(Rollout(rows_of([opted_in(a_node("bare"))], {}, Ledger({}), []), Ledger({})))
    assert lacking(part.problem, "1 blocked", "bare", "trellis.dev/kwasm-default", "trellis explain node/bare") == []


def test_of_a_thousand_nodes_one_is_named_and_all_are_in_the_document() -> None:
    unavailable = [opted_in(a_node(f"away-{number}", ready=False)) for number in range(1000)]
    part = rollout_part(Rollout(rows_of(unavailable, {}, Ledger({}), []), Ledger({})))
    assert lacking(part.problem, "1000", "away-0", "kubelet") == []
    assert part.problem.count("away-") == 2, "in the cause, and in the command"
    assert len(part.data["causes"]) == 1000


def test_groups_and_grants_that_are_not_healthy_are_problems_with_their_cause() -> None:
    condition = {
        "type": "Degraded",
        "status": "True",
        "reason": "SecretMissing",
        "message": "Secret t/x is missing: create it",
    }
    status = {"observedGeneration": 1, "conditions": [condition], "desiredReplicas": 2}
    group = {
        "metadata": {"namespace": "t", "name": "h", "generation": 1},
        "spec": {"lattice": "east"},
        "status": status,
    }
    part = hosts_part([group], "pod-1")
    assert lacking(part.text, "1", "0 of 2", "host-manager", "pod-1") == []
    assert lacking(part.problem, "t/h", "Secret t/x is missing", "trellis explain hostgroup/h -n t") == []
    assert lacking(hosts_part([group], "").problem, "host-manager") == []
    assert hosts_part([], "").problem == ""
    grant = {
        "metadata": {"namespace": "v", "name": "g"},
        "spec": {"from": [{"namespace": "t", "lattice": "east"}], "serviceAccounts": ["web"]},
    }
    assert secrets_part([grant], [group], []).problem == ""
    assert "`trellis explain secretgrant/g -n v`" in secrets_part([grant], [], []).problem
    pod = {"metadata": {"namespace": "s"}, "status": {}}
    assert lacking(secrets_part([], [], [pod]).problem, "secrets-backend") == []


STREAMS = [StreamCount("TRELLIS_EVENTS", 5, 1024), StreamCount("TRELLIS_DEAD", 0, 0)]


def test_the_bus_is_fine_when_its_streams_are_there_and_nothing_is_dead() -> None:
    part = bus_part(STREAMS)
    assert part.problem == ""
    assert part.data["streams"][0] == {"name": "TRELLIS_EVENTS", "messages": 5, "bytes": 1024}


def test_dead_letters_and_missing_streams_are_problems() -> None:
    assert lacking(bus_part([STREAMS[0], StreamCount("TRELLIS_DEAD", 2, 99)]).problem, "2") == []
    assert bus_part([STREAMS[0], StreamCount("TRELLIS_DEAD", 1, 99)]).problem.split()[:3] == ["1", "dead", "letter"]
    first = bus_part([STREAMS[0], StreamCount("TRELLIS_DEAD", 2, 99, 41)]).problem
    assert "`trellis explain deadletter/41`" in first
    missing = bus_part([StreamCount("TRELLIS_EVENTS", None, None), STREAMS[1]]).problem
    assert lacking(missing, "TRELLIS_EVENTS") == []


def test_one_problem_anywhere_makes_the_status_not_ok() -> None:
    fine = Part("part", "text")
    good = Status(fine, (fine,), *[fine] * 9)
    assert good.ok
    assert good.document()["ok"] is True
    for bad in (
        replace(good, kubernetes=replace(fine, problem="x")),
        replace(good, services=(fine, replace(fine, problem="x"))),
        replace(good, rollout=replace(fine, problem="x")),
        replace(good, hosts=replace(fine, problem="x")),
        replace(good, applications=replace(fine, problem="x")),
        replace(good, secrets=replace(fine, problem="x")),
        replace(good, reflected_services=replace(fine, problem="x")),
        replace(good, controllers=replace(fine, problem="x")),
        replace(good, wasm_pods=replace(fine, problem="x")),
        replace(good, workloads=(replace(fine, problem="x"),)),
        replace(good, bus=replace(fine, problem="x")),
    ):
        assert not bad.ok


def an_event(trace_id: str = "", **envelope: Any) -> TailedEvent:
    return TailedEvent(
        sequence=7,
        stored=datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC),
        cluster="c",
        noun="provision",
        event_name="failed",
        key=("node-1",),
        event=envelope,
        trace_id=trace_id,
    )


def test_an_event_is_a_line_with_its_main_fields() -> None:
    line = line_of(
        an_event(
            source="/trellis/c/provisioner",
            trace_id="0af7651916cd43dd8448eb211c80319c",
            data={"attempt": 2, "reason": "InstallerFailed", "message": "no\nspace left", "node_uid": "u"},
        )
    )
    assert line.split()[1:] == [
        "provision.failed",
        "node-1",
        "provisioner",
        "0af76519",
        "attempt=2",
        "reason=InstallerFailed",
        'message="no',
        "space",
        'left"',
    ]


def test_a_long_message_is_whole_for_a_reader_other_than_a_terminal() -> None:
    event = an_event(data={"message": "long " * 100 + "end"})
    assert "end" not in line_of(event)
    assert 'end"' in line_of(event, whole=True)


@pytest.mark.parametrize("data", [None, [], "text", {}], ids=["absent", "a list", "text", "empty"])
def test_a_message_that_is_no_event_is_a_line_too(data: object) -> None:
    assert line_of(an_event(data=data)).split()[1:] == ["provision.failed", "node-1", "-", "-"]
    assert "\n" not in line_of(an_event(data=data))
