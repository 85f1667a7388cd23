"""CloudEvents 1.0 in JSON, structured mode: the envelope of every message on the bus.

In: the data of an event and its source. Out: the published envelope, and back. Called by ``trellis.bus``.
Readers ignore unknown attributes. A type only gains optional fields.
Source: CloudEvents specification 1.0.2, sections 3 and 3.1; the distributed tracing extension.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from datetime import datetime
from typing import Any, ClassVar, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

CONTENT_TYPE = "application/cloudevents+json"
_TYPE = re.compile(r"(.+)\.v([1-9][0-9]*)")


class EventData(BaseModel, ABC):
    """Base class of the data of all events: frozen; ignores fields of newer publishers."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    noun: ClassVar[str]
    event_name: ClassVar[str]
    version: ClassVar[int] = 1

    @abstractmethod
    def key(self) -> tuple[str, ...]:
        """Return the last tokens of the subject: the object of the event, most general name first."""


D = TypeVar("D", bound=BaseModel)


class CloudEvent(BaseModel, Generic[D]):
    """An event: the required CloudEvents attributes, time, trace context and data.

    ``id`` is also the JetStream deduplication ID (``Nats-Msg-Id``); ``subject`` is the unescaped key joined by ``/``.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    specversion: Literal["1.0"] = "1.0"
    id: str = Field(min_length=1)
    source: str = Field(min_length=1)
    type: str = Field(min_length=1)
    subject: str | None = None
    time: datetime
    datacontenttype: Literal["application/json"] = "application/json"
    traceparent: str | None = None
    tracestate: str | None = None
    data: D


RawCloudEvent = CloudEvent[Any]


def event_type(model: type[EventData]) -> str:
    """Return the CloudEvents type of a model: ``dev.trellis.<noun>.<event>.v<version>``."""
    return f"dev.trellis.{model.noun}.{model.event_name}.v{model.version}"


def version_of(ce_type: str) -> tuple[str, int]:
    """Return a CloudEvents type without its version, and the version; 0 if it has none."""
    match = _TYPE.fullmatch(ce_type)
    return (match[1], int(match[2])) if match else (ce_type, 0)


def event_source(cluster: str, service: str) -> str:
    """Return the CloudEvents source: ``/trellis/<cluster>/<service>``."""
    return f"/trellis/{cluster}/{service}"
