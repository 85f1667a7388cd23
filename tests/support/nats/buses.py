"""Buses on a real nats-server for tests, listeners, and waiting for conditions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from trellis.bus.bus import Bus, BusTimings, Received
from trellis.bus.timings import ConnectionTimings
from trellis.events.envelope import EventData
from trellis.events.node import NodeOptedOut
from trellis.telemetry import Metrics, Telemetry, setup
from trellis.telemetry.health import Health

DEADLINE_SECONDS = 40.0
"""For a machine with much else to do; less than the minute after which a bus looks again by itself."""
QUICK = BusTimings(
    check=0.5, again=0.2, ack_wait=5.0, connection=ConnectionTimings(attempt_first=0.1, attempt_most=1.0)
)


async def eventually(condition: Callable[[], object], seconds: float = DEADLINE_SECONDS) -> None:
    """Wait until the condition holds; the test fails if it does not within the deadline."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 (what is waited for has no event)
            await asyncio.sleep(0.005)


async def eventually_async(condition: Callable[[], Awaitable[object]], seconds: float = DEADLINE_SECONDS) -> None:
    """As ``eventually``, for a condition that has to be asked for."""
    async with asyncio.timeout(seconds):
        while not await condition():  # noqa: ASYNC110 (as above)
            await asyncio.sleep(0.01)


def opted_out(name: str, uid: str = "uid-1") -> NodeOptedOut:
    """A small event."""
    return NodeOptedOut(name=name, uid=uid, resource_version="1")


@dataclass
class Listener:
    """A handler that notes what it gets and, if wanted, acknowledges it later from another task."""

    acknowledge: bool = True
    received: list[Received[Any]] = field(default_factory=list)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def __call__(self, received: Received[Any]) -> None:
        self.received.append(received)
        if self.acknowledge:
            task = asyncio.ensure_future(received.ack())
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    @property
    def names(self) -> list[str]:
        return [received.data.name for received in self.received]


@dataclass
class Buses:
    """Makes buses of one cluster and closes them after the test."""

    url: str
    cluster: str
    spans: InMemorySpanExporter = field(default_factory=InMemorySpanExporter)
    metrics: Metrics = field(default_factory=Metrics)
    healths: list[Health] = field(default_factory=list)
    made: list[Bus] = field(default_factory=list)

    def new(self, service: str = "provisioner", **options: Any) -> Bus:
        telemetry = self.telemetry(service)
        health = Health(service)
        options = {"timings": QUICK, "cluster_uid": f"uid-of-{self.cluster}", **options}
        bus = Bus(self.url, cluster=self.cluster, service=service, telemetry=telemetry, health=health, **options)
        self.healths.append(health)
        self.made.append(bus)
        return bus

    def telemetry(self, service: str) -> Telemetry:
        """Telemetry whose spans and metrics are the test's."""
        return setup(service, metrics=self.metrics, span_exporters=[self.spans])

    async def consuming(
        self, listener: Listener, *models: type[EventData], service: str = "provisioner", **options: Any
    ) -> Bus:
        """A connected bus that hands events of these models (NodeOptedOut) to the listener."""
        bus = self.new(service, **options)
        bus.subscribe("nodes", models or (NodeOptedOut,), listener)
        await bus.connect()
        await bus.start()
        return bus

    async def close(self) -> None:
        for bus in self.made:
            await bus.close()
