"""Writes the page of events: each with its subject, publisher, subscribers, fields and an example.

Pure. In: the subject table, and what services subscribe to. Out: a page. Called by ``__main__``.
Invariant: an example is valid against the schema of its type; its values are derived from the types of the fields.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from trellis.events.subjects import EVENT_SPECS, EventSpec
from trellis_tools.events.schemas import address, event_schema, schema_file, summary
from trellis_tools.reference.markdown import GENERATED, cell, code, table

Subscribers = Mapping[str, Sequence[str]]
"""Subscribed services by event type."""

_TIME: Final = "2026-11-22T12:00:00Z"
_SAMPLES: Final = {
    "name": "web",
    "namespace": "shop",
    "node": "node-1",
    "uid": "6f1c9a0e-5a43-4c0f-9a37-2f3a0d6c1b11",
    "resource_version": "4711",
    "lattice": "default",
}
_INTRODUCTION: Final = """# Events

The events that services publish to the stream `TRELLIS_EVENTS`. Each is a CloudEvent; the tables describe its `data`.
[Subscribe to events](../bus.md) describes subscriptions and guarantees. A machine-readable description is
[AsyncAPI](../../deploy/events/asyncapi.json).

An event is a hint: services read the object before they act on an event. Events without subscribed services are for
users, audits and automation.
"""


def events_page(subscribers: Subscribers) -> str:
    """Return the page."""
    rows = [
        (
            f"[{code(spec.tokens)}](#{anchor(spec)})",
            cell(summary(spec.model)),
            code(spec.owner),
            _subscribers(spec, subscribers),
        )
        for spec in EVENT_SPECS
    ]
    head = table(("event", "description", "publisher", "subscribers"), rows)
    return "\n".join([GENERATED, _INTRODUCTION, head, *(_event(spec, subscribers) for spec in EVENT_SPECS)])


def anchor(spec: EventSpec) -> str:
    """Return the anchor of the heading of an event."""
    return spec.tokens.replace(".", "-").replace("_", "-")


def example(spec: EventSpec) -> dict[str, Any]:
    """Return example data of an event without optional nullable fields."""
    schema = event_schema(spec)
    definitions = schema.get("$defs", {})
    required = schema.get("required", ())
    return {
        name: _sample(name, item, definitions)
        for name, item in schema["properties"].items()
        if name in required or "default" not in item or item["default"] is not None
    }


def _event(spec: EventSpec, subscribers: Subscribers) -> str:
    schema = event_schema(spec)
    required = schema.get("required", ())
    rows = [
        (code(name), _type(item), "yes" if name in required else "", cell(str(item.get("description", ""))))
        for name, item in schema["properties"].items()
    ]
    subject = address(spec).replace("{", "<").replace("}", ">")
    type_link = f"[{code(spec.type)}](../../deploy/events/{schema_file(spec)})"
    about = table(
        ("", ""),
        [
            ("subject", code(subject)),
            ("type and schema", type_link),
            ("publisher", code(spec.owner)),
            ("subscribers", _subscribers(spec, subscribers)),
        ],
    )
    fields = table(("field", "type", "required", "description"), rows)
    shown = json.dumps(example(spec), indent=2, ensure_ascii=False)
    return (
        f"## {spec.tokens} {{#{anchor(spec)}}}\n\n{summary(spec.model)}\n\n{about}\n{fields}\n```json\n{shown}\n```\n"
    )


def _subscribers(spec: EventSpec, subscribers: Subscribers) -> str:
    return ", ".join(code(service) for service in subscribers.get(spec.type, ())) or "none"


def _type(schema: Mapping[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(_type(item) for item in schema["anyOf"])
    if "$ref" in schema:
        return code(str(schema["$ref"]).rsplit("/", 1)[-1])
    if "const" in schema:
        return code(str(schema["const"]))
    if "enum" in schema:
        return "one of " + ", ".join(code(str(item)) for item in schema["enum"])
    found = str(schema.get("type", "any"))
    if found == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if found == "object" and isinstance(values := schema.get("additionalProperties"), Mapping):
        return f"map of {_type(values)}"
    return found


def _sample(name: str, schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Any:  # noqa: ANN401 (JSON)
    if "$ref" in schema:
        schema = definitions[str(schema["$ref"]).rsplit("/", 1)[-1]]
    if "anyOf" in schema:
        return _sample(name, schema["anyOf"][0], definitions)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0]
    match schema.get("type"):
        case "integer" | "number":
            return schema.get("minimum", 1)
        case "boolean":
            return True
        case "array":
            return [_sample(name.removesuffix("s"), schema["items"], definitions)] if "items" in schema else []
        case "object" if "properties" in schema:
            return {item: _sample(item, found, definitions) for item, found in schema["properties"].items()}
        case "object":
            return {}
        case _:
            return _TIME if schema.get("format") == "date-time" else _SAMPLES.get(name, name.replace("_", "-"))
