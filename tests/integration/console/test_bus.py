"""The console on a real bus with users: it reads its own cluster only, live and stored, and publishes nothing."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import pytest
from nats.js.api import ConsumerConfig

from console.access.identity import Viewer
from console.access.permissions import ReviewedPermissions
from console.http.refusals import RefusedError
from console.live.bus_connection import BusConnection
from console.live.feed import Feed, Item
from console.live.replays import dead_letter_page, dead_letters, read_page_request, replay
from support.console.viewers import Users, may
from support.nats.buses import Buses, Listener, eventually, eventually_async, opted_out
from support.nats.nats_users import NatsUsers
from trellis.bus.accounts.naming import inbox_prefix
from trellis.bus.bus import Bus
from trellis.bus.connection.user_client import PermissionDenied, UserClient
from trellis.events.node import NodeOptedOut
from trellis.events.subjects import CONSOLE, NODE_WATCHER, PROVISIONER, STREAM_DEAD, STREAM_EVENTS, event_subject
from trellis.telemetry.health import Health
from trellis_dev.fakes.fake import FakeKube
from trellis_dev.localcluster.nats import NatsServer

pytestmark = pytest.mark.nats

SECONDS = 40.0
CLUSTERS = ("c1", "c2")


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> NatsUsers:
    return NatsUsers(tmp_path_factory.mktemp("users"), CLUSTERS)


@pytest.fixture(scope="module")
def server(users: NatsUsers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with NatsServer(tmp_path_factory.mktemp("nats") / "server", config=users.config) as running:
        yield running


@dataclass
class World:
    """Buses of services of both clusters, and the console of c1."""

    server: NatsServer
    users: NatsUsers
    buses: dict[str, Buses]
    feed: Feed
    link: BusConnection

    async def bus(self, service: str, cluster: str = "c1") -> Bus:
        bus = self.buses[cluster].new(service, credentials=self.users.credentials(f"{service}.{cluster}"))
        await bus.connect()
        return bus

    def names(self) -> list[str]:
        return [str(item.document["name"]) for item in self.feed.after(0)[0]]

    def last(self) -> Item:
        return self.feed.after(0)[0][-1]


@pytest.fixture
async def world(server: NatsServer, users: NatsUsers) -> AsyncIterator[World]:
    name: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    name.set_result("c1")
    feed = Feed()
    link = BusConnection(server.url, users.credentials("console.c1"), name, feed, Health(CONSOLE))
    buses = {cluster: Buses(server.url, cluster) for cluster in CLUSTERS}
    running = asyncio.create_task(link.run())
    yield World(server, users, buses, feed, link)
    server.start()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    for each in buses.values():
        await each.close()


def key() -> str:
    return f"n-{secrets.token_hex(4)}"


def reviewed_permissions(*rules: object) -> ReviewedPermissions:
    kube = FakeKube()
    kube.api.fault = Users({"t": ("dev", ())}, list(rules))  # type: ignore[arg-type]
    assert Viewer("k", "dev")
    return ReviewedPermissions(kube.with_token("t"))


async def test_events_of_its_own_cluster_arrive_at_once_and_of_others_never(world: World) -> None:
    own, others = await world.bus(NODE_WATCHER), await world.bus(NODE_WATCHER, "c2")
    first, theirs, last = key(), key(), key()
    await own.publish(opted_out(first), dedup=first)
    await eventually(lambda: first in world.names())
    await others.publish(opted_out(theirs), dedup=theirs)
    await own.publish(opted_out(last), dedup=last)
    await eventually(lambda: last in world.names())
    assert theirs not in world.names()
    assert world.last().document["type"] == "node.opted_out"
    assert world.last().about.id == f"node/{last}"


async def test_events_are_received_after_an_outage_of_the_server(world: World) -> None:
    bus, before, after = await world.bus(NODE_WATCHER), key(), key()
    await bus.publish(opted_out(before), dedup=before)
    await eventually(lambda: before in world.names())
    world.server.stop()
    world.server.start()
    await bus.publish(opted_out(after), dedup=after)
    await eventually(lambda: after in world.names(), 40)
    assert world.names().count(before) == 1


async def test_the_past_is_read_as_far_as_the_viewer_may_see_it(world: World) -> None:
    bus, found = await world.bus(NODE_WATCHER), [key() for _ in range(5)]
    for name in found:
        await bus.publish(opted_out(name), dedup=name)
    await eventually(lambda: found[-1] in world.names())
    requested = read_page_request({"types": "node.opted_out", "limit": "200"})
    page = await replay(world.link, reviewed_permissions(may("dev")), requested, seconds=SECONDS)
    assert [event["name"] for event in page["events"]][-5:] == found
    assert page["next"] is None
    few = await replay(world.link, reviewed_permissions(may("dev", "nodes", name=found[2])), requested, seconds=SECONDS)
    assert [event["name"] for event in few["events"]] == [found[2]]
    behind = read_page_request({"after": str(page["events"][-2]["sequence"])})
    rest = await replay(world.link, reviewed_permissions(may("dev")), behind, seconds=SECONDS)
    assert [event["name"] for event in rest["events"]] == [found[-1]]


async def test_a_dead_letter_is_listed_and_shown(world: World) -> None:
    provisioner = await world.bus(PROVISIONER)
    provisioner.subscribe("nodes", [NodeOptedOut], Listener())
    await provisioner.start()
    watcher = UserClient(world.users.credentials("node_watcher.c1"))
    await watcher.connect(world.server.url, inbox_prefix=inbox_prefix(NODE_WATCHER, "c1"))
    name = key()
    await watcher.jetstream().publish(event_subject("c1", opted_out(name)), b"garbage")
    await watcher.close()
    may_see = reviewed_permissions(may("dev"))

    async def listed() -> list[int]:
        page = await dead_letters(world.link, may_see, {"object": f"node/{name}"}, seconds=SECONDS)
        return [letter["sequence"] for letter in page["dead_letters"]]

    await eventually_async(listed)
    [sequence] = await listed()
    page = await dead_letter_page(world.link, may_see, sequence)
    assert page["dead_letter"]["body_text"] == "garbage"
    assert page["page"]["ok"] is False
    none = await dead_letters(world.link, reviewed_permissions(), {"object": f"node/{name}"}, seconds=SECONDS)
    assert none["dead_letters"] == []
    with pytest.raises(RefusedError):
        await dead_letter_page(world.link, reviewed_permissions(), sequence)
    await eventually(
        lambda: any(item.stream == "dead-letters" and item.document["name"] == name for item in world.feed.after(0)[0])
    )


async def test_the_consoles_user_reads_and_does_nothing_else(world: World) -> None:
    await world.bus(NODE_WATCHER)  # makes the streams
    client = UserClient(world.users.credentials("console.c1"))
    await client.connect(world.server.url, inbox_prefix=inbox_prefix(CONSOLE, "c1"), error_cb=ignore)
    jetstream = client.jetstream()
    elsewhere = ConsumerConfig(name=key(), filter_subject="trellis.evt.c2.>")
    for attempt in (
        jetstream.add_consumer(STREAM_EVENTS, elsewhere),
        jetstream.add_consumer(STREAM_EVENTS, ConsumerConfig(name=key())),
        jetstream.delete_msg(STREAM_DEAD, 1),
        jetstream.purge_stream(STREAM_DEAD),
        jetstream.delete_stream(STREAM_EVENTS),
        jetstream.get_msg(STREAM_EVENTS, 1),
        client.request(event_subject("c1", opted_out("n")), b"{}", timeout=SECONDS),
    ):
        with pytest.raises(PermissionDenied):
            await attempt
    await client.close()


async def ignore(_: Exception) -> None:
    """Refusals are asserted on where they are raised."""
