"""Follows the facts on a bus, for people: old ones, then new ones as they are said.

In: the address and what to show. Out: facts, in the order they were said. Called by the command line and by tests.
Invariant: it leaves nothing behind on the server, and goes on after an outage where it was, or at the beginning of a
stream that was made anew.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import nats
import nats.errors
import orjson
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from trellis.bus import cancellation
from trellis.bus.connection import describe
from trellis.bus.errors import BusUnavailable
from trellis.events.subjects import ROOT_EVENTS, STREAM_EVENTS, escape, unescape
from trellis.redaction import redact_url

_BATCH: Final = 100
_FETCH_SECONDS: Final = 1.0
_CONNECT_SECONDS: Final = 3
_AGAIN_SECONDS: Final = 0.5
_INACTIVE_SECONDS: Final = 60.0
_TOKENS: Final = 4


@dataclass(frozen=True, slots=True)
class TailedEvent:
    """One fact as it stands in the stream; ``event`` is the CloudEvent, empty if the body is none."""

    sequence: int
    stored: datetime
    cluster: str
    noun: str
    fact: str
    key: tuple[str, ...]
    event: dict[str, Any]


@dataclass(slots=True)
class _Position:
    """Where to go on: which life of the stream, and the next sequence in it."""

    created: datetime | None = None
    next_sequence: int | None = None


async def tail(  # noqa: PLR0913 (filters of a command line)
    url: str,
    *,
    cluster: str | None = None,
    noun: str | None = None,
    since: timedelta | None = None,
    last: int | None = None,
    follow: bool = True,
    credentials: Path | None = None,
) -> AsyncIterator[TailedEvent]:
    """Yield facts for ever, or with ``follow`` off until the newest there is.

    Args:
        url: of the NATS server.
        cluster: only facts of this cluster.
        noun: only facts about this: ``node``, ``provision``, …
        since: begin with facts that are at most this old.
        last: begin with the last so many facts. Neither this nor ``since``: only new ones.
        follow: wait for new facts, over outages too.
        credentials: NATS credentials file.

    Raises:
        BusUnavailable: there is no NATS at the address, when it is tried for the first time.
    """
    subject = f"{ROOT_EVENTS}.{escape(cluster) if cluster else '*'}.{noun or '*'}.>"
    client = await _connect(url, credentials)
    position = _Position()
    try:
        while True:
            cancellation.check()
            try:
                config = await _consumer(client.jetstream(), subject, position, since, last)
                async for message in _messages(client.jetstream(), config, position, follow=follow):
                    yield _event(message)
            except (nats.errors.Error, OSError):
                if not follow:
                    raise
                await asyncio.sleep(_AGAIN_SECONDS)
            else:
                return
    finally:
        await client.close()


async def _connect(url: str, credentials: Path | None) -> Client:
    last: Exception | None = None
    connected = False

    async def on_error(error: Exception) -> None:
        nonlocal last
        last = error
        if isinstance(error, OSError) and not connected:
            raise error  # nobody is there: people do not want to wait for that; later outages are waited out

    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            client = await nats.connect(
                url,
                name="trellis-tail",
                user_credentials=str(credentials) if credentials else None,
                max_reconnect_attempts=-1,
                reconnect_time_wait=_AGAIN_SECONDS,
                error_cb=on_error,
            )
    except (nats.errors.Error, OSError, TimeoutError) as error:
        raise BusUnavailable(f"no NATS at {redact_url(url)}: {describe(last or error)}") from error
    connected = True
    return client


async def _consumer(
    jetstream: JetStreamContext, subject: str, position: _Position, since: timedelta | None, last: int | None
) -> ConsumerConfig:
    """Return where to read on, having found out whether this is the stream that was read before."""
    info = await jetstream.stream_info(STREAM_EVENTS)
    config = ConsumerConfig(
        filter_subject=subject,
        ack_policy=AckPolicy.NONE,
        mem_storage=True,
        inactive_threshold=_INACTIVE_SECONDS,
        deliver_policy=DeliverPolicy.NEW,
    )
    former, position.created = position.created, info.created
    if former is not None and former != info.created:
        config.deliver_policy = DeliverPolicy.ALL
    elif position.next_sequence is not None:
        config.deliver_policy = DeliverPolicy.BY_START_SEQUENCE
        config.opt_start_seq = position.next_sequence
    elif since is not None:
        config.deliver_policy = DeliverPolicy.BY_START_TIME
        config.opt_start_time = datetime.now(UTC) - since
    elif last is not None:
        config.deliver_policy = DeliverPolicy.BY_START_SEQUENCE
        config.opt_start_seq = await _nth_last(jetstream, subject, last)
    else:
        position.next_sequence = info.state.last_seq + 1
    return config


async def _nth_last(jetstream: JetStreamContext, subject: str, count: int) -> int:
    """Return the highest sequence from which on there are ``count`` facts on the subject, or all there are."""
    state = (await jetstream.stream_info(STREAM_EVENTS)).state
    low, high = max(state.first_seq, 1), state.last_seq + 1
    while low < high:
        middle = (low + high + 1) // 2
        if await _pending(jetstream, subject, middle) >= count:
            low = middle
        else:
            high = middle - 1
    return low


async def _pending(jetstream: JetStreamContext, subject: str, sequence: int) -> int:
    config = ConsumerConfig(
        filter_subject=subject,
        ack_policy=AckPolicy.NONE,
        mem_storage=True,
        inactive_threshold=_INACTIVE_SECONDS,
        deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
        opt_start_seq=sequence,
    )
    info = await jetstream.add_consumer(STREAM_EVENTS, config)
    await jetstream.delete_consumer(STREAM_EVENTS, info.name)
    return info.num_pending or 0


async def _messages(
    jetstream: JetStreamContext, config: ConsumerConfig, position: _Position, *, follow: bool
) -> AsyncIterator[Msg]:
    subscription = await jetstream.pull_subscribe(config.filter_subject or "", stream=STREAM_EVENTS, config=config)
    try:
        pending = (await subscription.consumer_info()).num_pending or 0
        while follow or pending:
            cancellation.check()
            try:
                messages = await subscription.fetch(_BATCH, timeout=_FETCH_SECONDS)
            except nats.errors.TimeoutError:
                await subscription.consumer_info()  # raises if the server was restarted, or the stream made anew
                continue
            for message in messages:
                pending = message.metadata.num_pending
                position.next_sequence = message.metadata.sequence.stream + 1
                yield message
    finally:
        with contextlib.suppress(nats.errors.Error):
            await subscription.unsubscribe()


def _event(message: Msg) -> TailedEvent:
    tokens = message.subject.removeprefix(f"{ROOT_EVENTS}.").split(".")
    cluster, noun, fact, *key = (*tokens, *[""] * (_TOKENS - len(tokens)))
    return TailedEvent(
        sequence=message.metadata.sequence.stream,
        stored=message.metadata.timestamp,
        cluster=_plain(cluster),
        noun=noun,
        fact=fact,
        key=tuple(map(_plain, key)),
        event=_body(message.data),
    )


def _plain(token: str) -> str:
    with contextlib.suppress(ValueError):
        return unescape(token)
    return token


def _body(data: bytes) -> dict[str, Any]:
    with contextlib.suppress(orjson.JSONDecodeError):
        body = orjson.loads(data)
        if isinstance(body, dict):
            return body
    return {}
