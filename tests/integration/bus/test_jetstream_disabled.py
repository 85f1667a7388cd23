"""JetStream is disabled, for the account or on the server, and enabled again: readiness says so, nothing is lost."""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from support.nats.buses import QUICK, Buses, Listener, eventually, opted_out
from support.nats.nats_users import NatsUsers
from trellis.bus.bus import Bus, BusUnavailable
from trellis.events.subjects import NODE_WATCHER, PROVISIONER
from trellis_dev.localcluster.nats import NatsServer

pytestmark = pytest.mark.nats

RECOVERS_SECONDS = 30.0
CLUSTER = "c1"


@pytest.fixture
def users(tmp_path_factory: pytest.TempPathFactory) -> NatsUsers:
    return NatsUsers(tmp_path_factory.mktemp("users"), [CLUSTER])


@pytest.fixture
def server(users: NatsUsers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with NatsServer(tmp_path_factory.mktemp("nats") / "server", config=users.config) as running:
        yield running


@pytest.fixture
async def buses(server: NatsServer) -> AsyncIterator[Buses]:
    made = Buses(server.url, CLUSTER)
    yield made
    await made.close()


def reasons(buses: Buses) -> list[str]:
    return [reason for health in buses.healths for reason in health.readiness().reasons]


async def published(bus: Bus, name: str) -> None:
    while True:
        with contextlib.suppress(BusUnavailable):
            await bus.publish(opted_out(name), dedup=name)
            return
        await asyncio.sleep(0.2)


def off_for_the_account(users: NatsUsers, server: NatsServer) -> None:
    found = re.search(r"jetstream \{.*?\}", users.config.read_text(), re.DOTALL)
    assert found is not None
    users.reload(server, {found[0]: ""})


def on_for_the_account(users: NatsUsers, server: NatsServer) -> None:
    users.reload(server, {})


def off_on_the_server(_: NatsUsers, server: NatsServer) -> None:
    server.jetstream = False
    server.stop()
    server.start()


def on_on_the_server(_: NatsUsers, server: NatsServer) -> None:
    server.jetstream = True
    server.stop()
    server.start()


Switch = Callable[[NatsUsers, NatsServer], None]


@pytest.mark.parametrize(
    ("off", "on", "named"),
    [
        (off_for_the_account, on_for_the_account, r"JetStream .*account"),
        (off_on_the_server, on_on_the_server, r"JetStream .*NATS server"),
    ],
    ids=["account", "server"],
)
async def test_jetstream_that_is_disabled_is_named_and_messages_published_meanwhile_arrive(
    buses: Buses, users: NatsUsers, server: NatsServer, off: Switch, on: Switch, named: str
) -> None:
    listener = Listener()
    watcher = buses.new(NODE_WATCHER, credentials=users.credentials(f"{NODE_WATCHER}.{CLUSTER}"), timings=QUICK)
    await watcher.connect()
    await buses.consuming(listener, credentials=users.credentials(f"{PROVISIONER}.{CLUSTER}"))
    await published(watcher, "before")
    await eventually(lambda: listener.names == ["before"] and not reasons(buses))
    await asyncio.to_thread(off, users, server)
    await eventually(
        lambda: sum(bool(re.search(named, reason)) for reason in reasons(buses)) == len(buses.healths), RECOVERS_SECONDS
    )
    names = [f"n-{secrets.token_hex(4)}" for _ in range(3)]
    meanwhile = [asyncio.create_task(published(watcher, name)) for name in names]
    await asyncio.wait(meanwhile, timeout=1)
    assert not any(task.done() for task in meanwhile)
    await asyncio.to_thread(on, users, server)
    async with asyncio.timeout(RECOVERS_SECONDS):
        await asyncio.gather(*meanwhile)
        await eventually(lambda: set(names) <= set(listener.names) and not reasons(buses), RECOVERS_SECONDS)
    assert all(health.liveness().ok for health in buses.healths)
