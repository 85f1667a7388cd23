"""Objects of wasmCloud v2 as its runtime-operator writes them. Pure; used by ``bench/v2.py``.

In: numbers and names. Out: manifests and statuses. Source: the recordings in tests/data/v2. Not written: finalizers,
which only an operator removes, and Services.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from trellis.kube.resources import (
    WASM_HOSTS,
    WORKLOAD_DEPLOYMENTS,
    WORKLOAD_REPLICA_SETS,
    WORKLOADS,
    Manifest,
    Resource,
)

NAMESPACE: Final = "apps"
"""Of the WorkloadDeployments, and name of the environment of the hosts."""
HOSTS_NAMESPACE: Final = "wasmcloud-system"
FAILED: Final = "workload is not operational: WORKLOAD_STATE_NOT_FOUND"
_STEPS: Final = ("Config", "HostSelection", "Placement")
_PLUGINS: Final = (
    ("wasi", "blobstore", "0.2.0-draft", ("blobstore", "container", "types")),
    ("wasi", "keyvalue", "0.2.0-draft", ("atomics", "batch", "store")),
    ("wasi", "config", "0.2.0-rc.1", ("store",)),
    ("wasi", "logging", "0.1.0-draft", ("logging",)),
    ("wasmcloud", "messaging", "0.2.0", ("consumer", "types")),
    ("wasmcloud", "messaging", "0.3.0", ("consumer", "types")),
    ("wasmcloud", "postgres", "0.2.0", ("prepared", "query", "types")),
    ("wasmcloud", "secrets", "2.1.0", ("reveal", "store")),
)
Json = dict[str, Any]


def timestamp(seconds: float) -> str:
    """Return Unix seconds as the operator writes them, without fractions."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def conditions(now: float, met: tuple[str, ...], **unmet: tuple[str, str]) -> list[Json]:
    """Return conditions: those that are met, then the rest with status and message."""
    time = timestamp(now)
    true = [{"type": kind, "status": "True", "reason": "Available", "lastTransitionTime": time} for kind in met]
    others = [
        {"type": kind, "status": status, "reason": "Reconcile", "message": message, "lastTransitionTime": time}
        for kind, (status, message) in unmet.items()
    ]
    return true + others


def host_id(number: int) -> str:
    """Return the ID of a host, a UUID as of a real one."""
    digest = hashlib.sha256(f"host {number}".encode()).hexdigest()
    return f"{digest[:8]}-{digest[8:12]}-4{digest[13:16]}-8{digest[17:20]}-{digest[20:32]}"


def host_name(number: int) -> str:
    """Return the name of a Host."""
    return f"calm-dune-{number:04d}"


def make_host(number: int) -> Manifest:
    """Return a Host, whose fields are at the top level."""
    return {
        **_typed(WASM_HOSTS, host_name(number), HOSTS_NAMESPACE, labels={"hostgroup": "default"}),
        "environment": NAMESPACE,
        "hostId": host_id(number),
        "hostname": f"10.88.{number // 250}.{number % 250 + 1}",
        "httpPort": 8180,
    }


def host_status(now: float) -> Json:
    """Return the status of a Host whose heartbeat is recorded now: the operator overwrites the numbers."""
    return recorded(now) | {"conditions": conditions(now, ("Reporting", "Ready"))}


def recorded(now: float) -> Json:
    """Return what a heartbeat changes in the status of a Host."""
    unknown = dict.fromkeys(("osArch", "osKernel", "osName", "version"), "unknown")
    numbers = {"systemCPUUsage": "0", "systemMemoryFree": 0, "systemMemoryTotal": 0}
    return {"lastSeen": timestamp(now), **unknown, **numbers}


def make_heartbeat(number: int, workloads: int) -> Json:
    """Return the heartbeat of a host, about as large as a real one."""
    return {
        "id": host_id(number),
        "hostname": f"10.88.{number // 250}.{number % 250 + 1}",
        "friendlyName": host_name(number),
        "version": "2.7.0",
        "labels": {"hostgroup": "default"},
        "startedAt": "2026-01-01T00:00:00.000000000+00:00",
        "osArch": "x86_64",
        "osName": "linux",
        "osKernel": "unix",
        "systemCpuUsage": 12.5,
        "systemMemoryTotal": str(24 << 30),
        "systemMemoryFree": str(9 << 30),
        **({"componentCount": str(workloads), "workloadCount": str(workloads)} if workloads else {}),
        "imports": [
            {"namespace": namespace, "package": package, "version": version, "interfaces": list(interfaces)}
            for namespace, package, version, interfaces in _PLUGINS
        ],
        "exports": [{"namespace": "wasmcloud", "package": "messaging", "version": "0.2.0", "interfaces": ["handler"]}],
        "httpPort": 8180,
        "environment": NAMESPACE,
    }


def template(name: str, version: int) -> Json:
    """Return the template of a WorkloadDeployment; another ``version`` is another image."""
    interface = {
        "namespace": "wasi",
        "package": "http",
        "interfaces": ["incoming-handler"],
        "config": {"host": f"{name}.test"},
    }
    component = {"image": f"registry.test/demo/{name}:{version}", "name": "web"}
    return {"spec": {"components": [component], "hostInterfaces": [interface]}}


def replica_set_name(name: str, version: int) -> str:
    """Return the name of the WorkloadReplicaSet of a version: with a hash, as the operator's."""
    return f"{name}-{_hash(name, version)}"


def workload_name(name: str, version: int, replica: int = 0) -> str:
    """Return the name of a Workload."""
    return f"{replica_set_name(name, version)}-{_hash(name, version, replica)}"


def make_deployment(name: str, version: int, replicas: int) -> Manifest:
    """Return a WorkloadDeployment."""
    spec = {"deployPolicy": "RollingUpdate", "replicas": replicas, "template": template(name, version)}
    return {**_typed(WORKLOAD_DEPLOYMENTS, name, NAMESPACE), "spec": spec}


def make_replica_set(name: str, version: int, replicas: int, owner: str) -> Manifest:
    """Return a WorkloadReplicaSet; ``owner``: UID of its WorkloadDeployment."""
    labels = {"runtime.wasmcloud.dev/workload-deployment": name}
    manifest = _typed(WORKLOAD_REPLICA_SETS, replica_set_name(name, version), NAMESPACE, labels=labels)
    manifest["metadata"]["ownerReferences"] = [_owner(WORKLOAD_DEPLOYMENTS, name, owner)]
    return {**manifest, "spec": {"replicas": replicas, "template": template(name, version)}}


def make_workload(name: str, version: int, replica: int, owner: str) -> Manifest:
    """Return a Workload; ``owner``: UID of its WorkloadReplicaSet."""
    manifest = _typed(WORKLOADS, workload_name(name, version, replica), NAMESPACE)
    manifest["metadata"]["ownerReferences"] = [_owner(WORKLOAD_REPLICA_SETS, replica_set_name(name, version), owner)]
    generation = {"runtime.wasmcloud.dev/workload-replica-set-generation": _hash(name, version)}
    manifest["metadata"]["annotations"] = generation
    return {**manifest, "spec": template(name, version)["spec"]}


def workload_status(now: float, host: str, id_: str, *, fails: bool = False) -> Json:
    """Return the status of a Workload on a host; ``id_``: its UID."""
    if fails:
        ready = ("False", "workload is not placed or not synced")
        found = conditions(now, _STEPS, Sync=("False", FAILED), Ready=ready)
    else:
        found = conditions(now, (*_STEPS, "Sync", "Ready"))
    return {"conditions": found, "environment": NAMESPACE, "hostId": host, "workloadId": id_}


def replica_set_status(now: float, replicas: int, failed: int = 0) -> Json:
    """Return the status of a WorkloadReplicaSet, of which so many Workloads do not run. Counts of 0 are null."""
    counts = {
        "current": replicas,
        "expected": replicas,
        "ready": replicas - failed or None,
        "unavailable": failed or None,
    }
    if failed:
        ready = ("False", f"{failed} workloads are not available")
        return {"conditions": conditions(now, ("ScaleUp", "ScaleDown"), Ready=ready), "replicas": counts}
    return {"conditions": conditions(now, ("ScaleUp", "ScaleDown", "Ready")), "replicas": counts}


def deployment_status(now: float, name: str, version: int, replicas: int, failed: int = 0) -> Json:
    """Return the status of a WorkloadDeployment, of which so many Workloads do not run."""
    met = ("Artifact", "Sync", "Deploy")
    ready = replicas - failed
    if failed:
        text = f"current ReplicaSet not available yet: ready={ready} unavailable={failed} expected={replicas}"
        not_ready = ("Unknown", "status unknown: deployment is not synced, deployed or scaled")
        found = conditions(now, met, Scale=("Unknown", f"status unknown: {text}"), Ready=not_ready)
    else:
        found = conditions(now, (*met, "Scale", "Ready"))
    return {
        "conditions": found,
        "currentReplicaSet": {"name": replica_set_name(name, version)},
        "currentReplicas": replicas,
        "replicas": {"current": replicas, "expected": replicas, "ready": ready or None, "unavailable": failed or None},
        "selector": f"runtime.wasmcloud.dev/workload-deployment={name}",
    }


def _typed(res: Resource, name: str, namespace: str, labels: Mapping[str, str] | None = None) -> Manifest:
    metadata: Json = {"name": name, "namespace": namespace, **({"labels": dict(labels)} if labels else {})}
    return {"apiVersion": res.api_version, "kind": res.kind, "metadata": metadata}


def _owner(res: Resource, name: str, uid: str) -> Json:
    flags = {"blockOwnerDeletion": True, "controller": True}
    return {"apiVersion": res.api_version, "kind": res.kind, "name": name, "uid": uid, **flags}


def _hash(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:10]
