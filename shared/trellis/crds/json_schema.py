"""The JSON Schema of a kind for kubeconform and editors: validation without a cluster.

Pure. In: a kind. Out: a schema (draft 7), and the path at which tools read it. Called by ``generate`` and tests.
Invariant: the API server rejects everything that the schema rejects, or prunes it (unknown fields). The reverse does
not hold: only the API server checks rules over several fields (CEL), lists as maps, and metadata.
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
    """Return ``<group>/<kind>_<version>.json``, the path that kubeconform reads in a catalogue of CRD schemas."""
    return f"{kind.group}/{kind.model.__name__.lower()}_{kind.version}.json"


def make_json_schema(kind: Kind) -> Schema:
    """Return the schema of whole objects of a kind; unknown fields are rejected."""
    definition = make_definition(kind)["spec"]["versions"][0]
    schema = json_schema(definition["schema"]["openAPIV3Schema"])
    schema["properties"] |= {
        "apiVersion": {"type": "string", "enum": [f"{kind.group}/{kind.version}"]},
        "kind": {"type": "string", "enum": [kind.model.__name__]},
    }
    schema["required"] = sorted({"apiVersion", "kind", "metadata", *schema.get("required", ())})
    return {"$schema": _DRAFT, "title": kind.model.__name__, **schema}


def json_schema(node: Schema) -> Schema:
    """Return a structural schema as JSON Schema.

    ``nullable`` becomes an additional type, int-or-string a choice of two, exclusive bounds numbers; unknown fields are
    rejected unless the server preserves them; extensions of the API server are omitted.
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
