"""The definitions in deploy/crds are what the code says, and hold every field of the kinds that are taken over."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from trellis.crds.kinds import APPLICATIONS, KINDS, Kind, make_definition
from trellis_tools.crds.generate import KUSTOMIZATION, differences, documents, kustomization

ROOT = Path(__file__).parents[2]
# Of the kinds that are taken over; the others have no former owner.
RECORDED = {
    "Shim": ROOT / "tests/data/crds/shim-fields.csv",
    "WasmCloudHostConfig": ROOT / "tests/data/crds/wasmcloudhostconfig-fields.csv",
}
APPLY_LIMIT_BYTES = 200_000
"""Client-side apply keeps a copy in an annotation, which may have 256 KiB."""

ROWS = [
    pytest.param(kind, row, id=f"{kind.model.__name__}-{row['path']}")
    for kind in KINDS
    if kind.model.__name__ in RECORDED
    for row in csv.DictReader(RECORDED[kind.model.__name__].read_text().splitlines())
]


def schema_at(kind: Kind, path: str) -> tuple[dict[str, Any], bool]:
    """Return the schema at a dotted path, through lists, and whether its parent requires it."""
    node = make_definition(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    required = False
    for name in path.split("."):
        node = node.get("items", node)
        required = name in node.get("required", [])
        node = node["properties"][name]
    return node, required


def type_of(node: dict[str, Any]) -> str:
    if node.get("x-kubernetes-int-or-string"):
        return "integer"
    match node["type"]:
        case "array":
            return f"array<{type_of(node['items'])}>"
        case "object" if "additionalProperties" in node:
            return f"map<{type_of(node['additionalProperties'])}>"
        case plain:
            return f"{plain}({node['format']})" if "format" in node else str(plain)


def test_the_committed_definitions_are_the_generated_ones() -> None:
    chart = ROOT / "deploy/helm/trellis/definitions"
    assert differences(chart, documents() | {KUSTOMIZATION: kustomization()}) == []
    assert differences(ROOT / "deploy/crds", documents()) == []
    plain = ROOT / "deploy/crds"
    assert all((plain / name).resolve() == (chart / name).resolve() for name in documents())


def test_a_definition_that_differs_or_belongs_to_no_kind_is_named(tmp_path: Path) -> None:
    name, text = next(iter(documents().items()))
    (tmp_path / name).write_text(text + "# edited")
    (tmp_path / "old.yaml").write_text("")
    problems = differences(tmp_path, {name: text})
    assert [problem.rpartition("/")[2].partition(":")[0] for problem in problems] == [name, "old.yaml"]


def test_no_definition_that_another_product_has_too_is_applied_along_with_the_others() -> None:
    assert APPLICATIONS not in KINDS
    assert [name for name in documents() if APPLICATIONS.name in name] == [f"applications/{APPLICATIONS.name}.yaml"]


@pytest.mark.parametrize("name", documents())
def test_a_definition_is_small_enough_for_client_side_apply(name: str) -> None:
    assert len(documents()[name].encode()) < APPLY_LIMIT_BYTES


@pytest.mark.parametrize(("kind", "row"), ROWS)
def test_every_recorded_field_is_there_as_it_was(kind: Kind, row: dict[str, str]) -> None:
    node, required = schema_at(kind, row["path"])
    assert type_of(node) + (" nullable" if node.get("nullable") else "") == row["type"]
    assert ("default" in node) == bool(row["default"])
    assert node.get("default") == (yaml.safe_load(row["default"]) if row["default"] else None)
    assert required == (row["required"] == "yes")
    assert node.get("enum", []) == [value for value in row["enum"].split("|") if value]


@pytest.mark.parametrize(
    "kind", [kind for kind in KINDS if kind.model.__name__ in RECORDED], ids=lambda kind: kind.model.__name__
)
def test_no_field_added_by_trellis_is_required_of_objects_made_for_the_former_owner(kind: Kind) -> None:
    recorded = {row.values[1]["path"] for row in ROWS if row.values[0] is kind}
    # What has no recorded children is a type of Kubernetes, with what that requires.
    recorded_inside = {path.rpartition(".")[0] for path in recorded}

    def walk(node: dict[str, Any], path: str) -> list[str]:
        node = node.get("items", node)
        found = []
        for name, child in node.get("properties", {}).items():
            here = f"{path}.{name}".strip(".")
            if name in node.get("required", []) and here not in recorded and path in recorded_inside:
                found.append(here)
            found += walk(child, here)
        return found

    schema = make_definition(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert walk(schema, "") == []


DEFAULT = re.compile(r"\b(?:Default|default|Unset|Required|Deprecated|deprecated|Ignored|ignored)\b")
"""Words for the effect of an omitted field."""


@pytest.mark.parametrize("kind", [*KINDS, APPLICATIONS], ids=lambda kind: kind.model.__name__)
def test_every_optional_field_of_a_spec_describes_its_default(kind: Kind) -> None:
    def walk(node: dict[str, Any], path: str) -> list[str]:
        node = node.get("items", node)
        found = []
        for name, child in node.get("properties", {}).items():
            optional = name not in node.get("required", [])
            if optional and not DEFAULT.search(child.get("description", "")):
                found.append(f"{path}.{name}")
            found += walk(child, f"{path}.{name}")
        return found

    schema = make_definition(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert walk(schema["properties"]["spec"], "spec") == []
