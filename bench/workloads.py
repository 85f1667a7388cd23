"""Memory of the views of Wasm pods, and the time to evaluate them, without servers.

It decodes manifests as large as real ones page by page, as the informer does, in a process of its own for each state of
the pods. "All" is what provisioner keeps of a pod: its view, its place in the indexes, and the result of its checks.
The pods of other RuntimeClasses are decoded and dropped. "Refused" are Events about controllers without pods: the views
are those of the Events, and "all" includes the controllers.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import subprocess
import sys
import time
from datetime import datetime
from functools import partial
from types import SimpleNamespace
from typing import Any, Final, cast

import msgspec
import psutil

from machine import describe
from provisioner.cache import Cache
from provisioner.domain.shim_resources import view_runtime_class
from provisioner.domain.workloads.decide import Workload, decide
from provisioner.settings import Settings
from provisioner.timings import WorkloadTimings
from provisioner.workloads.evidence import Evidence
from provisioner.workloads.gather import Gather
from provisioner.workloads.owners import Owners
from provisioner.workloads.pods import WorkloadPods
from provisioner.workloads.refused_creations import RefusedCreations
from provisioner.workloads.refused_owners import RefusedOwners
from trellis.kube.changes import Change, ChangeKind
from trellis.kube.client import Kube
from trellis.kube.pages import Items, decode_page
from trellis.kube.resources import REPLICA_SETS, Resource, key_of
from trellis.provisioning.nodes_and_jobs import view_node
from trellis.provisioning.shims import view_shim
from trellis.read_model.wasm_pods.pod_shape import POD_SHAPE
from trellis.read_model.wasm_pods.snapshot import Snapshot

CLASS: Final = "spin-v2"
STATES: Final = ("running", "pending", "failing", "other", "refused")
PAGE: Final = 200
PODS_PER_OWNER: Final = 20
PODS_PER_NODE: Final = 50
ALLOWED_MIB: Final = 40
CREATED: Final = "2026-11-27T10:00:00Z"
CREATED_AT: Final = datetime.fromisoformat(CREATED).timestamp()
HASH: Final = "6b8f9c7d5f"
_MANAGED: Final = {"f:metadata": {"f:labels": {f"f:label-{item}": {} for item in range(12)}}, "f:spec": {"f:a": {}}}


def pod(number: int, state: str) -> dict[str, Any]:
    """Return a pod of 5 kB as the API server sends it, with environment, volumes and managed fields."""
    owner = number // PODS_PER_OWNER
    name = f"checkout-{owner:04}-{HASH}-{number:05}"
    conditions = [
        {"type": kind, "status": "True" if state == "running" else "False", "lastTransitionTime": CREATED}
        for kind in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")
    ]
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": CREATED}
    if state == "pending":
        message = "0/200 nodes are available: 200 node(s) didn't match Pod's node affinity/selector."
        scheduled |= {"status": "False", "reason": "Unschedulable", "message": message}
    crashed = {"exitCode": 137, "reason": "Error", "startedAt": CREATED, "finishedAt": CREATED}
    status: dict[str, Any] = {
        "name": "app",
        "image": "registry.example.com/shop/checkout:1.4.2",
        "imageID": f"registry.example.com/shop/checkout@sha256:{'ab' * 32}",
        "ready": state == "running",
        "restartCount": 0 if state == "running" else 4,
        "state": {"running": {"startedAt": CREATED}},
    }
    if state == "failing":
        status["state"] = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s restarting container"}}
        status["lastState"] = {"terminated": crashed}
    return {
        "metadata": {
            "name": name,
            "namespace": f"team-{owner % 40}",
            "uid": f"2f0c8a3e-6d1b-4b7e-9a53-{number:012}",
            "resourceVersion": str(1_000_000 + number),
            "creationTimestamp": CREATED,
            "labels": {f"label-{item}": f"value-{item}" for item in range(11)} | {"pod-template-hash": HASH},
            "annotations": {f"annotation-{item}": "x" * 60 for item in range(8)},
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": f"checkout-{owner:04}-{HASH}",
                    "uid": f"7d2f8a3e-6d1b-4b7e-9a53-{owner:012}",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
            "managedFields": [
                {"manager": item, "operation": "Update", "apiVersion": "v1", "time": CREATED, "fieldsV1": _MANAGED}
                for item in ("kube-controller-manager", "kube-scheduler", "kubelet")
            ],
        },
        "spec": {
            "runtimeClassName": "kata" if state == "other" else CLASS,
            "nodeName": "" if state == "pending" else f"node-{number // PODS_PER_NODE:04}",
            "nodeSelector": {CLASS: "provisioned"},
            "restartPolicy": "Always",
            "tolerations": [
                {"key": f"node.kubernetes.io/{item}", "operator": "Exists", "effect": "NoExecute"}
                for item in ("not-ready", "unreachable")
            ],
            "containers": [
                {
                    "name": "app",
                    "image": "registry.example.com/shop/checkout:1.4.2",
                    "env": [{"name": f"VARIABLE_{item}", "value": "value"} for item in range(20)],
                    "volumeMounts": [{"name": "kube-api-access", "mountPath": "/var/run/secrets", "readOnly": True}],
                }
            ],
            "volumes": [{"name": "kube-api-access", "projected": {"defaultMode": 420, "sources": []}}],
        },
        "status": {
            "phase": "Pending" if state == "pending" else "Running",
            "conditions": [*conditions, scheduled],
            "containerStatuses": [] if state == "pending" else [status],
        },
    }


def replica_set(number: int) -> dict[str, Any]:
    """Return a controller of Wasm pods without one, of a Deployment."""
    of = {"apiVersion": "apps/v1", "kind": "Deployment", "name": f"checkout-{number:05}", "uid": f"deployment-{number}"}
    return {
        "metadata": {
            "name": f"checkout-{number:05}-{HASH}",
            "namespace": f"team-{number % 40}",
            "uid": f"7d2f8a3e-6d1b-4b7e-9a53-{number:012}",
            "creationTimestamp": CREATED,
            "ownerReferences": [of | {"controller": True}],
        },
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": f"checkout-{number:05}", "pod-template-hash": HASH}},
            "template": {"spec": pod(number, "pending")["spec"]},
        },
    }


def refusal(number: int) -> dict[str, Any]:
    """Return the Event about it, as kube-controller-manager writes it."""
    metadata, quota = replica_set(number)["metadata"], "used: pods=50, limited: pods=50"
    kept = {key: metadata[key] for key in ("name", "namespace", "uid")}
    words = f'Error creating: pods "{kept["name"]}-x" is forbidden: exceeded quota: team, requested: pods=1, {quota}'
    return {
        "metadata": {
            "name": f"{kept['name']}.{number:016x}",
            "namespace": kept["namespace"],
            "uid": f"2f0c8a3e-6d1b-4b7e-9a53-{number:012}",
            "resourceVersion": str(1_000_000 + number),
            "managedFields": [{"manager": "kube-controller-manager", "fieldsV1": _MANAGED}],
        },
        "involvedObject": {"apiVersion": "apps/v1", "kind": "ReplicaSet", **kept},
        "reason": "FailedCreate",
        "type": "Warning",
        "message": words,
        "lastTimestamp": CREATED,
    }


def _world(nodes: int) -> Cache:
    """Return a cache with nodes that run a Shim."""
    views = {}
    for number in range(nodes):
        name = f"node-{number:04}"
        metadata = {"name": name, "uid": name, "resourceVersion": "1", "labels": {CLASS: "provisioned", "zone": "a"}}
        ready = [{"type": "Ready", "status": "True"}]
        views[name] = view_node(
            {"metadata": metadata, "spec": {}, "status": {"conditions": ready, "runtimeHandlers": [{"name": "spin"}]}}
        )
    manifest = {
        "metadata": {"name": CLASS, "uid": "s", "resourceVersion": "1", "creationTimestamp": CREATED},
        "spec": {
            "fetchStrategy": {"anonHttp": {"location": "https://example.com/spin.tar.gz", "sha256": "ab" * 32}},
            "runtimeClass": {"name": CLASS, "handler": "spin"},
            "rolloutStrategy": {"type": "rolling", "rolling": {"maxUpdate": 1}},
        },
    }
    return Cache(_kube(), Settings(), views, {CLASS: view_shim(manifest)})


def _kube() -> Kube:
    return cast("Kube", SimpleNamespace(now=time.time))


def _items(body: bytes) -> Items:
    return Items(decode_page(body)["items"], POD_SHAPE, lambda: ValueError("no pod"))


async def measure(count: int, state: str) -> dict[str, float]:
    """Return memory in KiB and times in milliseconds for so many pods of a state."""
    process, pods = psutil.Process(), WorkloadPods()
    cache = _world(count // PODS_PER_NODE)
    metadata = {"name": CLASS, "uid": "c", "resourceVersion": "1"}
    scheduling = {"nodeSelector": {CLASS: "provisioned"}}
    classes = {CLASS: view_runtime_class({"metadata": metadata, "handler": "spin", "scheduling": scheduling})}
    evidence = Evidence(_kube(), WorkloadTimings(), unread="not read")
    creations = RefusedCreations(time.time, WorkloadTimings().refused_for)
    refused = RefusedOwners(_kube(), Owners(_kube()), creations, lambda: {CLASS}, WorkloadTimings())
    gather = Gather(cache, classes, lambda: True, evidence, refused, WorkloadTimings())
    body = msgspec.json.encode({"items": [pod(number, state) for number in range(PAGE)]})
    list(_items(body))  # what the first page allocates for good does not belong to the pods
    gc.collect()
    before, bytes_each, decoding = process.memory_info().rss, len(body) / PAGE, 0.0
    for first in range(0, count, PAGE):
        body = msgspec.json.encode({"items": [pod(number, state) for number in range(first, first + PAGE)]})
        began = time.perf_counter()
        for manifest in _items(body):
            view = pods.view(manifest, {CLASS})
            if view is not None:
                pods.objects[view.key] = view
                pods.take(Change(ChangeKind.ADDED, view.key, None, view))
        decoding += time.perf_counter() - began
    del body
    gc.collect()
    viewed = process.memory_info().rss
    began = time.perf_counter()
    snapshot, now = gather.snapshot(), time.time()
    for controller in pods.controllers():
        found = pods.of_controller(controller.uid)
        owner = Workload(found[0].namespace, controller.api_version, controller.kind, controller.name, controller.uid)
        decide(owner, await gather.observe(snapshot, found), None, now, 30.0)
    evaluating = time.perf_counter() - began
    gc.collect()
    return {
        "kept": len(pods.objects),
        "manifest_bytes": round(bytes_each),
        "views_kib": (viewed - before) / 1024,
        "all_kib": (process.memory_info().rss - before) / 1024,
        "decoding_ms": decoding * 1000,
        "evaluating_ms": evaluating * 1000,
    }


async def measure_refused(count: int) -> dict[str, float]:
    """Return memory in KiB and times in milliseconds for so many Events about controllers whose pods are refused."""

    async def get(resource: Resource, name: str, namespace: str) -> dict[str, Any]:
        del namespace
        found = replica_set(int(name.split("-")[1]))
        above = found["metadata"]["ownerReferences"][0]["uid"]
        return found if resource is REPLICA_SETS else {"metadata": {"uid": above}}

    health = SimpleNamespace(note=lambda *_: None)
    kube = cast("Kube", SimpleNamespace(now=lambda: CREATED_AT, get=get, health=health))
    timings = WorkloadTimings(patience=0.0, reads=0.0)
    creations = RefusedCreations(kube.now, timings.refused_for)
    refused = RefusedOwners(kube, Owners(kube), creations, lambda: {CLASS}, timings)
    process, size = psutil.Process(), 0
    msgspec.json.decode(msgspec.json.encode([refusal(number) for number in range(PAGE)]))
    gc.collect()
    before, decoding = process.memory_info().rss, 0.0
    for first in range(0, count, PAGE):
        body = msgspec.json.encode([refusal(number) for number in range(first, first + PAGE)])
        began, size = time.perf_counter(), len(body)
        for manifest in msgspec.json.decode(body):
            view = creations.view(manifest, {CLASS})
            if view is not None:
                creations.objects[key_of(manifest)] = view
                change = Change(ChangeKind.ADDED, key_of(manifest), None, view)
                creations.take(change)
                refused.take(change)
        decoding += time.perf_counter() - began
    del body
    gc.collect()
    viewed = process.memory_info().rss
    began = time.perf_counter()
    uids = await refused.read()
    snapshot = Snapshot(events=[*refused.events()])
    kept = sum(len(refused.observe(snapshot, {uid: ()}, ())) for uid in uids)
    del snapshot
    gc.collect()
    return {
        "kept": kept,
        "manifest_bytes": size // PAGE,
        "views_kib": (viewed - before) / 1024,
        "all_kib": (process.memory_info().rss - before) / 1024,
        "decoding_ms": decoding * 1000,
        "evaluating_ms": (time.perf_counter() - began) * 1000,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=10_000)
    parser.add_argument("--state", choices=STATES, help="measure one state in this process, and print JSON")
    arguments = parser.parse_args()
    if arguments.state:
        measured = measure_refused if arguments.state == "refused" else partial(measure, state=arguments.state)
        print(json.dumps(asyncio.run(measured(arguments.pods))))
        return 0
    print(describe())
    worst = 0.0
    for state in STATES:
        command = [sys.executable, __file__, "--pods", str(arguments.pods), "--state", state]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        worst = max(worst, found["all_kib"] / 1024)
        print(
            f"{arguments.pods} pods of {found['manifest_bytes']} bytes, {state}: kept {found['kept']}, views "
            f"{found['views_kib'] / 1024:.1f} MiB, all {found['all_kib'] / 1024:.1f} MiB "
            f"({found['all_kib'] / arguments.pods:.2f} KiB per pod), decoding {found['decoding_ms']:.0f} ms, "
            f"evaluation {found['evaluating_ms']:.0f} ms"
        )
    return int(worst > ALLOWED_MIB)


if __name__ == "__main__":
    sys.exit(main())
