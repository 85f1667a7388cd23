"""Events per second through the bus, with tracing on, and the time of one.

In: nothing; it starts a nats-server of its own. Out: figures and the machine they were measured on, on stdout.
The path is the whole one: publish (span, envelope, PubAck) → JetStream → validate, span, keyed queue → acknowledgement.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from pathlib import Path

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from machine import describe
from trellis.bus.bus import Bus, Received
from trellis.bus.consume.queue import KeyedQueue
from trellis.events.node import NodeOptedIn
from trellis.telemetry import Metrics, Telemetry, TraceContext, setup
from trellis.telemetry.health import Health
from trellis_dev.localcluster.nats import NatsServer

IN_FLIGHT = 200
LONE_EVENTS = 200
IDLE_SECONDS = 10


class Discarded(SpanExporter):
    """Counts spans: making and ending them is what is measured, not sending."""

    count = 0

    def export(self, spans: list[ReadableSpan]) -> SpanExportResult:  # type: ignore[override]
        """Count."""
        self.count += len(spans)
        return SpanExportResult.SUCCESS


def opted_in(number: int) -> NodeOptedIn:
    return NodeOptedIn(
        name=f"ip-10-0-{number}.ec2.internal",
        uid=f"4ff1ab40-0000-0000-0000-{number:012d}",
        resource_version=str(number),
        architecture="amd64",
        operating_system="linux",
        runtime_version="containerd://2.0.0",
        labels={f"example.com/label-{index}": "value" for index in range(10)},
        by="Annotation",
    )


class Reader:
    """A service that ignores the events that it receives, with the queue of all services."""

    def __init__(self, telemetry: Telemetry) -> None:
        self.telemetry = telemetry
        self.done = 0
        self.changed = asyncio.Event()
        self.queue = KeyedQueue[str](workers=32, name="nodes", telemetry=telemetry)

    async def run(self, _: str, trace: TraceContext | None) -> None:
        """Be done."""
        assert trace is not None
        self.done += 1
        self.changed.set()

    def handle(self, received: Received[NodeOptedIn]) -> None:
        """Enqueue the node."""
        self.queue.add(received.data.name, received.ack, received.trace)

    async def reached(self, count: int) -> None:
        """Wait until so many runs are done."""
        while self.done < count:
            self.changed.clear()
            await self.changed.wait()


async def publish(bus: Bus, numbers: range) -> None:
    waiting = iter(numbers)

    async def worker() -> None:
        for number in waiting:
            await bus.publish(opted_in(number), dedup=f"bench/{number}")

    await asyncio.gather(*(worker() for _ in range(IN_FLIGHT)))


async def measure(url: str, count: int) -> dict[str, float]:
    spans = Discarded()
    telemetry = setup("provisioner", metrics=Metrics(), span_exporters=[spans])
    bus = Bus(
        url,
        cluster="bench",
        cluster_uid="uid",
        service="provisioner",
        telemetry=telemetry,
        health=Health("provisioner"),
    )
    reader = Reader(telemetry)
    bus.subscribe("nodes", [NodeOptedIn], reader.handle)
    await bus.connect()
    await bus.start()
    working = asyncio.create_task(reader.queue.work(reader.run))
    results: dict[str, float] = {}

    began = time.perf_counter()
    await publish(bus, range(count))
    await reader.reached(count)
    results["published and handled in one process, events/s"] = count / (time.perf_counter() - began)

    await bus.stop()
    began = time.perf_counter()
    await publish(bus, range(count, 2 * count))
    results["published, events/s"] = count / (time.perf_counter() - began)
    began, used = time.perf_counter(), time.process_time()
    await bus.start()
    await reader.reached(2 * count)
    results["handled, events/s"] = count / (time.perf_counter() - began)
    results["handled, events per second of CPU"] = count / (time.process_time() - used)

    delays = []
    for number in range(2 * count, 2 * count + LONE_EVENTS):
        began = time.perf_counter()
        await bus.publish(opted_in(number), dedup=f"bench/{number}")
        await reader.reached(number + 1)
        delays.append((time.perf_counter() - began) * 1000)
    results["a lone event, publish to run, median ms"] = statistics.median(delays)
    results["a lone event, publish to run, p99 ms"] = statistics.quantiles(delays, n=100)[98]

    idle = time.process_time()
    await asyncio.sleep(IDLE_SECONDS)
    results["idle consumer, % of a core"] = (time.process_time() - idle) / IDLE_SECONDS * 100
    results["spans"] = spans.count
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
    await bus.close()
    await telemetry.shutdown()
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=10_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, NatsServer(Path(directory) / "nats") as server:
        results = asyncio.run(measure(server.url, arguments.events))
    print(describe())
    for what, value in results.items():
        print(f"{what:<50} {value:>10,.1f}")


if __name__ == "__main__":
    main()
