"""The catalogue of facts: of each its subject, who says it, who acts on it, its fields and an example.

Pure. In: the subject table, and what services subscribe to. Out: a page. Called by ``__main__``.
Invariant: an example is an event that the schema of its type takes; its values are made up by the fields' types.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from trellis.events.subjects import FACTS, FactSpec
from trellis_tools.events.schemas import address, fact_schema, schema_file, summary
from trellis_tools.reference.markdown import GENERATED, cell, code, table

Hears = Mapping[str, Sequence[str]]
"""Services by the type of the facts that they act on."""

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

Every fact that a service says, on the stream `TRELLIS_EVENTS`. [The bus, from outside](../bus.md) tells how to hear
them and what is promised. Each is a CloudEvent; here stands its `data`. For machines:
[AsyncAPI](../../deploy/events/asyncapi.json).

Who acts on a fact reads the object first: a fact is a hint. Where nobody acts on one, it is for people, audits and
automation of yours.
"""


def facts_page(hears: Hears) -> str:
    """Return the catalogue."""
    rows = [
        (f"[{code(spec.tokens)}](#{anchor(spec)})", cell(summary(spec.model)), code(spec.owner), _heard(spec, hears))
        for spec in FACTS
    ]
    head = table(("fact", "what happened", "said by", "acted on by"), rows)
    return "\n".join([GENERATED, _INTRODUCTION, head, *(_fact(spec, hears) for spec in FACTS)])


def anchor(spec: FactSpec) -> str:
    """Return the anchor of a fact's heading."""
    return spec.tokens.replace(".", "-").replace("_", "-")


def example(spec: FactSpec) -> dict[str, Any]:
    """Return data as that fact may carry; optional fields that may be null are left out."""
    schema = fact_schema(spec)
    definitions = schema.get("$defs", {})
    required = schema.get("required", ())
    return {
        name: _sample(name, one, definitions)
        for name, one in schema["properties"].items()
        if name in required or "default" not in one or one["default"] is not None
    }


def _fact(spec: FactSpec, hears: Hears) -> str:
    schema = fact_schema(spec)
    required = schema.get("required", ())
    rows = [
        (code(name), _type(one), "yes" if name in required else "", cell(str(one.get("description", ""))))
        for name, one in schema["properties"].items()
    ]
    subject = address(spec).replace("{", "<").replace("}", ">")
    type_link = f"[{code(spec.type)}](../../deploy/events/{schema_file(spec)})"
    about = table(
        ("", ""),
        [
            ("subject", code(subject)),
            ("type and schema", type_link),
            ("said by", code(spec.owner)),
            ("acted on by", _heard(spec, hears)),
        ],
    )
    fields = table(("field", "type", "always there", "meaning"), rows)
    shown = json.dumps(example(spec), indent=2, ensure_ascii=False)
    return (
        f"## {spec.tokens} {{#{anchor(spec)}}}\n\n{summary(spec.model)}\n\n{about}\n{fields}\n```json\n{shown}\n```\n"
    )


def _heard(spec: FactSpec, hears: Hears) -> str:
    return ", ".join(code(service) for service in hears.get(spec.type, ())) or "nobody of Trellis"


def _type(schema: Mapping[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(_type(one) for one in schema["anyOf"])
    if "$ref" in schema:
        return code(str(schema["$ref"]).rsplit("/", 1)[-1])
    if "const" in schema:
        return code(str(schema["const"]))
    if "enum" in schema:
        return "one of " + ", ".join(code(str(one)) for one in schema["enum"])
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
            return {one: _sample(one, found, definitions) for one, found in schema["properties"].items()}
        case "object":
            return {}
        case _:
            return _TIME if schema.get("format") == "date-time" else _SAMPLES.get(name, name.replace("_", "-"))
