"""Reads the messages of a stream in order: the stored ones and, on request, new ones.

In: a client, a stream, a start position. Out: messages as stored. Called by ``trellis.bus.streams.tail`` (events) and
``trellis.bus.dead_letters.store``. Invariants: it changes nothing and acknowledges nothing; its consumer is deleted at
the end, or expires; after an outage it continues at its position, and never in a re-created stream.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, ConsumerInfo, DeliverPolicy
from nats.js.errors import APIError

from trellis.bus.connection import cancellation
from trellis.bus.connection.connection import describe
from trellis.bus.connection.user_client import PermissionDenied
from trellis.bus.consume.pulling import fetch
from trellis.bus.errors import BusUnavailable, StreamError
from trellis.bus.streams.streams import Epoch, epoch_of
from trellis.bus.timings import ReadTimings
from trellis.installer_api.parse_int import whole

HEADER_SIZE: Final = "Nats-Msg-Size"
"""Length of an omitted body in bytes: JetStream's header for consumers of headers only."""

_BATCH: Final = 100
# The library rounds times of messages to this; a start at exactly that time would omit a message.
_TICK: Final = timedelta(microseconds=1)
# Fetches without an answer after which pending messages count as lost. A slow connection needs several.
_SILENCES: Final = 5
# JetStream's error code for a stream that does not exist: server/errors.json of nats-server.
_NO_STREAM: Final = 10059


@dataclass(frozen=True, slots=True)
class Stored:
    """One message of a stream; with headers only, the body is empty and ``size`` is its length in bytes."""

    sequence: int
    stored: datetime
    subject: str
    headers: Mapping[str, str]
    body: bytes
    size: int


@dataclass(frozen=True, slots=True)
class Start:
    """The start position: a time, the last N messages, or a sequence; by default the next new message."""

    since: datetime | None = None
    last: int | None = None
    sequence: int | None = None


EVERYTHING: Final = Start(sequence=1)


@dataclass(slots=True)
class StreamReader:
    """A reader of one stream. ``epoch`` identifies the stream that is read; it is None before the first read."""

    client: Client
    stream: str
    subject: str
    start: Start
    headers_only: bool = False
    batch: int = _BATCH
    timings: ReadTimings = field(default_factory=ReadTimings)
    epoch: Epoch | None = field(default=None, init=False)
    _next: int | None = field(default=None, init=False)
    _newest: int = field(default=0, init=False)
    """Last sequence of the stream at the start of the read."""

    async def follow(self) -> AsyncGenerator[Stored | None, None]:
        """Yield messages forever, across outages and re-creations of the stream; None if there are no more for now.

        Raises:
            StreamError: the NATS user may not read the stream.
        """
        while True:
            cancellation.check()
            try:
                async with contextlib.aclosing(self._messages(follow=True)) as messages:
                    async for message in messages:
                        yield message
            except PermissionDenied as error:
                raise StreamError(f"stream {self.stream} cannot be read: {describe(error)}") from error
            except (nats.errors.Error, OSError):
                yield None
                await asyncio.sleep(self.timings.again)

    async def past(self) -> AsyncGenerator[Stored, None]:
        """Yield the messages that existed at the start of the read; outages within ``patience`` are waited out.

        Raises:
            StreamError: the stream does not exist, may not be read, or was re-created in the meantime.
            BusUnavailable: NATS or JetStream did not answer.
        """
        failing_since: float | None = None
        while True:
            cancellation.check()
            try:
                async with contextlib.aclosing(self._messages(follow=False)) as messages:
                    async for message in messages:
                        if message is None:
                            return
                        failing_since = None
                        yield message
            except PermissionDenied as error:
                raise StreamError(f"stream {self.stream} cannot be read: {describe(error)}") from error
            except (nats.errors.Error, OSError) as error:
                if isinstance(error, APIError) and error.err_code == _NO_STREAM:
                    raise StreamError(f"stream {self.stream} does not exist: a running service creates it") from error
                failing_since = failing_since or time.monotonic()
                if time.monotonic() - failing_since > self.timings.patience:
                    met = self.client.last_error or error
                    raise BusUnavailable(f"stream {self.stream} cannot be read: {describe(met)}") from error
                await asyncio.sleep(self.timings.again)

    async def _messages(self, *, follow: bool) -> AsyncGenerator[Stored | None, None]:
        jetstream = self.client.jetstream()
        config = await self._config(jetstream, follow=follow)
        subscription = await jetstream.pull_subscribe(self.subject, stream=self.stream, config=config)
        received = silences = 0
        try:
            left = _left(await subscription.consumer_info(), received)
            while True:
                cancellation.check()
                if not left:
                    yield None
                try:
                    fetched = await fetch(subscription, self.batch, self.timings.fetch)
                except nats.errors.TimeoutError:
                    # Raises if the server was restarted, or the stream re-created.
                    left = _left(await subscription.consumer_info(), received)
                    silences = silences + 1 if left else 0
                    if silences > _SILENCES:
                        raise _LostMessagesError from None
                    continue
                for raw in fetched:
                    received, silences = received + 1, 0
                    if raw.metadata.sequence.consumer != received:
                        raise _LostMessagesError
                    message, left = _stored(raw), raw.metadata.num_pending
                    if not follow and message.sequence > self._newest:
                        yield None
                    self._next = message.sequence + 1
                    if self.start.since is None or message.stored >= self.start.since:
                        yield message
        finally:
            await self._end(subscription, config.name or "")

    async def _end(self, subscription: JetStreamContext.PullSubscription, consumer: str) -> None:
        """Delete the consumer: it counts towards the limit of the account, and would otherwise stay for a minute."""
        with contextlib.suppress(nats.errors.Error, OSError, TimeoutError):
            async with asyncio.timeout(self.timings.goodbye):
                await subscription.unsubscribe()
                if self.client.is_connected:
                    await self.client.jetstream().delete_consumer(self.stream, consumer)

    async def _config(self, jetstream: JetStreamContext, *, follow: bool) -> ConsumerConfig:
        """Return the consumer configuration for the next position, after a check that the stream is the same."""
        info = await jetstream.stream_info(self.stream)
        config = self._ephemeral()
        former, self.epoch = self.epoch, epoch_of(info)
        if former is not None and former.created != self.epoch.created:
            if not follow:
                raise StreamError(f"stream {self.stream} was re-created during the read: run the command again")
            config.deliver_policy = DeliverPolicy.ALL
            return config
        if former is None:
            self._newest = info.state.last_seq
        if self._next is None and self.start.since is not None:
            config.deliver_policy = DeliverPolicy.BY_START_TIME
            config.opt_start_time = self.start.since - _TICK
            return config
        if self._next is None:
            self._next = await self._first(jetstream)
        config.deliver_policy = DeliverPolicy.BY_START_SEQUENCE
        config.opt_start_seq = self._next
        return config

    async def _first(self, jetstream: JetStreamContext) -> int:
        """Return the sequence to start at: the requested one, or that of the last N matching messages."""
        if self.start.sequence is not None:
            return self.start.sequence
        state = (await jetstream.stream_info(self.stream)).state
        low = high = state.last_seq + 1
        wanted = self.start.last or 0
        if wanted:
            low = max(state.first_seq, 1)
        if high - low <= wanted:
            return low  # the stream has no more messages than that, with any filter
        while low < high:
            middle = (low + high + 1) // 2
            if await self._pending(jetstream, middle) >= wanted:
                low = middle
            else:
                high = middle - 1
        return low

    async def _pending(self, jetstream: JetStreamContext, sequence: int) -> int:
        config = self._ephemeral()
        config.name = f"count-{secrets.token_hex(8)}"  # users may create only consumers with a name
        config.deliver_policy = DeliverPolicy.BY_START_SEQUENCE
        config.opt_start_seq = sequence
        info = await jetstream.add_consumer(self.stream, config)
        await jetstream.delete_consumer(self.stream, info.name)
        return info.num_pending or 0

    def _ephemeral(self) -> ConsumerConfig:
        return ConsumerConfig(
            filter_subject=self.subject,
            ack_policy=AckPolicy.NONE,
            mem_storage=True,
            inactive_threshold=self.timings.inactive,
            headers_only=self.headers_only or None,
        )


class _LostMessagesError(nats.errors.Error):
    """Messages were sent and did not arrive, as after a lost connection; the read is retried."""


def _left(info: ConsumerInfo, received: int) -> int:
    """Return the number of messages that have not arrived, those in transit included."""
    sent = info.delivered.consumer_seq if info.delivered is not None else 0
    return (info.num_pending or 0) + sent - received


def _stored(raw: Msg) -> Stored:
    metadata, headers = raw.metadata, dict(raw.headers or {})
    left_out = headers.pop(HEADER_SIZE, "")
    size = len(raw.data) or whole(left_out) or 0
    return Stored(metadata.sequence.stream, metadata.timestamp, raw.subject, headers, raw.data, size)
