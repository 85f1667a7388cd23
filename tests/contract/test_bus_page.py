"""docs/bus.md matches the code; tests/integration/bus/test_page.py runs its programs."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.suite.naming import lacking
from support.suite.pages import BUS_PAGE, Block, blocks, table
from trellis.bus.streams.streams import DEFAULT_LIMITS
from trellis.events.envelope import RawCloudEvent
from trellis.events.subjects import STREAM_SUBJECTS, escape, event_subject, spec_of_type
from trellis.telemetry import trace_from
from trellis_tools.events.table import BEGIN, END, main, with_table

DAY, MIB = 86_400, 1024 * 1024
RUN_ELSEWHERE: set[Block] = {
    ("sh", "tail"),
    ("sh", "nats-live"),
    ("sh", "nats-past"),
    ("python", "live"),
    ("python", "past"),
    ("go", "live"),
    ("go", "past"),
}
CHECKED_HERE: set[Block] = {("json", "event"), ("python", "escaping")}


def test_every_block_is_run_or_checked() -> None:
    assert set(blocks(BUS_PAGE)) == RUN_ELSEWHERE | CHECKED_HERE


def test_the_table_of_events_is_the_generated_one() -> None:
    assert with_table(BUS_PAGE.read_text(), "../deploy/events") == BUS_PAGE.read_text()


def test_a_table_that_is_out_of_date_fails_the_check_and_is_rewritten(
    tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    assert main(["--check", str(page)]) == 1
    assert "run make generate" in capsys.readouterr().err
    assert main([str(page)]) == 0
    assert main(["--check", str(page)]) == 0
    assert page.read_text().startswith(f"before\n{BEGIN}\n| subject |")
    assert page.read_text().endswith(f"{END}\nafter\n")


def test_a_page_without_a_place_for_the_table_is_named(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"{END} {BEGIN}")
    assert main([str(page)]) == 1
    assert lacking(capsys.readouterr().err, str(page)) == []


def test_the_event_on_the_page_has_all_its_fields_and_the_subject_on_the_page() -> None:
    event = RawCloudEvent.model_validate_json(blocks(BUS_PAGE)["json", "event"])
    spec = spec_of_type(event.type)
    assert spec is not None
    assert set(event.data) == set(spec.model.model_fields)
    event_data = spec.model.model_validate(event.data)
    cluster, service = event.source.removeprefix("/trellis/").split("/")
    assert service == spec.owner
    assert event.subject == "/".join(event_data.key())
    assert f"`{event_subject(cluster, event_data)}`" in BUS_PAGE.read_text()
    assert set(json.loads(blocks(BUS_PAGE)["json", "event"])) == set(RawCloudEvent.model_fields) - {"tracestate"}
    trace = trace_from(event.traceparent)
    assert trace is not None
    assert f"`{trace.traceparent.split('-')[1]}`" in BUS_PAGE.read_text()


def test_the_streams_keep_events_as_long_as_the_page_documents() -> None:
    documented = {row[0].strip("`"): (row[1].strip("`"), row[2]) for row in table(BUS_PAGE, "stream")}

    def size(limit: int) -> str:
        return f"{limit // MIB // 1024} GiB" if limit >= 1024 * MIB else f"{limit // MIB} MiB"

    assert documented == {
        name: (subject, f"{DEFAULT_LIMITS[name].max_age / DAY:g} days, {size(DEFAULT_LIMITS[name].max_bytes)}")
        for name, subject in STREAM_SUBJECTS.items()
    }


@pytest.fixture(scope="module")
def escaping() -> dict[str, Any]:
    defined: dict[str, Any] = {}
    exec(blocks(BUS_PAGE)["python", "escaping"], defined)
    return defined


@given(name=st.text(st.characters(exclude_categories=["Cs"])))
def test_its_escaping_is_that_of_trellis(escaping: dict[str, Any], name: str) -> None:
    assert escaping["to_token"](name) == escape(name)
    assert escaping["to_name"](escape(name)) == name


def test_it_names_only_streams_that_exist() -> None:
    named = set(re.findall(r"TRELLIS_[A-Z_]+", BUS_PAGE.read_text()))
    assert named - set(STREAM_SUBJECTS) == {"TRELLIS_CLUSTER", "TRELLIS_OTLP_ENDPOINT"}
