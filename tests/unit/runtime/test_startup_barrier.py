"""The services of a process read before any of them works, and none waits for long for one that cannot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from support.cluster.kube_world import until
from trellis.bus.bus import Bus
from trellis.bus.consume.queue import KeyedQueue
from trellis.config.settings import ServiceSettings, SettingsError
from trellis.kube.informer import Informer
from trellis.kube.lease import new_lease
from trellis.kube.resources import LEASES, NAMESPACES
from trellis.runtime.run import Base, EqualService, LedService, Service, Work, run_services
from trellis.runtime.startup_barrier import StartupBarrier
from trellis.telemetry import Metrics, TraceContext, setup
from trellis_dev.fakes.fake import FakeKube

DEADLINE = 10.0


class Reading:
    """A stand-in for an informer: it has read once the test says so."""

    def __init__(self) -> None:
        self.synced = self.answered = asyncio.Event()

    async def run(self) -> None:
        await asyncio.Event().wait()


class NearBus:
    """A bus that is there at once, or never."""

    def __init__(self, *, there: bool) -> None:
        self.on_new_stream: list[Any] = []
        self._there = there

    async def connect(self) -> None:
        if not self._there:
            await asyncio.Event().wait()

    async def start(self) -> None:
        return None

    async def stop(self) -> None:
        return None


class World:
    """Services of one process over one API server in memory; ``worked`` names those that began to work, in turn."""

    def __init__(self) -> None:
        self.kube = FakeKube(telemetry=setup("tested", metrics=Metrics()))
        self.reading: dict[str, Reading] = {}
        self.worked: list[str] = []

    def service(self, name: str, kind: type[Service] = EqualService, *, bus: bool = True) -> Service:
        telemetry = setup(name, metrics=Metrics())
        reading = self.reading[name] = Reading()

        async def work(key: str, trace: TraceContext | None) -> None:
            del trace
            self.worked.append(key)

        def compose(_: Base) -> Work:
            queue = KeyedQueue(workers=1, name="keys", telemetry=telemetry)
            return Work([cast("Informer[Any]", reading)], {queue: work}, lambda: queue.add(name), lambda: None)

        return kind(
            name=name,
            settings=ServiceSettings(shutdown_grace_period=5.0),
            telemetry=telemetry,
            compose=compose,
            namespaces={},
            kube=self.kube,
            bus=cast("Bus", NearBus(there=bus)),
        )


@asynccontextmanager
async def running(*services: Service, seconds: float = 60.0) -> AsyncIterator[None]:
    barrier, stop = StartupBarrier((service.name for service in services), seconds), asyncio.Event()
    for service in services:
        service.barrier = barrier
    tasks = [asyncio.create_task(service.run(stop)) for service in services]
    try:
        yield
    finally:
        stop.set()
        await asyncio.gather(*tasks)


async def passes(turns: int = 200) -> None:
    """Let everything happen that needs no time."""
    for _ in range(turns):
        await asyncio.sleep(0)


async def test_no_component_works_before_all_have_read() -> None:
    world = World()
    async with running(world.service("quick"), world.service("slow")):
        world.reading["quick"].synced.set()
        await passes()
        assert world.worked == []
        world.reading["slow"].synced.set()
        await until(lambda: sorted(world.worked) == ["quick", "slow"], "both work")


async def test_a_component_that_cannot_read_delays_the_others_for_a_bounded_time() -> None:
    world = World()
    async with running(world.service("quick"), world.service("slow"), world.service("later"), seconds=0.3):
        began = asyncio.get_running_loop().time()
        world.reading["quick"].synced.set()
        await until(lambda: world.worked == ["quick"], "the first works all the same")
        assert asyncio.get_running_loop().time() - began >= 0.3
        world.reading["later"].synced.set()
        await passes()
        assert world.worked == ["quick", "later"]


async def test_one_whose_lease_another_has_is_not_waited_for() -> None:
    world = World()
    spec = {"holderIdentity": "another", "leaseDurationSeconds": 60, "renewTime": "2026-01-01T00:00:00.000000Z"}
    led, equal = world.service("led", LedService), world.service("equal")
    world.kube.put(NAMESPACES, {"metadata": {"name": led.settings.namespace}})
    world.kube.put(LEASES, new_lease("trellis-led", led.settings.namespace) | {"spec": spec})
    async with running(led, equal):
        world.reading["equal"].synced.set()
        await until(lambda: world.worked == ["equal"], "the other works")


async def test_a_later_successor_waits_for_no_other() -> None:
    barrier = StartupBarrier(("a", "b"), 60.0)
    barrier.has_read("b")
    async with asyncio.timeout(DEADLINE):
        await barrier.wait("a")
        await barrier.wait("b")


async def test_the_services_of_a_process_are_together_and_one_by_itself_is_alone(tmp_path: Path) -> None:
    world = World()
    services = [world.service("a"), world.service("b")]
    assert services[0].barrier is not services[1].barrier
    async with asyncio.timeout(DEADLINE):
        await services[0].barrier.wait("a")
    for service in services:
        service.kube = None
        service.settings = ServiceSettings(kubeconfig=tmp_path / "nowhere")
    with pytest.raises(SettingsError, match=r"/nowhere\b"):
        await run_services(services, health_port=0)
    assert services[0].barrier is services[1].barrier
