"""The time from a failing pod to its event: ``python bench/workload_events.py [--pods N] [--changes N]``.

In: nothing; it starts a control plane of its own, without controllers and scheduler, creates pods of ReplicaSets as the
kubelet would report them, and runs provisioner in a process of its own. Out: figures, and the machine; exit status 1 if
one exceeds what is allowed. The latency starts before the request that changes the status of a pod and ends when
``wasm_workload.failed`` about its ReplicaSet is stored in TRELLIS_EVENTS; provisioner reads the Events of the pod in
between, because they could show another cause.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

import psutil

from hosts import wait
from machine import describe
from provision import free_port, http_ready, process
from provisioner.timings import WorkloadTimings
from trellis.crds.kinds import KINDS, make_definition
from trellis.kube.resources import DEFINITIONS, NAMESPACES, PODS, REPLICA_SETS, RUNTIME_CLASSES, SHIMS, Resource
from trellis_dev.localcluster import ClusterInfo, kill, owned_cluster
from trellis_dev.localcluster.api import Api
from v2 import Events, Row, percentile, table

NAMESPACE: Final = "shop"
CLASS: Final = "spin-v2"
PER_OWNER: Final = 20
IN_FLIGHT: Final = 8
QUIET: Final = ("kube-controller-manager", "kube-scheduler", "kwok")
"""Controllers that delete pods on nodes that do not exist, which are disabled."""
FAILED: Final = "wasm_workload.failed"
RUNNING: Final = "wasm_workload.running"
TARGET_EVENT: Final = 1.0
TARGET_MIB: Final = 40.0
Json = dict[str, Any]


def status(*, ready: bool) -> Json:
    state: Json = {"running": {"startedAt": "2026-11-27T10:00:00Z"}}
    if not ready:
        state = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s restarting container"}}
    container = {"name": "app", "image": "a", "imageID": "a", "ready": ready, "restartCount": 0, "state": state}
    if not ready:
        container |= {"restartCount": 3, "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}
    condition = {"type": "Ready", "status": "True" if ready else "False", "lastTransitionTime": "2026-11-27T10:00:00Z"}
    return {"status": {"phase": "Running", "conditions": [condition], "containerStatuses": [container]}}


class Cluster:
    """The objects of the benchmark."""

    def __init__(self, api: Api, pods: int) -> None:
        self._api = api
        self.owners = [f"checkout-{number:04d}" for number in range(pods // PER_OWNER)]

    def create(self, res: Resource, manifest: Json, namespace: str = NAMESPACE) -> Json:
        """Create an object, and return it as it is stored."""
        path = res.path(namespace) if res.namespaced else res.path()
        code, answer = self._api.call("POST", path, {"apiVersion": res.api_version, "kind": res.kind} | manifest)
        assert code in {201, 409}, answer
        return answer

    def write_owner(self, name: str) -> None:
        """Write a ReplicaSet and its pods, which are ready."""
        labels = {"app": name}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "app", "image": "a"}]}}
        spec = {"replicas": PER_OWNER, "selector": {"matchLabels": labels}, "template": template}
        uid = self.create(REPLICA_SETS, {"metadata": {"name": name}, "spec": spec})["metadata"]["uid"]
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": uid, "controller": True}
        for number in range(PER_OWNER):
            container = {"name": "app", "image": "a", "env": [{"name": f"V{item}", "value": "v"} for item in range(20)]}
            metadata = {"name": f"{name}-{number:02d}", "labels": labels, "ownerReferences": [owner]}
            pod = {"runtimeClassName": CLASS, "nodeName": f"node-{number}", "containers": [container]}
            self.create(PODS, {"metadata": metadata, "spec": pod})
            self.show(f"{name}-{number:02d}", ready=True)

    def show(self, pod: str, *, ready: bool) -> None:
        """Change the status of a pod as its kubelet does."""
        code, answer = self._api.call("PATCH", f"{PODS.path(NAMESPACE, pod)}/status", status(ready=ready))
        assert code == 200, answer

    def write_all(self) -> None:
        """Write all owners with their pods."""
        with ThreadPoolExecutor(IN_FLIGHT) as threads:
            for _ in threads.map(self.write_owner, self.owners):
                pass

    def fail(self, owner: str) -> float:
        """Let a pod of an owner fail; return when."""
        began = time.time()
        self.show(f"{owner}-{random.randrange(PER_OWNER):02d}", ready=False)
        return began


def provisioner(info: ClusterInfo, port: int, *, watch: bool) -> AbstractContextManager[psutil.Process]:
    environment = {
        "TRELLIS_KUBECONFIG": str(info.kubeconfig),
        "TRELLIS_NATS_URL": info.nats_url,
        "TRELLIS_HEALTH_PORT": str(port),
        "TRELLIS_WATCH_WORKLOADS": str(watch).lower(),
    }
    return process([sys.executable, "-m", "provisioner"], environment)


async def memory(info: ClusterInfo, settle: float) -> float:
    """Return the MiB of provisioner that does not watch workloads."""
    port = free_port()
    with provisioner(info, port, watch=False) as running:
        await http_ready(port)
        await asyncio.sleep(settle)
        return float(running.memory_info().rss) / 2**20


async def figures(info: ClusterInfo, cluster: Cluster, before: float, options: argparse.Namespace) -> list[Row]:
    events, port = Events(), free_port()
    reading = asyncio.create_task(events.read(info.nats_url))
    try:
        with provisioner(info, port, watch=True) as running:
            started = time.monotonic()
            await http_ready(port)
            await events.until(lambda: events.count(RUNNING) >= len(cluster.owners), "all are published")
            print(f"all published {time.monotonic() - started:.1f} s after the start of provisioner", flush=True)
            await asyncio.sleep(options.settle)
            steady, took = float(running.memory_info().rss) / 2**20, []
            for owner in cluster.owners[: options.changes]:
                await asyncio.sleep(random.uniform(0, 0.3))
                began = await asyncio.to_thread(cluster.fail, owner)
                took.append(await events.wait(FAILED, owner, began) - began)
            worked = float(running.memory_info().rss) / 2**20
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
    return [
        Row(f"status of a pod -> event, p50 of {len(took)}", statistics.median(took), "s"),
        Row(f"status of a pod -> event, p99 of {len(took)}", percentile(took, 0.99), "s", TARGET_EVENT),
        Row("  of which provisioner collects changes", WorkloadTimings().settle, "s"),
        Row("memory of provisioner without workloads", before, "MiB"),
        Row("  with them", steady, "MiB"),
        Row("  with them, after the changes", worked, "MiB"),
        Row("  difference, of the greater one", max(steady, worked) - before, "MiB", TARGET_MIB),
    ]


async def measure(info: ClusterInfo, options: argparse.Namespace) -> list[Row]:
    api = Api.of_kubeconfig(Path(info.kubeconfig))
    for kind in KINDS:
        await asyncio.to_thread(api.call, "POST", DEFINITIONS.path(), make_definition(kind))
    cluster = Cluster(api, options.pods)
    cluster.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
    cluster.create(RUNTIME_CLASSES, {"metadata": {"name": CLASS}, "handler": CLASS})
    await asyncio.to_thread(wait, lambda: api.ok(SHIMS.path()), "the CRDs are served")
    shim = {
        "nodeSelector": {"none": "none"},
        "fetchStrategy": {"anonHttp": {"location": "https://example.com/spin.tar.gz", "sha256": "ab" * 32}},
        "runtimeClass": {"name": CLASS, "handler": CLASS},
        "rolloutStrategy": {"type": "rolling", "rolling": {"maxUpdate": 1}},
    }
    cluster.create(SHIMS, {"metadata": {"name": CLASS}, "spec": shim})
    account = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default"
    await asyncio.to_thread(wait, lambda: api.ok(account), "the account of the pods exists")
    for component in QUIET:
        await asyncio.to_thread(kill, info.name, component)
    started = time.monotonic()
    await asyncio.to_thread(cluster.write_all)
    print(f"{options.pods} pods written in {time.monotonic() - started:.1f} s", flush=True)
    rows = await figures(info, cluster, await memory(info, options.settle), options)
    print(table(rows), flush=True)
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, default=5_000)
    parser.add_argument("--changes", type=int, default=200)
    parser.add_argument("--settle", type=float, default=10.0, help="seconds before memory is measured (default 10)")
    options = parser.parse_args()
    print(f"machine: {describe()}", flush=True)
    with owned_cluster() as info:
        rows = asyncio.run(measure(info, options))
    return 0 if all(row.good for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
