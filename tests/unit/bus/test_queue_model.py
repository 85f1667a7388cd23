"""The queue against its promises, in every order of a few steps and in random longer ones.

Checked at every moment: a key is never in two runs, no more runs than workers, no run without a cause, nothing starts
without a worker, and a message is acknowledged only after a run that began after it came. Checked at the end: no key
was lost, nothing is owed, and of every message the newest delivery was acknowledged, once.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.suite.timers import FakeTimers
from trellis.bus.consume.queue import KeyedQueue
from trellis.limits.backoff import Backoff
from trellis.telemetry import Metrics, TraceContext, setup

TELEMETRY = setup("model", metrics=Metrics())
WORKERS = 2


@dataclass
class Message:
    """One delivery of an added message, and when, in steps of the history, the message was first added."""

    key: str
    token: int
    history: History
    added: int
    acked: int = 0

    async def __call__(self) -> None:
        self.acked += 1
        self.history.must(
            any(run.key == self.key and run.started > self.added and run.succeeded for run in self.history.runs),
            f"message {self.token} was acknowledged without a run that began after it came",
        )


@dataclass
class Run:
    key: str
    started: int
    end: asyncio.Future[float | None]
    succeeded: bool = False
    requested: bool = False

    @property
    def wants_another(self) -> bool:
        """Return whether the result of a run is a reason to run again: it failed, was cancelled, or asked."""
        return self.requested or not self.succeeded


@dataclass
class History:
    """Everything that happened, and the checks that hold at every moment."""

    timers: FakeTimers = field(default_factory=FakeTimers)
    steps: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    runs: list[Run] = field(default_factory=list)
    live: dict[str, Run] = field(default_factory=dict)
    deliveries: list[Message] = field(default_factory=list)
    added: dict[str, int] = field(default_factory=dict)
    working: bool = True
    broken: list[str] = field(default_factory=list)

    def must(self, holds: bool, promise: str) -> None:
        """Note a broken promise: raised inside a run or an acknowledgement it would be taken for their failure."""
        if not holds:
            self.broken.append(promise)

    async def run(self, key: str, _: TraceContext | None) -> float | None:
        last = next((run for run in reversed(self.runs) if run.key == key), None)
        self.must(self.working, f"{key} was started while nobody works")
        self.must(key not in self.live, f"two runs of {key} at once")
        self.must(last is None or last.wants_another or self.added[key] > last.started, f"{key} runs for no reason")
        run = self.live[key] = Run(key, next(self.steps), asyncio.get_running_loop().create_future())
        self.runs.append(run)
        self.must(len(self.live) <= WORKERS, "more runs than workers")
        try:
            again = await run.end
            run.succeeded = True
            return again
        finally:
            self.live.pop(key, None)

    def add(self, queue: KeyedQueue[str], key: str) -> None:
        self.added[key] = next(self.steps)
        token = max((message.token for message in self.deliveries), default=-1) + 1
        self.deliver(queue, Message(key, token, self, self.added[key]))

    def deliver_again(self, queue: KeyedQueue[str], key: str) -> None:
        """The server delivers what was not acknowledged: the key's oldest such message."""
        for token in sorted({message.token for message in self.deliveries if message.key == key}):
            former = [message for message in self.deliveries if message.token == token]
            if not any(message.acked for message in former):
                self.deliver(queue, Message(key, token, self, former[0].added))
                return

    def deliver(self, queue: KeyedQueue[str], message: Message) -> None:
        self.deliveries.append(message)
        queue.add(message.key, message)

    def end(self, key: str, outcome: str) -> None:
        if (run := self.live.get(key)) is None or run.end.done():
            return
        match outcome:
            case "succeeds":
                run.end.set_result(None)
            case "asks again":
                run.requested = True
                run.end.set_result(5.0)
            case _:
                run.end.set_exception(RuntimeError("failed on purpose"))


@dataclass
class Player:
    """Plays the steps of one history on one queue."""

    history: History
    queue: KeyedQueue[str]
    work: asyncio.Task[None]

    async def step(self, what: str, key: str) -> None:
        match what:
            case "add":
                self.history.add(self.queue, key)
            case "message comes again":
                self.history.deliver_again(self.queue, key)
            case "time passes":
                self.history.timers.advance(3)
            case "work is interrupted":
                await self.interrupt()
            case "work is drained":
                await self.drain()
            case outcome:
                self.history.end(key, outcome)
        await settle()

    async def interrupt(self) -> None:
        """Cancel the work; what was under way is owed, and nothing runs until work begins again."""
        await self.end()
        self.history.working = False
        self.history.timers.advance(1)
        await settle()
        self.history.working = True
        self.work = asyncio.create_task(self.queue.work(self.history.run))

    async def drain(self) -> None:
        """Let runs under way end well, start none, and begin again as the next term does."""
        self.history.working = False
        draining = asyncio.create_task(self.queue.drain(60))
        await settle()
        for key in list(self.history.live):
            self.history.end(key, "succeeds")
        await draining
        await self.end()
        self.history.working = True
        self.work = asyncio.create_task(self.queue.work(self.history.run))

    async def end(self) -> None:
        self.work.cancel()
        await asyncio.gather(self.work, return_exceptions=True)


async def play(steps: Sequence[tuple[str, str]]) -> None:
    history = History()
    queue = KeyedQueue(
        workers=WORKERS,
        name="model",
        telemetry=TELEMETRY,
        backoff=Backoff(random=lambda: 1.0),
        timers=history.timers,
    )
    player = Player(history, queue, asyncio.create_task(queue.work(history.run)))
    for what, key in steps:
        await player.step(what, key)
    # Let all of it end well: then nothing may be owed any more.
    for _ in range(10):
        for key in list(history.live):
            history.end(key, "succeeds")
        await settle()
        history.timers.advance(400)
        await settle()
    await player.end()
    assert history.broken == []
    assert queue.depth == 0
    assert queue.backing_off == 0
    assert queue.oldest_seconds == 0
    for key, added in history.added.items():
        assert any(run.key == key and run.started > added and run.succeeded for run in history.runs), f"{key} was lost"
    newest = {message.token: message for message in history.deliveries}
    assert [message.acked for message in newest.values()] == [1] * len(newest)
    assert sum(message.acked for message in history.deliveries) == len(newest)


async def settle() -> None:
    for _ in range(6):
        await asyncio.sleep(0)


ACTIONS = (
    "add",
    "message comes again",
    "succeeds",
    "fails",
    "asks again",
    "time passes",
    "work is interrupted",
    "work is drained",
)


@pytest.mark.thorough
def test_every_history_of_five_steps_with_one_key_keeps_the_promises() -> None:
    async def all_histories() -> None:
        for actions in itertools.product(ACTIONS, repeat=4):
            await play([("add", "a"), *((action, "a") for action in actions)])

    asyncio.run(all_histories())


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(ACTIONS), st.sampled_from("abc")), max_size=30))
def test_random_histories_of_three_keys_and_two_workers_keep_the_promises(steps: list[tuple[str, str]]) -> None:
    asyncio.run(play(steps))
