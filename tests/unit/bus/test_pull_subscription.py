from __future__ import annotations

import asyncio
import json
import time
from types import SimpleNamespace
from typing import Any, cast

import nats.errors
import pytest
from nats.aio.msg import Msg
from nats.js.errors import ServiceUnavailableError

from support.nats.buses import eventually
from trellis.bus.consume.pull_subscription import PullLoop
from trellis.bus.consume.staleness import Listeners, Staleness
from trellis.bus.timings import FetchTimings
from trellis.telemetry import Metrics, setup
from trellis.telemetry.health import Health


class Pull:
    """A pull subscription of a connection that is lost, which answers as the test says."""

    def __init__(self) -> None:
        self.delivered = 0
        self.fetches = 0
        self.requested_for: list[int] = []
        self.answers: asyncio.Queue[list[Msg] | Exception] = asyncio.Queue()
        self._nc = SimpleNamespace(is_connected=False)
        self._nms = self._deliver = ""
        self._sub = SimpleNamespace(_pending_queue=asyncio.Queue[Msg](), _pending_size=0)

    def arrives(self, message: Msg) -> None:
        """Have something come of a request whose fetch has ended."""
        self._sub._pending_queue.put_nowait(message)
        self._sub._pending_size += len(message.data)

    async def fetch(self, batch: int, _: float) -> list[Msg]:
        self.fetches += 1
        self.requested_for.append(batch)
        answer = await self.answers.get()
        if isinstance(answer, Exception):
            raise answer
        return answer


def message(reply: str) -> Msg:
    return Msg(_client=cast("Any", None), reply=reply)


@pytest.fixture
def staleness() -> Staleness:
    return Staleness(
        "nodes", Listeners(setup("provisioner", metrics=Metrics()), Health("provisioner"), lambda: 0.0, 60.0)
    )


def fetching_of(pull: Pull, staleness: Staleness, timings: FetchTimings = FetchTimings()) -> PullLoop:
    return PullLoop(cast("Any", pull), staleness, timings)


@pytest.mark.parametrize(
    "error", [nats.errors.TimeoutError(), ServiceUnavailableError(), nats.errors.ConnectionClosedError()]
)
async def test_a_server_that_refuses_at_once_is_not_asked_again_at_once(staleness: Staleness, error: Exception) -> None:
    pull = Pull()
    fetching = fetching_of(pull, staleness)
    began = time.monotonic()
    for _ in range(3):
        pull.answers.put_nowait(error)
        assert await fetching.fetch(100, 5) == []
    assert time.monotonic() - began > 0.7


async def test_untaken_messages_are_reported_once(staleness: Staleness) -> None:
    pull = Pull()
    fetching = fetching_of(pull, staleness)
    pull.answers.put_nowait([message(reply) for reply in "abc"])
    first, *rest = await fetching.fetch(100, 5)
    fetching.took(first)
    await fetching.finish()
    assert fetching.untaken() == rest
    assert fetching.untaken() == []


async def test_a_batch_in_progress_is_awaited_and_not_lost_with_the_loop(staleness: Staleness) -> None:
    pull = Pull()
    fetching = fetching_of(pull, staleness)
    loop = asyncio.create_task(fetching.fetch(100, 5))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    loop.cancel()
    pull.delivered = 1
    asyncio.get_running_loop().call_later(0.02, pull.answers.put_nowait, [message("late")])
    await fetching.finish()
    assert [raw.reply for raw in fetching.untaken()] == ["late"]
    await asyncio.gather(loop, return_exceptions=True)


class Connected:
    """A connection that records its messages, and how often it was read."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.looks = 0

    @property
    def is_connected(self) -> bool:
        self.looks += 1
        return True

    async def _send_unsubscribe(self, _: object) -> None:
        self.calls.append("unsubscribe")

    async def flush(self, _: float) -> None:
        self.calls.append("flush")


async def test_at_the_end_the_server_may_finish_what_it_is_sending(staleness: Staleness) -> None:
    timings = FetchTimings(settles=0.4, last=20)
    pulls = [Pull(), Pull()]
    connections = [Connected(), Connected()]
    for pull, connection in zip(pulls, connections, strict=True):
        pull._nc, pull._sub._id = cast("Any", connection), 1
    answered, (connected, other) = pulls[0], connections
    fetchings = [fetching_of(pull, staleness, timings) for pull in pulls]
    loops = [asyncio.create_task(fetching.fetch(100, 5)) for fetching in fetchings]
    await eventually(lambda: all(pull.fetches for pull in pulls))
    ending, without_messages = (asyncio.create_task(fetching.finish()) for fetching in fetchings)
    await eventually(lambda: connected.looks > 2)
    assert connected.calls == []  # the request is young: its answer may be on the way
    answered.delivered = 1
    await without_messages
    assert other.calls == ["unsubscribe", "flush"]
    assert connected.calls == []  # the first of a batch has come
    answered.answers.put_nowait([message("a"), message("b")])
    await ending
    assert connected.calls == ["unsubscribe", "flush"]
    assert [raw.reply for raw in fetchings[0].untaken()] == ["a", "b"]
    await asyncio.gather(*loops, return_exceptions=True)


async def test_a_message_after_the_end_of_its_fetch_is_handed_over_first(staleness: Staleness) -> None:
    pull = Pull()
    fetching = fetching_of(pull, staleness)
    pull.arrives(Msg(_client=cast("Any", None), headers={"Status": "408"}))
    pull.arrives(message("left over"))
    assert [raw.reply for raw in await fetching.fetch(100, 5)] == ["left over"]
    assert pull.fetches == 0
    assert pull._sub._pending_size == 0


class RequestingConnection(Connected):
    """A connection whose server sends something when it is asked for what there is without waiting."""

    def __init__(self, pull: Pull, sends: list[Msg]) -> None:
        super().__init__()
        self.pull, self.sends = pull, sends
        self.requests: list[dict[str, object]] = []

    async def publish(self, _: str, request: bytes, __: str) -> None:
        self.requests.append(json.loads(request))
        for send in self.sends:
            self.pull.arrives(send)


def asking(pull: Pull, *sends: Msg) -> RequestingConnection:
    async def next_msg(seconds: float) -> Msg:
        try:
            return await asyncio.wait_for(pull._sub._pending_queue.get(), seconds)
        except TimeoutError:
            raise nats.errors.TimeoutError from None

    made = RequestingConnection(pull, list(sends))
    pull._nc, pull._sub.next_msg, pull._nms, pull._deliver = cast("Any", made), next_msg, "next", "inbox"
    return made


NO_MORE = Msg(_client=cast("Any", None), headers={"Status": "404"})


async def test_the_first_message_is_returned_with_the_available_ones_without_a_wait(staleness: Staleness) -> None:
    """The client's own fetch of many kept the first of them until its time was over, once in a while."""
    pull = Pull()
    server = asking(pull, message("b"), message("c"), NO_MORE)
    pull.answers.put_nowait([message("a")])
    began = time.monotonic()
    assert [raw.reply for raw in await fetching_of(pull, staleness).fetch(100, 60)] == ["a", "b", "c"]
    assert time.monotonic() - began < 1
    assert pull.requested_for == [1]
    assert server.requests == [{"batch": 99, "no_wait": True}]


async def test_a_message_that_came_is_handed_over_though_the_server_answers_no_more(staleness: Staleness) -> None:
    pull = Pull()
    asking(pull, message("b"))
    pull.answers.put_nowait([message("a")])
    assert [raw.reply for raw in await fetching_of(pull, staleness).fetch(100, 60)] == ["a", "b"]


async def test_a_message_between_two_fetches_is_not_lost_at_the_end(staleness: Staleness) -> None:
    pull = Pull()
    fetching = fetching_of(pull, staleness)
    pull.answers.put_nowait([message("a")])
    [handled] = await fetching.fetch(100, 5)
    fetching.took(handled)
    pull.arrives(message("b"))
    await fetching.finish()
    assert [raw.reply for raw in fetching.untaken()] == ["b"]


async def test_at_the_end_a_fetch_that_waits_for_nothing_is_not_waited_for_and_none_follows(
    staleness: Staleness,
) -> None:
    pull = Pull()
    fetching = fetching_of(pull, staleness)
    loop = asyncio.create_task(fetching.fetch(100, 5))
    await eventually(lambda: pull.fetches)
    async with asyncio.timeout(0.2):
        await fetching.finish()
    again = asyncio.create_task(fetching.fetch(100, 5))
    another = Pull()
    later = asyncio.create_task(fetching_of(another, staleness).fetch(100, 5))
    await eventually(lambda: another.fetches)
    assert pull.fetches == 1
    for task in (loop, again, later):
        task.cancel()
    await asyncio.gather(loop, again, later, return_exceptions=True)
