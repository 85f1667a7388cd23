"""A call is one trace: from the change that led to it, over waking, to each object that the guest wrote.

Seen as a collector sees it, over the wire; once with a real Jaeger.
"""

from __future__ import annotations

import asyncio
import base64
import json
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from controller_host.host_calls import calling
from support.guests.controllers_world import CONFIG_MAPS, Host, Tenant, define, prebuilt, tenant_of, until
from support.guests.wat_guests import logging_guest
from trellis_dev.localcluster import ClusterInfo, owned_cluster
from trellis_dev.localcluster.api import Api
from trellis_dev.localcluster.otlp import OtlpReceiver, Span

SERVICE = "trellis-controller-host"
CONTENT = "what-nobody-is-to-read"
ROOT = "reconcile ConfigMap"


@pytest.fixture
async def receiver(host: Host) -> AsyncIterator[OtlpReceiver]:
    receiver = OtlpReceiver()
    host.settings["TRELLIS_OTLP_ENDPOINT"] = await receiver.start()
    yield receiver
    await receiver.stop()


def traces(spans: list[Span], controller: str, name: str) -> list[list[Span]]:
    """Return the traces of calls for an object, in their order."""
    roots = [
        span
        for span in spans
        if span.name == ROOT
        and span.attributes["trellis.controller"] == controller
        and span.attributes["k8s.object.name"] == name
    ]
    return [
        [span for span in spans if span.trace_id == root.trace_id]
        for root in sorted(roots, key=lambda item: item.start_ns)
    ]


def tree(trace: list[Span]) -> dict[str, list[str]]:
    """Return the names of spans by the path that leads to them, in the order they began."""
    by_id = {span.span_id: span for span in trace}

    def path(span: Span) -> str:
        return f"{path(by_id[span.parent_id])} > {span.name}" if span.parent_id else span.name

    found: dict[str, list[str]] = {}
    for span in sorted(trace, key=lambda item: item.start_ns):
        parent = path(by_id[span.parent_id]) if span.parent_id else ""
        found.setdefault(parent, []).append(span.name)
    return found


@pytest.mark.cluster
@pytest.mark.nats
async def test_a_trace_leads_from_the_change_over_the_wake_to_what_was_written(
    host: Host, tenant: Tenant, target: Tenant, receiver: OtlpReceiver
) -> None:
    tenant.account("mirror", CONFIG_MAPS, namespaces=(tenant.name, target.name))
    tenant.module("mirror", prebuilt("mirror"))
    tenant.controller("mirror", config={"targetNamespace": target.name})
    tenant.config_map("one", text=CONTENT)
    async with host.serving():
        await until(lambda: target.data("one") == {"text": CONTENT}, "mirrored")
        await until(host.asleep, "suspended")
        tenant.config_map("one", text=f"{CONTENT}, again")
        await until(lambda: target.data("one") == {"text": f"{CONTENT}, again"}, "followed")
    cold, woken = traces(receiver.spans, f"{tenant.name}/mirror", "one")
    assert tree(cold)[""] == tree(woken)[""] == [ROOT]
    assert tree(cold)[ROOT] == ["cold start", "guest"]
    assert tree(woken)[ROOT] == ["wake", "guest"]
    # What it looks at before it writes is its affair.
    assert tree(cold)[f"{ROOT} > guest"][-1] == "call create ConfigMap"
    assert tree(cold)[f"{ROOT} > guest > call create ConfigMap"] == ["kubernetes CREATE configmaps"]
    assert tree(woken)[f"{ROOT} > guest"][-1] == "call update ConfigMap"
    assert tree(woken)[f"{ROOT} > guest > call update ConfigMap"] == ["kubernetes PUT configmaps"]
    for trace in (cold, woken):
        root = next(span for span in trace if not span.parent_id)
        assert (root.attributes["k8s.namespace.name"], root.attributes["trellis.attempt"]) == (tenant.name, 0)
        written = [span for span in trace if span.name in {"kubernetes CREATE configmaps", "kubernetes PUT configmaps"}]
        assert [(span.attributes["k8s.namespace.name"], span.attributes["k8s.object.name"]) for span in written] == [
            (target.name, "one")
        ]
        assert all(span.start_ns <= span.end_ns <= root.end_ns for span in trace)
        assert {span.status for span in trace} <= {"UNSET", "ERROR"}
        assert all(span.attributes.get("trellis.cluster") for span in trace)
    assert CONTENT not in repr(receiver.spans)


@pytest.mark.thorough
@pytest.mark.cluster
@pytest.mark.nats
async def test_a_guest_gets_its_span_and_no_span_contains_its_data(
    host: Host, tenant: Tenant, receiver: OtlpReceiver
) -> None:
    permissions = CONFIG_MAPS | {"resources": ["configmaps", "secrets"]}
    tenant.account("says", permissions)
    metadata = {"namespace": tenant.name, "name": "token"}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata}
    tenant.make(secret | {"data": {"token": base64.b64encode(CONTENT.encode()).decode()}})
    requested = {"op": "get", "apiVersion": "v1", "kind": "Secret"} | metadata
    tenant.module("says", logging_guest(requested, {"error": f"the token is {CONTENT}"}))
    tenant.controller("says", secretRefs=[{"name": "token"}])
    tenant.config_map("one", text=CONTENT)
    who = f"{tenant.name}/says"
    async with host.serving():
        await until(lambda: len(host.logged(logger=calling.__name__, controller=who)) > 1, "called, and once more")
        lines = host.logged(logger=calling.__name__, controller=who)
    first, again, *_ = traces(receiver.spans, who, "one")
    guests = [next(span for span in trace if span.name == "guest") for trace in (first, again)]
    parents = [json.loads(line["text"])["traceparent"].rpartition("-")[0] for line in lines]
    assert parents[:2] == [f"00-{guest.trace_id}-{guest.span_id}" for guest in guests]
    assert [guest.status for guest in guests] == ["ERROR", "ERROR"]
    roots = [next(span for span in trace if not span.parent_id) for trace in (first, again)]
    assert [root.attributes["trellis.attempt"] for root in roots] == [0, 1]
    assert "kubernetes GET secrets" in {span.name for span in first}
    shown = repr(receiver.spans)
    assert CONTENT not in shown
    assert base64.b64encode(CONTENT.encode()).decode() not in shown


@pytest.fixture
def jaeger_cluster() -> Iterator[ClusterInfo]:
    """A control plane with a real Jaeger."""
    with owned_cluster(jaeger=True) as info:
        yield info


@pytest.mark.thorough
@pytest.mark.jaeger
async def test_jaeger_shows_the_trace_of_a_call(jaeger_cluster: ClusterInfo, tmp_path: Path) -> None:
    api = Api.of_kubeconfig(Path(jaeger_cluster.kubeconfig))
    try:
        define(api)
        tenant, target = tenant_of(api), tenant_of(api)
        tenant.account("mirror", CONFIG_MAPS, namespaces=(tenant.name, target.name))
        tenant.module("mirror", prebuilt("mirror"))
        tenant.controller("mirror", config={"targetNamespace": target.name})
        host = Host(jaeger_cluster, jaeger_cluster.nats_url, tmp_path)
        host.settings["TRELLIS_OTLP_ENDPOINT"] = str(jaeger_cluster.otlp_endpoint)
        async with host.serving():
            tenant.config_map("one", x="1")
            await until(lambda: target.data("one") == {"x": "1"}, "mirrored")
        trace = await in_jaeger(jaeger_cluster, "one")
    finally:
        api.close()
    assert {process["serviceName"] for process in trace["processes"].values()} == {SERVICE}
    known = {span["spanID"] for span in trace["spans"]}
    assert [span["operationName"] for span in trace["spans"] if not span["references"]] == [ROOT]
    parents = [ref["spanID"] for span in trace["spans"] for ref in span["references"] if ref["refType"] == "CHILD_OF"]
    assert {*parents} <= known
    assert {"cold start", "guest", "call create ConfigMap"} <= {span["operationName"] for span in trace["spans"]}


async def in_jaeger(info: ClusterInfo, name: str) -> dict[str, Any]:
    """Return the trace of the call for an object from Jaeger's query API, once the write is in it."""
    url = f"{info.jaeger_url}/api/traces?service={SERVICE}&limit=20"

    def query() -> dict[str, Any] | None:
        with urllib.request.urlopen(url, timeout=10) as answer:
            found = json.load(answer)["data"]
        for trace in found:
            about = {tag["value"] for span in trace["spans"] for tag in span["tags"] if tag["key"] == "k8s.object.name"}
            names = {span["operationName"] for span in trace["spans"]}
            if name in about and "kubernetes CREATE configmaps" in names:
                return dict(trace)
        return None

    for _ in range(150):
        if (trace := await asyncio.to_thread(query)) is not None:
            return trace
        await asyncio.sleep(0.2)
    pytest.fail(f"Jaeger shows no whole trace of the call for {name}")
