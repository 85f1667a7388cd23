"""Two runtime-operators in one cluster, each with its NATS: an object is judged by the one that owns its namespace."""

from __future__ import annotations

from typing import Any

import pytest

from support.suite.naming import lacking
from support.v2.manifests import (
    ALL,
    DEADLINE,
    NOW,
    Manifest,
    condition,
    make_deployment,
    make_host,
    make_snapshot,
    make_workload,
    steps,
)
from trellis.read_model.explain.page import Explanation
from trellis.read_model.explain.subject import Beside
from trellis.read_model.health import Health
from trellis.v2.cluster import Cluster
from trellis.v2.deployments import view_deployment
from trellis.v2.explain.deployment import explain_deployment
from trellis.v2.explain.host import explain_host, host_health
from trellis.v2.explain.workload import explain_workload, workload_health
from trellis.v2.host_messages import HostMessages, LastHeartbeat
from trellis.v2.hosts import HostView
from trellis.v2.messages import HostHeartbeat
from trellis.v2.operator import State
from trellis.v2.reasons import Reason
from trellis.v2.snapshot import Snapshot
from trellis.v2.workloads import WorkloadView
from trellis_cli.v2.row import v2_part

ONE, OTHER = "wasmcloud-system", "other-system"
DEAD = 9000.0


def placed_in(namespace: str, found: Manifest) -> Manifest:
    return {**found, "metadata": {**found["metadata"], "namespace": namespace}}


def other_host(name: str = "h2", seen: float = DEAD, **fields: Any) -> Manifest:
    return placed_in(OTHER, make_host(name, seen, **fields))


def snapshot(*others: Manifest, **about: Any) -> Snapshot:
    """Return a cluster: operator ONE works and runs ``w1`` of apps; the other one is to run ``w2`` of shop on h2."""
    workloads = [make_workload("w1"), placed_in("shop", make_workload("w2", host="id-h2"))]
    hosts = [make_host("h1", seen=5), *(others or (other_host(),))]
    return make_snapshot(hosts, workloads + about.pop("workloads", []), **about)


def workload(found: Snapshot, name: str) -> WorkloadView:
    return next(item for item in found.workloads if item.meta.name == name)


def host(found: Snapshot, name: str) -> HostView:
    return next(item for item in found.hosts if item.meta.name == name)


def page(found: Snapshot, name: str) -> Explanation:
    return explain_workload(found, workload(found, name), Beside())


def beats(*ids: str, age: float = 3.0) -> HostMessages:
    return HostMessages(21.0, {id_: LastHeartbeat(HostHeartbeat(id_), 1, NOW - age) for id_ in ids})


def test_an_operator_that_does_not_work_is_no_problem_of_the_other_one() -> None:
    found = snapshot()
    assert page(found, "w1").cause is None
    assert explain_host(found, host(found, "h1"), Beside()).cause is None
    away = page(found, "w2")
    assert away.cause is not None
    assert away.cause.reason == Reason.OPERATOR_UNAVAILABLE
    assert lacking(away.headline, OTHER) == []
    assert ONE not in away.headline


def test_health_is_that_of_the_page_for_callers_with_the_whole_cluster() -> None:
    found = snapshot()
    cluster = Cluster(found)
    for name in ("w1", "w2"):
        assert workload_health(cluster, workload(found, name)) == page(found, name).verdict
    assert host_health(cluster, host(found, "h1")).health is Health.HEALTHY
    assert host_health(cluster, host(found, "h2")).health is Health.UNKNOWN


def test_a_workload_without_a_host_is_judged_by_the_owner_of_its_namespace() -> None:
    denied = [*steps("Config"), condition("HostSelection", "False", "no suitable host found")]
    spec = {"hostSelector": {"zone": "b"}, "components": []}
    waits = make_workload("w3", denied, host="", spec=spec)
    there = other_host(seen=5, labels={"zone": "b"}, conditions=steps("Reporting", "Ready", age=10))
    found = snapshot(there, workloads=[waits, placed_in("shop", make_workload("w4", denied, host="", spec=spec))])
    outcomes = {name: page(found, name).verdict.reason for name in ("w3", "w4")}
    assert outcomes == {"w3": Reason.NO_HOST_MATCHES, "w4": Reason.WAITING}


def test_the_owner_of_a_namespace_without_a_placed_workload_is_not_guessed() -> None:
    alone = placed_in("new", make_deployment(conditions=[]))
    found = snapshot()
    view = view_deployment(alone)
    made = explain_deployment(found, view, Beside())
    [line] = [line for line in made.lines if line.about == "operator"]
    assert line.ok is None
    assert lacking(line.text, ONE, OTHER, "Working", "Unavailable") == []
    assert made.cause is not None
    assert made.cause.reason == Reason.NOT_OBSERVED
    assert Cluster(found).operator.state is State.UNKNOWN


def test_heartbeats_of_one_nats_prove_nothing_about_the_hosts_of_the_other_one() -> None:
    found = snapshot(other_host(seen=30), messages=beats("id-h1"))
    assert Cluster(found).heartbeat_missing(host(found, "h2")) is False
    assert page(found, "w2").cause is None
    one_only = make_snapshot([make_host("h1", seen=5), make_host("h2", seen=30)], messages=beats("id-h1"))
    assert Cluster(one_only).heartbeat_missing(host(one_only, "h2"))


def test_requests_of_one_operator_that_time_out_are_no_outage_of_the_other_one() -> None:
    late = [*steps(*ALL[:3]), condition("Sync", "False", DEADLINE)]
    workloads = [placed_in("shop", make_workload(f"s{n}", late, host=f"id-o{n}")) for n in (1, 2)]
    hosts = [other_host(f"o{n}", seen=70) for n in (1, 2)]
    found = snapshot(*hosts, workloads=workloads)
    cluster = Cluster(found)
    assert {part.place: part.operator.state for part in cluster.parts} == {ONE: State.WORKING, OTHER: State.CUT_OFF}


@pytest.mark.parametrize("ahead", [100.0, 3000.0])
def test_the_clock_of_one_operator_corrects_its_own_times_only(ahead: float) -> None:
    found = snapshot(other_host(seen=5 - ahead), other_host("h3", seen=3 - ahead))
    cluster = Cluster(found)
    assert [part.operator.state for part in cluster.parts] == [State.WORKING, State.WORKING]
    assert [part.clock_lead > 0 for part in cluster.parts] == [True, False]
    assert cluster.within(ONE).clock_lead == 0
    assert page(found, "w1").cause is None
    assert page(found, "w2").cause is None


def test_the_row_of_status_names_the_operator_that_does_not_work() -> None:
    problem = v2_part(snapshot()).problem
    assert lacking(problem, OTHER) == []
    assert ONE not in problem


@pytest.mark.parametrize("reverse", [False, True])
def test_a_host_that_two_operators_on_one_nats_have_is_evidence_for_neither_owner(reverse: bool) -> None:
    """Each operator writes a Host of its own for the heartbeats of all hosts on its NATS."""
    hosts = [make_host("h1", seen=5), other_host("h1", seen=DEAD), other_host("h2", seen=DEAD)]
    found = make_snapshot(hosts[::-1] if reverse else hosts, [make_workload("w1")], messages=beats("id-h1"))
    cluster = Cluster(found)
    assert cluster.operators.owner("apps") == ""
    assert {part.place: part.operator.state for part in cluster.parts} == {
        ONE: State.WORKING,
        OTHER: State.UNAVAILABLE,
    }
    assert [len(part.workloads_on("id-h1")) for part in cluster.parts] == [1, 1]
    made = page(found, "w1")
    assert made.cause is None
    assert [line.ok for line in made.lines if line.about == "operator"] == [None]
