"""Run a scenario once and record the boundaries of its services; then once for each boundary, with a crash there.

In: a control plane, a scenario, ``Point``s. Out: errors after crashes there. Called by tests of crash points, one run
after another, as services reconcile all nodes. Each run has its own bus, nodes, namespaces and lattice, and one process
of the services, restarted under the same name when it dies, as by a kubelet.
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

from chaos import controller_work, crash_at_point, judge, lattice_work, node_work
from chaos.bus_servers import BusServers
from chaos.controller_side import ControllerSide
from chaos.forwarded_events import received_events, wrongly_forwarded
from chaos.kubelets import Kubelets
from chaos.lattice_side import LatticeSide
from chaos.model import expected
from chaos.node_side import NodeSide
from chaos.points import Point, When
from chaos.retrying_requests import RetryingRequests
from chaos.scenarios import Scenario
from chaos.sides import Side
from chaos.waiting import Patience, none_of
from support.nodes.fleet import Fleet
from support.suite.forkserver import Child, Forkserver
from support.suite.tcp_proxy import TcpProxy
from trellis.events.subjects import STREAM_DEAD
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.api import Api

PHASE_SECONDS: Final = 90.0
_PAUSE_SECONDS: Final = 0.3
_PASSED: Final = "passed"
_DEATH: Final = "death"
_MOST_ATTEMPTS: Final = 4
_SETTINGS: Final = {"max_unavailable": "3", "sources_interval": "2", "log_level": "info"}


@dataclass
class Attempt:
    """One run of a scenario. ``points``: crash points; ``left``: those not reached; ``passed``: all reached ones."""

    scenario: Scenario
    points: tuple[Point, ...]
    left: list[Point] = field(default_factory=list)
    passed: list[Point] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def take(self, directory: Path) -> None:
        """Read the points that the processes recorded so far."""
        self.left, self.passed = crash_at_point.read(directory / _DEATH), _passed(directory / _PASSED)

    def not_repeated(self) -> Iterator[str]:
        """Yield writes that were not repeated after a crash before them."""
        for point in self.points:
            if point in self.left or point.when is When.AFTER or point.what in self.scenario.transient:
                continue
            later = self.passed[self.passed.index(point) + 1 :]
            if all(item.what != point.what for item in later):
                yield f"{point.what} was not repeated after a crash before it"


def crash_parameters(*scenarios: Scenario) -> list[Any]:
    """Return pytest's parameters ``scenario, point``: every boundary of some scenarios, from both sides."""
    return [
        pytest.param(scenario, point, id=f"{scenario.part}-{point.what}-{point.when}".replace(" ", "-"))
        for scenario in scenarios
        for point in scenario.points()
    ]


@dataclass
class ScenarioRunner:
    """Runs a scenario in one control plane."""

    cluster: ClusterInfo
    forkserver: Forkserver
    scenario: Scenario

    async def run(self, *points: Point) -> Attempt:
        """Run it once, with a crash at each of some points, one after another; or without one."""
        attempt, began = Attempt(self.scenario, points), time.monotonic()
        with tempfile.TemporaryDirectory(prefix="crash-") as name:
            directory = Path(name)
            crash_at_point.write(directory / _DEATH, points)
            try:
                async with self._world(directory, attempt) as world:
                    await world.run(attempt)
            except (AssertionError, TimeoutError, OSError) as error:
                attempt.wrong.append(f"it broke off: {error!r}")
            attempt.take(directory)
            if attempt.wrong:
                attempt.wrong.append(f"the end of its log: {_tail(directory / 'log')}")
        attempt.seconds = time.monotonic() - began
        return attempt

    async def crash_at_all_points(self) -> list[str]:
        """Run it with a crash at every point, and again with those that were not reached; return the errors.

        A crash may hide another's boundary: the request is carried out, and its sender has ended.
        """
        points = self.scenario.points()
        for _ in range(_MOST_ATTEMPTS):
            attempt = await self.run(*points)
            points = [item for item in attempt.left if item.what not in self.scenario.transient]
            if attempt.wrong or not points:
                return attempt.wrong
        return [f"{point} was not reached" for point in points]

    @contextlib.asynccontextmanager
    async def _world(self, directory: Path, attempt: Attempt) -> AsyncIterator[_World]:
        api = Api.of_kubeconfig(Path(self.cluster.kubeconfig))
        fleet, requests = Fleet(self.cluster, api), RetryingRequests(api)
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(api.close)
            bus = await stack.enter_async_context(BusServers(directory / "bus", 1).running())
            port = int(self.cluster.nats_url.rpartition(":")[2])
            lattice = await stack.enter_async_context(TcpProxy("127.0.0.1", port))
            stack.push_async_callback(asyncio.to_thread, fleet.clean_up)
            kubelets = Kubelets(requests, fleet.installers)
            sides: dict[str, Callable[[], Side]] = {
                node_work.PART: lambda: NodeSide(requests, kubelets, fleet.id, fleet.installers),
                lattice_work.PART: lambda: LatticeSide(requests, self.cluster.nats_url, lattice, fleet.id),
                controller_work.PART: lambda: ControllerSide(requests, api, fleet.id),
            }
            side = sides[self.scenario.part]()
            stack.push_async_callback(side.clean_up)
            environment = fleet.environment(**_SETTINGS) | {
                "TRELLIS_NATS_URL": ",".join(bus.urls),
                "TRELLIS_IDENTITY": "the-one",
                "TRELLIS_LOG_FORMAT": "json",
                "TRELLIS_CONTROLLER_DATA_DIR": str(directory / "controllers"),
                crash_at_point.PASSED: str(directory / _PASSED),
                crash_at_point.DEATH: str(directory / _DEATH),
            }
            offset = fleet.audit_offset()
            await asyncio.to_thread(fleet.add, "spare", opted_in=False)  # hosts run somewhere
            await side.begin()
            stack.push_async_callback(_end, asyncio.create_task(kubelets.run()))
            world = _World(self.forkserver, environment, directory, fleet, bus, side, kubelets, offset)
            if isinstance(side, LatticeSide):
                world.event_ids = await stack.enter_async_context(received_events(self.cluster.nats_url, fleet.id))
            supervision = asyncio.create_task(world.supervise(self.scenario.services, attempt))
            stack.push_async_callback(world.stop, supervision)
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

    async def supervise(self, services: Sequence[str], attempt: Attempt) -> None:
        """Run the process, and restart it after a crash at a point."""
        while not self.stopping:
            self.child = await self.forkserver.have(self.environment, ["run", *services], self.directory / "log")
            code = await self.child.wait()
            if self.stopping:
                return
            if code != -signal.SIGKILL or self.deaths == len(attempt.points):
                attempt.wrong.append(f"it ended by itself, with {code}")
                return
            self.deaths += 1
            await asyncio.sleep(_PAUSE_SECONDS)

    async def stop(self, supervision: asyncio.Task[None]) -> None:
        """End the process, which has a grace period."""
        self.stopping = True
        if self.child is not None:
            self.child.send_signal(signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.child.wait(), 30)
            self.child.send_signal(signal.SIGKILL)
        supervision.cancel()
        await asyncio.gather(supervision, return_exceptions=True)

    async def run(self, attempt: Attempt) -> None:
        """Carry out the steps of users, phase by phase, and check each result."""
        scenario = attempt.scenario
        for number, phase in enumerate(scenario.phases):
            for step in phase:
                await self.side.act(step)
            wanted = expected(scenario.until(number))
            attempt.wrong += await self._until_none(lambda wanted=wanted: self.side.wrong(wanted))  # type: ignore[misc]
            if attempt.wrong:
                attempt.wrong.insert(0, f"in phase {number + 1}")
                return
        offset = self.fleet.audit_offset()
        attempt.wrong += [
            *await self._until_none(lambda: self._not_repeated(attempt)),
            *await self._bus(),
            *(f"an installer would have refused: {item}" for item in self.kubelets.refused),
        ]
        await self.side.release()
        attempt.wrong += await self._until_none(self.side.left)
        records = self.fleet.writes(self.offset)
        own = [record for record in records if self.fleet.id in json.dumps(record.get("objectRef") or {})]
        until = len(own) - sum(
            self.fleet.id in json.dumps(write.get("objectRef") or {}) for write in self.fleet.writes(offset)
        )
        case = judge.Case(self.fleet.system, self.fleet.installers, frozenset(self.side.deleted), until)
        attempt.wrong += judge.violations(own, case)

    async def _not_repeated(self, attempt: Attempt) -> AsyncIterator[str]:
        attempt.take(self.directory)
        for item in attempt.not_repeated():
            yield item

    async def _until_none(self, look: Callable[[], AsyncIterator[str]]) -> list[str]:
        """Wait until nothing is found; each crash brings the end nearer."""

        async def looked() -> list[str]:
            found = [item async for item in look()]
            return [*found, f"it died {self.deaths} times"] if found else []

        return await none_of(looked, PHASE_SECONDS, lambda _: None, self.patience)

    async def _bus(self) -> list[str]:
        """Return waiting messages on the bus, after a moment for late ones."""
        client = await nats.connect(self.bus.urls)
        try:
            found = await self._until_none(lambda: _unfinished(client))
            if (event_ids := self.event_ids) is not None:
                found += await self._until_none(
                    lambda: wrongly_forwarded(event_ids, self.bus.urls[0], self.fleet.id, self.fleet.id)
                )
                assert event_ids, "the lattice published nothing"
            dead_letters = (await client.jetstream().stream_info(STREAM_DEAD)).state.messages
            return [*found, f"{dead_letters} dead letters"] if dead_letters else found
        finally:
            await client.close()


async def _unfinished(client: Client) -> AsyncIterator[str]:
    """Yield the durables with unfinished messages."""
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
