"""deploy/examples/hpa with metrics-server itself: two to five hosts, by the processor time that they take.

Nodes are simulated: what a pod takes is what an annotation of it says, which the kubelet of kwok serves as figures.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from support.examples.applied_examples import Kubectl
from support.examples.folders import manifest
from support.lattices.host_world import PATIENCE, HostWorld
from support.nodes.fleet import eventually
from support.operators.keda import METERED, USAGE, metered, metrics_server
from support.operators.operator_processes import Operators
from trellis.kube.resources import PODS, Resource

pytestmark = pytest.mark.cluster

HOSTS = "hosts"
AUTOSCALERS = Resource("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", namespaced=True)
SCALING_SECONDS = 180.0
"""The autoscaler looks every 15 s, metrics-server too; what a pod takes while it starts does not count."""


@pytest.fixture
def with_metrics(operators: Operators) -> Iterator[Operators]:
    with metrics_server(operators):
        yield operators


async def test_hosts_that_work_get_more_beside_them_and_idle_ones_go(
    with_metrics: Operators, hello: HostWorld, kubectl: Kubectl
) -> None:
    spec = manifest("hpa", "HorizontalPodAutoscaler")["spec"]
    least, most = int(spec["minReplicas"]), int(spec["maxReplicas"])
    calm = float(spec["behavior"]["scaleDown"]["stabilizationWindowSeconds"])

    def reported() -> dict[str, str]:
        found = hello.call("GET", AUTOSCALERS, HOSTS).get("status") or {}
        return {condition["type"]: condition["reason"] for condition in found.get("conditions") or ()}

    async def hosts(count: int, *, seconds: float = SCALING_SECONDS) -> None:
        def there() -> bool:
            return bool(hello.status(HOSTS).get("readyReplicas", 0) == count == len(hello.pods(HOSTS)))

        await eventually(there, f"{count} hosts", seconds=seconds)

    def work(usage: str | None) -> None:
        for pod in hello.pods(HOSTS):
            hello.call("PATCH", PODS, pod["metadata"]["name"], {"metadata": {"annotations": {USAGE: usage}}})

    kubectl("cordon", f"--selector=!{METERED}")  # of what is on other nodes there are no figures
    async with hello.service():
        await asyncio.to_thread(kubectl.apply, "host-group")
        await hello.settled(HOSTS)
        await asyncio.to_thread(kubectl.apply, "hpa")
        await hosts(least)
        await eventually(lambda: metered(with_metrics, hello.namespace), "there are figures", seconds=SCALING_SECONDS)
        await eventually(
            lambda: reported().get("ScalingActive") == "ValidMetricFound",
            "the autoscaler has its figure",
            seconds=PATIENCE,
        )
        work("150m")  # of each container; they ask for 100m and 20m
        await hosts(most)
        work(None)
        await hosts(least, seconds=calm + SCALING_SECONDS)
        await asyncio.to_thread(kubectl.delete, "hpa")
        await hello.settled(HOSTS)
