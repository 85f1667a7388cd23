"""Each user that the chart renders does its work, and is refused what is another's: on a real server, one by one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client

from support.chart.chart_nats import ChartServers
from support.chart.rendered import hooks, rendered
from support.nats.buses import Buses, eventually
from support.suite.settling import settle
from trellis.bus.accounts.naming import CLAIM_STREAM, LAST_EVENTS, consumer_name, inbox_prefix
from trellis.bus.accounts.permissions import CLI, CLI_INBOX, PUBLISHERS, durables
from trellis.bus.bus import Bus
from trellis.events.subjects import EVENT_SPECS, STREAM_EVENTS, STREAM_SUBJECTS
from trellis.services import SERVICES

pytestmark = [pytest.mark.nats, pytest.mark.timeout(180)]

CLUSTER = "lab-1"
STREAMS = (*STREAM_SUBJECTS, CLAIM_STREAM)
CHANGES = ("DELETE", "PURGE", "UPDATE", "SNAPSHOT", "RESTORE", "LEADER.STEPDOWN", "PEER.REMOVE")


class World:
    """The server as the chart has it, with the streams made by a service."""

    def __init__(self, servers: ChartServers) -> None:
        self.servers = servers
        self.refused: list[str] = []

    async def client(self, user: str) -> Client:
        """Connect as a user; what it is refused is noted."""

        async def note(error: Exception) -> None:
            self.refused.append(str(error).lower())

        inbox = CLI_INBOX if user == CLI else inbox_prefix(user, CLUSTER)
        return await nats.connect(
            self.servers.url(),
            error_cb=note,
            inbox_prefix=inbox.encode(),
            allow_reconnect=False,
            nkeys_seed=str(self.servers.credentials(user).path),
        )


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    values: dict[str, Any] = {"cluster": CLUSTER, "nats": {"replicas": 1}}
    with ChartServers(tmp_path, rendered(**values), hooks("pre-install", **values)).running() as servers:
        await servers.ready()
        yield World(servers)


def of_others(user: str) -> list[str]:
    """Return the services that a user is not."""
    return [service for service in PUBLISHERS if service != user]


def consumers(services: Iterable[str]) -> list[str]:
    return [
        name
        for service in services
        for name in (*durables(service, CLUSTER), consumer_name(service, LAST_EVENTS, CLUSTER))
    ]


def events_of(services: Iterable[str], cluster: str = CLUSTER) -> list[str]:
    chosen = set(services)
    return [f"trellis.evt.{cluster}.{spec.tokens}.x" for spec in EVENT_SPECS if spec.owner in chosen]


def forbidden(user: str) -> list[str]:
    """Return subjects that a user may not publish to."""
    others = of_others(user)
    found = [f"$JS.API.STREAM.{verb}.{stream}" for verb in CHANGES for stream in STREAMS]
    found += [f"$JS.API.STREAM.{verb}.MINE" for verb in ("CREATE", "DELETE")]
    for name in consumers(others):
        found += [f"$JS.API.CONSUMER.{verb}.{STREAM_EVENTS}.{name}" for verb in ("CREATE", "MSG.NEXT", "DELETE")]
        found += [
            f"$JS.API.CONSUMER.DURABLE.CREATE.{STREAM_EVENTS}.{name}",
            f"$JS.ACK.{STREAM_EVENTS}.{name}.1.2.3.4.5",
        ]
    found += [f"{inbox_prefix(service, CLUSTER)}.x" for service in others]
    found += [f"trellis.dead.{CLUSTER}.{service}.node.x" for service in others]
    if user != CLI:  # who replays a fact says it again, whosever it was, and who frees a name writes it
        found += [*events_of(others), *events_of(PUBLISHERS, "other"), "$KV.TRELLIS_CLUSTERS.other"]
        found += [f"$JS.API.STREAM.MSG.DELETE.{stream}" for stream in STREAMS]
    return found


def unheard(user: str) -> list[str]:
    """Return subjects that a user may not subscribe to."""
    found = [f"{inbox_prefix(service, CLUSTER)}.>" for service in of_others(user)]
    found += ["_INBOX.>", ">", f"{inbox_prefix(PUBLISHERS[0], 'other')}.>"]
    return found if user == CLI else [*found, f"{CLI_INBOX}.>"]


async def made(world: World, user: str) -> None:
    """Have the streams made by who may, and the user's own consumers by itself."""
    service = PUBLISHERS[0] if user == CLI else user
    buses = Buses(world.servers.url(), CLUSTER)
    bus = buses.new(service, credentials=world.servers.credentials(service))
    await bus.connect()
    await works(bus, service)
    await buses.close()


async def works(bus: Bus, service: str) -> None:
    """Consume with each durable that the service has, and read back its events."""
    models = [spec.model for spec in EVENT_SPECS if spec.owner == service]
    for name in SERVICES[service].subscriptions:
        consumed = [spec.model for spec in EVENT_SPECS if spec.owner != service][:2]
        bus.subscribe(name, consumed, lambda _: None)
    await bus.start()
    assert [event async for event in bus.last_events(models)] == []


@pytest.mark.parametrize("user", [*PUBLISHERS, CLI])
async def test_a_user_does_its_work_and_is_refused_what_is_anothers(world: World, user: str) -> None:
    await made(world, user)
    client = await world.client(user)
    own = events_of(PUBLISHERS if user == CLI else (user,))
    for subject in own:
        await client.jetstream().publish(subject, b"{}")
    assert world.refused == [], "what is its own it may"

    for subject in forbidden(user):
        await client.publish(subject, b"{}")
    for subject in unheard(user):
        await client.subscribe(subject)
    await settle(client)
    wanted = [f'publish to "{subject.lower()}"' for subject in forbidden(user)]
    wanted += [f'subscription to "{subject.lower()}"' for subject in unheard(user)]
    await eventually(lambda: len(world.refused) >= len(wanted))
    assert [item for item in wanted if not any(item in line for line in world.refused)] == []

    info = await client.jetstream().stream_info(STREAM_EVENTS)
    assert info.state.messages == len(own), "each is stored, and none is gone"
    await client.close()
