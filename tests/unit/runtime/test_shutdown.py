"""The parts of the grace period, and an end that no hanging task delays."""

from __future__ import annotations

import asyncio
import time

import pytest
import structlog

from support.cluster.kube_world import until
from trellis.runtime.shutdown import CLOSED, DRAINED, RELEASED, REPORTED, Grace, ends_within, unless


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)


def test_before_the_period_starts_all_of_it_remains() -> None:
    assert Grace(20).left(DRAINED) == 10
    assert Grace(20).left(REPORTED, most=5) == 5


def test_the_remaining_time_shrinks_from_the_signal_on_and_is_never_negative(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, grace = Clock(monkeypatch), Grace(20)
    grace.begin()
    clock.now += 4
    grace.begin()  # a second time changes nothing
    assert grace.left(DRAINED) == 6
    clock.now += 10
    assert grace.left(DRAINED) == 0
    assert grace.left(RELEASED) == 2


def test_the_default_leaves_kubernetes_ten_seconds_and_each_part_some_time() -> None:
    assert 0 < DRAINED < CLOSED < RELEASED < REPORTED < 1


async def test_a_task_that_ends_is_waited_for_and_another_is_left_behind() -> None:
    ended: list[str] = []

    async def quick() -> None:
        await asyncio.sleep(0)
        ended.append("quick")

    async def ignores() -> None:
        while not ended.count("enough"):
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                ended.append("cancelled")

    assert await ends_within(60, quick(), "quick")
    with structlog.testing.capture_logs() as logged:
        assert not await ends_within(0.01, ignores(), "stubborn")
    assert logged[0]["component"] == "stubborn"
    ended.append("enough")
    await until(lambda: ended == ["quick", "enough", "cancelled"], "it was cancelled")


async def test_an_error_at_shutdown_is_reported_and_delays_nothing() -> None:
    async def fails() -> None:
        raise OSError("gone")

    with structlog.testing.capture_logs() as logged:
        assert await ends_within(60, fails(), "connection")
    assert "gone" in logged[0]["error"]


async def test_unless_gives_the_result_or_none_when_stopped() -> None:
    async def three() -> int:
        return 3

    async def never() -> int:
        await asyncio.Event().wait()
        return 4

    stop = asyncio.Event()
    assert await unless(stop, three()) == 3
    stop.set()
    assert await unless(stop, never()) is None
