"""Reasons for hosts that do not run are reported in the words of their source; and an autoscaler finds its group."""

from __future__ import annotations

import http
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from host_manager.timings import Timings
from support.cluster.exclusion import place
from support.cluster.stand_ins import answering
from support.lattices.host_world import PATIENCE, HostWorld
from support.nodes.fleet import eventually
from trellis.kube.resources import API_SERVICES, EVENTS, HOST_CONFIGS, NODES, SERVICES, Resource
from trellis.kube.timings import RefusalTimings

pytestmark = pytest.mark.cluster

AUTOSCALER = "system:serviceaccount:kube-system:horizontal-pod-autoscaler"
AUTOSCALING_PATIENCE = 120.0
"""It looks every 15 s, and knows new kinds after 30 s."""
RECOVERED_SECONDS = 30.0
"""After which everything runs that a refusal kept from it."""
ATTEMPTS = 15
REPLICA_SETS = Resource("apps", "v1", "replicasets", "ReplicaSet", namespaced=True)
METRICS = "v1beta1.metrics.k8s.io"
LAST_LOG_LINE = "failed to connect to NATS: authorization violation"


@pytest.fixture
async def running(hosts: HostWorld) -> AsyncIterator[HostWorld]:
    async with hosts.service(Timings(refusals=RefusalTimings(retry=1.0))):
        yield hosts


def refused_pods(hosts: HostWorld) -> int:
    """Return how often a pod was refused, by Events."""
    events = [item for item in hosts.call("GET", EVENTS)["items"] if item["reason"] == "FailedCreate"]
    return sum(event.get("count") or 1 for event in events)


async def degraded(hosts: HostWorld, reason: str, *expected_text: str) -> None:
    """Wait until a group says so."""

    def holds() -> bool:
        status, found, message = hosts.condition("group", "Degraded")
        return (status, found) == ("True", reason) and all(word in message for word in expected_text)

    try:
        await eventually(holds, reason, seconds=PATIENCE)
    except AssertionError:
        pytest.fail(f"not {reason} with {expected_text}: {hosts.condition('group', 'Degraded')}")


@asynccontextmanager
async def quota(hosts: HostWorld) -> AsyncIterator[None]:
    """Have a quota of one pod, for the time of a block that ends after many attempts to make another one."""
    path = f"/api/v1/namespaces/{hosts.namespace}/resourcequotas"
    body = {"metadata": {"name": "small"}, "spec": {"hard": {"pods": "1"}}}
    assert hosts.api.call("POST", path, body)[0] == http.HTTPStatus.CREATED
    await eventually(
        lambda: (hosts.api.call("GET", f"{path}/small")[1].get("status") or {}).get("used"), "it counts", seconds=60
    )
    yield
    # By themselves the controllers of pods wait for twice as long after each attempt: 40 s and more after these.
    await eventually(lambda: refused_pods(hosts) >= ATTEMPTS, "many attempts", seconds=3 * PATIENCE)
    assert hosts.api.call("DELETE", f"{path}/small")[0] == http.HTTPStatus.OK


async def test_a_quota_that_refuses_pods_is_reported_in_its_words_and_ends_with_it(running: HostWorld) -> None:
    async with quota(running):
        running.create("group", hostReplicas=2)
        await degraded(running, "FailedCreate", "exceeded quota: small", "limited: pods=1")
    await eventually(
        lambda: running.status("group").get("readyReplicas") == 2, "all hosts run", seconds=RECOVERED_SECONDS
    )
    assert len(running.call("GET", REPLICA_SETS)["items"]) == 1, "no pod was made anew for it"
    await running.settled("group")


@pytest.mark.thorough
async def test_pods_of_a_daemon_set_that_a_quota_refused_run_soon_after_it(running: HostWorld) -> None:
    async with quota(running):
        running.create("group", schedulingOptions={"daemonset": True})
        await eventually(lambda: len(running.pods("group")) == 1, "one host runs", seconds=PATIENCE)
    await eventually(
        lambda: running.condition("group", "Available")[0] == "True", "all hosts run", seconds=RECOVERED_SECONDS
    )
    assert len(running.pods("group")) >= 2


@pytest.mark.thorough
async def test_an_unpullable_image_is_reported_in_the_words_of_the_kubelet(running: HostWorld) -> None:
    running.create("group")
    await running.settled("group")
    [pod] = running.pods("group")
    running.wait_in(pod, "ImagePullBackOff", 'Back-off pulling image "ghcr.io/wasmcloud/wasmcloud:1.4.0"')
    await degraded(
        running, "ImagePullBackOff", f"pod {pod['metadata']['name']}, container wasmcloud-host", "wasmcloud:1.4.0"
    )
    # The Deployment's own count follows the pod's status a little later.
    await eventually(lambda: running.condition("group", "Available")[0] == "False", "not ready", seconds=PATIENCE)


@contextmanager
def kubelet(hosts: HostWorld, node: str, directory: Path, log: Callable[[str], str | None]) -> Iterator[None]:
    """Let a node have a kubelet that gives logs."""
    with answering(directory, lambda path, _: log(path)) as port:
        status = {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        }
        answer = hosts.api.call("PATCH", NODES.path(None, node, "status"), {"status": status})
        assert answer[0] == http.HTTPStatus.OK, answer
        yield


async def test_a_host_that_crashes_is_reported_with_how_it_ended_and_the_last_line_of_its_log(
    running: HostWorld, tmp_path: Path
) -> None:
    running.create("group")
    await running.settled("group")
    [pod] = running.pods("group")
    name, node = pod["metadata"]["name"], pod["spec"]["nodeName"]
    requested: list[str] = []

    def log(path: str) -> str:
        requested.append(path)
        return f"starting\n{LAST_LOG_LINE}\n\n"

    with kubelet(running, node, tmp_path / "kubelet", log):
        last = {"exitCode": 137, "reason": "OOMKilled"}
        running.wait_in(pod, "CrashLoopBackOff", "back-off 5m0s restarting", last)
        await degraded(
            running,
            "CrashLoopBackOff",
            "back-off 5m0s restarting; ",
            "137 (OOMKilled)",
            LAST_LOG_LINE,
        )
        assert set(requested) == {f"/containerLogs/{running.namespace}/{name}/wasmcloud-host"}


@pytest.mark.thorough
async def test_a_crash_is_reported_without_a_log_too(running: HostWorld) -> None:
    running.create("group")
    await running.settled("group")
    [pod] = running.pods("group")
    running.wait_in(pod, "CrashLoopBackOff", "back-off 10s restarting")
    await degraded(running, "CrashLoopBackOff", "back-off 10s restarting")
    assert running.condition("group", "Degraded")[2].partition(" (")[0] == "back-off 10s restarting"


@dataclass
class Metrics:
    """The memory that pods use, 300 MiB together. ``pods``: those there are; ``requested``: the queries for them."""

    pods: list[dict[str, Any]] = field(default_factory=list)
    requested: list[dict[str, str]] = field(default_factory=list)


@pytest.fixture
def metrics(hosts: HostWorld, tmp_path: Path) -> Iterator[Metrics]:
    """A metrics API."""
    made = Metrics()

    def answer(path: str, query: dict[str, str]) -> Any:
        version = {"groupVersion": "metrics.k8s.io/v1beta1"}
        if path == "/apis/metrics.k8s.io/v1beta1":
            pods = {"name": "pods", "singularName": "", "namespaced": True, "kind": "PodMetrics", "verbs": ["list"]}
            return {"kind": "APIResourceList", "apiVersion": "v1", **version, "resources": [pods]}
        if path != f"/apis/metrics.k8s.io/v1beta1/namespaces/{hosts.namespace}/pods":
            return None
        made.requested.append(query)
        pods = made.pods
        items = [usage(pods, pod) for pod in pods]
        return {"kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "items": items}

    def usage(pods: list[Any], pod: Any) -> Any:
        containers = [{"name": "wasmcloud-host", "usage": {"memory": f"{300 // len(pods)}Mi"}}]
        metadata = {name: pod["metadata"][name] for name in ("name", "namespace", "labels")}
        return {"metadata": metadata, "timestamp": "2026-01-01T00:00:00Z", "window": "30s", "containers": containers}

    with answering(tmp_path / "metrics", answer) as port:
        # A name, as an address of this very machine is no endpoint that a Service may have.
        service = {"metadata": {"name": "metrics"}, "spec": {"type": "ExternalName", "externalName": "localhost"}}
        hosts.call("POST", SERVICES, body=service)
        spec = {
            "group": "metrics.k8s.io",
            "version": "v1beta1",
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "insecureSkipTLSVerify": True,
            "service": {"name": "metrics", "namespace": hosts.namespace, "port": port},
        }
        answer_ = hosts.api.call("POST", API_SERVICES.path(), {"metadata": {"name": METRICS}, "spec": spec})
        assert answer_[0] == http.HTTPStatus.CREATED, answer_
        try:
            yield made
        finally:  # while it is there and away no namespace can be deleted
            hosts.api.call("DELETE", API_SERVICES.path(None, METRICS))


@pytest.mark.thorough
async def test_an_autoscaler_scales_a_group_by_what_its_pods_use(running: HostWorld, metrics: Metrics) -> None:
    running.create("group")
    await running.settled("group")
    offset = running.fleet.audit_offset()
    memory = {"name": "memory", "target": {"type": "AverageValue", "averageValue": "100Mi"}}
    target = {"apiVersion": HOST_CONFIGS.api_version, "kind": HOST_CONFIGS.kind, "name": "group"}
    spec = {"scaleTargetRef": target, "maxReplicas": 5, "metrics": [{"type": "Resource", "resource": memory}]}
    path = f"/apis/autoscaling/v2/namespaces/{running.namespace}/horizontalpodautoscalers"
    made = running.api.call("POST", path, {"metadata": {"name": "group"}, "spec": spec})
    assert made[0] == http.HTTPStatus.CREATED, made

    def scaled() -> bool:
        metrics.pods = running.pods("group")
        return running.status("group").get("readyReplicas") == 3

    try:
        await eventually(scaled, "three hosts", seconds=AUTOSCALING_PATIENCE)
    except AssertionError:
        pytest.fail(f"it does not scale: {running.api.call('GET', f'{path}/group')[1]['status']}")
    assert running.call("GET", HOST_CONFIGS, "group")["spec"]["hostReplicas"] == 3
    assert {query["labelSelector"] for query in metrics.requested} == {
        ",".join(sorted(running.status("group")["selector"].split(",")))
    }
    writes = [write for write in running.fleet.writes(offset) if write["user"]["username"] == AUTOSCALER]
    assert (HOST_CONFIGS.plural, running.namespace, "group") in [place(write) for write in writes]
