"""Limits of an account or a stream that refuse every event: readiness names them, and recovers when they are raised."""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
from collections.abc import AsyncIterator, Iterator

import pytest

from support.nats.buses import Buses, Listener, eventually, opted_out
from support.nats.nats_users import NatsUsers
from trellis.bus.bus import Bus, BusError, BusTimings
from trellis.bus.connection.user_client import UserClient
from trellis.events.node import NodeOptedOut
from trellis.events.provision import ProvisionRemoved
from trellis.events.subjects import NODE_WATCHER, PROVISIONER
from trellis_dev.localcluster.nats import NatsServer

pytestmark = pytest.mark.nats

RECOVERS_SECONDS = 30.0
CLUSTER = "c1"
BRIEF = BusTimings(check=0.5, ack_wait=1.0, publish_budget=2.0)


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> NatsUsers:
    return NatsUsers(tmp_path_factory.mktemp("users"), [CLUSTER])


@pytest.fixture
def server(users: NatsUsers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with NatsServer(tmp_path_factory.mktemp("nats") / "server", config=users.config) as running:
        yield running


@pytest.fixture
async def buses(server: NatsServer, users: NatsUsers) -> AsyncIterator[Buses]:
    made = Buses(server.url, CLUSTER)
    yield made
    users.reload(server, {})
    await made.close()


def setting(users: NatsUsers, name: str) -> str:
    found = re.search(rf"{name}: \d+", users.config.read_text())
    assert found is not None
    return found[0]


def reasons(buses: Buses) -> str:
    return " ".join(reason for health in buses.healths for reason in health.readiness().reasons)


async def publishing(bus: Bus, refused: list[str]) -> None:
    """Publish all the time, as a service does that has events."""
    while True:
        node = f"n-{secrets.token_hex(4)}"
        try:
            await bus.publish(opted_out(node), dedup=node)
        except BusError as error:
            refused.append(type(error).__name__)
        await asyncio.sleep(0.2)


@contextlib.asynccontextmanager
async def working(buses: Buses, users: NatsUsers) -> AsyncIterator[list[str]]:
    """Yield the kinds of errors that a service meets which publishes all the time."""
    bus = buses.new(NODE_WATCHER, credentials=users.credentials(f"{NODE_WATCHER}.{CLUSTER}"), timings=BRIEF)
    await bus.connect()
    await bus.start()
    refused: list[str] = []
    task = asyncio.create_task(publishing(bus, refused))
    try:
        yield refused
    finally:
        task.cancel()
        await asyncio.wait({task})


async def test_a_storage_limit_of_the_account_is_named_and_no_event_is_dropped_for_it(
    buses: Buses, users: NatsUsers, server: NatsServer
) -> None:
    async with working(buses, users) as refused:
        users.reload(server, {setting(users, "max_file"): "max_file: 1024"})
        await eventually(lambda: "resource limits exceeded" in reasons(buses), 60)
        assert set(refused) == {"BusUnavailable"}
        users.reload(server, {})
        await eventually(lambda: not reasons(buses), RECOVERS_SECONDS)


@pytest.mark.parametrize(
    ("limit", "named"), [("max_streams", "maximum number of streams"), ("max_consumers", "maximum consumers limit")]
)
async def test_a_limit_that_keeps_streams_or_consumers_from_being_made_is_named(
    buses: Buses, users: NatsUsers, server: NatsServer, limit: str, named: str
) -> None:
    server.stop()
    users.configure({setting(users, limit): f"{limit}: 1"})
    server.start()
    if limit == "max_consumers":
        first = buses.new(NODE_WATCHER, credentials=users.credentials(f"{NODE_WATCHER}.{CLUSTER}"))
        first.subscribe("provision", [ProvisionRemoved], Listener())
        await first.connect()
        await first.start()
    bus = buses.new(PROVISIONER, credentials=users.credentials(f"{PROVISIONER}.{CLUSTER}"))
    bus.subscribe("nodes", [NodeOptedOut], Listener())
    connecting = asyncio.create_task(bus.connect())
    await bus.start()
    await eventually(lambda: named in reasons(buses), 60)
    users.reload(server, {})
    async with asyncio.timeout(RECOVERS_SECONDS):
        await connecting
    await eventually(lambda: not reasons(buses), RECOVERS_SECONDS)


async def test_a_max_payload_that_is_smaller_than_events_is_named_and_no_event_is_dropped_for_it(
    buses: Buses, users: NatsUsers, server: NatsServer
) -> None:
    async with working(buses, users) as refused:
        users.reload(server, {"accounts {": "max_payload: 256\naccounts {"})
        await eventually(lambda: "max_payload" in reasons(buses), 60)
        assert "EventRefused" not in refused
        users.reload(server, {})
        await eventually(lambda: not reasons(buses), RECOVERS_SECONDS)


@pytest.mark.parametrize("level", ["account", "server"])
async def test_too_many_connections_are_named_and_the_service_is_let_in_when_there_is_room(
    buses: Buses, users: NatsUsers, server: NatsServer, level: str
) -> None:
    account = {"jetstream {": "limits { max_connections: 1 }\n    jetstream {"}
    users.reload(server, account if level == "account" else {"accounts {": "max_connections: 1\naccounts {"})
    server.stop()
    server.start()
    user = f"{NODE_WATCHER}.{CLUSTER}"
    place = UserClient.of(users.credentials(user))
    await place.connect(server.url)
    bus = buses.new(NODE_WATCHER, credentials=users.credentials(user), timings=BRIEF)
    connecting = asyncio.create_task(bus.connect())
    await bus.start()
    await eventually(lambda: "connections exceeded" in reasons(buses), RECOVERS_SECONDS)
    await place.close()
    async with asyncio.timeout(RECOVERS_SECONDS):
        await connecting
    await eventually(lambda: not reasons(buses), RECOVERS_SECONDS)
