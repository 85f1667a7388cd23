"""A store of JetStream that is restored from a backup: its sequences go back, and services list and subscribe again."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import nats
import pytest
from nats.js.api import ConsumerInfo

from support.nats.buses import Buses, Listener, eventually, eventually_async, opted_out
from trellis.bus.accounts.naming import consumer_name
from trellis.bus.bus import Bus
from trellis.events.subjects import NODE_WATCHER, PROVISIONER, STREAM_EVENTS
from trellis_dev.localcluster.nats import NatsServer

pytestmark = pytest.mark.nats

LOST = 20
"""Events after the backup."""


@dataclass
class Restorable:
    """A server whose store is copied and put back, and services on it."""

    server: NatsServer
    backup: Path
    buses: Buses
    listener: Listener = field(default_factory=Listener)
    lists: list[str] = field(default_factory=list)

    @property
    def _store(self) -> Path:
        return self.server._directory / "store"

    def _stream(self, store: Path) -> Path:
        (found,) = store.glob(f"**/streams/{STREAM_EVENTS}")
        return found

    async def begin(self) -> tuple[Bus, Bus]:
        consumer = await self.buses.consuming(self.listener)
        watcher = self.buses.new(NODE_WATCHER)
        await watcher.connect()
        for name, bus in (("consumer", consumer), ("watcher", watcher)):
            bus.on_new_stream.append(lambda name=name: self.lists.append(name))
        return watcher, consumer

    def back_up(self) -> None:
        self.server.stop()
        shutil.copytree(self._store, self.backup)
        self.server.start()

    def restore(self, what: str) -> None:
        """Put back all, or what the stream holds without its consumers, or consumers alone as they were."""
        self.server.stop()
        if what == "all":
            shutil.rmtree(self._store)
            shutil.copytree(self.backup, self._store)
        else:
            part = {"messages": "msgs", "consumers": "obs"}[what]
            shutil.rmtree(self._stream(self._store) / part)
            shutil.copytree(self._stream(self.backup) / part, self._stream(self._store) / part)
        self.server.start()

    def remove_consumers(self) -> None:
        self.server.stop()
        shutil.rmtree(self._stream(self._store) / "obs")
        self.server.start()

    async def consumer(self) -> ConsumerInfo:
        client = await nats.connect(self.server.url)
        try:
            name = consumer_name(PROVISIONER, "nodes", self.buses.cluster)
            return await client.jetstream().consumer_info(STREAM_EVENTS, name)
        finally:
            await client.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsServer]:
    with NatsServer(tmp_path / "server") as running:
        yield running


@pytest.fixture
async def world(server: NatsServer, tmp_path: Path) -> AsyncIterator[Restorable]:
    made = Restorable(server, tmp_path / "backup", Buses(server.url, f"c-{secrets.token_hex(4)}"))
    yield made
    server.start()
    await made.buses.close()


async def publish_all(bus: Bus, count: int) -> list[str]:
    names = [f"n-{secrets.token_hex(4)}" for _ in range(count)]
    for name in names:
        await bus.publish(opted_out(name), dedup=name)
    return names


@pytest.mark.parametrize(
    "what", ["all", *(pytest.param(item, marks=pytest.mark.thorough) for item in ("messages", "consumers"))]
)
async def test_everything_is_listed_and_received_again_after_a_restore(world: Restorable, what: str) -> None:
    watcher, consumer = await world.begin()
    await publish_all(watcher, 3)
    await eventually(lambda: len(world.listener.names) == 3)
    world.back_up()
    after = await publish_all(watcher, LOST)
    await eventually(lambda: set(after) <= set(world.listener.names), 60)
    await eventually_async(lambda: acknowledged(world))
    world.lists.clear()
    world.restore(what)
    await eventually(lambda: consumer.connected.is_set() and watcher.connected.is_set(), 60)
    expected = set() if what == "consumers" else {"consumer", "watcher"}  # what consumers lost comes again
    await eventually(lambda: expected <= set(world.lists))
    first = await publish_all(watcher, 1)
    await eventually(lambda: first[0] in world.listener.names)
    await eventually_async(lambda: acknowledged(world))
    await eventually(lambda: all(health.readiness().ok for health in world.buses.healths))


@pytest.mark.thorough
async def test_an_acknowledgement_from_before_a_restore_has_no_effect(world: Restorable) -> None:
    watcher, consumer = await world.begin()
    await publish_all(watcher, 3)
    await eventually(lambda: len(world.listener.names) == 3)
    await eventually_async(lambda: acknowledged(world))  # else one is delivered again after the backup
    world.back_up()
    world.listener.acknowledge = False
    (former,) = await publish_all(watcher, 1)
    await eventually(lambda: former in world.listener.names)
    unacknowledged = next(received for received in world.listener.received if received.data.name == former)
    late = unacknowledged.ack
    world.lists.clear()
    world.restore("all")
    await eventually(lambda: "consumer" in world.lists and consumer.connected.is_set(), 60)
    assert not late.open
    (name,) = await publish_all(watcher, 1)
    await eventually(lambda: name in world.listener.names)
    again = next(received for received in world.listener.received if received.data.name == name)
    assert again.sequence == unacknowledged.sequence
    assert again.ack.token != late.token


async def test_consumers_that_a_restore_lacks_are_made_and_everything_is_listed(world: Restorable) -> None:
    watcher, consumer = await world.begin()
    await publish_all(watcher, 3)
    await eventually(lambda: len(world.listener.names) == 3)
    world.remove_consumers()
    await eventually(lambda: "consumer" in world.lists and consumer.connected.is_set(), 60)
    (name,) = await publish_all(watcher, 1)
    await eventually(lambda: name in world.listener.names)


async def acknowledged(world: Restorable) -> bool:
    info = await world.consumer()
    return not info.num_ack_pending and not info.num_pending
