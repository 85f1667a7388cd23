"""Creates dead letters: the original message with the reason of the failure.

In: a delivered message and a reason. Out: subject, headers and body for the stream of dead letters. Pure; published by
the subscriber, listed and replayed by the command line. Invariant: body and headers are those of the original; parts
that NATS cannot carry are cut, and a header reports that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import orjson

from trellis.bus.consume.message import HEADER_MSG_ID, Reason
from trellis.events.subjects import ROOT_EVENTS, dead_subject, plain

HEADER_REASON: Final = "Trellis-Reason"
HEADER_ERROR: Final = "Trellis-Error"
HEADER_SUBSCRIPTION: Final = "Trellis-Subscription"
HEADER_SUBJECT: Final = "Trellis-Subject"
HEADER_STREAM: Final = "Trellis-Stream"
HEADER_SEQUENCE: Final = "Trellis-Sequence"
HEADER_DELIVERIES: Final = "Trellis-Deliveries"
HEADER_HEADERS: Final = "Trellis-Headers"
"""Headers of the original as one JSON object."""
HEADER_TRUNCATED: Final = "Trellis-Truncated"
"""Length in bytes of the original body, if it had to be cut."""

_ERROR_MAX: Final = 1000
UNKNOWN_NOUN: Final = "unknown"
"""Noun of a message whose subject is not that of an event."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """A message as it was delivered."""

    subject: str
    stream: str
    epoch: str
    sequence: int
    deliveries: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeadLetterMessage:
    """A dead letter as it is published."""

    subject: str
    body: bytes
    headers: dict[str, str]


def make_dead_letter(
    message: Delivered, *, cluster: str, reader: tuple[str, str], reason: Reason, error: str, max_bytes: int
) -> DeadLetterMessage:
    """Return the dead letter of a message.

    Args:
        message: the delivered message.
        cluster: name of the cluster on the bus.
        reader: name of the service that dead-letters the message, and of its subscription.
        reason: reason of the failure.
        error: reason as text for users, joined to one line and cut.
        max_bytes: maximum of body and headers together in bytes.
    """
    noun, key = _about(message.subject)
    headers = {
        # A redelivery before the acknowledgement arrived results in the same dead letter.
        HEADER_MSG_ID: "/".join((*reader, message.epoch, str(message.sequence))),
        HEADER_REASON: reason,
        HEADER_ERROR: " ".join(error.split())[:_ERROR_MAX],
        HEADER_SUBSCRIPTION: reader[1],
        HEADER_SUBJECT: message.subject,
        HEADER_STREAM: message.stream,
        HEADER_SEQUENCE: str(message.sequence),
        HEADER_DELIVERIES: str(message.deliveries),
        HEADER_HEADERS: orjson.dumps(dict(message.headers)).decode(),
    }
    body = message.body
    excess = len(body) + header_bytes(headers) - max_bytes
    if excess > 0:
        headers[HEADER_TRUNCATED] = str(len(body))
        body = body[: max(0, max_bytes - header_bytes(headers))]
    return DeadLetterMessage(dead_subject(cluster, reader[0], noun, key), body, headers)


def header_bytes(headers: Mapping[str, str]) -> int:
    """Return the size of headers in bytes as NATS counts it: ``NATS/1.0``, one line each, and an empty line."""
    return 12 + sum(len(name.encode()) + len(value.encode()) + 4 for name, value in headers.items())


def _about(subject: str) -> tuple[str, tuple[str, ...]]:
    """Return noun and key from the subject of an event, or ``unknown`` and the raw subject if it is not an event."""
    tokens = subject.removeprefix(f"{ROOT_EVENTS}.").split(".")
    if not subject.startswith(f"{ROOT_EVENTS}.") or len(tokens) < 4:
        return UNKNOWN_NOUN, (subject,)
    return tokens[1], tuple(map(plain, tokens[3:]))
