"""Thousands of failing messages delay no others, are retried without a limit, and are not dead-lettered."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections import Counter

import pytest
from nats.js import JetStreamContext

from support.nats.buses import Buses, eventually, eventually_async, opted_out
from trellis.bus.bus import BusTimings, Received
from trellis.bus.consume.queue import KeyedQueue
from trellis.events.node import NodeOptedOut
from trellis.events.subjects import STREAM_DEAD, STREAM_EVENTS, event_subject
from trellis.limits.backoff import Backoff
from trellis.telemetry import Metrics, TraceContext, setup

pytestmark = [pytest.mark.nats, pytest.mark.thorough]

FAILING = 3000
ACK_WAIT = 6.0
"""Far longer than a busy machine keeps a process waiting, which the server would take for a dead one."""


class Silent:
    def warning(self, *_: object, **__: object) -> None: ...


class Service:
    """One that cannot do its work for most of its keys."""

    def __init__(self) -> None:
        self.tries: Counter[str] = Counter()
        self.done: set[str] = set()
        self.deliveries = 0
        # Rarely enough for a slow machine, often enough to see that it never ends.
        backoff = Backoff(first=4.0, cap=12.0)
        telemetry = setup("provisioner", metrics=Metrics())
        self.queue = KeyedQueue(workers=16, name="nodes", telemetry=telemetry, backoff=backoff)

    async def run(self, name: str, _: TraceContext | None) -> None:
        self.tries[name] += 1
        if name.startswith("failing"):
            raise ConnectionError("the API server refuses this one")
        self.done.add(name)

    def receive(self, received: Received[NodeOptedOut]) -> None:
        self.deliveries = max(self.deliveries, received.deliveries)
        self.queue.add(received.data.name, received.ack, received.trace)


async def test_three_thousand_failing_keys_and_a_poison_message_do_not_delay_a_healthy_key(
    buses: Buses, jetstream: JetStreamContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trellis.bus.consume.queue._log", Silent())
    service = Service()
    bus = buses.new(timings=BusTimings(check=0.5, ack_wait=ACK_WAIT))
    bus.subscribe("nodes", [NodeOptedOut], service.receive)
    await bus.connect()
    await bus.start()
    working = asyncio.create_task(service.queue.work(service.run))
    failing = [f"failing-{number}" for number in range(FAILING)]
    await jetstream.publish(event_subject(buses.cluster, opted_out("poison")), b"\x00")
    # Not all at once: the last would wait for longer than the stream may take to answer.
    for start in range(0, FAILING, 100):
        await asyncio.gather(
            *(bus.publish(opted_out(name), dedup=f"{buses.cluster}/{name}") for name in failing[start : start + 100])
        )
    await eventually(lambda: len(service.tries) == FAILING, 60)
    began, delays = time.monotonic(), list[float]()
    # Longer than the server waits for an acknowledgement before it delivers again, twice over.
    while time.monotonic() - began < 2 * ACK_WAIT or service.tries.total() < 2 * FAILING:
        published_at, name = time.monotonic(), f"healthy-{len(delays)}"
        await bus.publish(opted_out(name), dedup=f"{buses.cluster}/{name}")
        await eventually(lambda: name in service.done)  # noqa: B023 (waited for in this round)
        delays.append(time.monotonic() - published_at)
        await asyncio.sleep(0.05)
    assert statistics.median(delays) < 2, "typically it takes milliseconds"
    assert service.deliveries == 1, "what is worked on was reported as such"

    async def only_the_failing_ones_are_open() -> bool:
        info = await jetstream.consumer_info(STREAM_EVENTS, f"provisioner-nodes-{buses.cluster}")
        return info.num_ack_pending == FAILING

    await eventually_async(only_the_failing_ones_are_open)
    assert min(service.tries[name] for name in failing) >= 1
    dead = await jetstream.stream_info(STREAM_DEAD, subjects_filter=f"trellis.dead.{buses.cluster}.>")
    assert dead.state.subjects == {f"trellis.dead.{buses.cluster}.provisioner.node.poison": 1}
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
