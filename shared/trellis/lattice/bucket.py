"""Reads the bucket in which wadm keeps its applications, by a pull consumer of our own, and keeps up with it.

In: a link, a lattice's address. Out: its entries, since when they are complete, and word of every change. Called by
``lattice_store``. Invariants: a consumer has a name that nobody else has, and vanishes a minute after its last
fetch; a fetch lasts 5 s at most and ends with its connection; a message that was missed, a bucket that was made anew,
and every ten minutes mean to read all of it again; nothing is forgotten before that was read to its end (ADR 0045).
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable, Iterable
from typing import Final

import nats.errors
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.errors import APIError, NotFoundError, ServiceUnavailableError

from trellis.bus import cancellation
from trellis.bus.backoff import Backoff
from trellis.bus.connection import describe
from trellis.bus.user_client import PermissionDenied
from trellis.lattice.address import LatticeAddress
from trellis.lattice.link import Link, LinkAwayError
from trellis.lattice.reading import LatticeDataError
from trellis.lattice.stored import Entry, Stored
from trellis.lattice.subjects import MODEL_KEYS, STREAM_MODELS, model_list_key
from trellis.telemetry import get_logger

EVERY_SECONDS: Final = 600.0
"""Between two readings of all there is when nothing goes wrong."""
_BATCH: Final = 200
_FETCH_SECONDS: Final = 5.0
_LOOK_SECONDS: Final = 10.0
_INACTIVE_SECONDS: Final = 60.0
_GOODBYE_SECONDS: Final = 1.0
_AGAIN: Final = Backoff(first=0.2, cap=10.0)
_REPORT_SECONDS: Final = 60.0
_REMOVED: Final = frozenset({"DEL", "PURGE"})
_TROUBLE: Final = (nats.errors.Error, LinkAwayError, OSError, TimeoutError)

Changed = Callable[[Iterable[str] | None], None]
"""Called in the event loop with the names of which something may be new, None for all."""

_log = get_logger(__name__)


class MissedError(nats.errors.Error):
    """A message of the consumer did not arrive: all is to be read again."""


class Bucket:
    """``unreadable`` is set while there is no such bucket, or this user may not read it: waiting does not help."""

    def __init__(self, address: LatticeAddress, link: Link, name: str, changed: Changed) -> None:
        self.stored: Final = Stored(model_list_key(address.lattice, address.account))
        self.unreadable: Final = asyncio.Event()
        self.why = "wadm's storage was not read yet"
        """Why it is not read now, for people; "" if it is."""
        self._lattice = address.name
        self._link = link
        self._name = name
        self._changed = changed
        self._reading: asyncio.Task[None] | None = None
        self._read_on: float | None = None
        self._synced: tuple[float, float] | None = None
        self._warned = False
        self._garbage_told = -_REPORT_SECONDS

    @property
    def synced_at(self) -> float | None:
        """When this was last complete, in Unix seconds; None if it is not on the connection of now."""
        if self._synced is None or self._link.since != self._synced[0]:
            return None
        return self._synced[1]

    def link_changed(self) -> None:
        """The link may be another: a fetch of the former one would wait for nothing."""
        if self._reading is not None and self._link.since != self._read_on:
            self._reading.cancel()

    async def run(self) -> None:
        """Read until cancelled."""
        failures = 0
        while True:
            cancellation.check()
            await self._link.there()
            began = time.monotonic()
            try:
                await self._read_on_this_link()
            except _TROUBLE as error:
                self._away(error)
            failures = 1 if time.monotonic() - began > _LOOK_SECONDS else failures + 1
            await asyncio.sleep(_AGAIN.delay(failures))

    async def _read_on_this_link(self) -> None:
        """Read until the time for a new reading has come, or the connection is another.

        Raises:
            LinkAwayError, nats.errors.Error, OSError, TimeoutError: it cannot be read.
        """
        self._read_on = self._link.since
        reading = self._reading = asyncio.create_task(self._read(), name=f"bucket of {self._lattice}")
        try:
            await asyncio.wait({reading})
        finally:
            self._reading = None
            reading.cancel()
            await asyncio.wait({reading})
            error = None if reading.cancelled() else reading.exception()
        if reading.cancelled():
            raise LinkAwayError(self._link.why or "connection lost")
        if error is not None:
            raise error

    async def _read(self) -> None:
        jetstream = self._link.jetstream()
        name = f"{self._name}-{secrets.token_hex(4)}"
        await jetstream.add_consumer(STREAM_MODELS, _config(name))
        stream = await jetstream.stream_info(STREAM_MODELS)
        # If the stream was made anew between the two, its consumer is none of it, and this says so.
        pending = (await jetstream.consumer_info(STREAM_MODELS, name)).num_pending or 0
        subscription = await jetstream.pull_subscribe_bind(name, STREAM_MODELS)
        try:
            self.stored.begin(stream.created.isoformat() if stream.created is not None else "")
            await self._follow(jetstream, subscription, name, pending)
        finally:
            with contextlib.suppress(*_TROUBLE):
                async with asyncio.timeout(_GOODBYE_SECONDS):  # it vanishes by itself, a minute later
                    await subscription.unsubscribe()
                    await jetstream.delete_consumer(STREAM_MODELS, name)

    async def _follow(
        self, jetstream: JetStreamContext, subscription: JetStreamContext.PullSubscription, name: str, pending: int
    ) -> None:
        """Take what there is, then what comes, until everything is to be read again."""
        ends, taken, delivered = time.monotonic() + EVERY_SECONDS, 0, 0
        if not pending:
            self._complete(set())
        while time.monotonic() < ends:
            cancellation.check()
            messages, news = await _fetch(subscription), set[str]()
            for message in messages:
                taken += 1
                if message.metadata.sequence.consumer != taken:
                    raise MissedError("a message of wadm's storage was missed")
                news |= self._take(message)
                pending = message.metadata.num_pending
            if not messages:
                if taken < delivered:  # what the server had sent before this fetch would be here
                    raise MissedError("a message of wadm's storage was missed")
                # Raises if the stream was made anew: a fetch of a consumer that is gone would be silent.
                info = await jetstream.consumer_info(STREAM_MODELS, name)
                delivered = info.delivered.consumer_seq if info.delivered is not None else 0
                pending = (info.num_pending or 0) + max(0, delivered - taken)
            if not pending:
                self._complete(news)
            elif news and self.synced_at is not None:
                self._changed(news)

    def _complete(self, news: set[str]) -> None:
        """Everything that the stream has was taken."""
        assert self._read_on is not None
        was_away = self.synced_at is None
        news |= self.stored.complete()
        self._synced = (self._read_on, time.time())
        self.why = ""
        self.unreadable.clear()
        if self._warned:
            self._warned = False
            _log.info("wadm's storage is read again", lattice=self._lattice)
        if was_away:
            self._changed(None)
        elif news:
            self._changed(news)

    def _take(self, message: Msg) -> set[str]:
        removed = (message.headers or {}).get("KV-Operation") in _REMOVED
        entry = Entry(
            message.subject.removeprefix(MODEL_KEYS),
            message.metadata.sequence.stream,
            None if removed else message.data,
        )
        try:
            return self.stored.take(entry)
        except LatticeDataError as error:
            self._tell_garbage(error)
            return set()

    def _away(self, error: Exception) -> None:
        if isinstance(error, MissedError):  # it is read again at once, and what is known counts until then
            return
        was_there = self._synced is not None
        self._synced = None
        missing = isinstance(error, APIError) and isinstance(error, NotFoundError)
        if missing:
            self.why = f"no stream {STREAM_MODELS}: wadm makes it, and does not run in this NATS account"
        elif isinstance(error, PermissionDenied):
            self.why = f"the NATS user may not read stream {STREAM_MODELS}: {describe(error)}"
        elif isinstance(error, nats.errors.NoRespondersError | ServiceUnavailableError):
            self.why = "JetStream does not answer: the server starts, or the NATS user's account has none"
        else:
            self.why = str(error) if isinstance(error, LinkAwayError) else describe(error)
        if missing or isinstance(error, PermissionDenied | nats.errors.NoRespondersError | ServiceUnavailableError):
            self.unreadable.set()
        if not self._warned and self._link.since is not None:
            self._warned = True
            _log.warning("wadm's storage is not read now", lattice=self._lattice, reason=self.why)
        if was_there:
            self._changed(None)

    def _tell_garbage(self, error: LatticeDataError) -> None:
        now = time.monotonic()
        if now - self._garbage_told >= _REPORT_SECONDS:
            self._garbage_told = now
            _log.warning(
                "an entry of wadm's storage cannot be read: it is left out", lattice=self._lattice, reason=str(error)
            )


def _config(name: str) -> ConsumerConfig:
    return ConsumerConfig(
        name=name,
        filter_subject=f"{MODEL_KEYS}>",
        deliver_policy=DeliverPolicy.LAST_PER_SUBJECT,
        ack_policy=AckPolicy.NONE,
        inactive_threshold=_INACTIVE_SECONDS,
        mem_storage=True,
    )


async def _fetch(subscription: JetStreamContext.PullSubscription) -> list[Msg]:
    try:
        return await subscription.fetch(_BATCH, timeout=_FETCH_SECONDS)
    except TimeoutError:  # the library's own is one, and it raises Python's if the time ends between two requests
        return []
