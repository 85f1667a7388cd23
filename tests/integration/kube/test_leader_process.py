"""A leader that was stopped by a signal (or a paused machine) writes nothing when it goes on."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from support import leading_process
from support.kube_world import Watched, configmap, eventually, until
from support.leading_process import LEASE, WRITTEN
from trellis.kube.client import Kube
from trellis.kube.leader import Leader
from trellis.kube.resources import CONFIGMAPS, LEASES
from trellis.localcluster import ClusterInfo

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster")]


@asynccontextmanager
async def process(cluster: ClusterInfo, namespace: str, name: str) -> AsyncIterator[asyncio.subprocess.Process]:
    program = str(leading_process.__file__)
    running = await asyncio.create_subprocess_exec(sys.executable, program, str(cluster.kubeconfig), namespace, name)
    try:
        yield running
    finally:
        running.kill()
        await running.wait()


async def test_a_stopped_leader_writes_nothing_after_it_goes_on(
    kube: Kube, namespace: str, cluster: ClusterInfo
) -> None:
    await kube.create(CONFIGMAPS, configmap(namespace, WRITTEN))
    key = f"{namespace}/{WRITTEN}"

    async with Watched(kube, namespace) as watched, process(cluster, namespace, "stopped") as leading:

        def last_writer() -> str:
            data: dict[str, str] = dict(watched.informer.objects[key].data)
            return data.get("writer", "")

        await until(lambda: last_writer() == "stopped", "the process leads and writes")
        leading.send_signal(signal.SIGSTOP)
        successor = Leader(kube, lease=LEASE, namespace=namespace, identity="successor")
        began = asyncio.Event()

        async def lead(_: asyncio.Event) -> None:
            began.set()
            await asyncio.Event().wait()

        campaign = asyncio.create_task(successor.run(lead, asyncio.Event()))
        await asyncio.wait_for(began.wait(), 14)
        data = {"data": {"writer": "successor"}}
        successor.check()
        await kube.merge_patch(CONFIGMAPS, WRITTEN, data, namespace, field_manager="successor")
        leading.send_signal(signal.SIGCONT)
        looks = await renewals(kube, namespace, 3)
        assert looks == {"successor"}
        assert (await kube.get(CONFIGMAPS, WRITTEN, namespace))["data"]["writer"] == "successor"
        assert leading.returncode is None, "it goes on as a candidate"
        campaign.cancel()
        await asyncio.gather(campaign, return_exceptions=True)


async def renewals(kube: Kube, namespace: str, number: int) -> set[str]:
    """Return who held the lease over that many of its renewals: 2 s each."""
    holders: dict[str, str] = {}

    async def seen_enough() -> bool:
        spec = (await kube.get(LEASES, LEASE, namespace))["spec"]
        holders[spec["renewTime"]] = spec["holderIdentity"]
        return len(holders) > number

    await eventually(seen_enough, f"{number} renewals")
    return set(holders.values())
