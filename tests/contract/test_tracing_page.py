"""The flows of docs/tracing.md are those that tests find in Jaeger; its commands exist."""

from __future__ import annotations

import re

import pytest

from support.examples.flows import FLOWS
from support.suite.commands import expect_command
from support.suite.pages import DOCS
from trellis import names
from trellis.telemetry.timings import TelemetryTimings
from trellis.telemetry.trace_spans import MERGED
from trellis.telemetry.tracing import MOST_BESIDE
from trellis_cli.trace.command import KINDS

TEXT = (DOCS / "tracing.md").read_text()
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", TEXT, re.DOTALL | re.MULTILINE))
Row = tuple[str, str, str, bool]


def rows(section: str) -> list[Row]:
    """Return the rows of a flow's table: span, service, parent, whether it may be missing."""
    found = re.findall(r"^\| `(.+?)` \| `(.+?)` \| (?:`(.+?)`)? ?\| (not always)? ?\|$", section, re.MULTILINE)
    return [(span, service, parent, bool(may)) for span, service, parent, may in found]


@pytest.mark.parametrize("flow", FLOWS)
def test_a_flow_has_the_spans_of_its_table(flow: str) -> None:
    assert rows(SECTIONS[flow]) == [(edge.name, edge.service, edge.parent, edge.may) for edge in FLOWS[flow]]


def test_every_table_is_a_flow() -> None:
    assert {title for title, section in SECTIONS.items() if rows(section)} == set(FLOWS)


@pytest.mark.parametrize("flow", FLOWS)
def test_every_parent_is_a_span_of_its_flow(flow: str) -> None:
    spans = {edge.name for edge in FLOWS[flow]}
    assert {edge.parent for edge in FLOWS[flow]} - {""} <= spans


def test_its_commands_exist_and_its_kinds_are_all() -> None:
    block = re.search(r"```sh\n(.*?)```", TEXT, re.DOTALL)
    assert block is not None
    for line in block[1].splitlines():
        expect_command(line.removeprefix("trellis "))
    kinds = re.search(r"`KIND` is (.*?)\.", TEXT, re.DOTALL)
    assert kinds is not None
    assert re.findall(r"`(\w+)`", kinds[1]) == list(KINDS)


def test_its_words_and_figures_are_those_of_the_code() -> None:
    assert f"`{names.ANNOTATION_TRACEPARENT}`" in TEXT
    assert f"a span `{MERGED}`" in TEXT
    assert (TelemetryTimings().trace_idle, MOST_BESIDE) == (600, 8), "ten minutes, eight causes: the page says so"
