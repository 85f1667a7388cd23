"""A page for each kind: every field with its type, default, limits and description, and the validation rules.

Pure. In: a CRD (apiextensions.k8s.io/v1). Out: a page. Called by ``__main__``.
Invariant: each property of the schema has one row, by its path: ``.spec.list[].field``, ``.spec.map.<key>``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from trellis_tools.reference.markdown import GENERATED, cell, code, table

Schema = Mapping[str, Any]

_LIMITS: Final = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "minProperties": "at least {} entries",
    "maxProperties": "at most {} entries",
}
_NOT_EMPTY: Final = frozenset({("minLength", 1), ("minItems", 1), ("minProperties", 1)})
_RULES: Final = "x-kubernetes-validations"
_FREE: Final = "x-kubernetes-preserve-unknown-fields"
_INT_OR_STRING: Final = "x-kubernetes-int-or-string"


@dataclass(frozen=True, slots=True)
class Property:
    """A field by its path; ``required``: mandatory if its parent is set."""

    path: str
    schema: Schema
    required: bool


def kind_page(definition: Schema) -> str:
    """Return the page of a kind."""
    spec = definition["spec"]
    [version] = spec["versions"]
    root = version["schema"]["openAPIV3Schema"]
    names = spec["names"]
    parts = [
        GENERATED,
        f"# {names['kind']}\n",
        f"{_prose(root)}\n",
        _summary(spec, version),
    ]
    for title in ("spec", "status"):
        if title in root["properties"]:
            found = list(properties(root["properties"][title], f".{title}"))
            rows = [_row(item) for item in found]
            parts.append(f"## {title.capitalize()}\n\n{table(('field', 'type', 'default', 'meaning'), rows)}")
    if rules := sorted(set(_rules(root))):
        parts.append("## Validation rules\n\n" + "".join(f"- {cell(rule)}\n" for rule in rules))
    return "\n".join(parts)


def properties(schema: Schema, at: str) -> Iterator[Property]:
    """Yield the properties below a schema, each parent before its children."""
    required = schema.get("required", ())
    for name, child in sorted(schema.get("properties", {}).items(), key=lambda item: item[0] not in required):
        yield Property(f"{at}.{name}", child, name in required)
        yield from properties(child, f"{at}.{name}")
    if "items" in schema:
        yield from properties(schema["items"], f"{at}[]")
    if isinstance(values := schema.get("additionalProperties"), Mapping):
        yield from properties(values, f"{at}.<key>")


def _summary(spec: Schema, version: Schema) -> str:
    names = spec["names"]
    short = ", ".join(names.get("shortNames", ()))
    rows = [
        ("API version", code(f"{spec['group']}/{version['name']}")),
        ("scope", "namespace" if spec["scope"] == "Namespaced" else "cluster"),
        ("`kubectl get`", code(f"{names['plural']}.{spec['group']}") + (f", {code(short)}" if short else "")),
    ]
    if scale := version.get("subresources", {}).get("scale"):
        rows.append(("`kubectl scale`", f"sets {code(scale['specReplicasPath'])}"))
    return table(("", ""), rows)


def _row(found: Property) -> tuple[str, str, str, str]:
    schema = found.schema
    default = code(json.dumps(schema["default"], ensure_ascii=False)) if "default" in schema else ""
    meaning = [cell(_prose(schema)), *_limits(schema)]
    return (
        code(found.path),
        _type(schema),
        "**required**" if found.required else default,
        "; ".join(filter(None, meaning)),
    )


def _prose(schema: Schema) -> str:
    return str(schema.get("description", "")).strip().removesuffix(".")


def _type(schema: Schema) -> str:
    if schema.get(_INT_OR_STRING):
        return "integer or string"
    found = str(schema.get("type", "any"))
    if found == "array":
        return f"list of {_type(schema['items'])}"
    if found == "object" and isinstance(values := schema.get("additionalProperties"), Mapping):
        return f"map of {_type(values)}"
    if found == "object" and schema.get(_FREE) and "properties" not in schema:
        return "object, kept as it is"
    return found


def _limits(schema: Schema) -> Iterator[str]:
    if "enum" in schema:
        yield "one of " + ", ".join(code(str(value)) for value in schema["enum"] if value is not None)
    for name, text in _LIMITS.items():
        if name in schema:
            yield "not empty" if (name, schema[name]) in _NOT_EMPTY else text.format(schema[name])
    if "pattern" in schema:
        yield f"like {code(schema['pattern'])}"
    if schema.get("nullable"):
        yield "may be `null`"


def _rules(schema: Schema) -> Iterator[str]:
    for rule in schema.get(_RULES, ()):
        yield str(rule.get("message") or rule.get("messageExpression") or rule["rule"])
    for child in (*schema.get("properties", {}).values(), schema.get("items"), schema.get("additionalProperties")):
        if isinstance(child, Mapping):
            yield from _rules(child)
