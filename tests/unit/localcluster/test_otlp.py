"""The span receiver, spoken to by the real exporter."""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request
from collections.abc import AsyncIterator

import pytest
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from opentelemetry.trace import SpanKind, StatusCode

from trellis_dev.localcluster.otlp import OtlpReceiver


@pytest.fixture
async def receiver() -> AsyncIterator[OtlpReceiver]:
    receiver = OtlpReceiver(limit=3)
    yield receiver
    await receiver.stop()


def tracing(endpoint: str, compression: Compression = Compression.NoCompression) -> TracerProvider:
    provider = TracerProvider(resource=Resource({"service.name": "trellis-test"}))
    exporter = OTLPSpanExporter(f"{endpoint}/v1/traces", compression=compression, timeout=5)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider


@pytest.mark.parametrize("compression", [Compression.NoCompression, Compression.Gzip])
async def test_spans_arrive_with_all_their_attributes(receiver: OtlpReceiver, compression: Compression) -> None:
    provider = tracing(await receiver.start(), compression)
    tracer = provider.get_tracer("test")

    def work() -> None:
        with tracer.start_as_current_span("outer") as outer:
            outer.set_attributes({"text": "ü", "number": 3, "yes": True, "half": 0.5, "many": ["a", "b"]})
            with tracer.start_as_current_span("inner", kind=SpanKind.PRODUCER) as inner:
                inner.set_status(StatusCode.ERROR)

    await asyncio.to_thread(work)
    inner, outer = await receiver.wait_for(lambda spans: len(spans) == 2, seconds=5)

    assert (inner.name, outer.name) == ("inner", "outer")
    assert inner.trace_id == outer.trace_id
    assert inner.parent_id == outer.span_id
    assert outer.parent_id == ""
    assert (inner.kind, inner.status, outer.kind, outer.status) == ("PRODUCER", "ERROR", "INTERNAL", "UNSET")
    assert outer.service == "trellis-test"
    assert outer.attributes == {"text": "ü", "number": 3, "yes": True, "half": 0.5, "many": ("a", "b")}
    assert outer.start_ns <= inner.start_ns <= inner.end_ns <= outer.end_ns
    await asyncio.to_thread(provider.shutdown)


async def test_only_the_newest_spans_are_kept(receiver: OtlpReceiver) -> None:
    provider = tracing(await receiver.start())
    tracer = provider.get_tracer("test")
    for index in range(5):
        await asyncio.to_thread(lambda name: tracer.start_span(name).end(), f"span {index}")
    assert [span.name for span in receiver.spans] == ["span 2", "span 3", "span 4"]
    await asyncio.to_thread(provider.shutdown)


async def test_an_invalid_export_request_is_refused(receiver: OtlpReceiver) -> None:
    endpoint = await receiver.start()

    def post() -> None:
        request = urllib.request.Request(f"{endpoint}/v1/traces", data=b"\xff\xff", method="POST")
        urllib.request.urlopen(request, timeout=5)

    with pytest.raises(urllib.error.HTTPError, match="400") as refused:
        await asyncio.to_thread(post)
    refused.value.close()
    assert receiver.spans == []


async def test_waiting_in_vain_ends(receiver: OtlpReceiver) -> None:
    await receiver.start()
    with pytest.raises(TimeoutError):
        await receiver.wait_for(lambda spans: len(spans) > 0, seconds=0.05)


def export_one(endpoint: str) -> bool:
    """Export a span once; return whether it was taken."""
    exporter = OTLPSpanExporter(f"{endpoint}/v1/traces", timeout=1)
    span = TracerProvider().get_tracer("test").start_span("one")
    span.end()
    assert isinstance(span, ReadableSpan)
    try:
        return exporter.export([span]) is SpanExportResult.SUCCESS
    finally:
        exporter.shutdown()


async def test_received_spans_are_forwarded_too(receiver: OtlpReceiver) -> None:
    between = OtlpReceiver(onward=await receiver.start())
    try:
        assert await asyncio.to_thread(export_one, await between.start())
        assert [span.name for span in receiver.spans] == [span.name for span in between.spans] == ["one"]
    finally:
        await between.stop()


async def test_spans_that_cannot_be_forwarded_are_refused_so_that_they_are_sent_again(receiver: OtlpReceiver) -> None:
    nobody = await receiver.start()
    await receiver.stop()
    between = OtlpReceiver(onward=nobody)
    try:
        assert not await asyncio.to_thread(export_one, await between.start())
        assert between.spans == []
    finally:
        await between.stop()
