"""The queue against its promises, in every order of a few steps and in random longer ones."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from support.timers import FakeTimers
from trellis.bus.backoff import Backoff
from trellis.bus.queue import KeyedQueue
from trellis.telemetry import Metrics, TraceContext, setup

TELEMETRY = setup("model", metrics=Metrics())
WORKERS = 2


@dataclass
class Message:
    """An added message and when, in steps of the history, it was added and acknowledged."""

    key: str
    token: int
    history: History
    added: int
    acked: int = 0

    async def __call__(self) -> None:
        self.acked += 1
        assert any(run.key == self.key and run.started > self.added and run.succeeded for run in self.history.runs), (
            f"message {self.token} was acknowledged without a run that began after it came"
        )


@dataclass
class Run:
    key: str
    started: int
    end: asyncio.Future[float | None]
    succeeded: bool = False


@dataclass
class History:
    """Everything that happened, and the checks that hold at every moment."""

    timers: FakeTimers = field(default_factory=FakeTimers)
    steps: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    runs: list[Run] = field(default_factory=list)
    live: dict[str, Run] = field(default_factory=dict)
    messages: list[Message] = field(default_factory=list)
    added: dict[str, int] = field(default_factory=dict)

    async def run(self, key: str, _: TraceContext | None) -> float | None:
        assert key not in self.live, f"two runs of {key} at once"
        run = self.live[key] = Run(key, next(self.steps), asyncio.get_running_loop().create_future())
        self.runs.append(run)
        assert len(self.live) <= WORKERS
        try:
            again = await run.end
            run.succeeded = True
            return again
        finally:
            del self.live[key]

    def add(self, queue: KeyedQueue[str], key: str) -> None:
        self.added[key] = next(self.steps)
        message = Message(key, len(self.messages), self, self.added[key])
        self.messages.append(message)
        queue.add(key, message)

    def end(self, key: str, outcome: str) -> None:
        if (run := self.live.get(key)) is None or run.end.done():
            return
        match outcome:
            case "succeeds":
                run.end.set_result(None)
            case "asks again":
                run.end.set_result(5.0)
            case _:
                run.end.set_exception(RuntimeError("failed on purpose"))


async def play(steps: Sequence[tuple[str, str]]) -> None:
    history = History()
    queue = KeyedQueue(
        history.run,
        workers=WORKERS,
        name="model",
        telemetry=TELEMETRY,
        backoff=Backoff(random=lambda: 1.0),
        timers=history.timers,
    )
    working = asyncio.create_task(queue.work())
    for what, key in steps:
        match what:
            case "add":
                history.add(queue, key)
            case "time passes":
                history.timers.advance(3)
            case "work is interrupted":
                working.cancel()
                await asyncio.gather(working, return_exceptions=True)
                working = asyncio.create_task(queue.work())
            case outcome:
                history.end(key, outcome)
        await settle()
    # Let all of it end well: then nothing may be owed any more.
    for _ in range(10):
        for key in list(history.live):
            history.end(key, "succeeds")
        await settle()
        history.timers.advance(400)
        await settle()
    assert queue.depth == 0
    assert queue.oldest_seconds == 0
    for key, added in history.added.items():
        assert any(run.key == key and run.started > added and run.succeeded for run in history.runs), f"{key} was lost"
    assert [message.acked for message in history.messages] == [1] * len(history.messages)
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)


async def settle() -> None:
    for _ in range(6):
        await asyncio.sleep(0)


ACTIONS = ("add", "succeeds", "fails", "asks again", "time passes", "work is interrupted")


def test_every_history_of_five_steps_with_one_key_keeps_the_promises() -> None:
    async def all_histories() -> None:
        for actions in itertools.product(ACTIONS, repeat=4):
            await play([("add", "a"), *((action, "a") for action in actions)])

    asyncio.run(all_histories())


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(ACTIONS), st.sampled_from("abc")), max_size=30))
def test_random_histories_of_three_keys_and_two_workers_keep_the_promises(steps: list[tuple[str, str]]) -> None:
    asyncio.run(play(steps))
