"""Spans of one trace when a key is processed several times, and links from one trace to another."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from trellis.telemetry import (
    Metrics,
    Telemetry,
    TraceContext,
    TraceSpans,
    caused,
    context_from,
    current_trace,
    joined,
    linked,
    setup,
    within,
)
from trellis.telemetry.timings import TelemetryTimings
from trellis.telemetry.trace_spans import MERGED, MOST_TRACES
from trellis.telemetry.tracing import MOST_BESIDE


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def spans() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def telemetry(spans: InMemorySpanExporter) -> Telemetry:
    return setup("test", metrics=Metrics(), span_exporters=[spans])


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def traces(telemetry: Telemetry, clock: Clock) -> TraceSpans[str]:
    return TraceSpans(telemetry, clock)


def cause(number: int) -> TraceContext:
    return TraceContext(f"00-{number:032x}-{number:016x}-01")


def named(spans: Sequence[ReadableSpan], name: str) -> ReadableSpan:
    (found,) = [span for span in spans if span.name == name]
    return found


def trace_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.trace_id


def test_runs_of_one_key_are_one_trace_until_it_ends(traces: TraceSpans[str], spans: InMemorySpanExporter) -> None:
    for run in ("first", "second"):
        with traces.span("a", run, None, {}):
            pass
    traces.end("a")
    with traces.span("a", "third", None, {}):
        pass
    first, second, third = (named(spans.get_finished_spans(), name) for name in ("first", "second", "third"))
    assert first.parent is None
    assert second.parent is not None
    assert first.context is not None
    assert second.parent.span_id == first.context.span_id
    assert third.parent is None
    assert trace_of(third) != trace_of(first)
    assert len(traces) == 1


def test_another_keys_trace_is_another_trace(traces: TraceSpans[str], spans: InMemorySpanExporter) -> None:
    for key in ("a", "b"):
        with traces.span(key, key, None, {}):
            pass
    assert len({trace_of(span) for span in spans.get_finished_spans()}) == 2


def test_events_between_runs_are_part_of_the_trace(
    traces: TraceSpans[str], telemetry: Telemetry, spans: InMemorySpanExporter
) -> None:
    with traces.span("a", "run", None, {}):
        pass
    with traces.follow("a"), telemetry.tracer.start_as_current_span("publish"):
        pass
    with traces.follow("b"), telemetry.tracer.start_as_current_span("nobody's"):
        pass
    found = spans.get_finished_spans()
    assert trace_of(named(found, "publish")) == trace_of(named(found, "run"))
    assert named(found, "nobody's").parent is None
    assert current_trace() is None, "the context is given back"


def test_a_new_cause_goes_on_in_its_own_trace_and_each_leads_to_the_other(
    traces: TraceSpans[str], spans: InMemorySpanExporter
) -> None:
    with traces.span("a", "before", None, {}):
        pass
    with traces.span("a", "caused", cause(7), {}):
        pass
    with traces.span("a", "after", None, {}):
        pass
    found = spans.get_finished_spans()
    before, run, back = named(found, "before"), named(found, "caused"), named(found, MERGED)
    assert trace_of(run) == trace_of(named(found, "after")) == 7
    assert [link.context.trace_id for link in run.links] == [trace_of(before)]
    assert trace_of(back) == trace_of(before)
    assert [link.context for link in back.links] == [run.context]


def test_a_trace_is_forgotten_after_a_while_without_a_span(
    traces: TraceSpans[str], clock: Clock, spans: InMemorySpanExporter
) -> None:
    trace_idle = TelemetryTimings().trace_idle
    for moment in (0.0, trace_idle - 1, 2 * trace_idle - 2, 3 * trace_idle):
        clock.now = moment
        with traces.span("a", str(moment), None, {}):
            pass
    traces = [trace_of(span) for span in spans.get_finished_spans()]
    assert traces[0] == traces[1] == traces[2] != traces[3]


def test_the_number_of_traces_is_bounded_and_the_oldest_go(telemetry: Telemetry) -> None:
    many: TraceSpans[int] = TraceSpans(telemetry)
    for key in range(MOST_TRACES + 5):
        with many.span(key, "run", None, {}):
            pass
    assert len(many) == MOST_TRACES


def test_a_failure_marks_the_span(traces: TraceSpans[str], spans: InMemorySpanExporter) -> None:
    with pytest.raises(ValueError, match="no"), traces.span("a", "run", None, {}):
        raise ValueError("no")
    assert not named(spans.get_finished_spans(), "run").status.is_ok


def test_causes_are_joined_with_the_newest_first_one_a_trace_and_no_more_than_are_kept() -> None:
    found: TraceContext | None = None
    for number in (1, 2, 2, *range(3, MOST_BESIDE + 5)):
        found = joined(found, cause(number))
    assert found is not None
    newest = MOST_BESIDE + 4
    assert found.trace_id == f"{newest:032x}"
    assert [int(item.trace_id, 16) for item in found.beside] == [*range(newest - 1, newest - 1 - MOST_BESIDE, -1)]
    assert all(not item.beside for item in found.beside)
    assert joined(found, None) == joined(None, found) == found
    assert joined(None, None) is None


def test_work_with_two_causes_is_the_newest_ones_and_linked_with_the_other(
    telemetry: Telemetry, spans: InMemorySpanExporter
) -> None:
    with caused(telemetry, "work", joined(cause(1), cause(2)), {"a": 1}):
        pass
    work, back = (named(spans.get_finished_spans(), name) for name in ("work", MERGED))
    assert (trace_of(work), trace_of(back)) == (2, 1)
    assert [link.context.span_id for link in work.links] == [1]
    assert [link.context for link in back.links] == [work.context]
    assert dict(work.attributes or {}) == {"a": 1}


def test_a_span_without_a_cause_is_a_root_with_links(telemetry: Telemetry, spans: InMemorySpanExporter) -> None:
    with (
        telemetry.tracer.start_as_current_span("around"),
        linked(telemetry, "plan", [cause(1), cause(2)], {}),
    ):
        pass
    plan = named(spans.get_finished_spans(), "plan")
    assert plan.parent is None
    assert [link.context.trace_id for link in plan.links] == [1, 2]


def test_a_part_of_recorded_work_has_a_span_and_is_part_of_its_trace(
    telemetry: Telemetry, spans: InMemorySpanExporter
) -> None:
    with within(telemetry, "part", context_from(cause(3)), {"a": 1}) as span:
        assert span.is_recording()
    part = named(spans.get_finished_spans(), "part")
    assert (trace_of(part), dict(part.attributes or {})) == (3, {"a": 1})


def test_a_part_of_work_that_is_not_recorded_has_no_span_of_its_own(
    telemetry: Telemetry, spans: InMemorySpanExporter
) -> None:
    with within(telemetry, "part", context_from(TraceContext(f"00-{3:032x}-{3:016x}-00"))) as span:
        span.set_attribute("a", 1)
    assert span.get_span_context().span_id == 3
    assert not spans.get_finished_spans()


def test_a_part_of_nothing_begins_a_trace(telemetry: Telemetry, spans: InMemorySpanExporter) -> None:
    with within(telemetry, "part", None):
        pass
    assert named(spans.get_finished_spans(), "part").parent is None
