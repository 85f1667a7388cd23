"""Objects of wasmCloud v2 in states that no recording has: long outages, differing clocks, webhooks, lost hosts.

In: names, ages in seconds, conditions. Out: manifests, snapshots. Called by tests.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from trellis.v2.deployments import view_deployment, view_replica_set
from trellis.v2.hosts import view_host
from trellis.v2.routes import view_service, view_slice
from trellis.v2.snapshot import Snapshot
from trellis.v2.workloads import view_workload

Manifest = dict[str, Any]
NOW: Final = 1_800_000_000.0
NO_RESPONDERS: Final = "nats: no responders available for request"
DEADLINE: Final = "context deadline exceeded"
NOT_FOUND: Final = "workload is not operational: WORKLOAD_STATE_NOT_FOUND"
_SPEC: Final = {"components": [{"name": "web", "image": "registry.test/app:1"}]}


def at(age: float) -> str:
    """Return the RFC 3339 time of an age."""
    return datetime.fromtimestamp(NOW - age, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def condition(kind: str, status: str = "True", message: str = "", age: float = 100.0) -> Manifest:
    """Return a condition that changed ``age`` seconds ago."""
    return {"type": kind, "status": status, "message": message, "lastTransitionTime": at(age)}


def steps(*kinds: str, age: float = 100.0) -> list[Manifest]:
    """Return conditions of these types that are True."""
    return [condition(kind, age=age) for kind in kinds]


ALL: Final = ("Config", "HostSelection", "Placement", "Sync", "Ready")


def make_host(name: str = "h1", seen: float = 5.0, **fields: Any) -> Manifest:
    """Return a Host whose last heartbeat was recorded ``seen`` seconds ago.

    ``fields``: ``created`` (age), ``conditions``, and fields of a Host.
    """
    conditions = fields.pop("conditions", steps("Reporting", "Ready"))
    metadata = {
        "name": name,
        "namespace": "wasmcloud-system",
        "uid": f"uid-{name}",
        "creationTimestamp": at(fields.pop("created", 100.0)),
        "labels": fields.pop("labels", {"hostgroup": "default"}),
    }
    found = {"metadata": metadata, "hostId": f"id-{name}", "hostname": "10.0.0.1", "httpPort": 80, **fields}
    return {**found, "status": {"lastSeen": at(seen), "conditions": conditions}}


def make_workload(name: str = "w1", conditions: Iterable[Manifest] | None = None, **fields: Any) -> Manifest:
    """Return a Workload of WorkloadReplicaSet ``rs1`` on host ``h1``. ``fields``: ``host``, ``age``, ``spec``."""
    found = [*steps(*ALL)] if conditions is None else [*conditions]
    return {
        "metadata": {
            "name": name,
            "namespace": "apps",
            "uid": f"uid-{name}",
            "creationTimestamp": at(fields.get("age", 100.0)),
            "ownerReferences": [{"controller": True, "name": "rs1", "uid": "uid-rs1"}],
        },
        "spec": fields.get("spec", _SPEC),
        "status": {"hostId": fields.get("host", "id-h1"), "conditions": found},
    }


def make_replica_set(replicas: int = 1, **fields: Any) -> Manifest:
    """Return WorkloadReplicaSet ``rs1`` of WorkloadDeployment ``web``. ``fields``: ``spec``, ``conditions``."""
    owners = [{"controller": True, "name": "web", "uid": "uid-web"}]
    return {
        "metadata": {"name": "rs1", "namespace": "apps", "uid": "uid-rs1", "ownerReferences": owners},
        "spec": {"replicas": replicas, "template": {"spec": fields.get("spec", _SPEC)}},
        "status": {"conditions": fields.get("conditions", steps("ScaleUp", "ScaleDown", "Ready"))},
    }


def make_deployment(replicas: int = 1, **fields: Any) -> Manifest:
    """Return WorkloadDeployment ``web``. ``fields``: ``template``, ``conditions``, and fields of its spec."""
    conditions = fields.pop("conditions", steps("Artifact", "Sync", "Deploy", "Scale", "Ready"))
    template = fields.pop("template", {"spec": _SPEC})
    return {
        "metadata": {"name": "web", "namespace": "apps", "uid": "uid-web", "creationTimestamp": at(5000)},
        "spec": {"replicas": replicas, "template": template, **fields},
        "status": {"currentReplicaSet": {"name": "rs1"}, "conditions": conditions},
    }


def make_service(name: str = "web", port: str = "http", age: float = 5000.0) -> Manifest:
    """Return a Service with one port."""
    metadata = {"name": name, "namespace": "apps", "uid": f"uid-{name}", "creationTimestamp": at(age)}
    return {"metadata": metadata, "spec": {"type": "ClusterIP", "ports": [{"name": port, "port": 80}]}}


def make_slice(name: str = "web", *addresses: str) -> Manifest:
    """Return the EndpointSlice of a Service."""
    labels = {"kubernetes.io/service-name": name, "wasmcloud.dev/route-manager": "true"}
    endpoints = [{"addresses": [address]} for address in addresses]
    return {"metadata": {"name": f"{name}-1", "namespace": "apps", "labels": labels}, "endpoints": endpoints}


def make_snapshot(
    hosts: Sequence[Manifest] = (),
    workloads: Sequence[Manifest] = (),
    replica_set: Manifest | None = None,
    deployment: Manifest | None = None,
    **about: Any,
) -> Snapshot:
    """Return a snapshot; by default, the WorkloadReplicaSet is that of the WorkloadDeployment.

    ``about``: ``services``, ``slices`` as manifests, and fields of a Snapshot.
    """
    found = deployment or make_deployment(max(len(workloads), 1))
    copied = {**(found["spec"]["template"] or {}).get("spec", {})}
    copied |= {key: value for key, value in found["spec"].items() if key == "kubernetes"}
    return Snapshot(
        now=NOW,
        hosts=[view_host(item) for item in hosts],
        workloads=[view_workload(item) for item in workloads],
        replica_sets=[view_replica_set(replica_set or make_replica_set(found["spec"]["replicas"], spec=copied))],
        deployments=[view_deployment(found)],
        services=[view_service(item) for item in about.pop("services", ())],
        slices=[view_slice(item) for item in about.pop("slices", ())],
        **about,
    )
