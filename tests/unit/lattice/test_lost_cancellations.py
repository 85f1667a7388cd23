"""A cancelled task ends, also when the NATS client drops the cancellation because the answer came with it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from trellis.lattice.connection.address import NatsAddress
from trellis.lattice.connection.lattice_connection import LatticeConnection

_SECONDS = 5.0


class Dropping:
    """A client of which the answer comes in the moment of each cancellation, as with wait_for of Python 3.11."""

    max_payload = 1024

    def __init__(self) -> None:
        self.requested = asyncio.Event()

    async def request(self, *_: object, **__: object) -> SimpleNamespace:
        self.requested.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return SimpleNamespace(data=b"answer")
        raise AssertionError


def link_with(client: Any) -> LatticeConnection:
    link = LatticeConnection(NatsAddress("nats://127.0.0.1:4222"), "test", lambda: None)
    link._client, link.since = client, 1.0
    return link


async def test_a_question_that_is_answered_while_its_task_is_cancelled_ends_the_task() -> None:
    client = Dropping()
    link = link_with(client)

    async def asks_now_and_again() -> None:
        await link.ask("subject", seconds=_SECONDS)
        await asyncio.sleep(3600)

    task = asyncio.create_task(asks_now_and_again())
    await client.requested.wait()
    task.cancel()
    await asyncio.wait([task], timeout=_SECONDS)
    assert task.cancelled()


async def test_a_question_whose_time_is_over_when_it_is_answered_is_one_without_an_answer() -> None:
    link = link_with(Dropping())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await link.ask("subject", seconds=_SECONDS)
    await asyncio.sleep(0)  # only the question was cancelled
