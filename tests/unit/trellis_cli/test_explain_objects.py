"""The cause of a faulty host group, controller, grant or message in the first line."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from support.suite.naming import lacking
from trellis.bus.dead_letters.read import DeadLetter
from trellis.config.settings import SettingsError
from trellis.read_model.explain.controller import controller_cause, explain_controller
from trellis.read_model.explain.hosts import explain_group, group_cause
from trellis.read_model.explain.page import Explanation, Leader, Line, Rank
from trellis.read_model.explain.subject import Beside
from trellis.read_model.health import Health
from trellis.read_model.reading.explained_dead_letter import explain_dead_letter
from trellis_cli.common.objects import ObjectName
from trellis_cli.explain.command import KINDS, read_argument
from trellis_cli.explain.grant import Account, GrantSnapshot, explain_grant

Manifest = dict[str, Any]


def condition(kind: str, status: str, reason: str = "Healthy", message: str = "") -> Manifest:
    return {"type": kind, "status": status, "reason": reason, "message": message}


READY = condition("Available", "True", "HostsReady", "2 of 2 hosts are ready")
REPORTING = condition("HostsReporting", "True", "AllReporting", "2 of 2 ready pods are heard of in the lattice")
FINE = condition("Degraded", "False")
LEADER = Leader("host-manager", "pod-1", "")


def group(*conditions: Manifest, **spec: Any) -> Manifest:
    return {
        "metadata": {"namespace": "team", "name": "hosts", "uid": "uid-g", "generation": 1},
        "spec": {"lattice": "east"} | spec,
        "status": {"observedGeneration": 1, "conditions": [*(conditions or (READY, FINE, REPORTING))]},
    }


QUOTA = 'pods "hosts-x" is forbidden: exceeded quota: small, requested: pods=1, used: pods=1, limited: pods=1'
GROUPS: dict[str, tuple[Manifest, str, list[str]]] = {
    "a Secret is missing": (
        group(
            condition(
                "Degraded",
                "True",
                "SecretMissing",
                "Secret team/creds is missing: create it, or name another in the spec",
            )
        ),
        "degraded",
        ["Secret team/creds is missing"],
    ),
    "its image cannot be pulled": (
        group(condition("Degraded", "True", "ImagePullBackOff", "pod a, container wasmcloud-host: Back-off")),
        "degraded",
        ["ImagePullBackOff: pod a, container wasmcloud-host: Back-off", "spec.image", "spec.imagePullSecrets"],
    ),
    "a quota": (
        group(condition("Degraded", "True", "FailedCreate", QUOTA)),
        "degraded",
        ["exceeded quota: small", "ResourceQuota small", "namespace team"],
    ),
    "a crash": (
        group(
            condition("Degraded", "True", "CrashLoopBackOff", "back-off; last log line: no (pod a-1, container host)")
        ),
        "degraded",
        ["CrashLoopBackOff: back-off; last log line: no (pod a-1, container host)", "kubectl logs -n team a-1"],
    ),
    "credentials are refused": (
        group(
            READY,
            condition("HostsReporting", "Unknown", "LatticeUnreachable", "NATS refused the user: its nkey"),
            secretName="creds",
        ),
        "lattice",
        ["LatticeUnreachable: NATS refused the user: its nkey", "Secret team/creds"],
    ),
    "its NATS is away": (
        group(READY, condition("HostsReporting", "Unknown", "LatticeUnreachable", "connection refused")),
        "lattice",
        ["LatticeUnreachable: connection refused", "spec.natsAddress", "spec.natsClientPort"],
    ),
    "a host is silent": (
        group(
            READY,
            condition("HostsReporting", "False", "HeartbeatMissing", "no heartbeat for 70 s of the host in pod a"),
        ),
        "lattice",
        ["HeartbeatMissing: no heartbeat for 70 s of the host in pod a"],
    ),
    "another operator runs": (
        group(condition("OtherControllerActive", "True", "WasmCloudOperatorRuns", "remove it")),
        "other controller",
        ["WasmCloudOperatorRuns: remove it"],
    ),
}


@pytest.mark.parametrize(("manifest", "about", "named"), GROUPS.values(), ids=GROUPS)
def test_a_group_of_hosts_names_its_cause(manifest: Manifest, about: str, named: list[str]) -> None:
    page = explain_group(manifest, Beside([LEADER]))
    found = group_cause(manifest)
    assert found is not None
    assert page.cause == found, "status says the same"
    assert (page.subject, found.about) == ("hostgroup team/hosts", about)
    assert lacking(page.headline, *named) == []


def test_a_healthy_group_is_ready_and_a_new_one_progresses() -> None:
    new = group(READY, FINE, condition("HostsReporting", "Unknown", "WaitingForHosts", "1 of 2"))
    assert explain_group(group(), Beside([LEADER])).cause is None
    verdict = explain_group(new, Beside([LEADER])).verdict
    assert (verdict.health, verdict.reason) == (Health.PROGRESSING, "WaitingForHosts")
    unled = explain_group(group(), Beside([replace(LEADER, holder="")]))
    assert "host-manager" in unled.headline
    assert (unled.verdict.health, unled.verdict.reason) == (Health.HEALTHY, "HostsReady")


def test_a_group_is_ready_while_wadm_is_unavailable_and_its_page_reports_it() -> None:
    page = explain_group(
        group(READY, REPORTING, condition("ApplicationsKnown", "Unknown", "WadmUnavailable", "no answer")),
        Beside([LEADER]),
    )
    assert (page.cause, page.verdict.health) == (None, Health.HEALTHY)
    [line] = [line for line in page.lines if line.about == "wadm"]
    assert lacking(line.text, "lattice east", "no answer") == []


def controller(*conditions: Manifest, **status: Any) -> Manifest:
    found = {"conditions": [*conditions], "state": "Suspended", "failing": 0, "traps": 0} | status
    return {"metadata": {"namespace": "team", "name": "c", "uid": "uid-c"}, "spec": {}, "status": found}


RUNNING = condition("Ready", "True", "Running", "it is called when what it watches changes")
FAULT = {"kind": "Trapped", "message": "unreachable", "time": "2026-11-22T07:00:00Z"}
CONTROLLERS: dict[str, tuple[Manifest, str, list[str]]] = {
    "a trap while it runs": (
        controller(RUNNING, lastFault=FAULT, failing=1, traps=3),
        "last fault",
        ["Trapped: unreachable", "2026-11-22T07:00:00Z", "3 traps", "1 object", "spec.module"],
    ),
    "a trap that stops it": (
        controller(
            condition("Ready", "False", "Trapped", "it is tried again"), lastFault=FAULT, traps=1, state="Failed"
        ),
        "last fault",
        ["Trapped: unreachable", "2026-11-22T07:00:00Z", "1 traps"],
    ),
    "too slow": (
        controller(RUNNING, lastFault=FAULT | {"kind": "TimeExceeded"}, failing=2),
        "last fault",
        ["TimeExceeded: unreachable", "2 objects", "spec.limits"],
    ),
    "a right it lacks": (
        controller(
            condition("WatchesGranted", "False", "WatchNotGranted", "nobody may"),
            condition("Ready", "False", "WatchNotGranted", "nobody may"),
        ),
        "WatchesGranted",
        ["WatchNotGranted: nobody may"],
    ),
    "never looked at": (controller(conditions=[]), "observed", ["trellis run controller-host"]),
}


@pytest.mark.parametrize(("manifest", "about", "named"), CONTROLLERS.values(), ids=CONTROLLERS)
def test_a_controller_names_its_cause(manifest: Manifest, about: str, named: list[str]) -> None:
    page = explain_controller(manifest, Beside())
    assert page.cause is not None
    assert page.cause == controller_cause(manifest), "status says the same"
    assert (page.subject, page.cause.about) == ("controller team/c", about)
    assert lacking(page.headline, *named) == []


def test_a_controller_that_is_healthy_paused_or_failed_long_ago_is_ready() -> None:
    paused = controller(condition("Ready", "False", "Paused", "…"), state="Paused")
    for item in (controller(RUNNING), controller(RUNNING, lastFault=FAULT, traps=9), paused):
        assert controller_cause(item) is None


def grant(lattice: str | None = "east", **spec: Any) -> Manifest:
    who = spec or {"serviceAccounts": ["web"]}
    return {
        "metadata": {"namespace": "vault", "name": "g"},
        "spec": {"from": [{"namespace": "team"} | ({"lattice": lattice} if lattice else {})]} | who,
    }


def test_a_grant_names_what_keeps_it_from_having_an_effect() -> None:
    there = Account("web", there=True, may_be=True)
    world = GrantSnapshot(grant(), [group()], [there])
    well = explain_grant(world)
    assert (well.subject, well.cause) == ("secretgrant vault/g", None)
    broken = [
        (replace(world, grant=grant("west")), ["namespace team", "lattice west", "east"]),
        (
            replace(world, accounts=[replace(there, there=False)]),
            ["ServiceAccount vault/web", "kubectl -n vault create serviceaccount web"],
        ),
        (
            replace(world, accounts=[replace(there, may_be=False)]),
            ["secrets-backend", "ServiceAccount vault/web", "trellis secrets roles -n vault -a web"],
        ),
        (replace(world, grant=grant() | {"spec": {"from": 1}}), ["secretgrant vault/g"]),
    ]
    for item, named in broken:
        page = explain_grant(item)
        assert page.cause is not None
        assert lacking(page.headline, *named) == []
    unknown = replace(world, accounts=[replace(there, may_be=None)])
    assert explain_grant(unknown).cause is None


LETTER = DeadLetter(
    7,
    datetime(2026, 11, 22, tzinfo=UTC),
    "e",
    service="provisioner",
    subscription="nodes",
    reason="Undecodable",
    error="no JSON",
    deliveries=1,
    subject="trellis.evt.c.node.opted_in.x",
    noun="node",
    key=("x",),
)


def test_a_dead_letter_has_its_consumer_message_and_reason() -> None:
    page = explain_dead_letter(LETTER, "7")
    assert page.subject == "dead letter 7"
    assert lacking(page.headline, "provisioner/nodes", "1", "Undecodable: no JSON") == []
    assert "`trellis dead-letters show 7`" in page.headline
    assert "`trellis dead-letters replay 7`" in page.headline
    assert "trellis dead-letters replay" not in explain_dead_letter(replace(LETTER, subject=""), "7").headline
    assert explain_dead_letter(None, "9").cause is not None
    assert "secret" not in explain_dead_letter(replace(LETTER, error="nats://a:secret@b no"), "7").headline


def test_every_kind_that_has_a_page_is_a_kind_of_the_command_line() -> None:
    assert [read_argument([kind, "7"], None) for kind in KINDS] == [ObjectName(kind, "7") for kind in KINDS]


def test_a_secret_has_no_page_but_a_command_of_its_own() -> None:
    with pytest.raises(SettingsError, match="`trellis secrets check"):
        read_argument(["secret/team/a"], None)
    with pytest.raises(SettingsError, match="workloaddeployment/NAME"):
        read_argument(["workloadreplicasets.runtime.wasmcloud.dev/a"], None)


def test_the_nearest_to_the_cause_is_the_answer_and_of_equals_the_first() -> None:
    lines = [
        Line("a", "aside", False, rank=Rank.ASIDE),
        Line("b", "symptom", False),
        Line("c", "why", False, "do it", Rank.CAUSE),
        Line("d", "why too", False, rank=Rank.CAUSE),
        Line("e", "nobody leads", False, rank=Rank.SERVICE),
    ]
    page = Explanation("x", lines)
    assert page.cause is lines[2]
    assert lacking(page.headline, "x", "why", "Do it") == []
    assert Explanation("x", lines[:2]).cause is lines[1]
    assert Explanation("x", lines[:1]).cause is None
