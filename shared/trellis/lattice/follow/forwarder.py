"""Forwards the events of one lattice, each at least once, in the order of its streams.

In: a connection, the address of a lattice. Out: events for a store that keeps them longer than the 70 s of wadm. Called
by ``trellis.lattice.follow.lattice_watches`` for each watch. Invariants: an event is acknowledged after it was stored;
a re-created stream is read from its beginning; a fetch lasts half of the 70 s at most, also if a server dropped it; a
lattice without wadm or an unreachable one delays nothing else; a lattice is read no faster than the bound.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import nats.errors
import orjson
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, ConsumerInfo, DeliverPolicy
from nats.js.errors import APIError, NotFoundError

from trellis.bus.connection import cancellation
from trellis.bus.connection.connection import describe
from trellis.bus.connection.user_client import PermissionDenied
from trellis.bus.consume.pulling import fetch
from trellis.lattice.connection.address import LatticeAddress
from trellis.lattice.connection.lattice_connection import LatticeConnection, NatsUnavailableError
from trellis.lattice.domain.subjects import copied_event, event_streams
from trellis.lattice.timings import ForwarderTimings
from trellis.limits.backoff import Backoff
from trellis.limits.token_bucket import TokenBucket
from trellis.telemetry import get_logger

EVENTS_PER_SECOND: Final = 2_000.0
EVENTS_AT_ONCE: Final = 20_000.0
BYTES_PER_SECOND: Final = 1.0 * 2**20
"""Limit per lattice: all share one stream of forwarded events, which drops the oldest."""
BYTES_AT_ONCE: Final = 64.0 * 2**20
_BATCH: Final = 100
_TROUBLE: Final = (nats.errors.Error, NatsUnavailableError, OSError, TimeoutError)

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LatticeEvent:
    """One event of a lattice. ``body``: unchanged; ``id``: unique ID of the event; ``traceparent`` may be empty."""

    lattice: str
    event: str
    id: str
    body: bytes
    traceparent: str = ""


Take = Callable[[LatticeEvent], Awaitable[None]]
"""Returns after the event was stored or permanently rejected; raises nothing but a cancellation."""


@dataclass(slots=True)
class Lag:
    """Lag of one stream. ``messages``: number of waiting messages, None: unknown; ``since``: monotonic seconds."""

    messages: int | None = None
    since: float | None = None

    def seen(self, messages: int | None) -> None:
        """Set the number of waiting messages."""
        self.messages = messages
        self.since = (self.since or time.monotonic()) if messages else None

    def seen_by(self, consumer: ConsumerInfo) -> None:
        """Set the number of messages that wait for a consumer, or for its acknowledgement."""
        self.seen((consumer.num_pending or 0) + (consumer.num_ack_pending or 0))

    def count(self) -> float:
        """Return the number of waiting events, -1 if unknown."""
        return -1.0 if self.messages is None else self.messages

    def seconds(self) -> float:
        """Return the seconds since events started to wait, 0 if none waits."""
        return time.monotonic() - self.since if self.since is not None else 0.0


@dataclass(slots=True)
class Forwarder:
    """Forwards the events of one lattice. ``name``: name of the consumers; readers with the same name share events."""

    connection: LatticeConnection
    address: LatticeAddress
    name: str
    take: Take
    timings: ForwarderTimings = ForwarderTimings()
    lags: Mapping[str, Lag] = field(init=False)
    late: bool = field(default=False, init=False)
    """True if an event has waited for so long that it may be lost."""
    reason: dict[str, str] = field(default_factory=dict)
    """Reason of a failed read, by stream."""
    _events: TokenBucket = field(default_factory=lambda: TokenBucket(EVENTS_PER_SECOND, EVENTS_AT_ONCE), init=False)
    _bytes: TokenBucket = field(default_factory=lambda: TokenBucket(BYTES_PER_SECOND, BYTES_AT_ONCE), init=False)

    _again: Backoff = field(init=False)

    def __post_init__(self) -> None:
        self._again = Backoff(first=self.timings.backoff_first, cap=self.timings.backoff_most)
        self.lags = {stream: Lag() for stream in self._streams}

    @property
    def _streams(self) -> dict[str, str]:
        return event_streams(self.address.lattice, self.address.account)

    async def run(self) -> None:
        """Forward events until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for stream, subject in self._streams.items():
                tasks.create_task(self._forward(stream, subject), name=f"forward {stream} {self.address.name}")
            tasks.create_task(self._warn())

    async def _forward(self, stream: str, subject: str) -> None:
        failures = 0
        while True:
            cancellation.check()
            await self.connection.there()
            began = time.monotonic()
            try:
                await self._read(stream, subject)
            except _TROUBLE as error:
                self.lags[stream].seen(None)
                self._report(stream, error)
            failures = 1 if time.monotonic() - began > self.timings.look else failures + 1
            await asyncio.sleep(self._again.delay(failures))

    async def _read(self, stream: str, subject: str) -> None:
        """Forward the events of a stream until it cannot be read.

        Raises:
            NatsUnavailableError, nats.errors.Error, OSError, TimeoutError: the stream cannot be read.
        """
        jetstream = self.connection.jetstream()
        lag = self.lags[stream]
        lag.seen_by(await jetstream.add_consumer(stream, self._config(subject)))
        subscription = await jetstream.pull_subscribe_bind(self.name, stream)
        try:
            self._found(stream)
            looked = time.monotonic()
            while True:
                cancellation.check()
                forwarded = await self._forward_next(subscription, lag)
                if not forwarded or time.monotonic() - looked > self.timings.look:
                    # Raises if the stream was re-created: a fetch of a deleted consumer would end without an error.
                    looked = time.monotonic()
                    lag.seen_by(await jetstream.consumer_info(stream, self.name))
        finally:
            with contextlib.suppress(*_TROUBLE):
                await subscription.unsubscribe()

    def _config(self, subject: str) -> ConsumerConfig:
        return ConsumerConfig(
            durable_name=self.name,
            filter_subject=subject,
            # Duplicates are stored once: the duplicate window of the target stream exceeds the age of these events.
            deliver_policy=DeliverPolicy.ALL,
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=self.timings.ack_wait,
            inactive_threshold=self.timings.inactive,
        )

    async def _forward_next(self, subscription: JetStreamContext.PullSubscription, lag: Lag) -> bool:
        """Forward the next batch; return False if no event arrived in time. No message is referenced afterwards."""
        try:
            messages = await fetch(subscription, _BATCH, self.timings.fetch)
        except TimeoutError:  # also that of the library; Python's is raised if the time ends between two requests
            return False
        left = messages[-1].metadata.num_pending
        lag.seen(left + len(messages))
        await self._forward_batch(messages)
        lag.seen(left)
        await self._slow_down(messages)
        return True

    async def _forward_batch(self, messages: list[Msg]) -> None:
        """Forward a batch in order, then acknowledge it; messages without acknowledgement are redelivered."""
        events = [(message, event_in(message.subject, message.data, message.headers)) for message in messages]
        # Started in order and sent on one connection, they are stored in order, without waiting for each answer.
        await asyncio.gather(*(self.take(event) for _, event in events if event is not None))
        for message in messages:
            await message.ack()

    async def _slow_down(self, messages: list[Msg]) -> None:
        """Wait until the rate limit permits the next batch; all messages are acknowledged, so none is redelivered."""
        size = sum(len(message.data) for message in messages)
        bounds = (self._events, len(messages), EVENTS_AT_ONCE), (self._bytes, size, BYTES_AT_ONCE)
        for bucket, tokens, most in bounds:
            while not bucket.take(time.monotonic(), min(tokens, most)):  # noqa: ASYNC110 - of time
                await asyncio.sleep(bucket.wait(time.monotonic(), min(tokens, most)))

    async def _warn(self) -> None:
        """Log one warning for waiting events before they are lost."""
        longest = 0.0
        while True:
            # No event can be late before that. While one is, only its end is checked.
            await asyncio.sleep(self.timings.look if self.late else self.timings.late - longest)
            longest = max(lag.seconds() for lag in self.lags.values())
            if longest > self.timings.late and not self.late:
                _log.warning(
                    "lattice events not forwarded yet, those older than 70 s are lost",
                    lattice=self.address.name,
                    waiting_seconds=round(longest),
                )
            self.late = longest > self.timings.late

    def _report(self, stream: str, error: Exception) -> None:
        if isinstance(error, APIError) and isinstance(error, NotFoundError):
            reason = f"stream {stream} does not exist: wadm creates it, and does not run in this NATS account"
        elif isinstance(error, PermissionDenied):
            reason = f"the NATS user has no permission to read stream {stream}: {describe(error)}"
        else:
            reason = str(error) if isinstance(error, NatsUnavailableError) else describe(error)
        if stream not in self.reason and self.connection.since is not None:
            _log.warning(
                "lattice event forwarding failed, retrying", lattice=self.address.name, stream=stream, reason=reason
            )
        self.reason[stream] = reason

    def _found(self, stream: str) -> None:
        if self.reason.pop(stream, None) is not None:
            _log.info("lattice event forwarding works again", lattice=self.address.name, stream=stream)


def event_in(subject: str, body: bytes, headers: Mapping[str, str] | None) -> LatticeEvent | None:
    """Return the event of a message to forward, None for other messages.

    Its ID is that of the CloudEvent; a message without one violates the protocol and is not forwarded.
    """
    event = copied_event(subject)
    if event is None:
        return None
    try:
        envelope = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(envelope, dict) or not isinstance(envelope.get("id"), str) or not envelope["id"]:
        return None
    trace = (headers or {}).get("traceparent") or envelope.get("traceparent")
    lattice = subject.split(".")[-2]
    return LatticeEvent(lattice, event, envelope["id"], body, trace if isinstance(trace, str) else "")
