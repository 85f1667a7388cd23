"""What is evidence and what is not: long outages, differing clocks, hosts that do not exist, conditions without end."""

from __future__ import annotations

from typing import Any

import pytest

from support.v2.manifests import (
    ALL,
    Manifest,
    condition,
    make_host,
    make_snapshot,
    make_workload,
    steps,
)
from trellis.read_model.explain.page import Explanation
from trellis.read_model.explain.subject import Beside
from trellis.read_model.health import Health
from trellis.v2.cluster import Cluster
from trellis.v2.explain.deployment import explain_deployment
from trellis.v2.explain.host import explain_host
from trellis.v2.explain.workload import explain_workload
from trellis.v2.objects import view_conditions
from trellis.v2.operator import State
from trellis.v2.reasons import Reason
from trellis.v2.snapshot import Snapshot

HOUR = 3600.0


def workload_page(snapshot: Snapshot) -> Explanation:
    return explain_workload(snapshot, snapshot.workloads[0], Beside())


def deployment_page(snapshot: Snapshot) -> Explanation:
    return explain_deployment(snapshot, snapshot.deployments[0], Beside())


def outcome(page: Explanation) -> tuple[str | None, Health]:
    return (page.cause.reason if page.cause is not None else None), page.verdict.health


def starting(age: float) -> list[Manifest]:
    """Return the conditions of a Workload whose host was asked ``age`` seconds ago to start it."""
    return steps("Config", "HostSelection", age=age)


@pytest.mark.parametrize("page", [workload_page, deployment_page])
def test_a_start_without_an_end_is_no_pull_but_an_operator_that_does_not_work(page: Any) -> None:
    snapshot = make_snapshot([make_host(seen=3 * HOUR)], [make_workload(conditions=starting(3 * HOUR), age=3 * HOUR)])
    assert outcome(page(snapshot))[0] == Reason.OPERATOR_UNAVAILABLE
    working = make_snapshot([make_host(seen=5)], [make_workload(conditions=starting(3 * HOUR), age=3 * HOUR)])
    assert outcome(page(working))[0] == Reason.NOT_OBSERVED
    pulling = make_snapshot([make_host(seen=30)], [make_workload(conditions=starting(20), age=21)])
    assert outcome(page(pulling)) == (Reason.REGISTRY_TIMEOUT, Health.PROGRESSING)


def test_a_start_without_an_end_does_not_explain_the_silence_of_its_host() -> None:
    snapshot = make_snapshot([make_host(seen=90)], [make_workload(conditions=starting(HOUR), age=HOUR)])
    assert Cluster(snapshot).operator.state is State.SILENT
    assert outcome(explain_host(snapshot, snapshot.hosts[0], Beside()))[0] == Reason.HEARTBEATS_STOPPED


def test_a_workload_that_was_never_reconciled_has_the_operator_in_its_first_line() -> None:
    snapshot = make_snapshot([make_host(seen=3 * HOUR)], [make_workload(conditions=[], age=HOUR)])
    assert outcome(workload_page(snapshot))[0] == Reason.OPERATOR_UNAVAILABLE


@pytest.mark.parametrize(
    "conditions",
    [
        pytest.param(
            [condition("Foo", age=10 * HOUR), condition("Bar", "False", "zzz", 10 * HOUR)], id="unknown types"
        ),
        pytest.param([*steps(*ALL[:3]), condition("Sync", "Unknown", "", 10 * HOUR)], id="Sync without a message"),
        pytest.param([*steps(*ALL[:3]), condition("Sync", "Unknown", "odd", 10 * HOUR)], id="Sync with a message"),
        pytest.param([condition("Config", "Unknown", "", 10 * HOUR)], id="Config"),
    ],
)
def test_no_step_waits_forever(conditions: list[Manifest]) -> None:
    old = make_snapshot([make_host()], [make_workload(conditions=conditions, age=10 * HOUR)])
    reason, health = outcome(workload_page(old))
    assert reason in {Reason.NOT_OBSERVED, Reason.NOT_READY}
    assert health is Health.UNKNOWN
    recent = [item | {"lastTransitionTime": condition("", age=10)["lastTransitionTime"]} for item in conditions]
    new = make_snapshot([make_host()], [make_workload(conditions=recent, age=10)])
    assert outcome(workload_page(new)) == (Reason.WAITING, Health.PROGRESSING)


def test_a_host_without_conditions_does_not_wait_forever() -> None:
    for created, expected in ((10.0, Reason.WAITING), (HOUR, Reason.NOT_OBSERVED)):
        snapshot = make_snapshot([make_host(conditions=[], created=created)])
        assert outcome(explain_host(snapshot, snapshot.hosts[0], Beside()))[0] == expected


@pytest.mark.parametrize("reverse", [False, True])
def test_of_two_conditions_of_one_type_the_newer_one_counts(reverse: bool) -> None:
    both = [condition("Sync", "False", "new", 10), condition("Sync", "True", "", 9000)]
    found = view_conditions({"conditions": both[:: -1 if reverse else 1]})
    assert found["Sync"].status == "False"
    same = [condition("Sync", "True"), condition("Sync", "False", "x")]
    assert view_conditions({"conditions": same[:: -1 if reverse else 1]})["Sync"].status == "False"
