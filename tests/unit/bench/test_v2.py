"""The pure parts of the benchmark of wasmCloud v2: its objects have the health that it counts on, and its table."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from host_manager.domain.v2.decide import decide
from host_manager.domain.v2.published import Published
from host_manager.domain.v2.trust import Trust
from trellis.read_model.health import Health
from trellis.v2.cluster import Cluster
from trellis.v2.deployments import view_deployment, view_replica_set
from trellis.v2.explain.deployment import deployment_health
from trellis.v2.explain.host import host_health
from trellis.v2.hosts import view_host
from trellis.v2.messages import HostHeartbeat, read_heartbeat
from trellis.v2.snapshot import Part, Snapshot
from trellis.v2.workloads import view_workload
from v2 import Row, latency_rows, percentile, table
from v2_objects import (
    deployment_status,
    host_id,
    host_status,
    make_deployment,
    make_heartbeat,
    make_host,
    make_replica_set,
    make_workload,
    replica_set_status,
    workload_status,
)

NAME = "shop-0001"


def with_uid(manifest: dict[str, Any], uid: str, status: dict[str, Any]) -> dict[str, Any]:
    return {**manifest, "metadata": {**manifest["metadata"], "uid": uid, "generation": 1}, "status": status}


def cluster(version: int = 1, failed: int = 0) -> Cluster:
    """Return a host and a WorkloadDeployment with a Workload, as the operator has written them some time ago."""
    now = time.time()
    then = now - 1
    deployment = with_uid(make_deployment(NAME, version, 1), "d", deployment_status(then, NAME, version, 1, failed))
    replica_set = with_uid(make_replica_set(NAME, version, 1, "d"), f"r{version}", replica_set_status(then, 1, failed))
    status = workload_status(then, host_id(1), f"w{version}", fails=bool(failed))
    workload = with_uid(make_workload(NAME, version, 0, f"r{version}"), f"w{version}", status)
    return Cluster(
        Snapshot(
            now,
            hosts=[view_host(with_uid(make_host(1), "h", host_status(then)))],
            workloads=[view_workload(workload)],
            replica_sets=[view_replica_set(replica_set)],
            deployments=[view_deployment(deployment)],
            unread={Part.SERVICES: "not watched", Part.SLICES: "not watched"},
        )
    )


def published(*clusters: Cluster) -> list[str]:
    """Return the events of the last of several states of a cluster."""
    known, due = Published(), []
    for found in clusters:
        due = decide(found, known, Trust())
        for event in due:
            known.note(event)
    return [f"{event.noun}.{event.event_name}" for event in due]


@pytest.mark.parametrize(("failed", "expected"), [(0, Health.HEALTHY), (1, Health.DEGRADED)])
def test_deployment_has_the_health_of_its_workloads(failed: int, expected: Health) -> None:
    found = cluster(failed=failed)
    assert deployment_health(found, found.snapshot.deployments[0]).health is expected
    assert host_health(found, found.hosts[0]).health is Health.HEALTHY


def test_each_change_is_published_as_the_benchmark_waits_for_it() -> None:
    good, bad = cluster(), cluster(failed=1)
    assert published(good) == ["wasm_host.ready", "workload.started", "workload_deployment.ready"]
    assert published(good, bad) == ["workload.failed", "workload_deployment.degraded"]
    assert published(good, bad, good) == ["workload_deployment.ready"]
    assert "workload_deployment.rolled" in published(good, cluster(version=2))


def test_heartbeat_is_readable_and_as_large_as_a_real_one() -> None:
    payload = json.dumps(make_heartbeat(1, 5)).encode()
    found = read_heartbeat(payload)
    assert isinstance(found, HostHeartbeat)
    assert found.id == host_id(1)
    assert found.workloads == 5
    assert 1_000 < len(payload) < 3_000


def test_hosts_have_ids_and_addresses_of_their_own() -> None:
    hosts = [make_host(number) for number in range(600)]
    assert len({host["hostId"] for host in hosts}) == len({host["hostname"] for host in hosts}) == 600


@pytest.mark.parametrize(("figure", "good"), [(0.99, True), (1.0, True), (1.01, False)])
def test_figure_above_what_is_allowed_is_missed(figure: float, good: bool) -> None:
    row = Row("p99", figure, "s", 1.0)
    assert row.good is good
    assert ("MISSED" in table([row])) is not good


def test_figure_without_a_limit_is_never_missed() -> None:
    assert Row("memory", 1e9, "MiB").good


@pytest.mark.parametrize(("share", "expected"), [(0.5, 51.0), (0.99, 100.0), (1.0, 100.0)])
def test_percentile_is_one_of_the_values(share: float, expected: float) -> None:
    assert percentile(map(float, range(1, 101)), share) == expected


def test_only_the_p99_of_all_events_has_a_limit() -> None:
    rows = latency_rows({"workload.failed": [0.1, 0.2], "workload_deployment.ready": [3.0]})
    assert [row.figure for row in rows if row.allowed is not None] == [3.0]
    assert {row.allowed for row in rows if not row.good} == {1.0}
