"""An API server that takes 2 s for each answer: services become ready, keep their lease and stay alive."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from support.cluster.api_proxy import ApiProxy
from support.cluster.kube_world import Watched, configmap, until
from trellis.kube.client import Kube
from trellis.kube.leader import Leader
from trellis.kube.resources import CONFIGMAPS, LEASES
from trellis_dev.localcluster import ClusterInfo

Connect = Callable[[Path], Awaitable[Kube]]
pytestmark = [pytest.mark.cluster, pytest.mark.thorough]

LATENCY = 2.0
RENEWALS = 10
"""They take twice the duration of a lease."""


async def test_a_slow_server_costs_neither_the_lease_nor_readiness(
    cluster: ClusterInfo, kube: Kube, connect: Connect, namespace: str, tmp_path: Path
) -> None:
    await kube.create(CONFIGMAPS, configmap(namespace, "a"))
    async with ApiProxy(Path(cluster.kubeconfig), tmp_path, keeps=True) as proxy:
        slow = await connect(proxy.kubeconfig(proxy.port, tmp_path / "slow"))
        proxy.late = LATENCY
        leader, terms = Leader(slow, lease="slow", namespace=namespace, identity="me"), 0

        async def lead(_: asyncio.Event) -> None:
            nonlocal terms
            terms += 1
            await asyncio.Event().wait()

        stop = asyncio.Event()
        leading = asyncio.create_task(leader.run(lead, stop))
        try:
            await until(lambda: leader.leading, "it leads", 30)
            puts = slow.telemetry.metrics.kube_requests_total.labels(slow.telemetry.service, "PUT", "leases", "200")
            enough = puts._value.get() + RENEWALS
            async with Watched(slow, namespace) as watched:
                assert f"{namespace}/a" in watched.informer.objects
                await until(lambda: slow.health.readiness().ok, "ready", 30)
                while puts._value.get() < enough:
                    assert leader.leading
                    assert slow.health.liveness().ok
                    assert slow.health.readiness().ok
                    await asyncio.sleep(0.2)
            lease = await kube.get(LEASES, "slow", namespace)
        finally:
            stop.set()
            leading.cancel()
            await asyncio.gather(leading, return_exceptions=True)
    assert terms == 1
    assert lease["spec"]["holderIdentity"] == "me"
    assert lease["spec"]["leaseTransitions"] == 0
