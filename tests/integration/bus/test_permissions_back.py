"""A permission that a reload of NATS takes is named by readiness, and one that it gives back is used within 30 s."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from support.nats.buses import Buses, Listener, eventually, opted_out
from support.nats.nats_users import NatsUsers
from trellis.bus.bus import Bus, BusTimings, BusUnavailable
from trellis.bus.connection.connection import REFUSED
from trellis.bus.timings import ConnectionTimings
from trellis.events.subjects import NODE_WATCHER, PROVISIONER
from trellis_dev.localcluster.nats import NatsServer

pytestmark = pytest.mark.nats

RECOVERS_SECONDS = 30.0
TIMINGS = BusTimings(
    check=0.3,
    again=0.2,
    ack_wait=1.0,
    stalled_after=12.0,  # a fetch lasts a second
    refused=2.5,
    connection=ConnectionTimings(attempt_first=0.1, attempt_most=0.5),
)
CLUSTER = "c1"
BRIEF = replace(TIMINGS, claim=3.0)
"""The claim to the cluster's name is refreshed every second."""
NOTHING = "trellis.nothing"
CONSUMER = "TRELLIS_EVENTS.provisioner-nodes-c1"
TAKEN = {
    "answers": "_INBOX_provisioner.c1.>",
    "advisories": "$JS.EVENT.ADVISORY.CONSUMER.DELETED.TRELLIS_EVENTS.*",
    "fetch": f"$JS.API.CONSUMER.MSG.NEXT.{CONSUMER}",
    "look at a stream": "$JS.API.STREAM.INFO.TRELLIS_EVENTS",
    "look at a consumer": f"$JS.API.CONSUMER.INFO.{CONSUMER}",
    "read the claim": "$JS.API.STREAM.MSG.GET.KV_TRELLIS_CLUSTERS",
    "acknowledge": f"$JS.ACK.{CONSUMER}.>",
    "publish": "trellis.evt.c1.node.opted_out.",
}
OF_MAKE_TEST = {"answers", "fetch", "publish"}


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> NatsUsers:
    return NatsUsers(tmp_path_factory.mktemp("users"), [CLUSTER])


@pytest.fixture(scope="module")
def server(users: NatsUsers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with NatsServer(tmp_path_factory.mktemp("nats") / "server", config=users.config) as running:
        yield running


@pytest.fixture
async def buses(server: NatsServer, users: NatsUsers) -> AsyncIterator[Buses]:
    made = Buses(server.url, CLUSTER)
    yield made
    users.reload(server, {})
    await made.close()


def reasons(buses: Buses) -> list[str]:
    return [reason for health in buses.healths for reason in health.readiness().reasons]


async def pair(buses: Buses, users: NatsUsers, listener: Listener, timings: BusTimings = TIMINGS) -> tuple[Bus, Bus]:
    """Return a bus that publishes and one that consumes, both in use."""
    watcher = buses.new(NODE_WATCHER, credentials=users.credentials(f"{NODE_WATCHER}.{CLUSTER}"), timings=timings)
    await watcher.connect()
    consumer = await buses.consuming(
        listener, credentials=users.credentials(f"{PROVISIONER}.{CLUSTER}"), timings=timings
    )
    return watcher, consumer


async def publishing(watcher: Bus) -> None:
    """Publish all the time, as a service does that has events."""
    while True:
        node = f"n-{secrets.token_hex(4)}"
        with contextlib.suppress(BusUnavailable):
            await watcher.publish(opted_out(node), dedup=node)
        await asyncio.sleep(0.2)


async def published(watcher: Bus) -> str:
    node = f"n-{secrets.token_hex(4)}"
    while True:
        with contextlib.suppress(BusUnavailable):
            await watcher.publish(opted_out(node), dedup=node)
            return node
        await asyncio.sleep(0.2)


@pytest.mark.parametrize(
    "taken",
    [
        pytest.param(item, id=what, marks=() if what in OF_MAKE_TEST else pytest.mark.thorough)
        for what, item in TAKEN.items()
    ],
)
async def test_a_permission_that_is_given_back_is_used_within_thirty_seconds(
    buses: Buses, users: NatsUsers, server: NatsServer, taken: str
) -> None:
    listener = Listener()
    watcher, _ = await pair(buses, users, listener)
    work = asyncio.create_task(publishing(watcher))
    try:
        await eventually(lambda: listener.names and not reasons(buses))
        users.reload(server, {taken: NOTHING})
        await eventually(lambda: any(taken.rstrip(".>*").lower() in reason.lower() for reason in reasons(buses)), 60)
    finally:
        users.reload(server, {})
    async with asyncio.timeout(RECOVERS_SECONDS):
        node = await published(watcher)
        await eventually(lambda: node in listener.names and not reasons(buses), RECOVERS_SECONDS)
    work.cancel()


@pytest.mark.parametrize(("taken", "named"), [("$KV.TRELLIS_CLUSTERS.", "$kv."), ("TRELLIS_CLUSTERS", "")])
async def test_permissions_for_the_bucket_of_names_that_are_given_back_are_used_within_thirty_seconds(
    users: NatsUsers, tmp_path: Path, taken: str, named: str
) -> None:
    listener = Listener()
    with NatsServer(tmp_path / "server", config=users.config) as own:  # its bucket is made with a lifetime of seconds
        brief = Buses(own.url, CLUSTER)
        watcher, _ = await pair(brief, users, listener, timings=BRIEF)
        try:
            users.reload(own, {taken: NOTHING})
            await eventually(
                lambda: sum(f"{named}trellis_clusters" in reason.lower() for reason in reasons(brief)) == 2
            )
            users.reload(own, {})
            async with asyncio.timeout(RECOVERS_SECONDS):
                node = await published(watcher)
                await eventually(lambda: node in listener.names and not reasons(brief), RECOVERS_SECONDS)
        finally:
            users.reload(own, {})
            await brief.close()


@pytest.mark.thorough
async def test_a_denied_subscription_is_named_for_as_long_as_it_is_denied(
    buses: Buses, users: NatsUsers, server: NatsServer
) -> None:
    await pair(buses, users, Listener())
    users.reload(server, {TAKEN["advisories"]: NOTHING})
    await eventually(lambda: len(reasons(buses)) == 2)
    loop = asyncio.get_running_loop()
    ends = loop.time() + 2 * TIMINGS.refused
    while loop.time() < ends:
        assert len(reasons(buses)) == 2
        await asyncio.sleep(0.2)
    users.reload(server, {})
    await eventually(lambda: not reasons(buses), RECOVERS_SECONDS)


async def test_a_user_that_is_removed_and_added_again_is_let_in_within_thirty_seconds(
    buses: Buses, users: NatsUsers, server: NatsServer
) -> None:
    listener = Listener()
    watcher, consumer = await pair(buses, users, listener)
    name = f"{PROVISIONER}.{CLUSTER}"
    former = users.seed_file(name).read_text()
    users.rotate(name, server)
    users.seed_file(name).write_text(former)
    await eventually(lambda: any(REFUSED in reason for reason in reasons(buses)), 60)
    assert not consumer.connected.is_set()
    users.restore(name, former.strip(), server)
    async with asyncio.timeout(RECOVERS_SECONDS):
        await consumer.connected.wait()
        node = await published(watcher)
        await eventually(lambda: node in listener.names and not reasons(buses), RECOVERS_SECONDS)
