"""No run begins once the lease is in doubt, however many keys are ready at that moment."""

from __future__ import annotations

import asyncio

from trellis.bus.consume.queue import KeyedQueue
from trellis.telemetry import Metrics, TraceContext, setup


class Gate:
    """A stand-in for the check of the lease; open for so many calls."""

    def __init__(self, opens: float) -> None:
        self.left = opens

    def __call__(self) -> bool:
        self.left -= 1
        return self.left >= 0


async def runs_started(gate: Gate) -> tuple[list[str], KeyedQueue[str]]:
    started: list[str] = []

    async def run(key: str, _: TraceContext | None) -> None:
        started.append(key)

    queue = KeyedQueue(workers=1, name="nodes", telemetry=setup("test", metrics=Metrics()))
    for key in "abc":
        queue.add(key)
    working = asyncio.create_task(queue.work(run, gate))
    for _ in range(50):
        await asyncio.sleep(0)
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
    return started, queue


async def test_every_run_is_requested() -> None:
    started, _ = await runs_started(Gate(float("inf")))
    assert started == ["a", "b", "c"]


async def test_a_gate_that_closes_lets_nothing_more_begin_and_nothing_is_forgotten() -> None:
    started, queue = await runs_started(Gate(2))  # asked once before a run is made ready, once when it begins
    assert started == ["a"]
    assert queue.depth == 2


async def test_a_gate_that_closes_in_the_moment_before_a_run_begins_is_in_time() -> None:
    started, queue = await runs_started(Gate(1))
    assert started == []
    assert queue.depth == 3, "owed, and not tried again in a hot loop"
