from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager

import pytest
import structlog
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from support.suite.timers import FakeTimers
from trellis.bus.consume.queue import KeyedQueue, Run
from trellis.limits.backoff import Backoff
from trellis.telemetry import Metrics, Telemetry, TraceContext, current_trace, joined, setup

LONGEST = Backoff(random=lambda: 1.0)
TRACE = TraceContext("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
LATER_TRACE = TraceContext("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b8-01")


class Acked:
    """An acknowledgement that notes that it was given."""

    def __init__(self, token: Hashable, log: list[Hashable]) -> None:
        self.token = token
        self.log = log

    async def __call__(self) -> None:
        self.log.append(self.token)


class Work:
    """A run whose end the test decides: each started key waits for its outcome."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.traces: list[TraceContext | None] = []
        self.waiting: dict[str, asyncio.Future[float | None]] = {}

    async def run(self, key: str, trace: TraceContext | None) -> float | None:
        assert key not in self.waiting, f"two runs of {key} at once"
        self.started.append(key)
        self.traces.append(trace)
        self.waiting[key] = asyncio.get_running_loop().create_future()
        try:
            return await self.waiting[key]
        finally:
            del self.waiting[key]

    async def end(self, key: str, again: float | None = None) -> None:
        self.waiting[key].set_result(again)
        await settle()

    async def fail(self, key: str) -> None:
        self.waiting[key].set_exception(RuntimeError("the API server is away"))
        await settle()


async def settle() -> None:
    """Let everything run that can run without time passing."""
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.fixture
def telemetry() -> Telemetry:
    return setup("provisioner", metrics=Metrics(), span_exporters=[InMemorySpanExporter()])


@asynccontextmanager
async def working(queue: KeyedQueue[str], run: Run[str]) -> AsyncIterator[None]:
    task = asyncio.create_task(queue.work(run))
    await settle()
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def new_queue(telemetry: Telemetry, timers: FakeTimers | None = None, workers: int = 4) -> KeyedQueue[str]:
    return KeyedQueue(
        workers=workers, name="nodes", telemetry=telemetry, backoff=LONGEST, timers=timers or FakeTimers()
    )


async def test_a_key_added_while_it_runs_runs_again_and_only_then_is_acknowledged(telemetry: Telemetry) -> None:
    work, acked = Work(), list[Hashable]()
    queue = new_queue(telemetry)
    async with working(queue, work.run):
        queue.add("a", Acked(1, acked))
        await settle()
        queue.add("a", Acked(2, acked))
        queue.add("a", Acked(3, acked))
        await settle()
        assert work.started == ["a"]
        await work.end("a")
        assert acked == [1]
        assert work.started == ["a", "a"]
        await work.end("a")
        assert sorted(map(str, acked)) == ["1", "2", "3"]
        assert queue.depth == 0


async def test_a_message_without_changes_is_acknowledged_with_the_current_run_or_at_once(
    telemetry: Telemetry,
) -> None:
    work, acked = Work(), list[Hashable]()
    queue = new_queue(telemetry)
    queue.add("a")
    queue.cover("a", Acked(1, acked))
    async with working(queue, work.run):
        queue.cover("a", Acked(2, acked))
        await settle()
        assert acked == [], "the run that sees what they say has not ended"
        await work.end("a")
        assert sorted(map(str, acked)) == ["1", "2"]
        queue.cover("a", Acked(3, acked))
        await settle()
        assert 3 in acked
        assert work.started == ["a"]


async def test_a_message_without_changes_waits_for_a_failed_run(telemetry: Telemetry) -> None:
    work, timers, acked = Work(), FakeTimers(), list[Hashable]()
    queue = new_queue(telemetry, timers)
    async with working(queue, work.run):
        queue.add("a")
        await settle()
        await work.fail("a")
        queue.cover("a", Acked(1, acked))
        await settle()
        assert acked == []
        queue.add("a")
        await settle()
        await work.end("a")
        assert acked == [1]


async def test_a_run_that_reads_again_cancels_what_was_added_but_no_message_and_no_trace(
    telemetry: Telemetry,
) -> None:
    queue, work, acked = KeyedQueue[str](workers=1, name="nodes", telemetry=telemetry), Work(), list[Hashable]()
    async with working(queue, work.run):
        queue.add("node-1")
        assert not queue.cancel_pending("node-1"), "it has not begun"
        await settle()
        assert not queue.cancel_pending("node-1")
        queue.add("node-1")
        assert queue.cancel_pending("node-1")
        await work.end("node-1")
        assert work.started == ["node-1"]
        queue.add("node-1")
        await settle()
        queue.add("node-1", ack=Acked("m", acked))
        assert not queue.cancel_pending("node-1")
        await work.end("node-1")
        queue.add("node-1", trace=TRACE)
        assert not queue.cancel_pending("node-1")
        await work.end("node-1")
        await work.end("node-1")
        assert (len(work.started), acked) == (4, ["m"])
        assert queue.depth == 0


async def test_different_keys_run_in_parallel_up_to_the_number_of_workers_in_order(telemetry: Telemetry) -> None:
    work = Work()
    queue = new_queue(telemetry, workers=2)
    async with working(queue, work.run):
        for key in "abc":
            queue.add(key)
        await settle()
        assert work.started == ["a", "b"]
        queue.add("a")
        await work.end("a")
        assert work.started == ["a", "b", "c"], "a waits behind c, which came first"


async def test_nothing_runs_before_work_begins_and_nothing_is_forgotten(telemetry: Telemetry) -> None:
    work = Work()
    queue = new_queue(telemetry)
    queue.add("a")
    await settle()
    assert work.started == []
    async with working(queue, work.run):
        assert work.started == ["a"]


async def test_a_failing_key_is_retried_with_doubling_delays_that_success_resets(telemetry: Telemetry) -> None:
    work, timers, delays = Work(), FakeTimers(), list[float]()
    queue = new_queue(telemetry, timers)
    async with working(queue, work.run):
        queue.add("a")
        await settle()
        for _ in range(3):
            await work.fail("a")
            delays.append(timers.pending[0] - timers.now())
            timers.advance(delays[-1])
            await settle()
        assert delays == [1, 2, 4]
        await work.end("a")
        queue.add("a")
        await settle()
        await work.fail("a")
        assert timers.pending[0] - timers.now() == 1


async def test_forgetting_a_key_makes_its_next_failure_a_first_one(telemetry: Telemetry) -> None:
    work, timers = Work(), FakeTimers()
    queue = new_queue(telemetry, timers)
    async with working(queue, work.run):
        queue.add("a")
        await settle()
        await work.fail("a")
        queue.forget("a")
        timers.advance(1)
        await settle()
        await work.fail("a")
        assert timers.pending[0] - timers.now() == 1


async def test_messages_of_a_failed_run_are_acknowledged_by_the_run_that_succeeds(telemetry: Telemetry) -> None:
    work, timers, acked = Work(), FakeTimers(), list[Hashable]()
    queue = new_queue(telemetry, timers)
    async with working(queue, work.run):
        queue.add("a", Acked(1, acked), TRACE)
        await settle()
        await work.fail("a")
        assert acked == []
        timers.advance(1)
        await settle()
        await work.end("a")
        assert acked == [1]
        assert work.traces == [TRACE, TRACE]


async def test_a_new_add_does_not_wait_for_the_backoff(telemetry: Telemetry) -> None:
    work = Work()
    queue = new_queue(telemetry)
    async with working(queue, work.run):
        queue.add("a")
        await settle()
        await work.fail("a")
        assert (queue.depth, queue.backing_off) == (0, 1)
        queue.add("a")
        await settle()
        assert work.started == ["a", "a"]


@pytest.mark.parametrize("meanwhile", ["running", "backing off"])
async def test_a_redelivered_message_causes_no_further_run_and_its_newest_delivery_is_acknowledged(
    telemetry: Telemetry, meanwhile: str
) -> None:
    work, timers, first, second = Work(), FakeTimers(), list[Hashable](), list[Hashable]()
    queue = new_queue(telemetry, timers)
    async with working(queue, work.run):
        queue.add("a", Acked(1, first))
        await settle()
        if meanwhile == "backing off":
            await work.fail("a")
        queue.add("a", Acked(1, second))
        await settle()
        assert len(work.started) == 1
        if meanwhile == "backing off":
            timers.advance(1)
            await settle()
        await work.end("a")
        assert (first, second) == ([], [1])
        assert queue.depth == 0


async def test_the_latest_trace_goes_to_the_run_and_the_adders_span_does_not(telemetry: Telemetry) -> None:
    work, inside = Work(), list[TraceContext | None]()

    async def run(key: str, trace: TraceContext | None) -> float | None:
        inside.append(current_trace())
        return await work.run(key, trace)

    queue = KeyedQueue[str](workers=1, name="nodes", telemetry=telemetry, timers=FakeTimers())
    async with working(queue, run):
        with telemetry.tracer.start_as_current_span("receive"):
            queue.add("a", trace=TRACE)
            queue.add("a", trace=LATER_TRACE)
            queue.add("a")
        await settle()
        assert work.traces == [LATER_TRACE]
        assert inside == [None]


async def test_a_run_and_its_retry_get_every_trace_that_named_the_key(telemetry: Telemetry) -> None:
    work, timers = Work(), FakeTimers()
    other, third = (TraceContext(f"00-{digit * 32}-{digit * 16}-01") for digit in "ab")
    queue = new_queue(telemetry, timers)
    async with working(queue, work.run):
        queue.add("a", trace=TRACE)
        queue.add("a", trace=other)
        await settle()
        assert work.traces == [joined(TRACE, other)]
        await work.fail("a")
        queue.add("a", trace=third)
        await settle()
        assert work.traces[1:] == [joined(joined(TRACE, other), third)]


async def test_a_run_may_ask_to_run_again_later(telemetry: Telemetry) -> None:
    work, timers = Work(), FakeTimers()
    queue = new_queue(telemetry, timers)
    async with working(queue, work.run):
        queue.add("a")
        await settle()
        await work.end("a", again=30)
        timers.advance(29)
        await settle()
        assert len(work.started) == 1
        timers.advance(1)
        await settle()
        assert len(work.started) == 2


async def test_an_acknowledgement_that_fails_does_not_fail_the_run_nor_the_others(telemetry: Telemetry) -> None:
    class Broken(Acked):
        async def __call__(self) -> None:
            raise ConnectionError("the bus is away")

    work, timers, acked = Work(), FakeTimers(), list[Hashable]()
    queue = new_queue(telemetry, timers)
    async with working(queue, work.run):
        queue.add("a", Acked(1, acked))
        queue.add("a", Broken(2, acked))
        queue.add("a", Acked(3, acked))
        await settle()
        await work.end("a")
        assert sorted(map(str, acked)) == ["1", "3"]
        assert timers.pending == []


async def test_each_failure_is_counted(telemetry: Telemetry) -> None:
    work, timers = Work(), FakeTimers()
    queue = new_queue(telemetry, timers)
    async with working(queue, work.run):
        queue.add("a")
        await settle()
        await work.fail("a")
        timers.advance(1)
        await settle()
        await work.fail("a")
    retries = telemetry.metrics.registry.get_sample_value(
        "trellis_retries_total", {"service": "provisioner", "queue": "nodes"}
    )
    assert retries == 2


async def test_depth_and_age_of_the_oldest_work_are_metrics_and_count_failing_keys(telemetry: Telemetry) -> None:
    work, timers = Work(), FakeTimers()
    queue = new_queue(telemetry, timers, workers=1)
    labels = {"service": "provisioner", "queue": "nodes"}
    read = telemetry.metrics.registry.get_sample_value
    async with working(queue, work.run):
        queue.add("a")
        queue.add("b")
        await settle()
        timers.time += 7
        assert read("trellis_queue_depth", labels) == 2
        await work.fail("a")
        assert read("trellis_queue_oldest_seconds", labels) == 7
        await work.end("b")
        assert (queue.depth, queue.oldest_seconds) == (0, 7)
    assert read("trellis_queue_depth", labels) is None


async def test_cancelled_work_is_owed_and_goes_on_when_work_begins_again(telemetry: Telemetry) -> None:
    work, acked = Work(), list[Hashable]()
    queue = new_queue(telemetry)
    async with working(queue, work.run):
        queue.add("a", Acked(1, acked))
        await settle()
    assert acked == []
    async with working(queue, work.run):
        assert work.started == ["a", "a"]
        await work.end("a")
        assert acked == [1]


async def test_draining_starts_nothing_new_and_waits_for_what_runs(telemetry: Telemetry) -> None:
    work, acked = Work(), list[Hashable]()
    queue = new_queue(telemetry, workers=1)
    async with working(queue, work.run):
        queue.add("a", Acked("a", acked))
        queue.add("b", Acked("b", acked))
        await settle()
        draining = asyncio.create_task(queue.drain(60))
        await settle()
        assert not draining.done()
        await work.end("a")
        await draining
        assert work.started == ["a"]
        assert acked == ["a"]


async def test_draining_cancels_what_does_not_end_in_time(telemetry: Telemetry) -> None:
    work, acked = Work(), list[Hashable]()
    queue = new_queue(telemetry)
    async with working(queue, work.run):
        queue.add("a", Acked("a", acked))
        await settle()
        await queue.drain(0)
        assert work.waiting == {}
        assert acked == []


async def test_a_run_that_ignores_its_cancellation_is_named_and_left_behind(telemetry: Telemetry) -> None:
    enough = asyncio.Event()

    async def ignores(_: str, __: TraceContext | None) -> None:
        while not enough.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await enough.wait()

    queue = KeyedQueue[str](workers=1, name="q", telemetry=telemetry)
    async with asyncio.timeout(30), working(queue, ignores):
        queue.add("a")
        await settle()
        with structlog.testing.capture_logs() as logged:
            await queue.drain(0)
        assert queue.unended == ["a"]
        assert logged[0]["keys"] == ["a"]
        enough.set()
    assert queue.unended == []


async def test_a_cancellation_that_got_lost_is_repeated(telemetry: Telemetry) -> None:
    lost: list[int] = []

    async def loses_one(_: str, __: TraceContext | None) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            lost.append(1)
        await asyncio.Event().wait()

    queue = KeyedQueue[str](workers=1, name="q", telemetry=telemetry)
    async with asyncio.timeout(30), working(queue, loses_one):
        queue.add("a")
        await settle()
        await queue.drain(0)
        assert (lost, queue.unended) == ([1], [])


async def test_idle_means_that_no_key_waits_or_runs(telemetry: Telemetry) -> None:
    work = Work()
    queue = new_queue(telemetry)
    await queue.wait_idle()
    async with working(queue, work.run):
        queue.add("a")
        idle = asyncio.create_task(queue.wait_idle())
        await settle()
        assert not idle.done()
        await work.end("a")
        assert idle.done()
