"""The JSON Schema of a kind, as kubeconform and editors read it: what the API server takes, without a cluster.

Pure. In: a kind. Out: a schema (draft 7), and the path that tools look for it by. Called by ``generate`` and tests.
Invariant: whatever the schema refuses the API server refuses, too, or drops (fields that nobody knows). The reverse
does not hold: rules over several fields (CEL), lists as maps, and metadata are the API server's own to check.
"""

from __future__ import annotations

from typing import Any, Final

from trellis.crds.api import KUBERNETES
from trellis.crds.kinds import Kind, make_definition

Schema = dict[str, Any]

_DRAFT: Final = "http://json-schema.org/draft-07/schema#"
_INT_OR_STRING: Final = f"{KUBERNETES}int-or-string"
_OPEN: Final = f"{KUBERNETES}preserve-unknown-fields"
_EXCLUSIVE: Final = {"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"}


def path_of(kind: Kind) -> str:
    """Return ``<group>/<kind>_<version>.json``: what kubeconform asks of a catalogue of definitions."""
    return f"{kind.group}/{kind.model.__name__.lower()}_{kind.version}.json"


def make_json_schema(kind: Kind) -> Schema:
    """Return the schema of whole objects of a kind; a field that the kind does not have is refused."""
    definition = make_definition(kind)["spec"]["versions"][0]
    schema = json_schema(definition["schema"]["openAPIV3Schema"])
    schema["properties"] |= {
        "apiVersion": {"type": "string", "enum": [f"{kind.group}/{kind.version}"]},
        "kind": {"type": "string", "enum": [kind.model.__name__]},
    }
    schema["required"] = sorted({"apiVersion", "kind", "metadata", *schema.get("required", ())})
    return {"$schema": _DRAFT, "title": kind.model.__name__, **schema}


def json_schema(node: Schema) -> Schema:
    """Return a structural schema in the words of JSON Schema.

    ``nullable`` becomes a type besides, int-or-string a choice of two, exclusive bounds numbers; fields that are not
    named are refused, unless the server keeps them; what only the API server understands is left out.
    """
    out = {key: value for key, value in node.items() if not key.startswith(KUBERNETES) and key != "nullable"}
    for exclusive, inclusive in _EXCLUSIVE.items():
        if out.pop(exclusive, False):
            out[exclusive] = out.pop(inclusive)
    if node.get(_INT_OR_STRING):
        out.pop("anyOf", None)
        out["type"] = ["integer", "string"]
    if "items" in node:
        out["items"] = json_schema(node["items"])
    if isinstance(node.get("additionalProperties"), dict):
        out["additionalProperties"] = json_schema(node["additionalProperties"])
    if "properties" in node:
        out["properties"] = {name: json_schema(child) for name, child in node["properties"].items()}
        if not node.get(_OPEN):
            out["additionalProperties"] = False
    return _nullable(out) if node.get("nullable") else out


def _nullable(node: Schema) -> Schema:
    types = node["type"] if isinstance(node["type"], list) else [node["type"]]
    allowed = {"enum": [*node["enum"], None]} if "enum" in node else {}
    return node | {"type": [*types, "null"]} | allowed
