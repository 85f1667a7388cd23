"""The examples of the page on wasmCloud v2 are what the conversion does, and its tables name what exists."""

from __future__ import annotations

import re

from support.lattices.v2_objects import errors_of
from support.suite.commands import expect_command
from support.wadm.migration_page import PAGE, manifests
from trellis_cli.migrate.model.to_v2.convert import Environment, Source, convert
from trellis_cli.migrate.model.to_v2.report import Reason

ROWS = re.compile(r"^\| `([^`]+)` \| `([A-Za-z0-9]+)` \| ([a-z0-9, ]*) \|$", re.MULTILINE)
ROWS_OF_BOTH = re.compile(r"^\| `([a-z]+)` \| `([^`]+)` \| `([A-Za-z0-9]+)` \| ([a-z0-9, ]*) \|$", re.MULTILINE)


def test_the_example_has_the_output_and_the_report_of_the_page() -> None:
    applications = {item["metadata"]["name"]: item for item in manifests("applications")}
    environment = Environment(reflected=frozenset(applications))
    found = [convert(Source(applications[name], name, "web"), environment) for name in sorted(applications)]
    objects = [item for conversion in found for item in conversion.objects]
    assert objects == manifests("objects")
    assert [error for item in objects for error in errors_of(item)] == []
    found_lines = [
        (conversion.application, line.part, line.reason.value, ", ".join(line.ways))
        for conversion in found
        for line in conversion.lines
    ]
    assert ROWS_OF_BOTH.findall(PAGE) == found_lines


def test_the_example_with_losses_has_the_output_and_the_report_of_the_page() -> None:
    [application] = manifests("v1")
    found = convert(Source(application, "shop", application["metadata"]["namespace"]))
    assert list(found.objects) == manifests("v2")
    assert [error for item in found.objects for error in errors_of(item)] == []
    found_lines = [(line.part, line.reason.value, ", ".join(line.ways)) for line in found.lines]
    assert ROWS.findall(PAGE) == found_lines


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
