"""A wait ends by a request, by its time, or by a cancellation."""

from __future__ import annotations

import asyncio

import pytest

from trellis.lattice.wakeup import Wakeup


async def test_a_request_ends_a_wait_and_each_one_until_it_is_cleared() -> None:
    wakeup = Wakeup()
    waiting = asyncio.create_task(wakeup.wait(3600))
    await asyncio.sleep(0)
    wakeup.set()
    wakeup.set()
    await waiting
    await wakeup.wait()
    wakeup.clear()
    assert not wakeup.is_set()


async def test_a_wait_ends_after_its_time_without_a_request() -> None:
    wakeup = Wakeup()
    await wakeup.wait(0)
    assert not wakeup.is_set()


async def test_a_cancelled_wait_makes_room_for_another() -> None:
    wakeup = Wakeup()
    waiting = asyncio.create_task(wakeup.wait(3600))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    wakeup.set()
    await wakeup.wait()


async def test_a_cancellation_is_not_lost_when_a_request_comes_first() -> None:
    wakeup = Wakeup()
    waiting = asyncio.create_task(wakeup.wait())
    await asyncio.sleep(0)
    wakeup.set()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_a_second_task_cannot_wait() -> None:
    wakeup = Wakeup()
    waiting = asyncio.create_task(wakeup.wait())
    await asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="another"):
        await wakeup.wait()
    wakeup.set()
    await waiting
