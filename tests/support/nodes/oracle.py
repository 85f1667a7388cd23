"""A small world in memory: what is true of each node, who says so on the bus, and who comes to know.

As services do: the truth is not on the bus; an event only says where to look; a process that learns of possibly lost
events publishes everything again, or lists everything.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from support.nats.buses import opted_out
from trellis.bus.bus import Bus, BusTimings, BusUnavailable, Received
from trellis.bus.consume.queue import KeyedQueue
from trellis.bus.timings import ConnectionTimings
from trellis.events.node import NodeOptedOut
from trellis.telemetry import Metrics, TraceContext, setup

TIMING = BusTimings(check=0.5, ack_wait=2.0, connection=ConnectionTimings(ping=2, attempt_most=1.0))
_AT_ONCE = 100


@dataclass
class Writer:
    """A writer that changes the truth and publishes it. Events that could not be published are published again, as by a
    queue's retry.
    """

    bus: Bus
    truth: dict[str, int] = field(default_factory=dict)
    republished: int = 0
    id: str = field(default_factory=lambda: secrets.token_hex(4))
    _publishing: set[asyncio.Task[None]] = field(default_factory=set)

    async def change(self, names: Iterable[str]) -> None:
        """Let something new be true of each of these nodes; returns once all of it was published."""
        slots = asyncio.Semaphore(_AT_ONCE)

        async def one(name: str) -> None:
            async with slots:
                self.truth[name] = self.truth.get(name, 0) + 1
                await self._publish(name)

        await asyncio.gather(*map(one, names))

    def publish_everything(self) -> None:
        """Say all that is true; called when the stream is another one."""
        task = asyncio.ensure_future(self._publish_all(list(self.truth)))
        self._publishing.add(task)
        task.add_done_callback(self._publishing.discard)

    async def finished(self) -> None:
        """Wait until nothing is left to be published."""
        while self._publishing:
            await asyncio.gather(*self._publishing)

    async def _publish_all(self, names: list[str]) -> None:
        for name in names:
            self.republished += 1
            await self._publish(name)

    async def _publish(self, name: str) -> None:
        while True:
            version = self.truth[name]
            try:
                await self.bus.publish(opted_out(name, uid=f"{name}.{version}"), dedup=f"{self.id}.{name}.{version}")
            except BusUnavailable:
                continue
            return


class Reader:
    """Comes to know the truth: each run of a key looks it up, as a service reads the object an event names."""

    def __init__(self, truth: dict[str, int], *, seconds: float = 0.0, workers: int = 16) -> None:
        self.known: dict[str, int] = {}
        self.received: Counter[str] = Counter()
        self.deliveries = 0
        self.lists = 0
        self._truth = truth
        self._seconds = seconds
        telemetry = setup("provisioner", metrics=Metrics())
        self._queue = KeyedQueue(workers=workers, name="nodes", telemetry=telemetry)
        self._working: asyncio.Task[None] | None = None

    async def read(self, bus: Bus) -> None:
        """Consume from now on, and list once, as a service does at its start."""
        bus.subscribe("nodes", [NodeOptedOut], self._receive)
        bus.on_new_stream.append(self.list_all)
        await bus.connect()
        await bus.start()
        self._working = asyncio.create_task(self._queue.work(self._run))

    def list_all(self) -> None:
        """Look at everything."""
        self.lists += 1
        for name in list(self._truth):
            self._queue.add(name)

    async def close(self) -> None:
        """Work no more."""
        if self._working is not None:
            self._working.cancel()
            await asyncio.gather(self._working, return_exceptions=True)

    def _receive(self, received: Received[NodeOptedOut]) -> None:
        self.received[received.data.uid] += 1
        self.deliveries = max(self.deliveries, received.deliveries)
        self._queue.add(received.data.name, received.ack, received.trace)

    async def _run(self, name: str, _: TraceContext | None) -> None:
        await asyncio.sleep(self._seconds)
        self.known[name] = self._truth[name]
