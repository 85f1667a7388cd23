"""People's NATS user: reads events and dead letters and replays these; a service's user may not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from support.nats.buses import Buses, Listener, eventually, eventually_async, opted_out
from support.nats.nats_users import NatsUsers
from trellis.bus.accounts.permissions import CLI
from trellis.bus.connection.connection import REFUSED
from trellis.bus.connection.dial import dial
from trellis.bus.dead_letters.read import DeadLetter, Wanted
from trellis.bus.dead_letters.store import dead_letters
from trellis.bus.errors import BusUnavailable, StreamError
from trellis.bus.streams.stream_stats import stream_sizes
from trellis.bus.streams.tail import Selection, Tally, replay, tail
from trellis.events.node import NodeOptedOut
from trellis.events.subjects import NODE_WATCHER, PROVISIONER, STREAM_DEAD, STREAM_EVENTS, event_subject
from trellis_dev.localcluster.nats import NatsServer

pytestmark = pytest.mark.nats

SELECTION = Selection(cluster="c1")


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> NatsUsers:
    return NatsUsers(tmp_path_factory.mktemp("users"), ["c1"])


@pytest.fixture(scope="module")
def server(users: NatsUsers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with NatsServer(tmp_path_factory.mktemp("nats") / "server", config=users.config) as running:
        yield running


@pytest.fixture
async def buses(server: NatsServer) -> AsyncIterator[Buses]:
    made = Buses(server.url, "c1")
    yield made
    await made.close()


async def found(server: NatsServer, users: NatsUsers) -> list[DeadLetter]:
    async with dead_letters(server.url, credentials=users.credentials(CLI)) as box:
        return [letter async for letter in box.find(Wanted(), bodies=True)]


async def test_they_read_the_events_and_replay_dead_letters(buses: Buses, server: NatsServer, users: NatsUsers) -> None:
    cli_user, listener = users.credentials(CLI), Listener()
    provisioner = buses.new(PROVISIONER, credentials=users.credentials(f"{PROVISIONER}.c1"))
    provisioner.subscribe("nodes", [NodeOptedOut], listener)
    await provisioner.connect()
    await provisioner.start()
    client = await dial(server.url, "test", cli_user)
    await client.jetstream().publish(event_subject("c1", opted_out("n")), b"poison")
    await client.close()
    await eventually_async(lambda: found(server, users))
    async with dead_letters(server.url, credentials=cli_user) as box:
        for letter in await found(server, users):
            await box.replay(letter)
        assert await box.get(letter.sequence) is None
    tally = Tally()
    assert [event.size async for event in replay(server.url, SELECTION, tally, credentials=cli_user)] == [6, 6]
    watcher = buses.new(NODE_WATCHER, credentials=users.credentials(f"{NODE_WATCHER}.c1"))
    await watcher.connect()
    await watcher.publish(opted_out("healthy"), dedup="healthy")
    await eventually(lambda: listener.names == ["healthy"])
    newest = await anext(tail(server.url, Selection(cluster="c1", last=1), credentials=cli_user))
    assert newest.key == ("healthy",)
    assert {stream.name for stream in await stream_sizes(server.url, cli_user)} >= {STREAM_EVENTS, STREAM_DEAD}


async def test_a_services_user_is_informed_of_missing_permissions(
    buses: Buses, server: NatsServer, users: NatsUsers
) -> None:
    service = users.credentials(f"{PROVISIONER}.c1")
    bus = buses.new(PROVISIONER, credentials=service)
    await bus.connect()
    with pytest.raises(StreamError, match=rf'{STREAM_DEAD} .*"_INBOX_cli\.'):
        async with dead_letters(server.url, credentials=service) as box:
            await anext(box.find(Wanted()))
    with pytest.raises(StreamError, match=rf'{STREAM_EVENTS} .*"_INBOX_cli\.'):
        await anext(tail(server.url, Selection(cluster="c1", last=1), credentials=service))
    with pytest.raises(BusUnavailable, match=REFUSED):
        await anext(tail(server.url, SELECTION))
