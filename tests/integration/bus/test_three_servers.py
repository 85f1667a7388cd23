"""Three servers that keep a copy of each stream: one comes back without its storage, or all from one older backup."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import nats
import nats.errors
import pytest
from nats.js.api import StreamInfo

from chaos.bus_servers import BusServers, quiet
from support.nats.buses import Buses, Listener, eventually, eventually_async, opted_out
from trellis.bus.bus import Bus, BusUnavailable
from trellis.bus.streams.streams import limits_with
from trellis.events.subjects import NODE_WATCHER, STREAM_EVENTS
from trellis_dev.localcluster.nats import NatsServer

pytestmark = [pytest.mark.nats, pytest.mark.thorough, pytest.mark.timeout(600)]

RECOVERS_SECONDS = 30.0
ELECTION_SECONDS = 180.0
"""Elections take up to nine seconds when there is nothing else to do, and more than a minute on a busy machine."""
COPIES = 3


@dataclass
class Trio:
    """The servers, a service that publishes and one that consumes."""

    directory: Path
    servers: BusServers
    buses: Buses
    listener: Listener = field(default_factory=Listener)
    lists: list[str] = field(default_factory=list)
    published: list[str] = field(default_factory=list)

    async def begin(self) -> tuple[Bus, Bus]:
        limits = limits_with(COPIES)
        watcher = self.buses.new(NODE_WATCHER, limits=limits)
        await watcher.connect()
        consumer = await self.buses.consuming(self.listener, limits=limits)
        await eventually(lambda: not self.reasons, ELECTION_SECONDS)
        for name, bus in (("watcher", watcher), ("consumer", consumer)):
            bus.on_new_stream.append(lambda name=name: self.lists.append(name))
        return watcher, consumer

    @property
    def reasons(self) -> list[str]:
        return [reason for health in self.buses.healths for reason in health.readiness().reasons]

    async def publish(self, bus: Bus, count: int) -> None:
        """Publish events, and go on with each until it is stored."""
        async with asyncio.timeout(ELECTION_SECONDS):
            for _ in range(count):
                name = f"n-{secrets.token_hex(4)}"
                while not await stored(bus, name):
                    pass
                self.published.append(name)

    async def all_received(self) -> None:
        await eventually(lambda: set(self.published) <= set(self.listener.names), RECOVERS_SECONDS)

    async def info(self) -> StreamInfo | None:
        """Return what a server says about the stream, None while none can."""
        with contextlib.suppress(nats.errors.Error, OSError, TimeoutError):
            client = await nats.connect(self.servers.urls, allow_reconnect=False, error_cb=quiet)
            try:
                return await client.jetstream(timeout=2).stream_info(STREAM_EVENTS)
            finally:
                await client.close()
        return None

    async def whole(self) -> bool:
        """Say whether each server has all of the stream."""
        info = await self.info()
        copies = info.cluster.replicas or [] if info and info.cluster else []
        return len(copies) == COPIES - 1 and all(copy.current and not copy.offline for copy in copies)

    async def leader(self) -> int:
        info = await self.info()
        assert info is not None
        assert info.cluster is not None
        return int(str(info.cluster.leader).removeprefix("chaos-"))


async def stored(bus: Bus, name: str) -> bool:
    with contextlib.suppress(BusUnavailable):
        await bus.publish(opted_out(name), dedup=name)
        return True
    await asyncio.sleep(0.1)
    return False


@pytest.fixture
async def trio(tmp_path: Path) -> AsyncIterator[Trio]:
    servers = BusServers(tmp_path / "bus", COPIES)
    async with servers.running():
        made = Trio(tmp_path, servers, Buses(",".join(servers.urls), f"c-{secrets.token_hex(4)}"))
        yield made
        await made.buses.close()


@pytest.mark.parametrize("whom", ["leader", "other"])
async def test_a_server_that_comes_back_empty_costs_no_event_and_counts_as_no_restore(trio: Trio, whom: str) -> None:
    watcher, _ = await trio.begin()
    await trio.publish(watcher, 20)
    await eventually_async(trio.whole, ELECTION_SECONDS)
    leader = await trio.leader()
    lost = leader if whom == "leader" else (leader + 1) % COPIES
    await trio.servers.stop(lost, wiped=True)
    await trio.publish(watcher, 5)
    await trio.servers.start(lost)
    await trio.publish(watcher, 5)
    await trio.all_received()
    await eventually(lambda: not trio.reasons, RECOVERS_SECONDS)
    await eventually_async(trio.whole, ELECTION_SECONDS)
    # From here on there is a majority only with the one that was empty.
    await trio.servers.stop((lost + 1) % COPIES)
    await trio.publish(watcher, 5)
    await trio.all_received()
    await eventually(lambda: not trio.reasons, RECOVERS_SECONDS)
    assert trio.lists == []


def store(server: NatsServer) -> Path:
    return server._directory / "store"


async def test_three_servers_restored_from_one_backup_have_everything_listed_and_received_again(trio: Trio) -> None:
    watcher, _ = await trio.begin()
    await trio.publish(watcher, 5)
    await trio.all_received()
    await eventually_async(trio.whole, ELECTION_SECONDS)
    for number, server in enumerate(trio.servers.all):
        await trio.servers.stop(number, kill=False)
        shutil.copytree(store(server), trio.directory / f"backup-{number}")
    await asyncio.gather(*map(trio.servers.start, range(COPIES)))
    await trio.publish(watcher, 20)
    await trio.all_received()
    trio.lists.clear()
    for number, server in enumerate(trio.servers.all):
        await trio.servers.stop(number, kill=False)
        shutil.rmtree(store(server))
        shutil.copytree(trio.directory / f"backup-{number}", store(server))
    await asyncio.gather(*map(trio.servers.start, range(COPIES)))
    await eventually(lambda: set(trio.lists) == {"watcher", "consumer"}, ELECTION_SECONDS)
    await trio.publish(watcher, 5)
    await trio.all_received()
    await eventually(lambda: not trio.reasons, RECOVERS_SECONDS)
    assert sorted(trio.lists) == ["consumer", "watcher"]
