"""Generates the event schemas: a JSON Schema for each type and for the envelope, and an AsyncAPI document.

Pure. In: the subject table. Out: documents by file name. Called by ``generate`` and by tests.
Invariant: the documents contain every row of the table, under its CloudEvents type.
Source: JSON Schema 2020-12; AsyncAPI 3.0.0.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, Final

from trellis.events.envelope import CONTENT_TYPE, CloudEvent, RawCloudEvent
from trellis.events.subjects import EVENT_SPECS, ROOT_EVENTS, EventSpec

Document = dict[str, Any]

ENVELOPE_FILE: Final = "cloudevent.json"
ASYNCAPI_FILE: Final = "asyncapi.json"
_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_HEADERS: Final = {
    "type": "object",
    "properties": {
        "Nats-Msg-Id": {"type": "string", "description": "ID of the event; JetStream discards duplicates within 120 s"},
        "Content-Type": {"const": CONTENT_TYPE},
        "traceparent": {"type": "string", "description": "W3C trace context, as in the event"},
        "tracestate": {"type": "string", "description": "W3C trace context, as in the event"},
    },
    "required": ["Nats-Msg-Id", "Content-Type"],
}


def schema_file(spec: EventSpec) -> str:
    """Return the file name of the schema of an event."""
    return f"{spec.type}.json"


def documents(specs: Sequence[EventSpec] = EVENT_SPECS) -> dict[str, Document]:
    """Return all documents by file name."""
    return {
        ENVELOPE_FILE: envelope_schema(),
        **{schema_file(spec): event_schema(spec) for spec in specs},
        ASYNCAPI_FILE: asyncapi(specs),
    }


def envelope_schema() -> Document:
    """Return the schema of the envelope, without the schema of ``data``."""
    schema = RawCloudEvent.model_json_schema()
    title = "CloudEvent 1.0 in JSON, structured mode, with the distributed tracing extension"
    return {"$schema": _DIALECT, **schema, "title": title, "description": summary(CloudEvent)}


def event_schema(spec: EventSpec) -> Document:
    """Return the schema of the data of an event."""
    return {
        "$schema": _DIALECT,
        **spec.model.model_json_schema(),
        "title": spec.type,
        "description": summary(spec.model),
    }


def asyncapi(specs: Sequence[EventSpec] = EVENT_SPECS) -> Document:
    """Return the AsyncAPI document: a channel for each event, and the only service that sends on it."""
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Trellis events",
            "version": "1",
            "description": "Events on the NATS JetStream bus. A type only ever gains optional fields.",
        },
        "defaultContentType": CONTENT_TYPE,
        "channels": {spec.tokens: _channel(spec) for spec in specs},
        "operations": {f"{spec.owner}.{spec.tokens}": _operation(spec) for spec in specs},
        "components": {"schemas": {"headers": _HEADERS}},
    }


def _channel(spec: EventSpec) -> Document:
    payload = {
        "allOf": [
            {"$ref": f"./{ENVELOPE_FILE}"},
            {"properties": {"type": {"const": spec.type}, "data": {"$ref": f"./{schema_file(spec)}"}}},
        ]
    }
    message = {
        "name": spec.type,
        "contentType": CONTENT_TYPE,
        "headers": {"$ref": "#/components/schemas/headers"},
        "payload": payload,
    }
    return {
        "address": address(spec),
        "description": summary(spec.model),
        "parameters": {
            "cluster": {"description": "Name of the cluster, escaped to one token"},
            **{
                name: {"description": f"{spec.model.model_fields[name].description}, escaped to one token"}
                for name in spec.key_fields
            },
        },
        "messages": {spec.type: message},
        "x-stream": spec.stream,
    }


def address(spec: EventSpec) -> str:
    """Return the subject of an event with its parameters: ``trellis.evt.{cluster}.node.gone.{name}``."""
    return ".".join((ROOT_EVENTS, "{cluster}", spec.tokens, *(f"{{{name}}}" for name in spec.key_fields)))


def _operation(spec: EventSpec) -> Document:
    return {"action": "send", "channel": {"$ref": f"#/channels/{spec.tokens}"}, "tags": [{"name": spec.owner}]}


def summary(model: type) -> str:
    """Return the first paragraph of a model's docstring on one line."""
    return inspect.cleandoc(model.__doc__ or "").split("\n\n")[0].replace("\n", " ")
