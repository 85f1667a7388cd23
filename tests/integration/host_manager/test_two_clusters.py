"""One lattice over two clusters, whose NATS servers are joined, with a host_manager on each side."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from host_manager.timings import Timings
from support.lattices.host_behaviour import own_lattice
from support.lattices.host_world import PATIENCE, HostWorld, host_world
from support.lattices.stub_host import Options, StubHost, stub_host
from support.nodes.fleet import Fleet, eventually
from support.suite.tcp_proxy import TcpProxy
from trellis.lattice.timings import ConnectionTimings, HostWatchTimings, LatticeTimings
from trellis_dev.localcluster import kill, owned_cluster, restart
from trellis_dev.localcluster.api import Api
from trellis_dev.localcluster.leafnodes import join

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400), pytest.mark.thorough]

TIMINGS = Timings(
    lattice=LatticeTimings(
        silence=5.0,  # hosts beat twice a second here
        connection=ConnectionTimings(ping=0.5, backoff_first=0.1, backoff_most=0.5),
        hosts=HostWatchTimings(tick=0.2),
    )
)


class Side:
    """A cluster of the two: its world, and the hosts that run in the pods of its group."""

    def __init__(self, world: HostWorld) -> None:
        self.world = world
        self.hosts: list[StubHost] = []

    @property
    def nats_port(self) -> int:
        return int(self.world.fleet.info.nats_url.rpartition(":")[2])

    @property
    def ids(self) -> set[str]:
        return {host.id for host in self.hosts}

    def pods(self) -> set[tuple[str, str]]:
        """Return name and uid of each pod of the group."""
        return {(pod["metadata"]["name"], pod["metadata"]["uid"]) for pod in self.world.pods("group")}

    def shows(self) -> set[str]:
        """Return the ids of all hosts of the lattice that the group's status shows."""
        return {host["id"] for host in self.world.status("group").get("latticeHosts") or ()}

    def beside_pods(self) -> set[tuple[str, str, str]]:
        """Return pod, id and heartbeat state of each host that the status shows beside a pod."""
        hosts = self.world.status("group").get("hosts") or ()
        return {(host["pod"], host.get("id", ""), host["reported"]) for host in hosts}

    def received(self) -> set[tuple[str, str, str]]:
        """Return what ``beside_pods`` is when all is well."""
        return {(host.labels["kubernetes_pod"], host.id, "Yes") for host in self.hosts}

    async def create(self, lattice: str, replicas: int) -> None:
        at = {"natsAddress": "nats://127.0.0.1", "natsClientPort": self.nats_port}
        self.world.create("group", hostReplicas=replicas, lattice=lattice, **at)
        await self.until(lambda: self.world.status("group").get("readyReplicas") == replicas, "its pods")

    async def until(self, holds: Callable[[], object], what: str) -> None:
        try:
            await eventually(holds, what, seconds=2 * PATIENCE)
        except AssertionError:
            pytest.fail(f"not within {2 * PATIENCE} s: {what}: {self.world.status('group')}")


@contextlib.contextmanager
def side() -> Iterator[Side]:
    """Have a cluster with nodes for groups."""
    with (
        owned_cluster() as info,
        contextlib.closing(Api.of_kubeconfig(Path(info.kubeconfig))) as api,
        host_world(Fleet(info, api), "default") as world,
    ):
        yield Side(world)


@contextlib.asynccontextmanager
async def hosts_in(one: Side, lattice: str) -> AsyncIterator[None]:
    """Have a host in each pod of a side's group, on that side's NATS."""
    async with contextlib.AsyncExitStack() as stack:
        for pod, _ in sorted(one.pods()):
            labels = {"kubernetes_pod": pod}
            url = one.world.fleet.info.nats_url
            options = Options(lattice=lattice, labels=labels, heartbeat=0.5, url=url)
            one.hosts.append(await stack.enter_async_context(stub_host(options)))
        yield


async def test_each_cluster_shows_its_pods_and_all_hosts_and_outages_restart_nothing() -> None:
    lattice = own_lattice()
    with side() as near, side() as far:
        item, two = near.world.fleet.info.name, far.world.fleet.info.name
        hub = await asyncio.to_thread(join, item, [])
        async with TcpProxy("127.0.0.1", hub) as cable:
            await asyncio.to_thread(join, item, [two], through=cable.port)
            async with near.world.service(TIMINGS), far.world.service(TIMINGS):
                await near.create(lattice, 2)
                await far.create(lattice, 1)
                async with hosts_in(near, lattice), hosts_in(far, lattice):
                    await _outages(near, far, cable)


async def _outages(near: Side, far: Side, cable: TcpProxy) -> None:
    pods = near.pods(), far.pods()
    await _all_well(near, far)

    await cable.refuse()
    for here in (near, far):
        await here.until(lambda here=here: here.shows() == here.ids, "the others are silent")
        await here.until(lambda here=here: here.beside_pods() == here.received(), "its own are heard")
        assert here.world.condition("group", "Available")[0] == "True"
    await cable.open()
    await _all_well(near, far)

    await asyncio.to_thread(kill, far.world.fleet.info.name, "nats-server")
    reason = "LatticeUnreachable"
    await far.until(lambda: far.world.condition("group", "HostsReporting")[1] == reason, "it is missed")
    unknown = {(pod, host, "Unknown") for pod, host, _ in far.received()}
    await far.until(lambda: far.beside_pods() == unknown, "what it was told stays")
    assert far.shows() == near.ids | far.ids
    await near.until(lambda: near.beside_pods() == near.received(), "here it is not")
    await asyncio.to_thread(restart, far.world.fleet.info.name, "nats-server")
    await _all_well(near, far)
    assert (near.pods(), far.pods()) == pods, "no pod was restarted"


async def _all_well(near: Side, far: Side) -> None:
    everybody: Any = near.ids | far.ids
    for here in (near, far):
        await here.until(lambda here=here: here.shows() == everybody, "all hosts")
        await here.until(lambda here=here: here.beside_pods() == here.received(), "its own beside its pods")
