"""A story is told once, and the boundaries noted that services come to; then once for each, with a crash there.

In: a control plane, a story, ``Point``s. Out: what was wrong after crashes there. Called by tests of crash points, one
telling after another, as services look after all nodes there are. Each has a bus, nodes, namespaces and a lattice of
its own, and one process of the services, started again under the same name when it dies, as a kubelet does.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import nats
import pytest
from nats.aio.client import Client
from nats.js.api import ConsumerInfo

from chaos import controller_work, judge, lattice_work, node_work, pointed
from chaos.asking import Asking
from chaos.bus_servers import BusServers
from chaos.controller_side import ControllerSide
from chaos.copies import miscopied, received_events
from chaos.kubelets import Kubelets
from chaos.lattice_side import LatticeSide
from chaos.model import expected
from chaos.node_side import NodeSide
from chaos.points import Point, When
from chaos.sides import Side
from chaos.stories import Story
from chaos.waiting import Patience, none_of
from support.nodes.fleet import Fleet
from support.suite.forkserver import Child, Forkserver
from support.suite.tcp_proxy import TcpProxy
from trellis.events.subjects import STREAM_DEAD
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.api import Api

CHAPTER_SECONDS: Final = 90.0
_PAUSE_SECONDS: Final = 0.3
_PASSED: Final = "passed"
_DEATH: Final = "death"
_TELLINGS: Final = 4
_SETTINGS: Final = {"max_unavailable": "3", "sources_interval": "2", "log_level": "info"}


@dataclass
class Telling:
    """One telling of a story. ``points``: where to die; ``left``: where nobody came; ``passed``: all they came to."""

    story: Story
    points: tuple[Point, ...]
    left: list[Point] = field(default_factory=list)
    passed: list[Point] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def take(self, directory: Path) -> None:
        """Take what the processes noted so far."""
        self.left, self.passed = pointed.read(directory / _DEATH), _passed(directory / _PASSED)

    def undone(self) -> Iterator[str]:
        """Yield what nobody has come to again after a crash before it, though it was not done."""
        for point in self.points:
            if point in self.left or point.when is When.AFTER or point.what in self.story.passes:
                continue
            later = self.passed[self.passed.index(point) + 1 :]
            if all(item.what != point.what for item in later):
                yield f"nobody came to {point.what} again after a crash before it"


def crossing(*stories: Story) -> list[Any]:
    """Return pytest's parameters ``story, point``: every boundary of some stories, from both sides."""
    return [
        pytest.param(story, point, id=f"{story.part}-{point.what}-{point.when}".replace(" ", "-"))
        for story in stories
        for point in story.points()
    ]


@dataclass
class Teller:
    """Tells stories in one control plane."""

    cluster: ClusterInfo
    forkserver: Forkserver
    story: Story

    async def tell(self, *points: Point) -> Telling:
        """Tell it once, with a crash at each of some points, one after another; or without one."""
        telling, began = Telling(self.story, points), time.monotonic()
        with tempfile.TemporaryDirectory(prefix="crash-") as name:
            directory = Path(name)
            pointed.write(directory / _DEATH, points)
            try:
                async with self._world(directory, telling) as world:
                    await world.tell(telling)
            except (AssertionError, TimeoutError, OSError) as error:
                telling.wrong.append(f"it broke off: {error!r}")
            telling.take(directory)
            if telling.wrong:
                telling.wrong.append(f"the end of its log: {_tail(directory / 'log')}")
        telling.seconds = time.monotonic() - began
        return telling

    async def cross_all(self) -> list[str]:
        """Tell it with a crash at every point, and again with those that nobody came to; return what was wrong.

        A crash may hide another's boundary: what was on its way is done, and nobody is there to come out of it.
        """
        points = self.story.points()
        for _ in range(_TELLINGS):
            telling = await self.tell(*points)
            points = [item for item in telling.left if item.what not in self.story.passes]
            if telling.wrong or not points:
                return telling.wrong
        return [f"nobody came to {point}" for point in points]

    @contextlib.asynccontextmanager
    async def _world(self, directory: Path, telling: Telling) -> AsyncIterator[_World]:
        api = Api.of_kubeconfig(Path(self.cluster.kubeconfig))
        fleet, asking = Fleet(self.cluster, api), Asking(api)
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(api.close)
            bus = await stack.enter_async_context(BusServers(directory / "bus", 1).running())
            port = int(self.cluster.nats_url.rpartition(":")[2])
            lattice = await stack.enter_async_context(TcpProxy("127.0.0.1", port))
            stack.push_async_callback(asyncio.to_thread, fleet.clean_up)
            kubelets = Kubelets(asking, fleet.installers)
            sides: dict[str, Callable[[], Side]] = {
                node_work.PART: lambda: NodeSide(asking, kubelets, fleet.id, fleet.installers),
                lattice_work.PART: lambda: LatticeSide(asking, self.cluster.nats_url, lattice, fleet.id),
                controller_work.PART: lambda: ControllerSide(asking, api, fleet.id),
            }
            side = sides[self.story.part]()
            stack.push_async_callback(side.clean_up)
            environment = fleet.environment(**_SETTINGS) | {
                "TRELLIS_NATS_URL": ",".join(bus.urls),
                "TRELLIS_IDENTITY": "the-one",
                "TRELLIS_LOG_FORMAT": "json",
                "TRELLIS_CONTROLLER_DATA_DIR": str(directory / "controllers"),
                pointed.PASSED: str(directory / _PASSED),
                pointed.DEATH: str(directory / _DEATH),
            }
            offset = fleet.audit_offset()
            await asyncio.to_thread(fleet.add, "spare", opted_in=False)  # hosts run somewhere
            await side.begin()
            stack.push_async_callback(_end, asyncio.create_task(kubelets.run()))
            world = _World(self.forkserver, environment, directory, fleet, bus, side, kubelets, offset)
            if isinstance(side, LatticeSide):
                world.event_ids = await stack.enter_async_context(received_events(self.cluster.nats_url, fleet.id))
            keeping = asyncio.create_task(world.keep(self.story.services, telling))
            stack.push_async_callback(world.stop, keeping)
            yield world


@dataclass
class _World:
    forkserver: Forkserver
    environment: dict[str, str]
    directory: Path
    fleet: Fleet
    bus: BusServers
    side: Side
    kubelets: Kubelets
    offset: int
    event_ids: set[str] | None = None
    child: Child | None = None
    deaths: int = 0
    stopping: bool = False

    def __post_init__(self) -> None:
        self.patience = Patience(lambda: [self.child.pid] if self.child is not None else [])

    async def keep(self, services: Sequence[str], telling: Telling) -> None:
        """Have the process run, and run again when it has died of a point."""
        while not self.stopping:
            self.child = await self.forkserver.have(self.environment, ["run", *services], self.directory / "log")
            code = await self.child.wait()
            if self.stopping:
                return
            if code != -signal.SIGKILL or self.deaths == len(telling.points):
                telling.wrong.append(f"it ended by itself, with {code}")
                return
            self.deaths += 1
            await asyncio.sleep(_PAUSE_SECONDS)

    async def stop(self, keeping: asyncio.Task[None]) -> None:
        """End the process, which has a grace period."""
        self.stopping = True
        if self.child is not None:
            self.child.send_signal(signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.child.wait(), 30)
            self.child.send_signal(signal.SIGKILL)
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)

    async def tell(self, telling: Telling) -> None:
        """Do what people do, chapter by chapter, and see that all becomes as they asked."""
        story = telling.story
        for number, chapter in enumerate(story.chapters):
            for step in chapter:
                await self.side.act(step)
            wanted = expected(story.until(number))
            telling.wrong += await self._until_none(lambda wanted=wanted: self.side.wrong(wanted))  # type: ignore[misc]
            if telling.wrong:
                telling.wrong.insert(0, f"in chapter {number + 1}")
                return
        offset = self.fleet.audit_offset()
        telling.wrong += [
            *await self._until_none(lambda: self._undone(telling)),
            *await self._bus(),
            *(f"an installer would have refused: {item}" for item in self.kubelets.refused),
        ]
        await self.side.release()
        telling.wrong += await self._until_none(self.side.left)
        records = self.fleet.writes(self.offset)
        own = [record for record in records if self.fleet.id in json.dumps(record.get("objectRef") or {})]
        until = len(own) - sum(
            self.fleet.id in json.dumps(write.get("objectRef") or {}) for write in self.fleet.writes(offset)
        )
        case = judge.Case(self.fleet.system, self.fleet.installers, frozenset(self.side.deleted), until)
        telling.wrong += judge.violations(own, case)

    async def _undone(self, telling: Telling) -> AsyncIterator[str]:
        telling.take(self.directory)
        for item in telling.undone():
            yield item

    async def _until_none(self, look: Callable[[], AsyncIterator[str]]) -> list[str]:
        """Wait until nothing is found; each crash brings the end nearer."""

        async def looked() -> list[str]:
            found = [item async for item in look()]
            return [*found, f"it died {self.deaths} times"] if found else []

        return await none_of(looked, CHAPTER_SECONDS, lambda _: None, self.patience)

    async def _bus(self) -> list[str]:
        """Return what waits on the bus though all is done, after a moment for what was given late."""
        client = await nats.connect(self.bus.urls)
        try:
            found = await self._until_none(lambda: _unfinished(client))
            if (event_ids := self.event_ids) is not None:
                found += await self._until_none(
                    lambda: miscopied(event_ids, self.bus.urls[0], self.fleet.id, self.fleet.id)
                )
                assert event_ids, "the lattice said nothing"
            letters = (await client.jetstream().stream_info(STREAM_DEAD)).state.messages
            return [*found, f"{letters} dead letters"] if letters else found
        finally:
            await client.close()


async def _unfinished(client: Client) -> AsyncIterator[str]:
    """Yield which durables have messages that nobody has finished."""
    stream = client.jetstream()
    for name in [item.config.name for item in await stream.streams_info()]:
        found: list[ConsumerInfo] = await stream.consumers_info(str(name))
        for item in found:
            if item.num_ack_pending or item.num_pending:
                yield f"{item.name} has {item.num_ack_pending} messages in work and {item.num_pending} before it"


def _passed(file: Path) -> list[Point]:
    found = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return [Point(what, nth, When(when)) for what, nth, when in map(json.loads, found)]


def _tail(log: Path) -> str:
    return log.read_text(encoding="utf-8")[-3000:] if log.exists() else ""


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
