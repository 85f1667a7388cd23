"""The time from the opt-in of a real node until it is ready for Wasm: ``python bench/real_node.py``.

One real node of its own on this machine (root, Linux), the services beside it, a Shim for nodes that opt in. In each
round the node is annotated, and followed to the label that the RuntimeClass selects on; then the annotation goes, and
the runtime with it. The parts of the time are from watches of this program, and from the spans of the services and of
the installer's Job, all on one clock. containerd's restarts are counted in its own log: one a change, or status 1.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import http.server
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
from machine import describe
from support.nodes.fleet import eventually
from support.nodes.installer_runs import NODE
from support.nodes.real_nodes import RealNode, containerd_restarts
from support.nodes.real_nodes import eventually as until_true
from support.nodes.rollouts import INSTALLERS, World, rollout_world
from trellis import names
from trellis.kube.access import Access
from trellis.kube.client import Kube
from trellis.kube.informer import Change, Informer
from trellis.kube.resources import JOBS, NODES, PODS, Manifest
from trellis.provisioning.nodes_and_jobs import view_job
from trellis.provisioning.views import INSTALLER_JOBS, JobState
from trellis.telemetry import setup
from trellis.telemetry.health import Health
from trellis_dev.localcluster import requirements, wasmshim

SHIM = "wasi"
INSTALLER = "trellis-node-installer"
WAIT_SECONDS = 180.0
OF_A_JOB = "batch.kubernetes.io/job-name"


@dataclass(frozen=True)
class Span:
    """One span, its times in seconds since 1970."""

    service: str
    name: str
    start: float
    end: float
    attributes: Mapping[str, Any]


@dataclass
class Collector:
    """Spans as services (protobuf) and installers (JSON) send them, on a port of all this machine's addresses."""

    spans: list[Span] = field(default_factory=list)
    port: int = 0

    def take(self, body: bytes, *, is_json: bool) -> None:
        """Keep the spans of one request."""
        value = json.loads(body) if is_json else MessageToDict(ExportTraceServiceRequest.FromString(body))
        for resource in value.get("resourceSpans", []):
            service = _attributes(resource["resource"]).get("service.name", "")
            for span in (span for scope in resource["scopeSpans"] for span in scope["spans"]):
                start, end = (int(span[key]) / 1e9 for key in ("startTimeUnixNano", "endTimeUnixNano"))
                self.spans.append(Span(service, span["name"], start, end, _attributes(span)))

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take requests while the block runs."""
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                collector.take(body, is_json="json" in self.headers["Content-Type"])
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        with http.server.ThreadingHTTPServer(("0.0.0.0", 0), Handler) as server:
            self.port = server.server_port
            threading.Thread(target=server.serve_forever, daemon=True).start()
            yield
            server.shutdown()


def _attributes(item: Mapping[str, Any]) -> dict[str, Any]:
    return {pair["key"]: next(iter(pair["value"].values()), None) for pair in item.get("attributes", [])}


@dataclass
class Seen:
    """Times of the first watch events since :meth:`begin`, in seconds since 1970."""

    moments: dict[str, float] = field(default_factory=dict)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def mark(self, moment: str) -> None:
        """Note that something is seen now."""
        self.moments.setdefault(moment, time.time())
        self.changed.set()

    async def until(self, moment: str) -> None:
        """Wait until something is seen."""
        async with asyncio.timeout(WAIT_SECONDS):
            while moment not in self.moments:
                self.changed.clear()
                await self.changed.wait()

    def on_node(self, change: Change[frozenset[str]]) -> None:
        """Take what a Node shows."""
        for moment in change.new or ():
            self.mark(moment)

    def on_job(self, change: Change[str]) -> None:
        """Take how a Job stands."""
        if change.new:
            self.mark(change.new)

    def on_pod(self, change: Change[str]) -> None:
        """Take how a canary stands."""
        if change.new:
            self.mark(change.new)


def of_node(node: Manifest) -> frozenset[str]:
    """Return what a Node shows of the moments that count."""
    labels, annotations = node["metadata"].get("labels") or {}, node["metadata"].get("annotations") or {}
    listed = {handler["name"] for handler in node["status"].get("runtimeHandlers") or ()}
    return frozenset(
        {
            "handler listed" if SHIM in listed else "handler gone",
            "label" if labels.get(names.LABEL_WASM_READY) else "no label",
            "marked" if names.ANNOTATION_SHIMS in annotations else "unmarked",
        }
    )


def of_job(job: Manifest) -> str:
    """Return how a Job stands."""
    return "Job done" if view_job(job).state is JobState.COMPLETE else "Job"


def of_pod(pod: Manifest) -> str:
    """Return the state of a canary; the spans of an installer have the same."""
    if OF_A_JOB in (pod["metadata"].get("labels") or {}):
        return ""
    return "canary ended" if pod["status"].get("phase") == "Succeeded" else "canary"


async def provision(kube: Kube, seen: Seen, collector: Collector) -> dict[str, float]:
    """Annotate the node and follow it to its label; return the seconds of each part."""
    seen.moments.clear()
    begin = time.time()
    await kube.merge_patch(NODES, NODE, annotated("true"), field_manager="bench")
    await seen.until("label")
    expected = {"installer install", "create installer job", "plan rollout"}
    await eventually(lambda: expected <= {span.name for span in since(collector, begin)}, "spans", seconds=WAIT_SECONDS)
    spans, at = since(collector, begin), seen.moments
    install = next(span for span in spans if span.name == "installer install")
    plans = [span for span in spans if span.name == "plan rollout" and int(span.attributes["trellis.claimed"])]
    job = next(span for span in spans if span.name == "create installer job")
    steps: dict[str, float] = {}
    for span in sorted((span for span in spans if span.service == INSTALLER), key=lambda span: span.start):
        if span is not install:
            steps[span.name] = steps.get(span.name, 0.0) + span.end - span.start
    return {
        "asked → slot claimed": plans[0].end - begin,
        "slot claimed → Job created": job.end - plans[0].end,
        "Job created → installer begins": install.start - job.end,
        **{f"installer: {name}": seconds for name, seconds in steps.items()},
        "installer: between its steps": install.end - install.start - sum(steps.values()),
        "installer ended → Job done": at["Job done"] - install.end,
        "Job done → handler listed": max(0.0, at["handler listed"] - at["Job done"]),
        "both → canary pod made": max(0.0, at["canary"] - max(at["handler listed"], at["Job done"])),
        "canary pod created → succeeded": at["canary ended"] - at["canary"],
        "canary ended → label": at["label"] - at["canary ended"],
        "in all": at["label"] - begin,
    }


def since(collector: Collector, begin: float) -> list[Span]:
    """Return the spans that began since then."""
    return [span for span in collector.spans if span.start >= begin]


async def remove(kube: Kube, seen: Seen) -> float:
    """Take the annotation away; return the seconds until nothing is left."""
    seen.moments.clear()
    begin = time.time()
    await kube.merge_patch(NODES, NODE, annotated(None), field_manager="bench")
    await seen.until("unmarked")
    return seen.moments["unmarked"] - begin


def annotated(value: str | None) -> Manifest:
    """Return the patch that sets KWasm's annotation."""
    return {"metadata": {"annotations": {names.ANNOTATION_OPT_IN: value}}}


async def rounds(
    world: World, collector: Collector, count: int
) -> tuple[list[dict[str, float]], list[float], set[int]]:
    """Return the parts of each round, the removals, and the restarts of a change."""
    kube = await Kube.connect(Access(world.info.kubeconfig), telemetry=setup("bench"), health=Health("bench"))
    seen, node = Seen(), RealNode(world.info)
    informers: list[Informer[Any]] = [
        Informer(kube, NODES, of_node, seen.on_node),
        Informer(kube, JOBS, of_job, seen.on_job, label_selector=INSTALLER_JOBS),
        Informer(kube, PODS, of_pod, seen.on_pod, namespace=INSTALLERS),
    ]
    tasks = [asyncio.create_task(informer.run()) for informer in informers]
    for informer in informers:
        await informer.synced.wait()
    parts, removals, restarts = [], [], set()
    for number in range(count):
        for what in ("install", "remove"):
            before = containerd_restarts(node)
            if what == "install":
                parts.append(await provision(kube, seen, collector))
            else:
                removals.append(await remove(kube, seen))
                await eventually(lambda: not world.jobs(), "no Job is left", seconds=WAIT_SECONDS)
            restarts.add(containerd_restarts(node) - before)
        print(f"    … round {number + 1}: {parts[-1]['in all']:.2f} s", file=sys.stderr, flush=True)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await kube.close()
    return parts, removals, restarts


def report(parts: list[dict[str, float]], removals: list[float]) -> None:
    """Print a line a part: shortest, median, longest."""
    table = {name: [part.get(name, 0.0) for part in parts] for name in parts[0]}
    table["removed, in all"] = removals
    print(f"{'seconds':<34} {'min':>8} {'median':>8} {'max':>8}")
    for name, values in table.items():
        print(f"{name:<34} {min(values):8.2f} {statistics.median(values):8.2f} {max(values):8.2f}")


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="how often (5)")
    options = parser.parse_args()
    print(
        f"machine: {describe()}\none real node, {options.rounds} rounds, the shim served from this machine", flush=True
    )
    if (reason := requirements.missing() or wasmshim.missing()) is not None:
        print(f"NOT RUN: {reason}")
        return 0
    collector = Collector()
    with tempfile.TemporaryDirectory(prefix="trellis-bench-") as folder, collector.listening():
        own, theirs = f"http://127.0.0.1:{collector.port}", f"http://{{machine}}:{collector.port}"
        endpoints = {"otlp_endpoint": own, "installer_otlp_endpoint": theirs}
        with redirect_stdout(sys.stderr), rollout_world(Path(folder), real_nodes=1, **endpoints) as world:
            shim = world.shim(SHIM, "v1")
            shim["metadata"]["labels"] = {names.LABEL_KWASM_DEFAULT: "true"}
            world.apply(shim)
            until_true(lambda: bool(world.condition(SHIM, "Available")), "the services know the Shim")
            parts, removals, restarts = asyncio.run(rounds(world, collector, options.rounds))
    report(parts, removals)
    print(f"restarts of containerd a change: {', '.join(map(str, sorted(restarts)))}")
    return 0 if restarts == {1} else 1


if __name__ == "__main__":
    sys.exit(main())
