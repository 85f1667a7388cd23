"""A cancellation that a library dropped is noticed at the next round of the loop."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from trellis.bus.connection import cancellation


async def test_a_loop_whose_cancellation_was_dropped_ends_at_its_next_round() -> None:
    waiting = asyncio.Event()

    async def loop() -> None:
        while True:
            cancellation.check()
            waiting.set()
            with contextlib.suppress(asyncio.CancelledError):  # what wait_for does when the answer is there too
                await asyncio.Event().wait()

    task = asyncio.create_task(loop())
    await waiting.wait()
    task.cancel()
    async with asyncio.timeout(5):
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_a_timeout_inside_the_loop_is_no_cancellation() -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0):
            await asyncio.Event().wait()
    cancellation.check()
