"""Converts events to messages and back: envelope, headers, and the reasons why a message is invalid.

Pure. In: an event, or the body of a message. Out: body and headers, or the event. Called by publisher and subscriber.
Invariant: invalid messages raise one error with a reason (dead letters are listed by reason), and never any other
error.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, TypeVar, cast

from pydantic import ValidationError

from trellis.events.envelope import CONTENT_TYPE, CloudEvent, EventData, RawCloudEvent, event_source, version_of
from trellis.events.subjects import spec_of
from trellis.telemetry import TraceContext, trace_from

HEADER_MSG_ID: Final = "Nats-Msg-Id"
HEADER_TRACEPARENT: Final = "traceparent"
HEADER_TRACESTATE: Final = "tracestate"
_SHOWN_ERRORS: Final = 3

M = TypeVar("M", bound=EventData)


class Reason(StrEnum):
    """The reason for a dead letter."""

    UNPARSEABLE = "Unparseable"
    UNKNOWN_TYPE = "UnknownType"
    WRONG_DATA = "WrongData"
    NO_RESULT = "NoResult"


class UnreadableMessage(Exception):  # noqa: N818 (it describes the message)
    """A message that cannot be parsed as an event."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class NewerVersion(UnreadableMessage):
    """A valid message in a later version of a type that this reader supports."""

    def __init__(self, ce_type: str, known: str) -> None:
        super().__init__(Reason.UNKNOWN_TYPE, f"type {ce_type} is newer than {known}, the latest supported version")
        self.known = known


@dataclass(frozen=True, slots=True)
class Origin:
    """The publisher of events, as in the ``source`` of the envelope."""

    cluster: str
    service: str


def message_id(data: EventData, dedup: str) -> str:
    """Return the message id of an event; two versions of the same event are two messages."""
    return dedup if data.version == 1 else f"{dedup}.v{data.version}"


def compose(
    data: EventData, *, origin: Origin, dedup: str, time: datetime, trace: TraceContext | None
) -> tuple[bytes, dict[str, str]]:
    """Return body and headers of an event: a CloudEvent in JSON, structured mode.

    ``dedup`` is the source of the id and of Nats-Msg-Id.
    """
    dedup = message_id(data, dedup)
    absent = {"traceparent", "tracestate"} if trace is None else set() if trace.tracestate else {"tracestate"}
    event = _envelope(type(data))(
        id=dedup,
        source=event_source(origin.cluster, origin.service),
        type=spec_of(type(data)).type,
        subject="/".join(data.key()),
        time=time,
        traceparent=trace.traceparent if trace else None,
        tracestate=trace.tracestate if trace else None,
        data=data,
    )
    headers = {HEADER_MSG_ID: dedup, "Content-Type": CONTENT_TYPE}
    if trace is not None:
        headers[HEADER_TRACEPARENT] = trace.traceparent
        if trace.tracestate:
            headers[HEADER_TRACESTATE] = trace.tracestate
    return event.model_dump_json(exclude=absent).encode(), headers


@functools.cache
def _envelope(model: type[EventData]) -> type[CloudEvent[Any]]:
    # With a bare CloudEvent pydantic would serialise only the fields of the base class.
    return cast("type[CloudEvent[Any]]", CloudEvent.__class_getitem__(model))


def read(body: bytes, models: Mapping[str, type[M]]) -> tuple[RawCloudEvent, M]:
    """Return the envelope and the event of a message.

    Args:
        body: the message.
        models: the models that are read, by CloudEvents type.

    Raises:
        NewerVersion: the message has a later version of one of these types.
        UnreadableMessage: the message is not a CloudEvent, has another type, or has invalid data.
    """
    try:
        event = RawCloudEvent.model_validate_json(body)
    except ValidationError as error:
        raise UnreadableMessage(Reason.UNPARSEABLE, f"not a CloudEvent: {_first_errors(error)}") from None
    model = models.get(event.type)
    if model is None:
        if (known := _latest_known(event.type, models)) is not None:
            raise NewerVersion(event.type, known)
        raise UnreadableMessage(Reason.UNKNOWN_TYPE, f"type {event.type} is not one of {', '.join(sorted(models))}")
    try:
        return event, model.model_validate(event.data)
    except ValidationError as error:
        raise UnreadableMessage(Reason.WRONG_DATA, f"data of {event.type}: {_first_errors(error)}") from None


def _latest_known(ce_type: str, known: Iterable[str]) -> str | None:
    """Return the latest supported version of a type, or None if the type is not a later version of one."""
    base, version = version_of(ce_type)
    earlier = {found[1]: item for item in known if (found := version_of(item))[0] == base}
    return earlier[max(earlier)] if earlier and version > max(earlier) else None


def trace_of(headers: Mapping[str, str] | None, event: RawCloudEvent) -> TraceContext | None:
    """Return the trace context of the headers, else of the envelope."""
    return trace_from((headers or {}).get(HEADER_TRACEPARENT), (headers or {}).get(HEADER_TRACESTATE)) or trace_from(
        event.traceparent, event.tracestate
    )


def _first_errors(error: ValidationError) -> str:
    """Return the first violations without the values, which may contain anything."""
    errors = error.errors(include_input=False, include_url=False, include_context=False)
    shown = [f"{'.'.join(map(str, item['loc'])) or 'body'}: {item['msg']}" for item in errors[:_SHOWN_ERRORS]]
    if len(errors) > _SHOWN_ERRORS:
        shown.append(f"and {len(errors) - _SHOWN_ERRORS} more")
    return "; ".join(shown)
