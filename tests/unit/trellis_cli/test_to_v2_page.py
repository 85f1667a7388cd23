"""The example of the page on wasmCloud v2 is what the conversion does, and its tables name what exists."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from support.lattices.v2_objects import errors_of
from support.suite.commands import expect_command
from trellis_cli.migrate.model.to_v2.convert import Source, convert
from trellis_cli.migrate.model.to_v2.report import Reason

PAGE = (Path(__file__).parents[3] / "docs/migration/wasmcloud-v2.md").read_text()
ROWS = re.compile(r"^\| `([^`]+)` \| `([A-Za-z0-9]+)` \| ([a-z0-9, ]*) \|$", re.MULTILINE)


def block(name: str) -> str:
    [found] = re.findall(rf"^```yaml {name}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    return str(found)


def test_the_example_has_the_output_and_the_report_of_the_page() -> None:
    application = yaml.safe_load(block("v1"))
    found = convert(Source(application, "shop", application["metadata"]["namespace"]))
    assert list(found.objects) == list(yaml.safe_load_all(block("v2")))
    assert [error for item in found.objects for error in errors_of(item)] == []
    told = [(line.part, line.reason.value, ", ".join(line.ways)) for line in found.lines]
    assert ROWS.findall(PAGE) == told


def test_every_reason_of_the_page_exists() -> None:
    table = PAGE.partition("## Parts that are reported")[2].partition("\n## ")[0]
    named = set(
        re.findall(r"`([A-Z][A-Za-z0-9]+)`", "\n".join(row.split("|")[2] for row in table.splitlines() if "|" in row))
    )
    assert named
    assert named <= set(Reason)


def test_every_command_of_the_page_exists() -> None:
    lines = set(re.findall(r"^ *trellis (migrate .+)$", PAGE, re.MULTILINE))
    assert len(lines) == 3
    for line in lines:
        expect_command(line)
