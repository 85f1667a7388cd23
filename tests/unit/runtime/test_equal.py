"""A service of which every replica works: no lease, a failed part restarts, the end comes in order."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from trellis.bus.bus import Bus
from trellis.config.settings import ServiceSettings
from trellis.kube.resources import LEASES
from trellis.runtime.run import Base, EqualService, Work
from trellis.telemetry import Metrics, setup
from trellis_dev.fakes.fake import FakeKube


class QuietBus:
    """A bus that is there and says nothing."""

    def __init__(self, calls: list[str]) -> None:
        self.on_new_stream: list[Any] = []
        self._calls = calls

    async def connect(self) -> None:
        return None

    async def start(self) -> None:
        return None

    async def stop(self) -> None:
        self._calls.append("bus stopped")


class World:
    """One service whose part fails ``failures`` times, and what happened to it."""

    def __init__(self, failures: int = 0) -> None:
        self.calls: list[str] = []
        self.failures = failures
        self.working = asyncio.Event()
        telemetry = setup("tested", metrics=Metrics())
        self.kube = FakeKube(telemetry=telemetry)
        self.service = EqualService(
            name="tested",
            settings=ServiceSettings(shutdown_grace_period=5.0),
            telemetry=telemetry,
            compose=self.compose,
            namespaces={},
            kube=self.kube,
            bus=cast("Bus", QuietBus(self.calls)),
        )
        self.kube.health = self.service.health

    def compose(self, _: Base) -> Work:
        async def part() -> None:
            self.calls.append("begun")
            if self.failures:
                self.failures -= 1
                raise ValueError("broken")
            self.working.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.calls.append("part ended")

        async def close(seconds: float) -> None:
            assert 0 < seconds < 5
            self.calls.append("closed")

        return Work([], {}, lambda: None, lambda: None, background=[part], closing=[close])


async def test_every_replica_works_without_a_lease_and_closes_before_its_parts_end() -> None:
    world, stop = World(), asyncio.Event()
    running = asyncio.create_task(world.service.run(stop))
    await world.working.wait()
    assert world.service.health.readiness().ok
    stop.set()
    await running
    assert world.calls[0] == "begun"
    assert world.calls[-1] == "part ended"
    assert sorted(world.calls[1:-1]) == ["bus stopped", "closed"]
    assert (await world.kube.list(LEASES)).items == []


async def test_a_failed_component_ends_no_process_and_restarts_the_term() -> None:
    world, stop = World(failures=1), asyncio.Event()
    running = asyncio.create_task(world.service.run(stop))
    async with asyncio.timeout(20):
        await world.working.wait()
    assert world.calls == ["begun", "begun"]
    stop.set()
    await running


async def test_a_restarting_component_is_not_ready_meanwhile() -> None:
    world, stop = World(failures=1), asyncio.Event()
    running = asyncio.create_task(world.service.run(stop))
    async with asyncio.timeout(20):
        while world.calls != ["begun"]:  # noqa: ASYNC110 - of a part
            await asyncio.sleep(0)
        for _ in range(50):  # what failed is cleared away, and waits for a second
            await asyncio.sleep(0)
        assert [reason.partition(":")[0] for reason in world.service.health.readiness().reasons] == ["parts"]
        await world.working.wait()
        assert world.calls == ["begun", "begun"]
        assert world.service.health.readiness().ok
    stop.set()
    await running
