"""Streams the events of the bus for users: stored ones in order, then new ones.

In: the address and a selection. Out: events in the order of publication. Called by the command line and by tests.
Invariant: every message of the stream is yielded, an event or not; after an outage a tail continues at its position, or
at the start of a re-created stream.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
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
    events_filter,
    plain,
)
from trellis.telemetry import trace_from

NOUN_LATTICE: Final = "lattice"
_TOKENS: Final = 4


@dataclass(frozen=True, slots=True)
class TailedEvent:
    """One message of the stream; ``event`` is the CloudEvent, empty if the body is not a JSON object.

    ``trace_id`` is empty if the message has no trace context, ``size`` is the length of the body in bytes.
    """

    sequence: int
    stored: datetime
    cluster: str
    noun: str
    event_name: str
    key: tuple[str, ...]
    event: dict[str, Any]
    subject: str = ""
    trace_id: str = ""
    size: int = 0


@dataclass(frozen=True, slots=True)
class Selection:
    """A selection of events; empty fields select all.

    Args:
        cluster: only events of this cluster.
        noun: only events about this noun: ``node``, ``provision``, …
        pattern: NATS subject filter instead of both, as ``pattern_filter`` returns it.
        since: start with events that were stored at this time.
        until: end with events that were stored at this time.
        last: start with the last N events.
        trace: only events of traces with this prefix of the id; lower-case hex digits.
        lattice: forwarded events of this lattice instead of events; they have no noun and no pattern.
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
        return self.pattern or events_filter(self.cluster, self.noun)

    def over(self, moment: datetime) -> bool:
        """Return True if the selection ends before this time."""
        return self.until is not None and moment > self.until


@dataclass(slots=True)
class Tally:
    """The number of messages that were read, and of those that were shown."""

    looked_at: int = field(default=0)
    shown: int = field(default=0)


async def tail(
    url: str, selection: Selection, *, credentials: Credentials | None = None
) -> AsyncGenerator[TailedEvent, None]:
    """Yield events as they are published, across outages: forever, or until the end of the selection.

    Without ``since`` and ``last`` the next new event is the first.

    Args:
        url: URL of the NATS server.
        selection: events to yield.
        credentials: credentials of a user that may read the stream; without them, the user in the URL connects.

    Raises:
        BusUnavailable: NATS is unreachable at the address at the first attempt.
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
) -> AsyncGenerator[TailedEvent, None]:
    """Yield the events that were published until now, oldest first.

    Args:
        url: URL of the NATS server.
        selection: events to yield; all without ``since`` and ``last``.
        tally: counter that is updated.
        original_pace: keep the original time between events.
        credentials: credentials of a user that may read the stream; without them, the user in the URL connects.

    Raises:
        BusUnavailable: NATS is unreachable at the address, or was for 10 s.
        StreamError: the event stream does not exist, or was re-created in the meantime.
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
    """Reproduces the original intervals, starting now."""

    def __init__(self) -> None:
        self._first: datetime | None = None
        self._began = 0.0

    async def wait(self, moment: datetime) -> None:
        now = asyncio.get_running_loop().time()
        if self._first is None:
            self._first, self._began = moment, now
        await asyncio.sleep(max(0.0, (moment - self._first).total_seconds() - (now - self._began)))


def event_of(message: Stored) -> TailedEvent:
    """Return the displayed form of a message of the event stream or of the stream of lattice events."""
    cluster, noun, event_name, *key = _tokens(message.subject)
    event = _body(message.body)
    trace = trace_from(message.headers.get(HEADER_TRACEPARENT)) or trace_from(_text(event.get("traceparent")))
    return TailedEvent(
        sequence=message.sequence,
        stored=message.stored,
        cluster=plain(cluster),
        noun=noun,
        event_name=event_name,
        key=tuple(map(plain, key)),
        event=event,
        subject=message.subject,
        trace_id=trace.traceparent.split("-")[1] if trace else "",
        size=message.size,
    )


def _tokens(subject: str) -> tuple[str, ...]:
    """Return cluster, noun, event and key; a forwarded event has the noun ``lattice`` and the lattice as its key."""
    if subject.startswith(f"{ROOT_LATTICE}."):
        cluster, lattice, *event = subject.removeprefix(f"{ROOT_LATTICE}.").split(".")
        return cluster, NOUN_LATTICE, plain(".".join(event)), lattice
    tokens = subject.removeprefix(f"{ROOT_EVENTS}.").split(".")
    return (*tokens, *[""] * (_TOKENS - len(tokens)))


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _body(data: bytes) -> dict[str, Any]:
    """Return the JSON object of a body, or an empty one if it is not an object or cannot be serialised."""
    with contextlib.suppress(orjson.JSONDecodeError, orjson.JSONEncodeError):
        body = orjson.loads(data)
        if isinstance(body, dict):
            orjson.dumps(body)
            return body
    return {}
