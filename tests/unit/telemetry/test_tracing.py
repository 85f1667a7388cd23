"""Trace context as text, and back."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import trace as trace_api
from opentelemetry.sdk.trace import TracerProvider

from trellis.telemetry import TraceContext, context_from, current_trace, trace_from

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
SPAN_ID = "b7ad6b7169203331"
PARENT = f"00-{TRACE_ID}-{SPAN_ID}-01"


def test_outside_of_a_span_there_is_no_trace() -> None:
    assert current_trace() is None


def test_a_span_started_from_a_traceparent_is_a_child_of_its_writer() -> None:
    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("t")
    trace = TraceContext(PARENT, "vendor=x")
    with tracer.start_as_current_span("child", context=context_from(trace)) as span:
        context = span.get_span_context()
        assert trace_api.format_trace_id(context.trace_id) == TRACE_ID
        assert span.parent is not None  # type: ignore[attr-defined]
        assert trace_api.format_span_id(span.parent.span_id) == SPAN_ID  # type: ignore[attr-defined]
        assert current_trace() == TraceContext(
            f"00-{TRACE_ID}-{trace_api.format_span_id(context.span_id)}-01", "vendor=x"
        )


def test_without_a_trace_a_span_begins_a_new_one_even_inside_another() -> None:
    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("t")
    with (
        tracer.start_as_current_span("outer") as outer,
        tracer.start_as_current_span("inner", context=context_from(None)) as inner,
    ):
        assert inner.get_span_context().trace_id != outer.get_span_context().trace_id


@pytest.mark.parametrize(
    "traceparent",
    [
        None,
        "",
        "garbage",
        PARENT[:-1],
        PARENT.upper(),
        f"00-{'0' * 32}-{SPAN_ID}-01",
        f"00-{TRACE_ID}-{'0' * 16}-01",
        f"ff-{TRACE_ID}-{SPAN_ID}-01",
        f"{PARENT}-extra",
        PARENT + " " * 600 + "x",
        f"{PARENT}\r\nEvil: yes",
    ],
    ids=repr,
)
def test_a_malformed_traceparent_is_none(traceparent: str | None) -> None:
    assert trace_from(traceparent, "vendor=x") is None


@pytest.mark.parametrize(
    ("tracestate", "kept"),
    [
        (None, None),
        ("", None),
        ("a=1", "a=1"),
        ("a=1, b=2", "a=1,b=2"),
        ("no equals sign", None),
        ("A=1", None),
        ("a=\n", None),
        ("a=1,a=2", None),
        ("a=" + "x" * 600, None),
    ],
)
def test_a_malformed_tracestate_is_dropped_and_the_trace_kept(
    tracestate: str | None, kept: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        assert trace_from(PARENT, tracestate) == TraceContext(PARENT, kept)
    assert not caplog.records


def test_a_later_version_of_the_format_is_understood() -> None:
    assert trace_from(f"01-{TRACE_ID}-{SPAN_ID}-01-more") == TraceContext(PARENT)


@given(st.text(max_size=600), st.text(max_size=600))
def test_nothing_from_outside_raises(traceparent: str, tracestate: str) -> None:
    trace_from(traceparent, tracestate)
    assert trace_from(PARENT, tracestate) is not None
