"""Acknowledged means done, as a small state machine around the real queue of keys.

One object, whose target grows with each message; replicas that read it, write it over the version they read, and
acknowledge; a server that delivers again what was not acknowledged. The queue is
``trellis.bus.consume.queue.KeyedQueue``: a state is reached by playing its history on a new one. ``test_acknowledging``
says what must hold, and breaks each rule.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from support.suite.timers import FakeTimers
from trellis.bus.consume.queue import KeyedQueue
from trellis.limits.backoff import Backoff
from trellis.telemetry import Metrics, Telemetry, TraceContext, setup

KEY = "object"
AT_ONCE = "two runs of one key at once"
UNFINISHED = "a former leader's write undid its successor's"
NOT_DONE = "a message was acknowledged and what it tells of is not done"
_TURNS = 5


@dataclass(frozen=True)
class Limits:
    """The maximum number of each step."""

    messages: int = 2
    again: int = 1
    refused: int = 1
    lost_acks: int = 1
    kills: int = 1


@dataclass(frozen=True)
class Reached:
    """A state: its distinguishable parts. How it was reached, and what can happen next, follow from that."""

    seen: tuple[object, ...]
    path: tuple[str, ...] = field(compare=False)
    can: tuple[str, ...] = field(compare=False)
    broken: str | None = field(compare=False)
    done: bool = field(compare=False)


@dataclass
class Message:
    """One message on the server: the wish it tells of, whether a reader has it, whether it was acknowledged."""

    wanted: int
    out: bool = False
    acked: bool = False


@dataclass
class Ack:
    """The acknowledgement of one delivery."""

    world: World
    token: int

    async def __call__(self) -> None:
        self.world.acknowledged(self.token)


@dataclass
class Run:
    """A run of the key: what it read, and what it waits for."""

    wanted: int
    version: int
    goes_on: asyncio.Future[bool]
    wrote: bool = False


class World:
    """The API server, the bus and the replica at work."""

    def __init__(self, model: Model) -> None:
        self.model, self.left = model, model.limits
        self.timers = FakeTimers()
        self.wanted = self.has = self.version = 0
        self.messages: list[Message] = []
        self.runs: list[Run] = []
        self.late: Run | None = None  # a write that a killed replica has sent
        self.losing = False
        self.broken: str | None = None
        self.begin()

    def begin(self) -> None:
        """A replica begins: it lists, whatever the bus has."""
        self.queue = self.model.queue(
            workers=2,
            name="model",
            telemetry=self.model.telemetry,
            backoff=Backoff(random=lambda: 1.0),
            timers=self.timers,
        )
        self.work = asyncio.ensure_future(self.queue.work(self.run))
        self.queue.add(KEY)

    async def run(self, _: str, __: TraceContext | None) -> None:
        run = Run(self.wanted, self.version, asyncio.get_running_loop().create_future())
        self.runs.append(run)
        if len(self.runs) > 1:
            self.broken = AT_ONCE
        try:
            if not await run.goes_on or not self.written(run):
                raise RuntimeError("refused")
            run.wrote, run.goes_on = True, asyncio.get_running_loop().create_future()
            await run.goes_on
        finally:
            if run in self.runs:
                self.runs.remove(run)

    def written(self, run: Run) -> bool:
        """Carry out a write, over the version it was made from alone; say whether it was."""
        if self.model.compares and run.version != self.version:
            return False
        if run.wanted < self.has:
            self.broken = UNFINISHED
        self.has, self.version = run.wanted, self.version + 1
        return True

    def acknowledged(self, token: int) -> None:
        message = self.messages[token]
        if self.has < message.wanted:
            self.broken = NOT_DONE
        message.acked = message.acked or not self.losing
        message.out = False

    # --- steps ---

    def can(self) -> Iterator[str]:
        if self.left.messages:
            yield "the wish grows, and a message says so"
        for number, message in enumerate(self.messages):
            if not message.acked and (not message.out or self.left.again):
                yield f"message {number} is delivered"
        for run in self.runs[:1]:
            yield from self.can_run(run)
        if self.timers.pending:
            yield "time passes"
        if self.left.kills:
            yield "the replica is killed"
            if any(not run.wrote for run in self.runs):
                yield "the replica is killed with its write on its way"
        if self.late is not None:
            yield "the write that was on its way arrives"

    def can_run(self, run: Run) -> Iterator[str]:
        yield "the run ends" if run.wrote else "the run writes"
        if not run.wrote and self.left.refused:
            yield "the write is refused"
        if run.wrote and self.left.lost_acks and any(message.out for message in self.messages):
            yield "the run ends, and its acknowledgements get lost"

    async def step(self, what: str) -> None:
        match what.split():
            case ["the", "wish", *_]:
                self.wanted += 1
                self.messages.append(Message(self.wanted))
                self.less("messages")
            case ["message", number, *_]:
                message = self.messages[int(number)]
                if message.out:
                    self.less("again")
                message.out = True
                self.queue.add(KEY, Ack(self, int(number)))
            case ["the", "write", "is", "refused"]:
                self.less("refused")
                self.runs[0].goes_on.set_result(False)
            case ["the", "write", *_]:
                late, self.late = self.late, None
                assert late is not None
                self.written(late)
            case ["the", "run", *more]:
                self.losing = "lost" in more
                if self.losing:
                    self.less("lost_acks")
                self.runs[0].goes_on.set_result(True)
            case ["time", "passes"]:
                self.timers.advance(400)
            case _:
                await self.killed("way" in what)
        await settle()
        self.losing = False

    async def killed(self, on_its_way: bool) -> None:
        """A replica is killed: its memory is lost, its sent writes may arrive, and another replica starts."""
        self.less("kills")
        self.late = next((run for run in self.runs if not run.wrote), None) if on_its_way else None
        self.runs = []
        await self.end()
        for message in self.messages:
            message.out = False
        self.begin()

    async def end(self) -> None:
        self.work.cancel()
        await asyncio.gather(self.work, return_exceptions=True)
        self.timers.alarms.clear()

    def less(self, what: str) -> None:
        self.left = replace(self.left, **{what: getattr(self.left, what) - 1})

    def seen(self) -> tuple[object, ...]:
        """All that makes a difference from here on."""
        queue = self.queue
        owed = tuple(
            tuple(sorted(map(int, entries[KEY].acks))) if KEY in entries else None  # type: ignore[call-overload]
            for entries in (queue._entries, queue._current, queue._blamed)
        )
        runs = tuple((run.wanted, run.version == self.version, run.wrote) for run in self.runs)
        late = self.late and (self.late.wanted, self.late.version == self.version)
        messages = tuple((message.wanted, message.out, message.acked) for message in self.messages)
        timers = (bool(self.timers.pending), bool(queue._failures))
        return (self.wanted, self.has, messages, runs, late, owed, timers, self.left, self.broken)

    def done(self) -> bool:
        idle = not self.runs and not self.queue.depth and not self.queue.backing_off
        return idle and self.has == self.wanted and all(message.acked for message in self.messages)


@dataclass(frozen=True)
class Model:
    """The explored system: its queue, the limits of each step, and whether a write names the version that was read."""

    queue: Callable[..., KeyedQueue[str]] = KeyedQueue
    limits: Limits = Limits()
    compares: bool = True
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)
    telemetry: Telemetry = field(default_factory=lambda: setup("model", metrics=Metrics()))

    def played(self, path: tuple[str, ...]) -> Reached:
        """The state after these steps."""
        return self.loop.run_until_complete(self._play(path))

    async def _play(self, path: tuple[str, ...]) -> Reached:
        world = World(self)
        await settle()
        for what in path:
            await world.step(what)
        reached = Reached(world.seen(), path, tuple(world.can()), world.broken, world.done())
        await world.end()
        return reached

    def steps(self, state: Reached) -> Iterator[tuple[str, Reached]]:
        """Everything that can happen next."""
        for what in state.can:
            yield what, self.played((*state.path, what))


async def settle() -> None:
    """Let the queue do all that it can do without anything happening."""
    for _ in range(_TURNS):
        await asyncio.sleep(0)
