"""Each service is a NATS user of its own: what it needs works, everything else is refused and harmless."""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, replace

import nats.errors
import orjson
import pytest
import structlog
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, StreamConfig
from nats.js.errors import APIError, NotFoundError

from support.nats.buses import QUICK, Buses, Listener, eventually, eventually_async, opted_out
from support.nats.nats_users import NatsUsers
from support.suite.settling import settle
from support.suite.tiers import first_of
from trellis.bus.accounts.naming import CLAIM_STREAM, LAST_EVENTS, consumer_name, inbox_prefix
from trellis.bus.accounts.permissions import CLI, CLI_INBOX, OUTSIDE
from trellis.bus.bus import Bus, BusTimings, BusUnavailable, NotAllowed
from trellis.bus.connection.connection import REFUSED
from trellis.bus.connection.user_client import PermissionDenied, UserClient
from trellis.bus.publish.availability import HEALTH, PERMISSIONS
from trellis.events.node import NodeOptedOut
from trellis.events.provision import ProvisionRemoved
from trellis.events.subjects import NODE_WATCHER, PROVISIONER, STREAM_DEAD, STREAM_EVENTS, event_subject
from trellis_dev.localcluster.nats import NatsServer

pytestmark = pytest.mark.nats

CLUSTERS = ("c1", "c2")


def removed(node: str) -> ProvisionRemoved:
    return ProvisionRemoved(node=node, node_uid="uid-1", digest="d", attempt=1, job="namespace/name")


@dataclass
class World:
    """A server with users, and buses of the services of cluster c1."""

    server: NatsServer
    users: NatsUsers
    buses: Buses

    def bus(self, service: str, user: str | None = None, timings: BusTimings = QUICK) -> Bus:
        credentials = self.users.credentials(user or f"{service}.{self.buses.cluster}")
        return self.buses.new(service, credentials=credentials, timings=timings)

    async def client(self, user: str, inbox: str) -> UserClient:
        client = UserClient(self.users.credentials(user))
        await client.connect(self.server.url, inbox_prefix=inbox, allow_reconnect=False, error_cb=ignore)
        return client


async def ignore(_: Exception) -> None:
    """Refusals are asserted on where they are raised."""


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> NatsUsers:
    return NatsUsers(tmp_path_factory.mktemp("users"), CLUSTERS)


@pytest.fixture(scope="module")
def server(users: NatsUsers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with NatsServer(tmp_path_factory.mktemp("nats") / "server", config=users.config) as running:
        yield running


@pytest.fixture
async def world(server: NatsServer, users: NatsUsers) -> AsyncIterator[World]:
    made = World(server, users, Buses(server.url, "c1"))
    yield made
    server.start()
    await made.buses.close()


def key() -> str:
    return f"n-{secrets.token_hex(4)}"


async def publish_node(watcher: Bus) -> str:
    """Have node_watcher say an event and return the node's name."""
    node = key()
    await watcher.publish(opted_out(node), dedup=node)
    return node


async def test_both_services_may_publish_receive_and_read_back_their_events(world: World) -> None:
    provisioner, watcher, listener = world.bus(PROVISIONER), world.bus(NODE_WATCHER), Listener()
    provisioner.subscribe("nodes", [NodeOptedOut], listener)
    with structlog.testing.capture_logs() as logs:
        for bus in (provisioner, watcher):
            await bus.connect()
            await bus.start()
        node = await publish_node(watcher)
        await eventually(lambda: node in listener.names)
        assert node in [event.name async for event in watcher.last_events([NodeOptedOut])]
        assert node in [event.name async for event in watcher.last_events([NodeOptedOut])], (
            "the first left nothing behind"
        )
        await provisioner.publish(removed(node), dedup=f"{node}/removed")
    assert [line for line in logs if line["log_level"] in {"warning", "error"}] == []
    assert all(health.readiness().ok for health in world.buses.healths)


async def test_an_unreadable_event_becomes_a_dead_letter(world: World) -> None:
    provisioner, cli_user = world.bus(PROVISIONER), await world.client(CLI, CLI_INBOX)
    provisioner.subscribe("nodes", [NodeOptedOut], Listener())
    await provisioner.connect()
    await provisioner.start()
    node = key()
    await cli_user.jetstream().publish(event_subject("c1", opted_out(node)), b"poison")

    async def buried() -> bool:
        subjects = (await cli_user.jetstream().stream_info(STREAM_DEAD, subjects_filter=">")).state.subjects or {}
        return any(subject.endswith(f".node.{node}") for subject in subjects)

    await eventually_async(buried)
    await cli_user.close()


async def test_a_wiped_bus_is_made_again_by_the_services_alone(world: World) -> None:
    provisioner, watcher, listener, lists = world.bus(PROVISIONER), world.bus(NODE_WATCHER), Listener(), list[int]()
    provisioner.subscribe("nodes", [NodeOptedOut], listener)
    provisioner.on_new_stream.append(lambda: lists.append(1))
    for bus in (provisioner, watcher):
        await bus.connect()
        await bus.start()
    world.server.kill()
    shutil.rmtree(world.server._directory / "store")
    world.server.start()
    await eventually(lambda: lists)
    node = await publish_node(watcher)
    await eventually(lambda: node in listener.names)


async def test_publishing_the_event_of_another_service_is_refused_at_once_and_names_the_subject(world: World) -> None:
    watcher = world.buses.new(
        NODE_WATCHER,
        credentials=world.users.credentials("node_watcher.c1"),
        timings=BusTimings(check=0.5, publish_budget=120),
    )
    await watcher.connect()
    node = key()
    subject = event_subject("c1", removed(node))
    with pytest.raises(NotAllowed, match=f'publish .*"{re.escape(subject)}"'):
        async with asyncio.timeout(60):  # the budget is twice that
            await watcher.publish(removed(node), dedup=node)
    assert watcher.connected.is_set(), "what it may say it still can"
    await publish_node(watcher)


@pytest.mark.parametrize(
    "taken",
    first_of(["trellis.evt.c1.node.opted_out.", "$JS.API.CONSUMER.MSG.NEXT.TRELLIS_EVENTS.provisioner-nodes-c1"]),
    ids=["to say", "to hear"],
)
async def test_a_revoked_permission_is_reported_once_and_after_its_return_nothing_is_lost(
    world: World, taken: str
) -> None:
    timings = replace(QUICK, stalled_after=12.0, refused=2.5)  # fetches are a second apart
    watcher, provisioner = (world.bus(service, timings=timings) for service in (NODE_WATCHER, PROVISIONER))
    listener = Listener()
    provisioner.subscribe("nodes", [NodeOptedOut], listener)
    for bus in (watcher, provisioner):
        await bus.connect()
        await bus.start()
    first = await publish_node(watcher)
    await eventually(lambda: first in listener.names)
    with structlog.testing.capture_logs() as logs:
        world.users.reload(world.server, {taken: "trellis.nothing"})
        try:
            second = await publish_until(
                watcher,
                lambda: any(reason.startswith(PERMISSIONS) and is_reported(taken, reason) for reason in reasons(world)),
            )
        finally:
            world.users.reload(world.server, {})
        await publish_at_last(watcher, second)
    assert len([line for line in logs if is_reported(taken, str(line.get("reason", "")))]) == 1
    await eventually(lambda: second in listener.names and not reasons(world), 60)


def is_reported(permission: str, reason: str) -> bool:
    return permission.rstrip(".").lower() in reason.lower()


def reasons(world: World) -> list[str]:
    return [reason for health in world.buses.healths for reason in health.readiness().reasons]


async def publish_until(watcher: Bus, holds: Callable[[], bool]) -> str:
    """Say events until something holds, as a server has its new users a moment later; return the last of them."""
    async with asyncio.timeout(60):
        while True:
            node = key()
            with contextlib.suppress(BusUnavailable):
                await watcher.publish(opted_out(node), dedup=node)
            if holds():
                return node
            await asyncio.sleep(0.05)


async def publish_at_last(watcher: Bus, node: str) -> None:
    """Say an event as services do: events that could not be published are published again."""
    while True:
        try:
            await watcher.publish(opted_out(node), dedup=node)
        except BusUnavailable:
            await asyncio.sleep(0.1)
        else:
            return


async def test_a_service_of_another_cluster_receives_no_answer_and_reports_it(world: World) -> None:
    """As when TRELLIS_CLUSTER is not the name that the users were made for."""
    other = world.bus(PROVISIONER, user="provisioner.c2")
    connecting = asyncio.create_task(other.connect())
    await eventually(
        lambda: any("_inbox_provisioner.c1" in reason for reason in world.buses.healths[0].readiness().reasons)
    )
    assert not connecting.done()
    connecting.cancel()


def other_user_and_inbox() -> tuple[str, str]:
    return "node_watcher.c1", inbox_prefix(NODE_WATCHER, "c1")


async def test_streams_are_not_deleted_purged_or_changed_by_anyone(world: World) -> None:
    watcher = world.bus(NODE_WATCHER)
    await watcher.connect()
    node = await publish_node(watcher)
    for user, inbox in (
        other_user_and_inbox(),
        (CLI, CLI_INBOX),
        (OUTSIDE, "_INBOX"),
    ):
        client = await world.client(user, inbox)
        jetstream = client.jetstream()
        config = StreamConfig(name=STREAM_EVENTS, subjects=["trellis.evt.>"], max_msgs=1, max_bytes=1024)
        for attempt in (
            jetstream.delete_stream(STREAM_EVENTS),
            jetstream.purge_stream(STREAM_EVENTS),
            jetstream.update_stream(config),
            jetstream.delete_msg(STREAM_EVENTS, 1),
        ):
            with pytest.raises(PermissionDenied):
                await attempt
        await client.close()
    assert node in [event.name async for event in watcher.last_events([NodeOptedOut])]


async def test_a_header_that_would_roll_a_stream_up_is_refused(world: World) -> None:
    watcher = world.bus(NODE_WATCHER)
    await watcher.connect()
    node = await publish_node(watcher)
    client = await world.client(*other_user_and_inbox())
    for extent in ("all", "sub"):
        with pytest.raises(APIError, match="rollup"):
            await client.jetstream().publish(
                event_subject("c1", opted_out(key())), b"x", headers={"Nats-Rollup": extent}
            )
    assert node in [event.name async for event in watcher.last_events([NodeOptedOut])]
    await client.close()


async def test_making_a_stream_that_is_there_changes_nothing(world: World) -> None:
    watcher = world.bus(NODE_WATCHER)
    await watcher.connect()
    client = await world.client(*other_user_and_inbox())
    before = (await client.jetstream().stream_info(STREAM_EVENTS)).config
    with pytest.raises(nats.errors.Error):
        await client.jetstream().add_stream(name=STREAM_EVENTS, subjects=["trellis.evt.>"], max_msgs=1, max_bytes=1024)
    assert (await client.jetstream().stream_info(STREAM_EVENTS)).config == before
    await client.close()


@pytest.mark.parametrize(
    "target",
    [
        f"$JS.API.STREAM.PURGE.{STREAM_DEAD}",
        f"$JS.API.STREAM.DELETE.{STREAM_DEAD}",
        f"$JS.API.STREAM.DELETE.{STREAM_EVENTS}",
        "trellis.dead.c1.provisioner.node.x",
        "trellis.evt.c1.provision.succeeded.x",
        "$KV.TRELLIS_CLUSTERS.c2",
    ],
)
async def test_a_consumer_that_pushes_elsewhere_gets_round_no_permission(world: World, target: str) -> None:
    """NATS checks no permission on the subject a consumer pushes to; a second one shows that the first had its time."""
    client, cli_user = await world.client(*other_user_and_inbox()), await world.client(CLI, CLI_INBOX)
    outside, watcher, node = await world.client(OUTSIDE, "_INBOX"), world.bus(NODE_WATCHER), key()
    await watcher.connect()
    await client.jetstream().publish(event_subject("c1", opted_out(node)), b"")  # empty, as the API wants it
    before = await contents(cli_user.jetstream())
    control = await outside.subscribe(f"_INBOX.{node}")
    own = consumer_name(NODE_WATCHER, LAST_EVENTS, "c1")
    await push(client, own, target)
    await push(outside, f"control-{node}", f"_INBOX.{node}")
    await control.next_msg(timeout=20)
    with contextlib.suppress(NotFoundError):  # some targets are refused when the consumer is made
        await client.jetstream().delete_consumer(STREAM_EVENTS, own)
    assert await contents(cli_user.jetstream()) == before
    for each in (client, cli_user, outside):
        await each.close()


async def push(client: UserClient, name: str, target: str) -> None:
    config = {"name": name, "deliver_subject": target, "ack_policy": "none", "filter_subjects": ["trellis.evt.c1.>"]}
    request = orjson.dumps({"stream_name": STREAM_EVENTS, "config": config})
    await client.request(f"$JS.API.CONSUMER.CREATE.{STREAM_EVENTS}.{name}", request, timeout=20)


async def contents(jetstream: JetStreamContext) -> list[tuple[str | None, object]]:
    streams = (STREAM_EVENTS, STREAM_DEAD, CLAIM_STREAM)
    infos = [await jetstream.stream_info(name, subjects_filter=">") for name in streams]
    return [(info.config.name, info.state.subjects) for info in infos]


@pytest.mark.parametrize("user", ["node_watcher.c1", "provisioner.c2", CLI, OUTSIDE])
async def test_no_other_user_reads_changes_removes_or_acknowledges_a_durable(world: World, user: str) -> None:
    provisioner, watcher, listener = world.bus(PROVISIONER), world.bus(NODE_WATCHER), Listener(acknowledge=False)
    provisioner.subscribe("nodes", [NodeOptedOut], listener)
    for bus in (provisioner, watcher):
        await bus.connect()
        await bus.start()
    node = await publish_node(watcher)
    await eventually(lambda: node in listener.names)
    service, _, cluster = user.partition(".")
    client = await world.client(user, {CLI: CLI_INBOX, OUTSIDE: "_INBOX"}.get(user, inbox_prefix(service, cluster)))
    for name in (consumer_name(PROVISIONER, "nodes", "c1"), consumer_name(PROVISIONER, LAST_EVENTS, "c1")):
        config = ConsumerConfig(
            name=name, durable_name=name, ack_policy=AckPolicy.EXPLICIT, filter_subject="trellis.evt.>"
        )
        for attempt in (
            client.request(
                f"$JS.API.CONSUMER.MSG.NEXT.{STREAM_EVENTS}.{name}", b'{"batch":9,"no_wait":true}', timeout=20
            ),
            client.jetstream().add_consumer(STREAM_EVENTS, config),
            client.jetstream().delete_consumer(STREAM_EVENTS, name),
            client.request(f"$JS.API.CONSUMER.DURABLE.CREATE.{STREAM_EVENTS}.{name}", b"{}", timeout=20),
            client.request(f"$JS.API.CONSUMER.RESET.{STREAM_EVENTS}.{name}", b"", timeout=20),
            client.request(f"$JS.API.CONSUMER.PAUSE.{STREAM_EVENTS}.{name}", b"", timeout=20),
        ):
            with pytest.raises(PermissionDenied):
                await attempt
    (received,) = [each for each in listener.received if each.data.name == node]
    with pytest.raises(PermissionDenied):
        await client.request(received.ack._reply, b"", timeout=20)
    await client.close()
    cli_user = await world.client(CLI, CLI_INBOX)

    async def owed() -> int:
        info = await cli_user.jetstream().consumer_info(STREAM_EVENTS, consumer_name(PROVISIONER, "nodes", "c1"))
        return info.num_ack_pending or 0

    assert await owed() == len(listener.received)
    await asyncio.gather(*(each.ack() for each in listener.received))
    await eventually_async(lambda: none(owed))
    await cli_user.close()


async def none(count: Callable[[], Awaitable[int]]) -> bool:
    return await count() == 0


async def test_another_users_answers_are_not_received(world: World) -> None:
    client = await world.client(*other_user_and_inbox())
    errors: list[Exception] = []

    async def note(error: Exception) -> None:
        errors.append(error)

    client._error_cb = note
    for inbox in ("_INBOX_provisioner.c1.>", "_INBOX_node_watcher.c2.>", "_INBOX_cli.>", "_INBOX.>", ">"):
        await client.subscribe(inbox)
    await settle(client)
    await eventually(lambda: len(errors) == 5)
    assert all("permissions violation for subscription" in str(error) for error in errors)
    await client.close()


async def test_subscribers_from_outside_read_events_live_and_old_and_change_nothing(world: World) -> None:
    watcher = world.bus(NODE_WATCHER)
    await watcher.connect()
    client = await world.client(OUTSIDE, "_INBOX")
    jetstream: JetStreamContext = client.jetstream()
    live = await client.subscribe("trellis.evt.>")
    await settle(client)
    node = await publish_node(watcher)
    subject = event_subject("c1", opted_out(node))
    assert (await live.next_msg(timeout=20)).subject == subject
    assert (await jetstream.get_last_msg(STREAM_EVENTS, subject)).subject == subject
    durable = await jetstream.pull_subscribe(subject, durable=f"audit-{node}", stream=STREAM_EVENTS)
    (message,) = await durable.fetch(1, timeout=20)
    await message.ack_sync()
    for attempt in (
        client.request(subject, b"{}", timeout=20),
        jetstream.stream_info(STREAM_DEAD),
        client.request(f"$KV.TRELLIS_CLUSTERS.{'c1'}", b"{}", timeout=20),
        jetstream.add_stream(name="MINE", subjects=["mine.>"]),
    ):
        with pytest.raises(PermissionDenied):
            await attempt
    await client.close()


async def test_clients_without_a_key_are_refused_and_the_bus_reports_the_refusal(world: World) -> None:
    nobody = world.buses.new(PROVISIONER)
    connecting = asyncio.create_task(nobody.connect())
    await eventually(
        lambda: world.buses.healths[0].readiness().reasons == (f"{HEALTH}: {REFUSED} ({world.server.url})",)
    )
    connecting.cancel()


async def test_a_rotated_key_is_followed(world: World) -> None:
    watcher = world.bus(NODE_WATCHER)
    await watcher.connect()
    await publish_node(watcher)
    assert watcher._connection.broker is not None
    client = watcher._connection.broker.connection
    with structlog.testing.capture_logs() as logs:
        world.users.rotate("node_watcher.c1", world.server)  # which ends the connections of the former key
        await eventually(lambda: client.stats["reconnects"])
        await publish_node(watcher)
    assert not [line for line in logs if line["log_level"] == "error"]


async def test_a_key_file_that_breaks_later_is_reported_and_its_repair_is_followed(world: World) -> None:
    watcher = world.bus(NODE_WATCHER)
    await watcher.connect()
    path = world.users.seed_file("node_watcher.c1")
    seed = path.read_text()
    for broken in ("garbage", None):
        path.write_text(broken) if broken else path.unlink()
        world.server.kill()
        world.server.start()
        await eventually(lambda: any(str(path) in reason for reason in world.buses.healths[0].readiness().reasons))
        assert seed.strip() not in str(world.buses.healths[0].readiness().reasons)
        path.write_text(seed)
        await watcher.connected.wait()
    await publish_node(watcher)


async def test_a_client_with_the_key_of_another_service_reports_the_missing_permission(world: World) -> None:
    wrong = world.buses.new(PROVISIONER, credentials=world.users.credentials("node_watcher.c1"), timings=QUICK)
    connecting = asyncio.create_task(wrong.connect())
    health = world.buses.healths[0]
    await eventually(lambda: any(re.search(r'"\S+"', reason) for reason in health.readiness().reasons))
    assert not any(REFUSED in reason for reason in health.readiness().reasons)
    connecting.cancel()
