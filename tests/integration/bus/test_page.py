"""The programs of docs/bus.md, as they stand there, on a real nats-server with facts said by a bus."""

from __future__ import annotations

import asyncio
import itertools
import os
import shlex
import shutil
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.errors import NotFoundError

from support.buses import Buses, eventually, eventually_async, opted_out
from support.pages import BUS_PAGE, DOCUMENTED_URL, blocks, table
from trellis.bus.bus import Bus
from trellis.events.node import NodeReady
from trellis.events.provision import ProvisionRemoved
from trellis.events.rollout import RolloutResumed
from trellis.events.subjects import STREAM_EVENTS, fact_subject
from trellis.localcluster.gotoolchain import Go, go_program
from trellis.localcluster.progress import Quiet

# Without Go on the machine its wheel is installed first, and the program's modules are compiled.
pytestmark = [pytest.mark.nats, pytest.mark.timeout(600)]

GO_MODULE = Path(__file__).parents[2] / "data" / "bus_page"
DURABLES = {"python": "my-python", "go": "my-go"}
Program = Callable[[str, str], list[str]]


@dataclass
class Running:
    """A program of the page: what it has printed so far, and how it ended."""

    process: asyncio.subprocess.Process
    lines: list[str] = field(default_factory=list)

    def told(self, text: str) -> bool:
        assert self.process.returncode is None, f"ended by itself with {self.process.returncode}: {self.lines}"
        return any(text in line for line in self.lines)


@asynccontextmanager
async def running(command: list[str], environment: Mapping[str, str] | None = None) -> AsyncIterator[Running]:
    process = await asyncio.create_subprocess_exec(
        *command,
        env={**os.environ, **(environment or {})},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        limit=2**22,
    )
    assert process.stdout is not None
    started, stdout = Running(process), process.stdout

    async def read() -> None:
        async for line in stdout:
            started.lines.append(line.decode())

    reading = asyncio.create_task(read())
    try:
        yield started
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await reading


@pytest.fixture(scope="module")
def go_programs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Compiles the page's Go programs, with modules whose versions and hashes are committed."""
    built: list[Path] = []

    def program(url: str) -> Path:
        if not built:
            module = tmp_path_factory.mktemp("go")
            for name in ("go.mod", "go.sum"):
                shutil.copy(GO_MODULE / name, module)
            for name in ("live", "past"):
                (module / name).mkdir()
                (module / name / "main.go").write_text(blocks(BUS_PAGE)["go", name].replace(DOCUMENTED_URL, url))
            go = Go(go_program(Quiet()), module, module / "log", threading.Event())
            go.run(["build", "-mod=readonly", "-o", f"{module / 'out'}{os.sep}", "./..."])
            built.append(module / "out")
        return built[0]

    return program


@pytest.fixture
def program(buses: Buses, tmp_path: Path, go_programs: Callable[[str], Path]) -> Program:
    """The command that runs a program of the page against this test's server."""

    def command(language: str, name: str) -> list[str]:
        if language == "go":
            return [str(go_programs(buses.url) / name)]
        script = tmp_path / f"{name}.py"
        script.write_text(blocks(BUS_PAGE)[language, name].replace(DOCUMENTED_URL, buses.url))
        return [sys.executable, str(script)]

    return command


@pytest.fixture
async def said(buses: Buses) -> Callable[[], Awaitable[str]]:
    """Says a fact about another node each time, and returns its subject."""
    bus: Bus = buses.new("node_watcher")
    await bus.connect()
    numbers = itertools.count()

    async def say() -> str:
        fact = opted_out(f"node-{next(numbers)}.{buses.cluster}")
        await bus.publish(fact, dedup=f"{buses.cluster}/{fact.name}")
        return fact_subject(buses.cluster, fact)

    return say


async def heard_live(started: Running, say: Callable[[], Awaitable[str]], cluster: str) -> None:
    """Say facts until one is heard: when a live subscription begins, only the server knows."""

    async def heard() -> bool:
        await say()
        await asyncio.sleep(0.1)
        return started.told(f"trellis.evt.{cluster}.node.opted_out.node-")

    await eventually_async(heard, seconds=60)


@pytest.mark.parametrize("language", ["python", "go"])
async def test_a_live_program_prints_facts_as_they_are_said(
    program: Program, said: Callable[[], Awaitable[str]], buses: Buses, language: str
) -> None:
    async with running(program(language, "live")) as started:
        await heard_live(started, said, buses.cluster)
    assert any('"traceparent":"00-' in line for line in started.lines)


@pytest.mark.parametrize("language", ["python", "go"])
async def test_a_program_with_a_durable_consumer_hears_the_past_once_and_what_was_said_while_it_was_away(
    program: Program, said: Callable[[], Awaitable[str]], jetstream: JetStreamContext, language: str
) -> None:
    async def all_acknowledged() -> bool:
        info = await jetstream.consumer_info(STREAM_EVENTS, DURABLES[language])
        return not info.num_ack_pending and not info.num_pending

    before = [await said() for _ in range(3)]
    async with running(program(language, "past")) as first:
        await eventually(lambda: all(map(first.told, before)), seconds=60)
        await eventually_async(all_acknowledged)
    away = await said()
    async with running(program(language, "past")) as second:
        await eventually(lambda: second.told(away), seconds=60)
        assert not any(map(second.told, before))
    await jetstream.delete_consumer(STREAM_EVENTS, DURABLES[language])


@pytest.mark.parametrize("language", ["python", "go"])
async def test_a_program_with_a_durable_consumer_ends_when_the_stream_is_made_anew(
    program: Program, said: Callable[[], Awaitable[str]], jetstream: JetStreamContext, language: str
) -> None:
    before = await said()
    async with running(program(language, "past")) as started:
        await eventually(lambda: started.told(before), seconds=60)
        await jetstream.delete_stream(STREAM_EVENTS)
        await said()  # the bus makes the stream anew for it
        async with asyncio.timeout(60):
            assert await started.process.wait() != 0
    with pytest.raises(NotFoundError):
        await jetstream.consumer_info(STREAM_EVENTS, DURABLES[language])


async def test_the_command_line_shows_the_last_facts_and_new_ones(
    said: Callable[[], Awaitable[str]], buses: Buses
) -> None:
    before = await said()
    (line,) = blocks(BUS_PAGE)["sh", "tail"].splitlines()
    command = [sys.executable, "-m", "trellis_bundle", *shlex.split(line.removeprefix("trellis "))]
    async with running(command, {"TRELLIS_NATS_URL": buses.url}) as started:
        await eventually(lambda: started.told(before.rpartition(".")[2].replace("=2E", ".")), seconds=60)
        after = await said()
        await eventually(lambda: started.told(after.rpartition(".")[2].replace("=2E", ".")))


@pytest.mark.skipif(shutil.which("nats") is None, reason="the nats CLI is not on the PATH")
async def test_the_nats_command_line_hears_the_same(
    said: Callable[[], Awaitable[str]], buses: Buses, jetstream: JetStreamContext
) -> None:
    environment = {"NATS_URL": buses.url}
    (live,) = blocks(BUS_PAGE)["sh", "nats-live"].splitlines()
    async with running(shlex.split(live), environment) as started:
        await heard_live(started, said, buses.cluster)
    before = await said()
    add, following = blocks(BUS_PAGE)["sh", "nats-past"].splitlines()
    async with running(shlex.split(add), environment) as added:
        assert await added.process.wait() == 0, added.lines

    async def read() -> bool:
        async with running(shlex.split(following), environment) as reading:
            await reading.process.wait()  # with an error if there were fewer facts than asked for
        return any(before in line for line in reading.lines)

    await eventually_async(read, seconds=60)
    await jetstream.delete_consumer(STREAM_EVENTS, "my-cli")


def noting(prefix: str, subjects: list[str]) -> Callable[[Msg], Awaitable[None]]:
    """A callback that notes the subjects of a prefix, without what they all begin with."""

    async def note(message: Msg) -> None:
        if message.subject.startswith(prefix):
            subjects.append(message.subject.removeprefix("trellis.evt."))

    return note


async def test_each_filter_hears_what_the_page_says(buses: Buses, client: Client) -> None:
    heard: dict[str, list[str]] = {}
    cluster, node = "e7127c5b", "ip-10-0-0-1.ec2.internal"
    elsewhere = [Buses(buses.url, name) for name in (cluster, f"{cluster}x")]
    filters = [row[0].strip("`") for row in table(BUS_PAGE, "filter")]
    for wanted in filters:
        await client.subscribe(wanted, cb=noting(f"trellis.evt.{cluster}", heard.setdefault(wanted, [])))
    await client.flush()
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
    await eventually(lambda: len(heard["trellis.evt.>"]) == len(every))
    assert heard == {
        "trellis.evt.>": every,
        f"trellis.evt.{cluster}.>": every[:4],
        "trellis.evt.*.provision.>": [every[1], every[5]],
        "trellis.evt.*.node.ready.*": [every[3], every[7]],
        f"trellis.evt.*.*.*.{token}": [subject for subject in every if subject.endswith(token)],
    }
    for place in elsewhere:
        await place.close()
