"""A hundred thousand keys: what they cost, and that none of them is in another's way."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest

from support.nats.buses import eventually
from support.suite.timers import FakeTimers
from trellis.bus.consume.queue import KeyedQueue, Run
from trellis.limits.backoff import Backoff
from trellis.telemetry import Metrics, TraceContext, setup

KEYS = 100_000
WORKERS = 16
FAILING = "node-"
LONG = Backoff(first=300.0, random=lambda: 1.0)


class Silent:
    """A log without a reader."""

    def warning(self, *_: object, **__: object) -> None: ...


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred thousand failures on purpose are not worth their lines."""
    monkeypatch.setattr("trellis.bus.consume.queue._log", Silent())


class Runs:
    """Runs of keys: those of nodes fail, others succeed."""

    def __init__(self) -> None:
        self.order: list[str] = []

    async def run(self, key: str, _: TraceContext | None) -> None:
        self.order.append(key)
        await asyncio.sleep(0)
        if key.startswith(FAILING):
            raise ConnectionError("the API server is away")


def new_queue(timers: FakeTimers, backoff: Backoff = LONG) -> KeyedQueue[str]:
    telemetry = setup("provisioner", metrics=Metrics())
    return KeyedQueue(workers=WORKERS, name="nodes", telemetry=telemetry, backoff=backoff, timers=timers)


@asynccontextmanager
async def working(queue: KeyedQueue[str], run: Run[str]) -> AsyncIterator[None]:
    task = asyncio.create_task(queue.work(run))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def all_fail(queue: KeyedQueue[str], keys: list[str]) -> None:
    for key in keys:
        queue.add(key)
    await queue.wait_idle()
    assert queue.backing_off == len(keys)


@pytest.mark.thorough
async def test_keys_that_back_off_cost_one_handle_are_all_tried_again_and_keep_no_healthy_one_waiting() -> None:
    runs, timers = Runs(), FakeTimers()
    queue = new_queue(timers)
    keys = [f"{FAILING}{number}" for number in range(KEYS)]
    async with working(queue, runs.run):
        for key in keys:
            queue.add(key)
        await queue.wait_idle()
        assert (queue.depth, queue.backing_off) == (0, KEYS)
        assert len(timers.pending) == 1
        timers.advance(300)
        assert queue.depth == KEYS
        queue.add("healthy")
        await queue.wait_idle()
        assert len(timers.pending) == 1
    assert sorted(runs.order) == sorted([*keys, *keys, "healthy"])
    assert runs.order.index("healthy") - KEYS <= 2 * WORKERS


async def test_a_key_added_continuously_delays_no_other_and_failing_keys_get_their_turn() -> None:
    timers, order = FakeTimers(), list[str]()

    async def run(key: str, _: TraceContext | None) -> None:
        order.append(key)
        queue.add("busy")
        await asyncio.sleep(0)
        if key == "failing":
            raise ConnectionError("the API server is away")

    queue = KeyedQueue[str](
        workers=1, name="nodes", telemetry=setup("p", metrics=Metrics()), backoff=LONG, timers=timers
    )
    async with working(queue, run):
        for key in ("busy", "failing", "quiet"):
            queue.add(key)
        await eventually(lambda: {"quiet", "failing"} <= set(order))
        assert order.index("quiet") <= 3
        mark = len(order)
        timers.advance(300)
        await eventually(lambda: "failing" in order[mark:])
        assert order.index("failing", mark) - mark <= 3


@contextmanager
def bytes_per_key(keys: int, limit: int) -> Iterator[None]:
    gc.collect()
    tracemalloc.start()
    try:
        yield
        gc.collect()
        used = tracemalloc.get_traced_memory()[0] / keys
    finally:
        tracemalloc.stop()
    assert used < limit, f"{used:.0f} bytes a key"


@pytest.mark.thorough
async def test_a_key_that_waits_or_backs_off_costs_about_half_a_kilobyte() -> None:
    keys = [f"{FAILING}{number}" for number in range(10_000)]
    runs, timers = Runs(), FakeTimers()
    queue = new_queue(timers)
    with bytes_per_key(len(keys), 600):
        for key in keys:
            queue.add(key)
    with bytes_per_key(len(keys), 600):
        async with working(queue, runs.run):
            await queue.wait_idle()
        runs.order.clear()
