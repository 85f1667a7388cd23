"""The real Jaeger with the chart's arguments takes the services' spans and has them when it is asked."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace

from support.chart.chart_parts import container, running
from support.chart.rendered import of, rendered
from support.nodes.fleet import eventually
from trellis.telemetry import setup
from trellis_dev.localcluster import tools
from trellis_dev.localcluster.ports import LOOPBACK, free_ports
from trellis_dev.localcluster.progress import Lines

pytestmark = [pytest.mark.jaeger, pytest.mark.timeout(900)]
OTHERS = (
    "collector.http-server.host-port", "collector.grpc-server.host-port", "query.grpc-server.host-port",
    "http-server.host-port", "processor.jaeger-compact.server-host-port", "processor.jaeger-binary.server-host-port",
    "processor.zipkin-compact.server-host-port",
)  # fmt: skip
"""What it listens on besides, which nobody asks for: free ports of this machine."""


class ChartJaeger:
    """The addresses at which a Jaeger receives spans and answers queries."""

    def __init__(self, otlp: int, query: int, metrics: int) -> None:
        self.otlp, self._query, self._metrics = (f"http://{LOOPBACK}:{port}" for port in (otlp, query, metrics))

    def is_ready(self) -> bool:
        """Return what the readiness probe of the pod would."""
        try:
            with urllib.request.urlopen(self._metrics, timeout=3) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def metrics(self) -> str:
        with urllib.request.urlopen(f"{self._metrics}/metrics", timeout=10) as answer:
            return str(answer.read().decode())

    def spans(self, trace_id: str) -> list[dict[str, Any]]:
        try:
            with urllib.request.urlopen(f"{self._query}/api/traces/{trace_id}", timeout=10) as answer:
                [found] = json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            if error.code != HTTPStatus.NOT_FOUND:
                raise
            return []
        return list(found["spans"])

    def names(self, trace_id: str) -> list[str]:
        return [span["operationName"] for span in self.spans(trace_id)]


@contextmanager
def chart_jaeger(storage: dict[str, Any], directory: Path) -> Iterator[ChartJaeger]:
    """Run Jaeger as the chart does; a further one in the same directory has the same volume."""
    runs = container(of(rendered(jaeger={"enabled": True, "storage": storage})), "StatefulSet", "trellis-jaeger")
    probe = runs["readinessProbe"]["httpGet"]
    ports = {port["name"]: port["containerPort"] for port in runs["ports"]}
    assert (probe["path"], probe["port"]) == ("/", "metrics")
    own = dict(zip(ports.values(), free_ports(len(ports)), strict=True))
    arguments = [
        re.sub(r"0\.0\.0\.0:(\d+)$", lambda found: f"{LOOPBACK}:{own[int(found[1])]}", item).replace(
            "=/badger", f"={directory}/badger"
        )
        for item in runs["args"]
    ]
    assert not any("0.0.0.0" in argument for argument in arguments), "each port of it has a name"
    free = free_ports(len(OTHERS))
    arguments += [f"--{name}={LOOPBACK}:{port}" for name, port in zip(OTHERS, free, strict=True)]
    [kind] = runs["env"]
    argv = ["/usr/bin/env", f"{kind['name']}={kind['value']}", str(tools.ensure("jaeger", Lines())), *arguments]
    found = ChartJaeger(own[ports["otlp-http"]], own[ports["query"]], own[ports["metrics"]])
    with running(argv, directory, found.is_ready):
        yield found


async def exported(endpoint: str, ratio: float | None = None) -> str:
    """Send one span as a service does; return its trace's id."""
    telemetry = setup("node_watcher", otlp_endpoint=endpoint, sample_ratio=ratio)
    with telemetry.tracer.start_as_current_span("watch node n-1") as span:
        trace_id = trace.format_trace_id(span.get_span_context().trace_id)
    await telemetry.shutdown()
    return trace_id


async def test_a_span_of_a_service_is_found_by_its_trace(tmp_path: Path) -> None:
    with chart_jaeger({"type": "memory"}, tmp_path) as jaeger:
        trace_id = await exported(jaeger.otlp)
        await eventually(
            lambda: [span["operationName"] for span in jaeger.spans(trace_id)] == ["watch node n-1"], "the span"
        )
        left_out = await exported(jaeger.otlp, ratio=0.0)
        later = await exported(jaeger.otlp, ratio=1.0)
        await eventually(lambda: len(jaeger.spans(later)) == 1, "the span")
        assert jaeger.spans(left_out) == []
        assert "jaeger_collector_spans_received_total" in jaeger.metrics()


@pytest.mark.thorough
async def test_on_a_volume_a_trace_outlives_the_pod(tmp_path: Path) -> None:
    storage = {"type": "badger", "keep": "72h"}
    with chart_jaeger(storage, tmp_path) as jaeger:
        trace_id = await exported(jaeger.otlp)
        await eventually(lambda: len(jaeger.spans(trace_id)) == 1, "the span")
    with chart_jaeger(storage, tmp_path) as jaeger:
        await eventually(
            lambda: [span["operationName"] for span in jaeger.spans(trace_id)] == ["watch node n-1"], "the span"
        )
