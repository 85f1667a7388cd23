"""Parses dead letters: the inverse of ``trellis.bus.dead_letters.write``, for any content of their stream.

Pure. In: a stored message. Out: the dead letter, the obstacles to a replay, and the message that a replay publishes.
Called by ``trellis.bus.dead_letters.store`` and the command line. Invariant: invalid content yields an incomplete dead
letter, never an error.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import orjson

from trellis.bus.consume.message import HEADER_MSG_ID, HEADER_TRACEPARENT
from trellis.bus.dead_letters.write import (
    HEADER_DELIVERIES,
    HEADER_ERROR,
    HEADER_HEADERS,
    HEADER_REASON,
    HEADER_SEQUENCE,
    HEADER_STREAM,
    HEADER_SUBJECT,
    HEADER_SUBSCRIPTION,
    HEADER_TRUNCATED,
)
from trellis.bus.streams.stream_reader import Stored
from trellis.events.subjects import ROOT_DEAD, is_event_subject, plain
from trellis.installer_api.parse_int import whole
from trellis.telemetry import trace_from

_TOKENS: Final = 3
# Headers that the server acts on: expectations, roll-ups, TTLs. They were for the first publish.
_SERVERS_HEADERS: Final = "nats-"


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A dead-lettered message. Fields without a value in the letter are empty or None.

    ``subject``, ``stream``, ``original_sequence`` and ``original_headers`` are those of the original;
    ``original_headers`` is None if they are invalid. ``truncated`` is the length of the original body in bytes if it
    was cut, ``size`` that of the stored body; ``body`` is empty if only headers were read. ``epoch`` is the creation
    time of the stream of dead letters to which ``sequence`` belongs.
    """

    sequence: int
    stored: datetime
    epoch: str
    cluster: str = ""
    service: str = ""
    noun: str = ""
    key: tuple[str, ...] = ()
    subscription: str = ""
    reason: str = ""
    error: str = ""
    subject: str = ""
    stream: str = ""
    original_sequence: int | None = None
    original_headers: Mapping[str, str] | None = field(default_factory=dict)
    deliveries: int | None = None
    truncated: int | None = None
    size: int = 0
    body: bytes = b""

    @property
    def reader(self) -> str:
        """The reader that dead-lettered the message: ``<service>/<subscription>``."""
        return "/".join(filter(None, (self.service, self.subscription)))

    @property
    def trace_id(self) -> str:
        """Trace id of the original, empty if none."""
        trace = trace_from((self.original_headers or {}).get(HEADER_TRACEPARENT))
        return trace.traceparent.split("-")[1] if trace else ""

    @property
    def obstacle(self) -> str:
        """Reason why the letter cannot be replayed, as a message for users; empty if it can."""
        if self.truncated is not None:
            return f"its body was cut from {self.truncated or 'more'} to {self.size} bytes"
        if not self.subject:
            return "header with the original subject is missing"
        if not is_event_subject(self.subject):
            return f"its original subject is not a subject of Trellis: {self.subject}"
        if self.original_headers is None:
            return f"header {HEADER_HEADERS} with the original headers is invalid"
        return ""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A selection of letters; an empty field selects all. The comparison of ``reason`` ignores case."""

    cluster: str | None = None
    service: str | None = None
    noun: str | None = None
    reason: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    def wants(self, dead_letter: DeadLetter) -> bool:
        """Return True if the letter matches."""
        return (
            self.cluster in {None, dead_letter.cluster}
            and self.service in {None, dead_letter.service}
            and self.noun in {None, dead_letter.noun}
            and (self.reason is None or self.reason.lower() == dead_letter.reason.lower())
            and (self.since is None or dead_letter.stored >= self.since)
            and (self.until is None or dead_letter.stored <= self.until)
        )


def read_dead_letter(message: Stored, epoch: str) -> DeadLetter:
    """Return the letter in a message of the stream of dead letters; ``epoch`` is the creation time of the stream."""
    tokens = message.subject.removeprefix(f"{ROOT_DEAD}.").split(".")
    cluster, service, noun, *key = map(plain, (*tokens, *[""] * (_TOKENS - len(tokens))))
    headers = message.headers
    return DeadLetter(
        sequence=message.sequence,
        stored=message.stored,
        epoch=epoch,
        cluster=cluster,
        service=service,
        noun=noun,
        key=tuple(key),
        subscription=headers.get(HEADER_SUBSCRIPTION, ""),
        reason=headers.get(HEADER_REASON, ""),
        error=headers.get(HEADER_ERROR, ""),
        subject=headers.get(HEADER_SUBJECT, ""),
        stream=headers.get(HEADER_STREAM, ""),
        original_sequence=whole(headers.get(HEADER_SEQUENCE)),
        original_headers=_headers(headers.get(HEADER_HEADERS)),
        deliveries=whole(headers.get(HEADER_DELIVERIES)),
        # An invalid length still indicates that the body was cut.
        truncated=(whole(headers[HEADER_TRUNCATED]) or 0) if HEADER_TRUNCATED in headers else None,
        size=message.size,
        body=message.body,
    )


def replayed_headers(dead_letter: DeadLetter) -> dict[str, str]:
    """Return the headers of a replay: those of the original, without those for the server, and with a new id.

    The id is derived from the letter, so that a replay that is repeated within the duplicate window of the stream is
    stored once, and is not a duplicate of the original.
    """
    original = dead_letter.original_headers or {}
    kept = {name: value for name, value in original.items() if not name.lower().startswith(_SERVERS_HEADERS)}
    return kept | {HEADER_MSG_ID: f"replay/{dead_letter.epoch}/{dead_letter.sequence}"}


def _headers(text: str | None) -> Mapping[str, str] | None:
    if text is None:
        return {}
    with contextlib.suppress(orjson.JSONDecodeError):
        headers = orjson.loads(text)
        if isinstance(headers, dict) and all(isinstance(value, str) for value in headers.values()):
            return headers
    return None
