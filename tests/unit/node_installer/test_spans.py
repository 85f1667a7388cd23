"""Export of spans to a collector: by TLS with a CA of one's own, through a proxy, and never at the cost of the run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from node_installer.settings import read_settings
from node_installer.spans import Tracer
from support.suite.job_container import Kubelet
from unit.node_installer.servers import Answer, Server, certificates, serving
from unit.node_installer.test_job import a_job

TRACEPARENT = f"00-{'a' * 32}-{'b' * 16}-01"


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certificates(tmp_path_factory.mktemp("tls"))


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def sent(endpoint: str, ca_file: Path | None = None) -> str:
    """Send one span; return what went wrong."""
    # A busy machine is no collector that is away.
    tracer = Tracer(endpoint, TRACEPARENT, "1", {"x-tenant": "me"}, ca_file, seconds=30.0)
    with tracer.span("Inspect"):
        pass
    return tracer.send()


def received(server: Server) -> list[dict[str, Any]]:
    """The spans that a collector got."""
    return [
        span
        for request in server.requests
        for resource in json.loads(request.body)["resourceSpans"]
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    ]


def test_a_collector_with_a_ca_of_its_own_gets_the_spans(tls: Path) -> None:
    with serving(lambda _: Answer(body=b"{}"), tls) as collector:
        assert sent(collector.url, tls / "ca.pem") == ""
    [request] = collector.requests
    assert request.path == "/v1/traces"
    assert request.headers["content-type"] == "application/json"
    assert request.headers["x-tenant"] == "me"
    [span] = received(collector)
    assert (span["traceId"], span["parentSpanId"], span["name"]) == ("a" * 32, "b" * 16, "Inspect")


def test_a_collector_with_a_missing_ca_gets_nothing_and_this_is_reported(tls: Path) -> None:
    with serving(lambda _: Answer(body=b"{}"), tls) as collector:
        problem = sent(collector.url)
    assert "CA file" in problem
    assert not collector.requests


def test_a_ca_file_that_is_missing_is_named_and_only_matters_to_tls(tls: Path, tmp_path: Path) -> None:
    missing = tmp_path / "ca.pem"
    with serving(lambda _: Answer(body=b"{}"), tls) as collector:
        assert str(missing) in sent(collector.url, missing)
    with serving(lambda _: Answer(body=b"{}")) as plain:
        assert sent(plain.url, missing) == ""


def test_spans_take_the_proxy_of_the_downloads_and_networks_without_one(
    tls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(lambda _: Answer(body=b"{}"), tls) as collector, serving(lambda _: Answer(500)) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        assert sent(collector.url, tls / "ca.pem") == ""
        assert [request.path for request in proxy.requests] == [f"CONNECT {collector.host}"]
        monkeypatch.setenv("NO_PROXY", "127.0.0.0/8")
        assert sent(collector.url, tls / "ca.pem") == ""
        assert len(proxy.requests) == 1


def test_a_refusal_of_a_collector_is_reported_with_its_answer(tls: Path) -> None:
    with serving(lambda _: Answer(503), tls) as collector:
        assert "503" in sent(collector.url, tls / "ca.pem")


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:1", "nonsense", "http://[", "gopher://x"])
def test_an_unreachable_or_invalid_collector_is_a_message_and_no_error(endpoint: str) -> None:
    assert sent(endpoint)


@pytest.mark.parametrize("removes", [False, True])
def test_ca_and_endpoint_of_the_job_lead_to_the_collector(removes: bool, tls: Path, tmp_path: Path) -> None:
    with serving(lambda _: Answer(body=b"{}"), tls) as collector:
        job = a_job(
            {"image": {"path": "/assets/spin", "sha256": "ab" * 32}},
            removes=removes,
            otlp_endpoint=None,
            installer_otlp_endpoint=collector.url,
            installer_ca_config_map="our-ca",
        )
        kubelet = Kubelet(tmp_path, config_maps={"our-ca": {"ca.crt": (tls / "ca.pem").read_text()}})
        given = read_settings(job["spec"]["template"]["spec"]["containers"][0]["args"], kubelet.environment(job))
        assert given.otlp_endpoint is not None
        assert given.samples_always, "no service has an endpoint, so none decided"
        assert sent(given.otlp_endpoint, given.ca_file) == ""
    assert received(collector)
