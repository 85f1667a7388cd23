"""Objects that look well or in progress although nothing acts on them: the first line has the cause."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from trellis.read_model.explain.page import Explanation
from trellis.read_model.explain.subject import Beside
from trellis.read_model.health import Health
from trellis.v2.deployments import view_deployment, view_replica_set
from trellis.v2.explain.deployment import explain_deployment
from trellis.v2.explain.host import explain_host
from trellis.v2.explain.service import explain_routed_service
from trellis.v2.hosts import view_host
from trellis.v2.reasons import Reason
from trellis.v2.routes import view_service, view_slice
from trellis.v2.snapshot import Snapshot
from trellis.v2.workloads import view_workload

Manifest = dict[str, Any]

NOW = 1_800_000_000.0
HOUR = 3600.0
STEPS = ("Config", "HostSelection", "Placement", "Sync", "Ready")


def time(age: float) -> str:
    return datetime.fromtimestamp(NOW - age, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def condition(kind: str, status: str = "True", message: str = "", age: float = 100) -> Manifest:
    return {"type": kind, "status": status, "message": message, "reason": "R", "lastTransitionTime": time(age)}


def metadata(name: str, owner: str = "", age: float = HOUR, namespace: str = "apps") -> Manifest:
    owners = {"ownerReferences": [{"controller": True, "name": owner, "uid": f"u-{owner}"}]} if owner else {}
    return {"name": name, "namespace": namespace, "uid": f"u-{name}", "creationTimestamp": time(age), **owners}


def host(name: str = "h1", seen: float = 5, hostname: str = "10.0.0.1") -> Manifest:
    status = {"lastSeen": time(seen), "conditions": [condition("Reporting"), condition("Ready")]}
    labels = {"labels": {"hostgroup": "default"}}
    return {
        "metadata": metadata(name, namespace="hosts") | labels,
        "hostId": f"id-{name}",
        "hostname": hostname,
        "httpPort": 80,
        "status": status,
    }


def template(image: str = "r.io/a:1") -> Manifest:
    return {"spec": {"components": [{"name": "c", "image": image}]}}


def workload(*conditions: Manifest, host_id: str = "id-h1", age: float = 100) -> Manifest:
    status = {"hostId": host_id, "conditions": [*conditions] or [condition(step, age=age) for step in STEPS]}
    return {"metadata": metadata("w", "rs", age), "spec": template()["spec"], "status": status}


def replica_set(replicas: int = 1, image: str = "r.io/a:1", *conditions: Manifest) -> Manifest:
    spec = {"replicas": replicas, "template": template(image)}
    return {"metadata": metadata("rs", "d"), "spec": spec, "status": {"conditions": [*conditions]}}


def deployment(replicas: int = 1, image: str = "r.io/a:1", **spec: Any) -> Manifest:
    conditions = [condition(kind) for kind in ("Sync", "Deploy", "Scale", "Ready")]
    return {
        "metadata": metadata("d"),
        "spec": {"replicas": replicas, "template": template(image)} | spec,
        "status": {"currentReplicaSet": {"name": "rs"}, "conditions": conditions},
    }


def snapshot(
    hosts: list[Manifest], workloads: list[Manifest], sets: list[Manifest], deployments: list[Manifest], **more: Any
) -> Snapshot:
    return Snapshot(
        now=NOW,
        hosts=[view_host(item) for item in hosts],
        workloads=[view_workload(item) for item in workloads],
        replica_sets=[view_replica_set(item) for item in sets],
        deployments=[view_deployment(item) for item in deployments],
        **more,
    )


def of_deployment(found: Snapshot) -> Explanation:
    return explain_deployment(found, found.deployments[0], Beside())


def reason(page: Explanation) -> str | None:
    return page.cause.reason if page.cause is not None else None


def test_a_replica_set_that_does_not_exist_is_named() -> None:
    page = of_deployment(snapshot([host()], [], [], [deployment()]))
    assert reason(page) == Reason.NOT_OBSERVED


def test_a_host_that_the_operator_did_not_delete_in_time_is_reported_so() -> None:
    for seen, late in ((100, False), (360, True)):
        found = snapshot([host(seen=seen), host("h2")], [], [], [])
        page = explain_host(found, found.hosts[0], Beside())
        assert page.cause is not None
        assert page.cause.reason == Reason.HEARTBEAT_MISSING
        assert ("log" in page.cause.do) is late


def test_a_host_without_an_address_has_none() -> None:
    found = snapshot([host(hostname="")], [], [], [])
    page = explain_host(found, found.hosts[0], Beside())
    assert reason(page) == Reason.ADDRESS_NOT_ROUTABLE
    assert "no address" in page.headline


def test_endpoints_that_outlive_ready_workloads_are_shown() -> None:
    timed_out = [*(condition(step) for step in STEPS[:3]), condition("Sync", "False", "context deadline exceeded")]
    wanted = deployment(kubernetes={"service": {"name": "shop"}})
    service = view_service({"metadata": metadata("shop"), "spec": {"ports": [{"name": "http", "port": 80}]}})
    labels = {"wasmcloud.dev/route-manager": "true", "kubernetes.io/service-name": "shop"}
    routes = view_slice(
        {"metadata": metadata("shop-1") | {"labels": labels}, "endpoints": [{"addresses": ["10.0.0.1"]}]}
    )
    found = snapshot(
        *([host(seen=70), host("h2", seen=70)], [workload(*timed_out)], [replica_set()], [wanted]),
        services=[service],
        slices=[routes],
    )
    page = explain_routed_service(found, service, Beside())
    assert page.verdict.health is Health.UNKNOWN
    assert "10.0.0.1" in "".join(line.text for line in page.lines)
    assert reason(page) == Reason.HEARTBEATS_STOPPED
