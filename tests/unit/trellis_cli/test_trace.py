"""`trellis trace`: what Jaeger answers becomes a tree, and an object's name becomes the pattern of its events."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from rich.console import Console

from support.suite.naming import lacking
from trellis.bus.streams.tail import Selection, TailedEvent
from trellis.config.errors import SettingsError
from trellis.events.subjects import EVENT_SPECS, pattern_filter
from trellis.read_model.traces.span_tree import document_of
from trellis.read_model.traces.spans import ReadSpan, SpanLink, TraceDataError, missing_parents, read_spans
from trellis_cli.common.errors import CommandError
from trellis_cli.common.objects import ObjectName
from trellis_cli.trace.command import KINDS, patterns_of, read_argument, whole_id
from trellis_cli.trace.views import notes, summary, table_of

TRACE = "0af7651916cd43dd8448eb211c80319c"
OTHER = "b" * 32


def span(number: int, name: str, *, parent: int = 0, tags: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """Return a span as Jaeger has it: it begins after ``number`` ms and takes 10."""
    references = [{"refType": "CHILD_OF", "traceID": TRACE, "spanID": f"{parent:016x}"}] if parent else []
    return {
        "traceID": TRACE,
        "spanID": f"{number:016x}",
        "operationName": name,
        "references": references,
        "startTime": 1_700_000_000_000_000 + number * 1000,
        "duration": 10_000,
        "tags": [{"key": key, "type": "string", "value": value} for key, value in (tags or {}).items()],
        "processID": "p1",
    } | more


def answer(*spans: dict[str, Any]) -> dict[str, Any]:
    return {
        "data": [{"traceID": TRACE, "spans": list(spans), "processes": {"p1": {"serviceName": "trellis-provisioner"}}}]
    }


def text_of(spans: Sequence[ReadSpan], width: int = 160) -> str:
    console = Console(width=width, color_system=None)
    with console.capture() as captured:
        console.print(table_of(spans))
    return captured.get()


def test_a_span_has_its_parent_times_service_and_attributes() -> None:
    (root, child) = read_spans(answer(span(1, "a"), span(2, "b", parent=1, tags={"k8s.node.name": "n"})))
    assert (root.parent_id, child.parent_id) == ("", f"{1:016x}")
    assert child == ReadSpan(
        TRACE,
        f"{2:016x}",
        f"{1:016x}",
        "b",
        "trellis-provisioner",
        1_700_000_000_002_000_000,
        1_700_000_000_012_000_000,
        attributes={"k8s.node.name": "n"},
    )


def test_a_reference_to_another_trace_is_a_link_and_ids_get_their_zeros_back() -> None:
    references = [
        {"refType": "CHILD_OF", "traceID": TRACE, "spanID": "1"},
        {"refType": "FOLLOWS_FROM", "traceID": "b" * 32, "spanID": "2"},
    ]
    (found,) = read_spans(answer(span(2, "b", references=references)))
    assert found.parent_id == f"{1:016x}"
    assert found.links == (SpanLink(OTHER, f"{2:016x}"),)


@pytest.mark.parametrize(
    ("tags", "error"),
    [
        ({}, ""),
        ({"error": "false"}, ""),
        ({"error": True}, "failed"),
        ({"otel.status_code": "ERROR", "otel.status_description": "Conflict: it changed"}, "Conflict: it changed"),
    ],
)
def test_a_failed_span_states_the_reason(tags: dict[str, Any], error: str) -> None:
    (found,) = read_spans(answer(span(1, "a", tags=tags)))
    assert found.error == error


@pytest.mark.parametrize(
    "garbage", [None, [], "x", {}, {"data": 7}, {"data": [{"spans": [{}], "processes": {}}]}, {"data": [{"spans": []}]}]
)
def test_an_invalid_trace_is_reported(garbage: object) -> None:
    if garbage == {"data": [{"spans": []}]}:
        assert read_spans(garbage) == []
        return
    with pytest.raises(TraceDataError, match="Jaeger"):
        read_spans(garbage)


def test_the_tree_shows_offset_duration_service_name_failure_and_links() -> None:
    links = [{"refType": "FOLLOWS_FROM", "traceID": OTHER, "spanID": "c" * 16}]
    spans = read_spans(
        answer(
            span(1, "reconcile"),
            span(3, "create", parent=1, tags={"error": True, "otel.status_description": "taken\x1b[2J"}),
            span(5, "plan", parent=1, references=links),
        )
    )
    lines = text_of(spans).splitlines()
    create = next(line for line in lines if "create" in line)
    assert create.split()[:2] == ["+2.0", "10.0"]
    assert "provisioner" in create
    assert "✗ taken\\x1b[2J" in create
    assert "\x1b" not in text_of(spans)
    assert lacking(next(line for line in lines if "plan" in line), "bbbbbbbb", "cccccccc") == []
    assert summary(spans) == "3 spans, 1 service, 14.0 ms, 1 error, 1 link"


def test_a_bar_stands_where_its_span_stands_in_time() -> None:
    spans = read_spans(answer(span(0, "all", duration=100_000), span(90, "late", parent=0)))
    late = next(line for line in text_of(spans).splitlines() if "late" in line)
    whole = next(line for line in text_of(spans).splitlines() if "all" in line)
    assert whole.count("█") == 24
    assert late.index("█") - whole.index("█") in {21, 22}


def test_a_trace_with_a_missing_parent_is_shown_and_marked() -> None:
    spans = read_spans(answer(span(1, "a"), span(3, "c", parent=2)))
    assert missing_parents(spans) == [f"{2:016x}"]
    assert lacking(notes(spans)[0], "1") == []
    assert "c" in text_of(spans)
    assert document_of(TRACE, spans)["whole"] is False
    assert notes(read_spans(answer(span(1, "a")))) == []


def test_a_document_has_all_there_is_and_can_be_written() -> None:
    document = document_of(TRACE, read_spans(answer(span(1, "a"), span(2, "b", parent=1))))
    assert [(item["depth"], item["name"]) for item in document["spans"]] == [(0, "a"), (1, "b")]
    assert json.loads(json.dumps(document)) == document


def test_a_trace_without_spans_is_an_empty_table() -> None:
    assert "SPAN" in text_of([])
    assert summary([]) == "0 spans, 0 services, 0.0 ms, 0 errors, 0 links"


@pytest.mark.parametrize(
    ("noun", "wanted", "patterns"),
    [
        ("node", ObjectName("node", "node-1.example"), ["node.*.node-1=2Eexample"]),
        ("provision", ObjectName("node", "node-1", "ignored"), ["provision.*.node-1"]),
        ("application", ObjectName("application", "shop"), ["application.*.*.shop"]),
        ("application", ObjectName("application", "shop", "team-a"), ["application.*.team-a.shop"]),
        (
            "wasm_workload",
            ObjectName("deployment", "shop", "team-a"),
            ["wasm_workload.*.team-a.Deployment.shop", "wasm_workload.*.team-a.Deployment.shop.*"],
        ),
    ],
)
def test_an_objects_events_have_patterns(noun: str, wanted: ObjectName, patterns: list[str]) -> None:
    assert patterns_of(noun, wanted) == patterns
    for pattern in patterns:
        assert Selection(pattern=pattern_filter(pattern, "c1")).filter == f"trellis.evt.c1.{pattern}"


def test_every_noun_of_an_event_about_an_object_has_a_kind() -> None:
    about_no_object = {"rollout", "heartbeats"}
    nouns = {spec.model.noun for spec in EVENT_SPECS} - about_no_object
    assert {noun for nouns in KINDS.values() for noun in nouns} == nouns


ON_THE_BUS = ("0af76519" + "1" * 24, "0af76519" + "2" * 24, "c1d2e3f4" + "3" * 24)
OF_A_LATTICE = ("0af76519" + "1" * 24, "abad1dea" + "4" * 24)


async def read(selection: Selection) -> AsyncIterator[TailedEvent]:
    """Yield two events of each trace; forwarded ones of any lattice if the selection has one."""
    assert selection.cluster == "c1"
    for trace_id in ON_THE_BUS if selection.lattice is None else OF_A_LATTICE:
        if trace_id.startswith(selection.trace):
            for sequence in (1, 2):
                yield TailedEvent(sequence, datetime.now(UTC), "c1", "node", "ready", ("n",), {}, trace_id=trace_id)


@pytest.mark.parametrize(
    ("digits", "expected"),
    [
        ("c1d2e3f4", "c1d2e3f4" + "3" * 24),
        ("0af765192", "0af76519" + "2" * 24),
        ("abad1dea", "abad1dea" + "4" * 24),
    ],
    ids=["the eight digits of a list", "more digits", "a forwarded event"],
)
async def test_the_beginning_of_an_id_is_that_of_a_trace_on_the_bus(digits: str, expected: str) -> None:
    assert read_argument([digits.upper()], None) == digits
    assert await whole_id(digits, read, "c1") == expected


@pytest.mark.parametrize("words", [["shim/spin"], ["shims", "spin"], ["shims.runtime.spinkube.dev/spin"]])
def test_a_shim_has_no_trace_and_the_error_names_the_commands_to_use(words: list[str]) -> None:
    with pytest.raises(SettingsError) as refused:
        read_argument(words, None)
    assert lacking(str(refused.value), "trellis trace node/NODE", "trellis rollout status spin") == []


@pytest.mark.parametrize(
    ("digits", "named"), [("0af76519", ["0af76519" + "1" * 24, "0af76519" + "2" * 24]), ("ffffffff", ["ffffffff"])]
)
async def test_digits_of_several_traces_or_of_none_are_refused(digits: str, named: list[str]) -> None:
    with pytest.raises(CommandError) as refused:
        await whole_id(digits, read, "c1")
    assert lacking(str(refused.value), *named) == []
