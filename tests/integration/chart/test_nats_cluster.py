"""Three servers with the chart's configuration: published events outlive any one of them, and services continue."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import nats.errors
import pytest

from support.chart.chart_nats import ChartServers, PodServer
from support.chart.rendered import hooks, rendered
from support.nats.buses import Buses, Listener, eventually, eventually_async, opted_out
from trellis.bus.accounts.naming import CLAIM_STREAM
from trellis.bus.bus import Bus, BusUnavailable
from trellis.bus.connection.dial import dial
from trellis.bus.connection.user_client import UserClient
from trellis.bus.streams.streams import limits_with
from trellis.events.node import NodeOptedOut
from trellis.events.subjects import NODE_WATCHER, PROVISIONER, STREAM_EVENTS, STREAM_SUBJECTS

pytestmark = [pytest.mark.nats, pytest.mark.timeout(300)]

CLUSTER = "trellis"
PATIENCE = 60.0
ELECTING = (nats.errors.Error, TimeoutError)
"""What servers answer, or do not, until each stream has a leader."""


class World:
    """The servers, a service that publishes events and one that receives them."""

    def __init__(self, servers: ChartServers) -> None:
        self.servers = servers
        self.buses = Buses("", CLUSTER)
        self.listener = Listener()
        self.published: list[str] = []

    async def begin(self) -> None:
        self.watcher, self.provisioner = self.bus(NODE_WATCHER), self.bus(PROVISIONER)
        self.provisioner.subscribe("nodes", [NodeOptedOut], self.listener)
        for bus in (self.watcher, self.provisioner):
            await bus.connect()
            await bus.start()
        self.users = await dial(self.servers.url(), "test", self.servers.credentials("cli"))

    def bus(self, service: str) -> Bus:
        self.buses.url = self.servers.url()
        return self.buses.new(service, limits=limits_with(3), credentials=self.servers.credentials(service))

    async def publish(self, count: int) -> None:
        """Say so many events, as services do: events that could not be published are published again."""
        for _ in range(count):
            node = f"n{len(self.published)}"
            while True:
                try:
                    await self.watcher.publish(opted_out(node), dedup=node)
                except BusUnavailable:
                    continue
                break
            self.published.append(node)

    async def all_received(self) -> None:
        await eventually(lambda: set(self.listener.names) >= set(self.published), PATIENCE)

    async def all_ready(self) -> None:
        await eventually(lambda: all(health.readiness().ok for health in self.buses.healths), PATIENCE)

    async def copies(self) -> dict[str, int]:
        """Return how many servers have all of each stream."""
        found = {}
        for name in (*STREAM_SUBJECTS, CLAIM_STREAM):
            info = (await self.users.jetstream().stream_info(name)).cluster
            assert info is not None
            found[name] = sum(1 for replica in info.replicas or [] if replica.current) + bool(info.leader)
        return found

    async def leader(self) -> PodServer:
        """Return the server that leads the stream of events."""
        info = (await self.users.jetstream().stream_info(STREAM_EVENTS)).cluster
        assert info is not None
        assert info.leader is not None
        return self.servers.pods[int(info.leader.rpartition("-")[2])]

    async def close(self) -> None:
        await self.users.close()
        await self.buses.close()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    with ChartServers(tmp_path, rendered(), hooks("pre-install")).running() as servers:
        await servers.ready()
        made = World(servers)
        await made.begin()
        yield made
        for pod in servers.pods:
            pod.server.start()
        await made.close()


async def complete(world: World) -> bool:
    with contextlib.suppress(*ELECTING):
        return set((await world.copies()).values()) == {3}
    return False


@pytest.mark.thorough
async def test_services_make_every_stream_with_a_copy_on_each_server(world: World) -> None:
    await eventually_async(lambda: complete(world), PATIENCE)
    info = await world.users.jetstream().consumer_info(STREAM_EVENTS, f"provisioner-nodes-{CLUSTER}")
    assert info.cluster is not None
    assert len(info.cluster.replicas or []) == 2, "who reads keeps its place on all of them too"


@pytest.mark.thorough
async def test_published_events_survive_the_loss_of_the_leading_server_and_services_continue(world: World) -> None:
    await world.publish(20)
    lost = await world.leader()
    publishing = asyncio.create_task(world.publish(60))
    lost.server.kill()
    await publishing
    await world.all_received()
    await world.all_ready()
    await lost.started()
    await world.publish(5)
    await world.all_received()
    stored = (await world.users.jetstream().stream_info(STREAM_EVENTS)).state.messages
    assert stored == len(world.published), "each once"


@pytest.mark.thorough
async def test_with_two_servers_unavailable_nothing_is_lost_and_it_continues_when_one_is_back(world: World) -> None:
    await world.publish(10)
    first = await world.leader()
    others = [pod for pod in world.servers.pods if pod is not first]
    for item in others:
        item.server.kill()
    publishing = asyncio.create_task(world.publish(10))
    await eventually(lambda: not all(health.readiness().ok for health in world.buses.healths), PATIENCE)
    assert not publishing.done(), "nothing is stored by one of three"
    await others[0].started()
    await publishing
    await world.all_received()
    await world.all_ready()


@pytest.mark.thorough
async def test_a_rolling_restart_loses_nothing(world: World) -> None:
    """As a StatefulSet does it: the last first, the next when it is started and ready."""
    stop = asyncio.Event()

    async def on_and_on() -> None:
        while not stop.is_set():
            await world.publish(1)
            await asyncio.sleep(0.02)

    publishing = asyncio.create_task(on_and_on())
    for pod in reversed(world.servers.pods):
        await pod.ended()
        await pod.started()
    stop.set()
    await publishing
    await world.all_received()
    await world.all_ready()
    stored = (await world.users.jetstream().stream_info(STREAM_EVENTS)).state.messages
    assert stored == len(world.published), "each once"


async def test_a_deleted_stream_is_recreated_with_three_replicas(world: World) -> None:
    """All disks are lost: services find no stream, create it again and list everything."""
    listed: list[int] = []
    world.watcher.on_new_stream.append(lambda: listed.append(1))
    for pod in world.servers.pods:
        pod.server.kill()
        for path in sorted((pod.directory / "server" / "store").rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
    for pod in world.servers.pods:
        pod.server.start()
    await world.servers.ready()
    await eventually(lambda: listed, PATIENCE)
    await eventually_async(lambda: made_again(world.users), PATIENCE)
    await eventually_async(lambda: complete(world), PATIENCE)


async def made_again(users: UserClient) -> bool:
    with contextlib.suppress(*ELECTING):
        await users.jetstream().stream_info(CLAIM_STREAM)
        return True
    return False
