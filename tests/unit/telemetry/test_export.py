"""Spans reach a collector; one that is unavailable or hangs costs a line, not the service."""

from __future__ import annotations

import logging
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from queue import Queue

import pytest
import structlog
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from trellis.telemetry import Metrics, Telemetry, setup
from trellis.telemetry.export import Outage, ReportingExporter, _Seldom, traces_url


class Collector(HTTPServer):
    """Answers each POST with ``status`` and keeps what came."""

    def __init__(self) -> None:
        self.status = 200
        self.retry_after = ""
        self.received: Queue[tuple[str, bytes]] = Queue()
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        assert isinstance(self.server, Collector)
        self.server.received.put((self.path, body))  # before the answer: who was answered may look at once
        self.send_response(self.server.status)
        self.send_header("Content-Length", "0")
        if self.server.retry_after:
            self.send_header("Retry-After", self.server.retry_after)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def events() -> Iterator[list[structlog.typing.EventDict]]:
    logging.getLogger().setLevel(logging.INFO)
    with structlog.testing.capture_logs() as captured:
        yield captured


def service(endpoint: str) -> Telemetry:
    return setup("node_watcher", otlp_endpoint=endpoint, metrics=Metrics())


def span(telemetry: Telemetry, name: str = "work") -> None:
    with telemetry.tracer.start_as_current_span(name):
        pass


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ("http://c:4318", "http://c:4318/v1/traces"),
        ("http://c:4318/", "http://c:4318/v1/traces"),
        ("http://c/otlp", "http://c/otlp/v1/traces"),
        ("http://c:4318/v1/traces", "http://c:4318/v1/traces"),
    ],
)
def test_spans_are_posted_to_the_traces_path_of_the_endpoint(endpoint: str, url: str) -> None:
    assert traces_url(endpoint) == url


async def test_spans_arrive_within_moments_and_name_their_service(collector: Collector) -> None:
    telemetry = setup("node_watcher", cluster="c1", otlp_endpoint=collector.endpoint, metrics=Metrics())
    span(telemetry, "first")
    path, body = collector.received.get(timeout=10)
    await telemetry.shutdown()
    assert path == "/v1/traces"
    (resource_spans,) = ExportTraceServiceRequest.FromString(body).resource_spans
    resource = {attribute.key: attribute.value.string_value for attribute in resource_spans.resource.attributes}
    assert resource["service.name"] == "trellis-node-watcher"
    assert (resource["service.namespace"], resource["k8s.cluster.name"]) == ("trellis", "c1")
    assert resource["service.version"]
    assert resource_spans.scope_spans[0].spans[0].name == "first"


async def test_shutdown_sends_what_is_left(collector: Collector) -> None:
    telemetry = service(collector.endpoint)
    span(telemetry, "last")
    await telemetry.shutdown()
    assert b"last" in collector.received.get_nowait()[1]


async def test_an_unreachable_collector_costs_one_warning_and_no_wait_at_shutdown(
    events: list[structlog.typing.EventDict],
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{closed.getsockname()[1]}"
        first, second = service(endpoint), service(endpoint)
        for telemetry in (first, second):
            span(telemetry)
        logged(events, endpoint, 1)
        started = time.monotonic()
        await first.shutdown()
        await second.shutdown()
        assert time.monotonic() - started < 3
    [event] = logged(events, endpoint, 1)
    assert {key: value for key, value in event.items() if key != "event"} == {
        "log_level": "warning",
        "endpoint": f"{endpoint}/v1/traces",
        "reason": "Connection refused",
    }


async def test_a_collector_that_hangs_ends_the_shutdown_in_time_and_reports_it(
    events: list[structlog.typing.EventDict],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        telemetry = service(f"http://127.0.0.1:{silent.getsockname()[1]}")
        span(telemetry)
        started = time.monotonic()
        await telemetry.shutdown(0.3)
        assert 0.3 <= time.monotonic() - started < 3
    assert ("warning", telemetry.service) in [(event["log_level"], event.get("service")) for event in events]


@pytest.mark.parametrize(("status", "retry_after"), [(400, ""), (503, "3600"), (503, "Wed, 21 Oct 2099 07:28:00 GMT")])
async def test_a_refusing_collector_is_logged_and_its_recovery_too(
    collector: Collector, events: list[structlog.typing.EventDict], status: int, retry_after: str
) -> None:
    """However long it asks to wait: an hour would be an hour of dropped spans."""
    collector.status, collector.retry_after = status, retry_after
    telemetry = service(collector.endpoint)
    span(telemetry)
    (warning,) = logged(events, collector.endpoint, 1)
    collector.status = 200
    span(telemetry)
    _, info = logged(events, collector.endpoint, 2)
    await telemetry.shutdown()
    assert "400" in warning["reason"] or status != 400
    assert (info["log_level"], "reason" in info) == ("info", False)


def logged(events: list[structlog.typing.EventDict], endpoint: str, count: int) -> list[structlog.typing.EventDict]:
    """Wait for the events about one endpoint: exporters that hang outlive the test that made them."""
    deadline = time.monotonic() + 15
    while len(about := [event for event in events if endpoint in event.get("endpoint", "")]) < count:
        assert time.monotonic() < deadline, events
        threading.Event().wait(0.02)
    return about


class Scripted(SpanExporter):
    def __init__(self, *results: SpanExportResult) -> None:
        self.results = list(results)
        self.shutdowns = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        del spans
        return self.results.pop(0)

    def shutdown(self) -> None:
        self.shutdowns += 1


def test_an_outage_is_reported_once_in_five_minutes_and_its_end_once(events: list[structlog.typing.EventDict]) -> None:
    now = [0.0]
    failure, success = SpanExportResult.FAILURE, SpanExportResult.SUCCESS
    inner = Scripted(failure, failure, failure, success, success, failure)
    exporter = ReportingExporter(inner, Outage("http://u:p@c", clock=lambda: now[0]))
    levels = []
    for at in (0, 299, 300, 301, 302, 303):
        now[0] = at
        exporter.export(())
        levels.append([event["log_level"] for event in events])
        events.clear()
    assert levels == [["warning"], [], ["warning"], ["info"], [], ["warning"]]


def test_a_password_of_the_endpoint_is_not_reported(events: list[structlog.typing.EventDict]) -> None:
    Outage("http://u:hunter2@c").failed("x")
    assert "hunter2" not in str(events)


def test_a_failing_exporter_is_closed_before_shutdown_a_working_one_is_not() -> None:
    failing, working = Scripted(SpanExportResult.FAILURE), Scripted(SpanExportResult.SUCCESS)
    for inner in (failing, working):
        exporter = ReportingExporter(inner, Outage("http://c"))
        exporter.export(())
        exporter.give_up_if_failing()
    assert (failing.shutdowns, working.shutdowns) == (1, 0)


def test_a_line_that_comes_for_each_span_is_let_through_once_in_five_minutes() -> None:
    now = [0.0]
    seldom = _Seldom(clock=lambda: now[0])

    def passes(message: str) -> bool:
        return seldom.filter(logging.LogRecord("n", logging.WARNING, "p", 1, message, (), None))

    assert [passes("Queue full, dropping %s."), passes("Queue full, dropping %s."), passes("other")] == [
        True,
        False,
        True,
    ]
    now[0] = 300.0
    assert passes("Queue full, dropping %s.")


def test_without_an_endpoint_nothing_that_could_send_is_even_imported() -> None:
    code = (
        "import sys; from trellis import telemetry; t = telemetry.setup('x');\n"
        "with t.tracer.start_as_current_span('s'): pass\n"
        "print([m for m in ('requests', 'google.protobuf', 'opentelemetry.exporter') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")
