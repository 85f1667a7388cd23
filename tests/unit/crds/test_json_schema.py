"""JSON Schemas of kinds: strict where the API server drops what it does not know, and never stricter than it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trellis.crds.json_schema import json_schema, make_json_schema, path_of
from trellis.crds.kinds import APPLICATIONS, KINDS
from trellis_tools.crds.generate import differences, schemas

ROOT = Path(__file__).parents[3]
ALL = (*KINDS, APPLICATIONS)


def test_the_committed_schemas_are_the_generated_ones() -> None:
    assert differences(ROOT / "deploy/schemas", schemas()) == []


def test_a_schema_is_where_kubeconform_looks_for_it() -> None:
    assert path_of(APPLICATIONS) == "core.oam.dev/application_v1beta1.json"


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.model.__name__)
def test_nothing_that_only_the_api_server_understands_is_left(kind: object) -> None:
    text = json.dumps(make_json_schema(kind))  # type: ignore[arg-type]
    assert "x-kubernetes" not in text
    assert '"nullable"' not in text


def test_an_unknown_field_is_refused_unless_the_server_preserves_it() -> None:
    node = {"type": "object", "properties": {"a": {"type": "string"}}}
    assert json_schema(node)["additionalProperties"] is False
    kept = node | {"x-kubernetes-preserve-unknown-fields": True}
    assert "additionalProperties" not in json_schema(kept)
    assert json_schema({"type": "object", "x-kubernetes-preserve-unknown-fields": True}) == {"type": "object"}


def test_a_map_keeps_any_key_and_its_values_are_translated() -> None:
    node = {"type": "object", "additionalProperties": {"type": "string", "nullable": True}}
    assert json_schema(node) == {"type": "object", "additionalProperties": {"type": ["string", "null"]}}


@pytest.mark.parametrize(
    ("node", "wanted"),
    [
        pytest.param(
            {"type": "string", "enum": ["a"], "nullable": True},
            {"type": ["string", "null"], "enum": ["a", None]},
            id="a null is one of the choices",
        ),
        pytest.param(
            {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]},
            {"type": ["integer", "string"]},
            id="a number or a text",
        ),
        pytest.param(
            {"type": "number", "minimum": 0, "exclusiveMinimum": True},
            {"type": "number", "exclusiveMinimum": 0},
            id="a bound that is not included",
        ),
        pytest.param(
            {"type": "array", "items": {"type": "object", "properties": {}}, "x-kubernetes-list-type": "set"},
            {"type": "array", "items": {"type": "object", "properties": {}, "additionalProperties": False}},
            id="a list",
        ),
    ],
)
def test_kubernetes_extensions_are_converted_to_json_schema(node: dict[str, object], wanted: dict[str, object]) -> None:
    assert json_schema(node) == wanted
