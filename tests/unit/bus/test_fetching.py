from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any, cast

import nats.errors
import pytest
from nats.aio.msg import Msg
from nats.js.errors import ServiceUnavailableError

from support.buses import eventually
from trellis.bus.fetching import Fetching
from trellis.bus.hearing import Hearing, Listeners
from trellis.health import Health
from trellis.telemetry import Metrics, setup


class Pull:
    """A pull subscription of a connection that is lost, which answers as the test says."""

    def __init__(self) -> None:
        self.delivered = 0
        self.fetches = 0
        self.answers: asyncio.Queue[list[Msg] | Exception] = asyncio.Queue()
        self._nc = SimpleNamespace(is_connected=False)
        self._sub = SimpleNamespace(_pending_queue=asyncio.Queue[Msg]())

    async def fetch(self, *_: float) -> list[Msg]:
        self.fetches += 1
        answer = await self.answers.get()
        if isinstance(answer, Exception):
            raise answer
        return answer


def message(reply: str) -> Msg:
    return Msg(_client=cast("Any", None), reply=reply)


@pytest.fixture
def hearing() -> Hearing:
    return Hearing("nodes", Listeners(setup("provisioner", metrics=Metrics()), Health("provisioner"), lambda: 0.0))


def fetching_of(pull: Pull, hearing: Hearing) -> Fetching:
    return Fetching(cast("Any", pull), hearing)


@pytest.mark.parametrize(
    "error", [nats.errors.TimeoutError(), ServiceUnavailableError(), nats.errors.ConnectionClosedError()]
)
async def test_a_server_that_refuses_at_once_is_not_asked_again_at_once(hearing: Hearing, error: Exception) -> None:
    pull = Pull()
    fetching = fetching_of(pull, hearing)
    began = time.monotonic()
    for _ in range(3):
        pull.answers.put_nowait(error)
        assert await fetching.fetch(100, 5) == []
    assert time.monotonic() - began > 0.7


async def test_what_came_and_was_not_taken_is_told_once(hearing: Hearing) -> None:
    pull = Pull()
    fetching = fetching_of(pull, hearing)
    pull.answers.put_nowait([message(reply) for reply in "abc"])
    first, *rest = await fetching.fetch(100, 5)
    fetching.took(first)
    await fetching.finish()
    assert fetching.untaken() == rest
    assert fetching.untaken() == []


async def test_a_batch_that_has_begun_to_come_is_waited_for_and_not_lost_with_the_loop(hearing: Hearing) -> None:
    pull = Pull()
    fetching = fetching_of(pull, hearing)
    loop = asyncio.create_task(fetching.fetch(100, 5))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    loop.cancel()
    pull.delivered = 1
    asyncio.get_running_loop().call_later(0.02, pull.answers.put_nowait, [message("late")])
    await fetching.finish()
    assert [raw.reply for raw in fetching.untaken()] == ["late"]
    await asyncio.gather(loop, return_exceptions=True)


async def test_at_the_end_a_fetch_that_waits_for_nothing_is_not_waited_for_and_none_follows(hearing: Hearing) -> None:
    pull = Pull()
    fetching = fetching_of(pull, hearing)
    loop = asyncio.create_task(fetching.fetch(100, 5))
    await eventually(lambda: pull.fetches)
    async with asyncio.timeout(0.2):
        await fetching.finish()
    again = asyncio.create_task(fetching.fetch(100, 5))
    await asyncio.sleep(0.01)
    assert pull.fetches == 1
    for task in (loop, again):
        task.cancel()
    await asyncio.gather(loop, again, return_exceptions=True)
