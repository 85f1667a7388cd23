"""deploy/examples/host-group, and hpa and keda over it: hosts beside their NATS and wadm, more and fewer of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.examples.applied_examples import Kubectl
from support.examples.folders import manifest
from support.lattices.host_world import PATIENCE, HostWorld
from support.nodes.fleet import eventually
from trellis.kube.resources import DEPLOYMENTS, HOST_CONFIGS, Resource

pytestmark = [pytest.mark.cluster, pytest.mark.nats]

AUTOSCALERS = Resource("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", namespaced=True)
HELLO = "hello"
"""The namespace, and the lattice."""
HOSTS = "hosts"
"""The group of hosts."""
ARGO_CD = ("--server-side", "--field-manager=argocd-controller")
SCALING_SECONDS = 120.0
"""The autoscaler of Kubernetes looks every 15 s, and learns of new kinds every 30 s."""


async def test_the_host_group_has_its_host_beside_nats_and_wadm(hello: HostWorld, kubectl: Kubectl) -> None:
    async with hello.service():
        kubectl.apply("host-group")
        await hello.settled(HOSTS)
        assert hello.status(HOSTS)["readyReplicas"] == 1

        def available() -> set[str]:
            found = hello.call("GET", DEPLOYMENTS)["items"]
            return {item["metadata"]["name"] for item in found if item["status"].get("availableReplicas") == 1}

        await eventually(lambda: available() == {"nats", "wadm", HOSTS}, "all are available", seconds=PATIENCE)


@pytest.mark.thorough
async def test_the_autoscaler_of_kubernetes_changes_the_number_of_hosts_and_argo_cd_leaves_it(
    hello: HostWorld, kubectl: Kubectl
) -> None:
    """Without metrics it still holds the group between its two numbers."""
    least, most = (manifest("hpa", "HorizontalPodAutoscaler")["spec"][f"{item}Replicas"] for item in ("min", "max"))

    def ready(count: int) -> Callable[[], bool]:
        return lambda: bool(hello.status(HOSTS).get("readyReplicas", 0) == count)

    async with hello.service():
        kubectl.apply("host-group", *ARGO_CD)
        await hello.settled(HOSTS)
        kubectl.apply("hpa")
        await eventually(ready(least), "as many as the least", seconds=SCALING_SECONDS)
        kubectl.apply("host-group", *ARGO_CD)
        assert hello.call("GET", HOST_CONFIGS, HOSTS)["spec"]["hostReplicas"] == least
        kubectl("scale", "whc", HOSTS, "-n", HELLO, f"--replicas={most + 2}")
        await eventually(ready(most), "as many as the most", seconds=SCALING_SECONDS)
        conditions = {
            condition["type"]: condition["status"]
            for condition in hello.call("GET", AUTOSCALERS, HOSTS)["status"]["conditions"]
        }
        assert conditions["AbleToScale"] == "True", conditions


@pytest.mark.thorough
async def test_a_target_of_keda_is_scaled_to_none_and_back(hello: HostWorld, kubectl: Kubectl) -> None:
    """KEDA itself writes /scale between none and one; from there on an autoscaler of Kubernetes does."""
    target = manifest("keda", "ScaledObject")["spec"]["scaleTargetRef"]
    assert (target["kind"], target["name"]) == (HOST_CONFIGS.kind, HOSTS)

    async def scaled(count: int) -> None:
        scale = hello.call("GET", HOST_CONFIGS, HOSTS, sub="scale")
        hello.call("PUT", HOST_CONFIGS, HOSTS, scale | {"spec": {"replicas": count}}, sub="scale")
        await hello.settled(HOSTS)
        await eventually(lambda: hello.status(HOSTS).get("readyReplicas", 0) == count, f"{count}", seconds=PATIENCE)

    async with hello.service():
        kubectl.apply("host-group")
        await hello.settled(HOSTS)
        await scaled(0)
        await scaled(1)
