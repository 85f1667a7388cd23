"""Reads the bucket in which wadm stores applications, with one pull consumer for all lattices of a connection.

In: a connection, the portions of lattices. Out: entries for each. Run for each connection by services that manage
applications, joined by ``lattice_store``. Invariants: the consumer has a unique name and expires a minute after its
last fetch; a fetch lasts at most 5 s and ends with its connection; a missed message, a re-created bucket, an additional
lattice, and a timer of ten minutes cause a complete read; nothing is removed before that read is complete (ADR 0045);
an entry affects only the lattices that its key can belong to (ADR 0077); a lattice that exceeds the limits is unknown,
and is retried later.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Iterator
from typing import Final

import nats.errors
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.errors import APIError, NotFoundError, ServiceUnavailableError

from trellis.bus.connection import cancellation
from trellis.bus.connection.connection import describe
from trellis.bus.connection.user_client import PermissionDenied
from trellis.bus.consume.pulling import fetch
from trellis.lattice.connection.lattice_connection import LatticeConnection, NatsUnavailableError
from trellis.lattice.domain.bucket_entries import Entry, TooManyError
from trellis.lattice.domain.subjects import MODEL_KEYS, STREAM_MODELS
from trellis.lattice.storage.portion import Portion
from trellis.lattice.timings import BucketTimings
from trellis.limits.backoff import Backoff
from trellis.telemetry import get_logger

_BATCH: Final = 200
_REMOVED: Final = frozenset({"DEL", "PURGE"})
_TROUBLE: Final = (nats.errors.Error, NatsUnavailableError, OSError, TimeoutError)

_log = get_logger(__name__)


class MissedError(nats.errors.Error):
    """A message of the consumer was lost; a complete read is required."""


class Bucket:
    """Reader of the wadm bucket. ``name``: prefix of the names of its consumers, one token of a subject."""

    def __init__(self, connection: LatticeConnection, name: str, timings: BucketTimings = BucketTimings()) -> None:
        self._timings = timings
        self._again = Backoff(first=timings.backoff_first, cap=timings.backoff_most)
        self._connection = connection
        self._name = name
        self._portions: dict[str, list[Portion]] = {}
        self._taking: dict[str, list[Portion]] = {}
        """Portions of the current read by key, without those that joined later."""
        self._waiting = asyncio.Event()
        self._followed = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None
        self._read_on: float | None = None
        self._completed = False
        self._aside: set[Portion] = set()
        self._warned = False

    def join(self, portion: Portion) -> None:
        """Add a lattice to the reads."""
        self._portions.setdefault(portion.key, []).append(portion)
        self._followed.set()
        self._waiting.set()

    def leave(self, portion: Portion) -> None:
        """Remove a lattice from the reads."""
        self._aside.discard(portion)
        for portions in (self._portions, self._taking):
            with contextlib.suppress(KeyError, ValueError):
                portions[portion.key].remove(portion)
                if not portions[portion.key]:
                    del portions[portion.key]
        if not self._portions:
            self._followed.clear()

    def connection_changed(self) -> None:
        """Cancel the read if the connection changed: a fetch of the former connection would wait in vain."""
        if self._reading is not None and self._connection.since != self._read_on:
            self._reading.cancel()

    async def run(self) -> None:
        """Read until cancelled."""
        failures = 0
        while True:
            cancellation.check()
            await self._connection.there()
            await self._followed.wait()
            began = time.monotonic()
            try:
                await self._read_on_this_connection()
            except _TROUBLE as error:
                self._unavailable(error)
                failures = 1 if time.monotonic() - began > self._timings.look else failures + 1
                await self._pause(self._again.delay(failures))

    async def _pause(self, seconds: float) -> None:
        """Wait before a retry; a joining lattice ends the wait."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._waiting.wait()
                await asyncio.sleep(self._timings.join)

    async def _read_on_this_connection(self) -> None:
        """Read until the next complete read is due, a lattice joins, or the connection changes.

        Raises:
            NatsUnavailableError, nats.errors.Error, OSError, TimeoutError: the bucket cannot be read.
        """
        self._read_on = self._connection.since
        self._completed = False
        self._waiting.clear()
        reading = self._reading = asyncio.create_task(self._read(), name=f"bucket of {self._name}")
        joining = asyncio.create_task(self._joined())
        try:
            await asyncio.wait({reading, joining}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._reading = None
            restart = not reading.done()
            for task in (reading, joining):
                task.cancel()
            await asyncio.wait({reading, joining})
            error = None if reading.cancelled() else reading.exception()
        if error is not None:
            raise error
        if reading.cancelled() and not restart:
            raise NatsUnavailableError(self._connection.reason or "connection lost")

    async def _joined(self) -> None:
        """Wait until a lattice needs another read, and the current read is complete."""
        while not (self._waiting.is_set() and self._completed):
            await self._waiting.wait()
            await asyncio.sleep(self._timings.join)

    async def _read(self) -> None:
        jetstream = self._connection.jetstream()
        name = f"{self._name}-{secrets.token_hex(4)}"
        await jetstream.add_consumer(STREAM_MODELS, _config(name, self._timings.inactive))
        stream = await jetstream.stream_info(STREAM_MODELS)
        # Raises if the stream was re-created between the two calls: then the consumer does not exist in it.
        pending = (await jetstream.consumer_info(STREAM_MODELS, name)).num_pending or 0
        subscription = await jetstream.pull_subscribe_bind(name, STREAM_MODELS)
        try:
            self._begin(stream.created.isoformat() if stream.created is not None else "")
            await self._follow(jetstream, subscription, name, pending)
        finally:
            with contextlib.suppress(*_TROUBLE):
                async with asyncio.timeout(self._timings.goodbye):  # otherwise it expires a minute later
                    await subscription.unsubscribe()
                    await jetstream.delete_consumer(STREAM_MODELS, name)

    def _begin(self, bucket: str) -> None:
        self._waiting.clear()
        self._taking = {key: list(portions) for key, portions in self._portions.items()}
        for portion in self._read_for():
            portion.begin(bucket)

    def _read_for(self) -> list[Portion]:
        return [portion for portions in self._taking.values() for portion in portions]

    async def _follow(
        self, jetstream: JetStreamContext, subscription: JetStreamContext.PullSubscription, name: str, pending: int
    ) -> None:
        """Process all entries, then new ones, until the next complete read is due."""
        ends, taken, delivered = time.monotonic() + self._timings.every, 0, 0
        if not pending:
            self._complete()
        while time.monotonic() < ends:
            cancellation.check()
            messages = await _fetch(subscription, self._timings.fetch)
            for message in messages:
                taken += 1
                if message.metadata.sequence.consumer != taken:
                    raise MissedError("a message of wadm's storage was missed")
                self._take(message)
                pending = message.metadata.num_pending
            if not messages:
                if taken < delivered:  # messages that the server sent before this fetch would have arrived
                    raise MissedError("a message of wadm's storage was missed")
                # Raises if the stream was re-created: a fetch of a deleted consumer would end without an error.
                info = await jetstream.consumer_info(STREAM_MODELS, name)
                delivered = info.delivered.consumer_seq if info.delivered is not None else 0
                pending = (info.num_pending or 0) + max(0, delivered - taken)
            if not pending:
                self._complete()
            else:
                for portion in self._read_for():
                    portion.report_changes()

    def _complete(self) -> None:
        """Complete the portions after all entries of the stream were processed."""
        assert self._read_on is not None
        first, self._completed = not self._completed, True
        for portion in self._read_for():
            portion.complete(self._read_on, first=first)
        if self._warned:
            self._warned = False
            _log.info("wadm storage readable again", lattices=len(self._read_for()))

    def _take(self, message: Msg) -> None:
        removed = (message.headers or {}).get("KV-Operation") in _REMOVED
        key = message.subject.removeprefix(MODEL_KEYS)
        entry = Entry(key, message.metadata.sequence.stream, None if removed else message.data)
        for portion in [item for list_key in list_keys(key) for item in self._taking.get(list_key, ())]:
            try:
                portion.take(entry)
            except TooManyError as error:
                self._put_aside(portion, error)

    def _put_aside(self, portion: Portion, error: TooManyError) -> None:
        """Treat a lattice as unknown for a while, then retry."""
        self.leave(portion)
        _log.warning("wadm storage of the lattice cannot be read, retrying", key=portion.key, reason=str(error))
        portion.unavailable(str(error), always=True)
        self._aside.add(portion)
        asyncio.get_running_loop().call_later(self._timings.too_many, self._rejoin, portion)

    def _rejoin(self, portion: Portion) -> None:
        if portion in self._aside:  # otherwise the lattice is no longer followed
            self._aside.discard(portion)
            self.join(portion)

    def _unavailable(self, error: Exception) -> None:
        if isinstance(error, MissedError):  # retried at once; the cached entries are valid until then
            return
        missing = isinstance(error, APIError) and isinstance(error, NotFoundError)
        if missing:
            reason = f"stream {STREAM_MODELS} does not exist: wadm creates it, and does not run in this NATS account"
        elif isinstance(error, PermissionDenied):
            reason = f"the NATS user has no permission to read stream {STREAM_MODELS}: {describe(error)}"
        elif isinstance(error, nats.errors.NoRespondersError | ServiceUnavailableError):
            reason = "JetStream does not answer: the server is starting, or the account has no JetStream"
        else:
            reason = str(error) if isinstance(error, NatsUnavailableError) else describe(error)
        unreadable = missing or isinstance(
            error, PermissionDenied | nats.errors.NoRespondersError | ServiceUnavailableError
        )
        if not self._warned and self._connection.since is not None:
            self._warned = True
            _log.warning("wadm storage cannot be read, retrying", lattices=len(self._portions), reason=reason)
        for portion in [item for portions in self._portions.values() for item in portions]:
            portion.unavailable(reason, unreadable=unreadable)


def list_keys(key: str) -> Iterator[str]:
    """Return the list keys of all lattices that an entry may belong to: keys are ambiguous (see ``bucket_entries``)."""
    yield key
    at = key.find("-")
    while at >= 0:
        yield key[:at]
        at = key.find("-", at + 1)


def _config(name: str, inactive: float) -> ConsumerConfig:
    return ConsumerConfig(
        name=name,
        filter_subject=f"{MODEL_KEYS}>",
        deliver_policy=DeliverPolicy.LAST_PER_SUBJECT,
        ack_policy=AckPolicy.NONE,
        inactive_threshold=inactive,
        mem_storage=True,
    )


async def _fetch(subscription: JetStreamContext.PullSubscription, seconds: float) -> list[Msg]:
    try:
        return await fetch(subscription, _BATCH, seconds)
    except TimeoutError:  # also that of the library; Python's is raised if the time ends between two requests
        return []
