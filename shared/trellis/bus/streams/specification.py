"""Annotations of subscriptions for the AsyncAPI generator of FastStream.

In: the models of a subscription, and the broker with which it is registered. Out: an annotation for the handler that
FastStream calls, and its document. Called by ``subscriber`` and by the test that compares the document with the subject
table. Invariant: a message has the name of its CloudEvents type, and its payload is the envelope of that type. Without
the annotation the generator fails, because the handler accepts raw messages.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any, Final, Literal, Union, cast

from faststream.nats import NatsBroker
from faststream.specification import AsyncAPI
from pydantic import create_model

from trellis.events.envelope import CloudEvent, EventData
from trellis.events.subjects import spec_of

_ASYNCAPI: Final = "3.0.0"


def payload_of(models: Iterable[type[EventData]]) -> Any:  # noqa: ANN401 (a type made at run time)
    """Return the type of the messages with events of these models."""
    return Union[tuple(_message(model) for model in models)]  # noqa: UP007 (of a tuple)


def asyncapi_of(broker: NatsBroker) -> dict[str, Any]:
    """Return FastStream's AsyncAPI document of the subscriptions of a broker; needs no connection."""
    document: dict[str, Any] = AsyncAPI(broker, schema_version=_ASYNCAPI).to_specification().to_jsonable()
    return document


@functools.cache
def _message(model: type[EventData]) -> type[CloudEvent[Any]]:
    ce_type = spec_of(model).type
    base = cast("type[CloudEvent[Any]]", CloudEvent.__class_getitem__(model))
    fields: dict[str, Any] = {"type": (Literal[ce_type], ...)}
    return create_model(ce_type, __base__=base, **fields)
