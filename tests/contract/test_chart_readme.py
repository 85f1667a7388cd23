"""Each value of the chart has a description, which README and schema repeat; comments are read as by helm-docs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.suite.naming import lacking
from trellis_tools.chart import SCHEMA, VALUES
from trellis_tools.chart_readme import CHART, README, document, main
from trellis_tools.chart_values import Keys, Value, descriptions_of, values_of

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / VALUES).read_text()
ROWS = values_of(TEXT)
COMMENTED = """\
# -- Mode, `services` or
# `bundle`.
mode: services

# About a map.
image:
  # An example of tag:
  #   tag: v1
  # -- Tag of the image.
  tag: ""
  digest: ""
pods:
  # -- Requests and limits.
  resources:
    limits: {memory: 1Gi}
  labels: {app: x}
"""


def properties(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the properties of a schema at all depths, also those of items of lists."""
    for name, found in schema.get("properties", {}).items():
        yield f"{path}{name}", found
        yield from properties(found, f"{path}{name}.")
        yield from properties(found.get("items", {}), f"{path}{name}[].")


PROPERTIES = dict(properties(json.loads((ROOT / SCHEMA).read_text())))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: ".".join(row.keys))
def test_every_value_has_a_description(row: Value) -> None:
    assert row.description, "a comment above the key that begins with `# --`"


@pytest.mark.parametrize("name", PROPERTIES)
def test_every_property_of_the_schema_has_a_description(name: str) -> None:
    assert PROPERTIES[name].get("description")


@pytest.mark.parametrize("keys", descriptions_of(TEXT), ids=".".join)
def test_a_description_of_the_schema_is_that_of_the_values(keys: Keys) -> None:
    assert PROPERTIES[".".join(keys)]["description"] == descriptions_of(TEXT)[keys]


def test_the_committed_readme_is_the_generated_one() -> None:
    assert (ROOT / README).read_text() == document(ROOT), "run make generate"
    assert main(["--check", str(ROOT)]) == 0


def test_the_readme_has_a_row_for_each_value() -> None:
    lines = (ROOT / README).read_text().splitlines()
    assert [line.split("`")[1] for line in lines if line.startswith("| `")] == [".".join(row.keys) for row in ROWS]


def test_comments_are_read_as_by_helm_docs() -> None:
    assert values_of(COMMENTED) == [
        Value(("mode",), "string", '"services"', "Mode, `services` or `bundle`."),
        Value(("image", "tag"), "string", '""', "Tag of the image."),
        Value(("image", "digest"), "string", '""', ""),
        Value(("pods", "resources"), "object", '{"limits": {"memory": "1Gi"}}', "Requests and limits."),
        Value(("pods", "labels"), "object", '{"app": "x"}', ""),
    ]


def test_a_map_is_described_by_any_comment_above_it() -> None:
    assert descriptions_of(COMMENTED)["image",] == "About a map."
    assert ("pods",) not in descriptions_of(COMMENTED)


def test_a_readme_that_differs_is_found_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / CHART).mkdir(parents=True)
    for name in ("Chart.yaml", "values.yaml"):
        (tmp_path / CHART / name).write_text((ROOT / CHART / name).read_text())
    assert main(["--check", str(tmp_path)]) == 1
    assert lacking(capsys.readouterr().err, str(README)) == []
    assert main([str(tmp_path)]) == 0
    assert main(["--check", str(tmp_path)]) == 0
