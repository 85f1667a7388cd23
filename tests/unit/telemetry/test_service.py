"""Several services in one process, each with its own telemetry."""

from __future__ import annotations

import pytest
from opentelemetry import trace as trace_api
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from trellis.telemetry import ATTRIBUTE_CLUSTER, Metrics, context_from, current_trace, process_metrics, setup


def attributes(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})


async def test_services_of_a_process_keep_their_names_in_one_trace() -> None:
    spans = InMemorySpanExporter()
    first = setup("node_watcher", span_exporters=[spans])
    second = setup("provisioner", span_exporters=[spans])
    with first.tracer.start_as_current_span("said"):
        trace = current_trace()
    with second.tracer.start_as_current_span("heard", context=context_from(trace)):
        pass
    published, received = spans.get_finished_spans()
    assert published.resource.attributes["service.name"] == "trellis-node-watcher"
    assert received.resource.attributes["service.name"] == "trellis-provisioner"
    assert published.context is not None
    assert received.parent is not None
    assert (received.parent.trace_id, received.parent.span_id) == (
        published.context.trace_id,
        published.context.span_id,
    )
    await first.shutdown()
    await second.shutdown()


async def test_services_that_see_the_same_change_are_in_one_trace_unasked() -> None:
    spans = InMemorySpanExporter()
    first = setup("node_watcher", span_exporters=[spans])
    second = setup("provisioner", span_exporters=[spans])
    with second.tracer.start_as_current_span("made", context=context_from(second.trace_of("uid-1/7"))):
        pass
    with first.begin("seen", "uid-1/7", start_ns=5, attributes={"k8s.node.name": "n"}):
        with first.tracer.start_as_current_span("within"):
            pass
        trace = current_trace()
    made, within, seen = spans.get_finished_spans()
    assert seen.context is not None
    assert trace == second.trace_of("uid-1/7")
    assert (seen.parent, seen.start_time) == (None, 5)
    for below in (made, within):
        assert below.parent is not None
        assert (below.parent.trace_id, below.parent.span_id) == (seen.context.trace_id, seen.context.span_id)
        assert below.context is not None
        assert below.context.span_id != seen.context.span_id
    assert second.trace_of("uid-1/8").trace_id != second.trace_of("uid-1/7").trace_id
    await first.shutdown()
    await second.shutdown()


@pytest.mark.parametrize("ratio", [0.0, 0.5, 1.0])
async def test_the_sampling_decision_is_the_same_in_all_services(ratio: float) -> None:
    spans = InMemorySpanExporter()
    first = setup("node_watcher", span_exporters=[spans], sample_ratio=ratio)
    second = setup("provisioner", span_exporters=[spans], sample_ratio=ratio)
    causes = [f"uid/{number}" for number in range(40)]
    for cause in causes:
        with first.begin(cause, cause):
            pass
    sent = {span.name for span in spans.get_finished_spans()}
    assert sent == {cause for cause in causes if second.trace_of(cause).traceparent.endswith(("1", "3"))}
    assert {0.0: sent == set(), 1.0: sent == set(causes)}.get(ratio, 0 < len(sent) < len(causes))
    await first.shutdown()
    await second.shutdown()


async def test_the_cluster_is_on_the_spans_that_begin_after_it_is_known() -> None:
    spans = InMemorySpanExporter()
    telemetry = setup("node_watcher", span_exporters=[spans])
    telemetry.tracer.start_span("before").end()
    telemetry.cluster = "0af76519"
    telemetry.tracer.start_span("after").end()
    before, after = spans.get_finished_spans()
    assert ATTRIBUTE_CLUSTER not in attributes(before)
    assert attributes(after)[ATTRIBUTE_CLUSTER] == "0af76519"
    await telemetry.shutdown()


async def test_attributes_of_the_environment_are_kept_beside_those_of_trellis(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test,service.name=other")
    spans = InMemorySpanExporter()
    telemetry = setup("node_watcher", span_exporters=[spans])
    telemetry.tracer.start_span("s").end()
    resource = spans.get_finished_spans()[0].resource.attributes
    assert resource["deployment.environment.name"] == "test"
    assert resource["service.name"] == "trellis-node-watcher"
    await telemetry.shutdown()


async def test_the_sampler_of_the_environment_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    spans = InMemorySpanExporter()
    telemetry = setup("node_watcher", span_exporters=[spans])
    telemetry.tracer.start_span("s").end()
    assert spans.get_finished_spans() == ()
    await telemetry.shutdown()


@pytest.mark.parametrize(("ratio", "sent"), [(0.0, 0), (1.0, 20)])
async def test_the_configured_share_of_traces_is_sent(ratio: float, sent: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_on" if ratio == 0 else "always_off")
    spans = InMemorySpanExporter()
    telemetry = setup("node_watcher", sample_ratio=ratio, span_exporters=[spans])
    for _ in range(20):
        telemetry.tracer.start_span("s", context=context_from(None)).end()
    assert len(spans.get_finished_spans()) == sent
    await telemetry.shutdown()


async def test_a_share_of_traces_is_whole_traces_across_services() -> None:
    spans = InMemorySpanExporter()
    first = setup("node_watcher", sample_ratio=0.5, span_exporters=[spans])
    second = setup("provisioner", sample_ratio=0.0, span_exporters=[spans])
    for _ in range(200):
        with first.tracer.start_as_current_span("said", context=context_from(None)):
            trace = current_trace()
        second.tracer.start_span("heard", context=context_from(trace)).end()
    names: dict[int, set[str]] = {}
    for span in spans.get_finished_spans():
        assert span.context is not None
        names.setdefault(span.context.trace_id, set()).add(span.name)
    assert 0 < len(names) < 200
    assert all(found == {"said", "heard"} for found in names.values()), "the second follows whoever began"
    await first.shutdown()
    await second.shutdown()


async def test_the_global_provider_is_never_touched() -> None:
    before = trace_api.get_tracer_provider()
    await setup("node_watcher").shutdown()
    assert trace_api.get_tracer_provider() is before


async def test_metrics_are_the_process_unless_others_are_given() -> None:
    own = Metrics()
    assert setup("a").metrics is setup("b").metrics is process_metrics()
    assert setup("a", metrics=own).metrics is own


async def test_shutdown_may_be_called_again() -> None:
    telemetry = setup("node_watcher")
    await telemetry.shutdown()
    await telemetry.shutdown()


async def test_without_an_exporter_spans_are_not_recorded_and_their_ids_are_propagated() -> None:
    telemetry = setup("some_service")
    with telemetry.tracer.start_as_current_span("work") as span:
        assert not span.is_recording()
        trace = current_trace()
        assert trace is not None
        assert trace.traceparent.endswith("-00") or trace.traceparent.endswith("-02")
    await telemetry.shutdown()
