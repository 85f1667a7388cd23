"""One trace from the watch event that saw the annotation to the label, across both services, the bus and the Job."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.nodes.fleet import Fleet, eventually
from trellis import names
from trellis_dev.localcluster import ClusterInfo, owned_cluster
from trellis_dev.localcluster.api import Api
from trellis_dev.localcluster.otlp import OtlpReceiver, Span

WANTED = {"installer job", "publish provision.started", "publish provision.succeeded", "publish node.ready"}
WATCHER, PROVISIONER = "trellis-node-watcher", "trellis-provisioner"


def chain(spans: list[Span], last: Span) -> list[tuple[str, str]]:
    """Return (service, name) from the root of the trace to a span."""
    by_id = {span.span_id: span for span in spans}
    path = [last]
    while path[-1].parent_id:
        path.append(by_id[path[-1].parent_id])
    return [(span.service, span.name) for span in reversed(path)]


@pytest.mark.thorough
@pytest.mark.cluster
async def test_one_trace_reaches_from_the_annotation_to_the_label(fleet: Fleet) -> None:
    receiver = OtlpReceiver()
    endpoint = await receiver.start()
    try:
        async with fleet.services(otlp_endpoint=endpoint):
            await fleet.both_listen()
            [name] = fleet.add("node")
            jobs = await eventually(fleet.jobs, "a Job")
            [env] = [c["env"] for c in jobs[0]["spec"]["template"]["spec"]["containers"]]
            traceparent = {entry["name"]: entry["value"] for entry in env}["TRACEPARENT"]
            await fleet.all_provisioned([name])
            await fleet.quiet()
        # the services have ended and sent what they had
        spans = await receiver.wait_for(lambda seen: {span.name for span in seen} >= WANTED, 20)
    finally:
        await receiver.stop()
    trace_id = traceparent.split("-")[1]
    trace = [span for span in spans if span.trace_id == trace_id]
    [patch] = [span for span in trace if span.name == "kubernetes PATCH nodes"]
    assert chain(trace, patch) == [
        (WATCHER, f"reconcile node {name}"),
        (PROVISIONER, f"reconcile jobs {name}"),
        (PROVISIONER, "create installer job"),
        (WATCHER, f"reconcile node {name}"),
        (WATCHER, "kubernetes PATCH nodes"),
    ]
    [received] = [span for span in trace if span.name == "receive node.opted_in"]
    assert chain(trace, received) == [
        (WATCHER, f"reconcile node {name}"),
        (WATCHER, "publish node.opted_in"),
        (PROVISIONER, "receive node.opted_in"),
    ]
    create = next(span for span in trace if span.name == "create installer job")
    assert create.span_id == traceparent.split("-")[2]
    assert {span.name for span in trace} >= WANTED
    assert all(span.attributes.get("trellis.cluster") == fleet.id for span in trace)


@pytest.fixture
def jaeger_cluster() -> Iterator[ClusterInfo]:
    """A control plane with a real Jaeger."""
    with owned_cluster(jaeger=True) as info:
        yield info


@pytest.mark.thorough
@pytest.mark.jaeger
async def test_jaeger_shows_the_trace_of_a_node(jaeger_cluster: ClusterInfo) -> None:
    api = Api.of_kubeconfig(Path(jaeger_cluster.kubeconfig))
    fleet = Fleet(jaeger_cluster, api)
    try:
        async with fleet.services(otlp_endpoint=jaeger_cluster.otlp_endpoint):
            await fleet.both_listen()
            [name] = fleet.add("node")
            await fleet.all_provisioned([name])
        trace = await in_jaeger(jaeger_cluster, name)
    finally:
        api.close()
    services = {process["serviceName"] for process in trace["processes"].values()}
    assert services == {WATCHER, PROVISIONER}
    known = {span["spanID"] for span in trace["spans"]}
    roots = [span for span in trace["spans"] if not span["references"]]
    assert [root["operationName"] for root in roots] == [f"reconcile node {name}"]
    parents = [ref["spanID"] for span in trace["spans"] for ref in span["references"] if ref["refType"] == "CHILD_OF"]
    assert {*parents} <= known
    assert "kubernetes PATCH nodes" in {span["operationName"] for span in trace["spans"]}


async def in_jaeger(info: ClusterInfo, node: str) -> dict[str, Any]:
    """Return the trace of a node from Jaeger's query API, once the label's write is in it."""
    url = f"{info.jaeger_url}/api/traces?service={WATCHER}&limit=20"

    def query() -> dict[str, Any] | None:
        with urllib.request.urlopen(url, timeout=10) as answer:
            found = json.load(answer)["data"]
        for trace in found:
            names_ = {span["operationName"] for span in trace["spans"]}
            if f"reconcile node {node}" in names_ and "publish node.ready" in names_:
                return dict(trace)
        return None

    for _ in range(150):
        if (trace := await asyncio.to_thread(query)) is not None:
            return trace
        await asyncio.sleep(0.2)
    pytest.fail(f"Jaeger shows no whole trace of {node} ({names.ANNOTATION_OPT_IN})")
