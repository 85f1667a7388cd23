"""Streams the events of the bus for users: stored ones in order, then new ones.

In: the address and a selection. Out: events in the order of publication. Called by the command line and by tests.
Invariant: every message of the stream is yielded, an event or not; after an outage a tail continues at its position, or
at the start of a re-created stream.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import orjson

from trellis.bus.connection.dial import dial, hang_up
from trellis.bus.consume.message import HEADER_TRACEPARENT
from trellis.bus.streams.stream_reader import EVERYTHING, Start, Stored, StreamReader
from trellis.config.nats_credentials import Credentials
from trellis.events.subjects import (
    ROOT_EVENTS,
    ROOT_LATTICE,
    STREAM_EVENTS,
    STREAM_LATTICE,
    copies_filter,
    facts_filter,
    plain,
)
from trellis.telemetry import trace_from

NOUN_LATTICE: Final = "lattice"
_TOKENS: Final = 4


@dataclass(frozen=True, slots=True)
class TailedEvent:
    """One message as it stands in the stream; ``event`` is the CloudEvent, empty if the body is no JSON object.

    ``trace_id`` is empty if the message belongs to no trace, ``size`` is the body's length in bytes.
    """

    sequence: int
    stored: datetime
    cluster: str
    noun: str
    fact: str
    key: tuple[str, ...]
    event: dict[str, Any]
    subject: str = ""
    trace_id: str = ""
    size: int = 0


@dataclass(frozen=True, slots=True)
class Selection:
    """Which events to show; an empty one is all of them.

    Args:
        cluster: only events of this cluster.
        noun: only events about this: ``node``, ``provision``, …
        pattern: filter of NATS that stands in place of both, as ``pattern_filter`` returns it.
        since: begin with events that were stored then.
        until: end with events that were stored then.
        last: begin with the last so many events.
        trace: only events of traces whose id begins with this; lower-case hex digits.
        lattice: not events, but the copies of this lattice's events; they have no noun and no pattern.
    """

    cluster: str | None = None
    noun: str | None = None
    pattern: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    last: int | None = None
    trace: str = ""
    lattice: str | None = None

    @property
    def stream(self) -> str:
        """The stream that is read."""
        return STREAM_EVENTS if self.lattice is None else STREAM_LATTICE

    @property
    def filter(self) -> str:
        """The subject filter."""
        if self.lattice is not None:
            return copies_filter(self.cluster, self.lattice)
        return self.pattern or facts_filter(self.cluster, self.noun)

    def over(self, moment: datetime) -> bool:
        """Return whether there is nothing to show from this moment on."""
        return self.until is not None and moment > self.until


@dataclass(slots=True)
class Tally:
    """How many messages were looked at, and how many of them shown."""

    looked_at: int = field(default=0)
    shown: int = field(default=0)


async def tail(url: str, selection: Selection, *, credentials: Credentials | None = None) -> AsyncIterator[TailedEvent]:
    """Yield events as they are said, over outages: forever, or until the selection's end has come.

    Without ``since`` and ``last`` it begins with the next one.

    Args:
        url: of the NATS server.
        selection: which events.
        credentials: whose they are may read the stream; without them it is whoever the URL says.

    Raises:
        BusUnavailable: there is no NATS at the address, when it is tried for the first time.
    """
    client = await dial(url, "trellis-tail", credentials)
    try:
        reader = StreamReader(client, selection.stream, selection.filter, Start(selection.since, selection.last))
        async with contextlib.aclosing(reader.follow()) as messages:
            async for message in messages:
                if selection.over(message.stored if message is not None else datetime.now(UTC)):
                    return
                if message is not None and (event := event_of(message)).trace_id.startswith(selection.trace):
                    yield event
    finally:
        await hang_up(client)


async def replay(
    url: str,
    selection: Selection,
    tally: Tally,
    *,
    original_pace: bool = False,
    credentials: Credentials | None = None,
) -> AsyncIterator[TailedEvent]:
    """Yield the events that were said until now, oldest first.

    Args:
        url: of the NATS server.
        selection: which events; without ``since`` and ``last`` all there are.
        tally: counts along.
        original_pace: with the time between them that was between them.
        credentials: whose they are may read the stream; without them it is whoever the URL says.

    Raises:
        BusUnavailable: there is no NATS at the address, or it was unreachable for 10 s.
        StreamError: there is no stream of events, or it was re-created in the meantime.
    """
    client = await dial(url, "trellis-replay", credentials)
    limited = selection.since is not None or selection.last is not None
    start = Start(selection.since, selection.last) if limited else EVERYTHING
    try:
        reader = StreamReader(client, selection.stream, selection.filter, start)
        pace = _Pace() if original_pace else None
        async with contextlib.aclosing(reader.past()) as messages:
            async for message in messages:
                if selection.over(message.stored):
                    return
                tally.looked_at += 1
                event = event_of(message)
                if event.trace_id.startswith(selection.trace):
                    if pace is not None:
                        await pace.wait(event.stored)
                    tally.shown += 1
                    yield event
    finally:
        await hang_up(client)


class _Pace:
    """Waits as long as it took then. The first moment is now."""

    def __init__(self) -> None:
        self._first: datetime | None = None
        self._began = 0.0

    async def wait(self, moment: datetime) -> None:
        now = asyncio.get_running_loop().time()
        if self._first is None:
            self._first, self._began = moment, now
        await asyncio.sleep(max(0.0, (moment - self._first).total_seconds() - (now - self._began)))


def event_of(message: Stored) -> TailedEvent:
    """Return a message of a stream of events, or of copies, as it is shown."""
    cluster, noun, fact, *key = _tokens(message.subject)
    event = _body(message.body)
    trace = trace_from(message.headers.get(HEADER_TRACEPARENT)) or trace_from(_text(event.get("traceparent")))
    return TailedEvent(
        sequence=message.sequence,
        stored=message.stored,
        cluster=plain(cluster),
        noun=noun,
        fact=fact,
        key=tuple(map(plain, key)),
        event=event,
        subject=message.subject,
        trace_id=trace.traceparent.split("-")[1] if trace else "",
        size=message.size,
    )


def _tokens(subject: str) -> tuple[str, ...]:
    """Return cluster, noun, fact and key; the copy of a lattice's event is about the noun ``lattice``, its name."""
    if subject.startswith(f"{ROOT_LATTICE}."):
        cluster, lattice, *event = subject.removeprefix(f"{ROOT_LATTICE}.").split(".")
        return cluster, NOUN_LATTICE, plain(".".join(event)), lattice
    tokens = subject.removeprefix(f"{ROOT_EVENTS}.").split(".")
    return (*tokens, *[""] * (_TOKENS - len(tokens)))


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _body(data: bytes) -> dict[str, Any]:
    """Return the JSON object of a body, an empty one if it is none, or one that could not be written again."""
    with contextlib.suppress(orjson.JSONDecodeError, orjson.JSONEncodeError):
        body = orjson.loads(data)
        if isinstance(body, dict):
            orjson.dumps(body)
            return body
    return {}
