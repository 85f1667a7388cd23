"""The time from annotated nodes to Jobs, beside the peer: ``python bench/provision.py [--peer KWASM_OPERATOR]``.

Each part starts a control plane of its own on this machine with simulated nodes, annotates all of them as fast as the
API server takes it, and watches what comes. ``--peer`` names a binary of the KWasm operator to be measured the same
way on the same kind of control plane, whose controllers have the client limits they have in any cluster. Every figure
is printed with the machine it was measured on.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from machine import describe
from trellis import names
from trellis.kube.access import Access
from trellis.kube.client import Kube
from trellis.kube.informer import Change, Informer
from trellis.kube.resources import JOBS, NODES
from trellis.telemetry import setup
from trellis.telemetry.health import Health
from trellis_dev.localcluster import ClusterInfo, local_cluster

SERVICES = ("node-watcher", "provisioner")
IN_FLIGHT = 40
LIMIT = 25
IDLE_SECONDS = 30


@dataclass
class Seen:
    """When what was seen, by node, in seconds of the monotonic clock."""

    annotated: dict[str, float] = field(default_factory=dict)
    job: dict[str, float] = field(default_factory=dict)
    labelled: dict[str, float] = field(default_factory=dict)
    changed: asyncio.Event = field(default_factory=asyncio.Event)


async def until(done: Callable[[], bool], seen: Seen, seconds: float, what: str) -> None:
    async with asyncio.timeout(seconds):
        while not done():
            seen.changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await seen.changed.wait()
    print(f"    … {what}", file=sys.stderr, flush=True)


@contextlib.asynccontextmanager
async def watching(info: ClusterInfo) -> AsyncIterator[tuple[Kube, Seen]]:
    """Watch Jobs and Nodes from a connection of its own."""
    telemetry = setup("bench")
    kube = await Kube.connect(Access(Path(info.kubeconfig)), telemetry=telemetry, health=Health("bench"))
    seen = Seen()

    def on_job(change: Change[str]) -> None:
        if change.new:
            seen.job.setdefault(change.new, time.monotonic())
            seen.changed.set()

    def on_node(change: Change[tuple[str, bool]]) -> None:
        if change.new and change.new[1]:
            seen.labelled.setdefault(change.new[0], time.monotonic())
            seen.changed.set()

    informers: list[Informer[Any]] = [
        Informer(kube, JOBS, lambda job: str(job["spec"]["template"]["spec"]["nodeName"]), on_job),
        Informer(
            kube,
            NODES,
            lambda node: (node["metadata"]["name"], names.LABEL_PROVISIONED in node["metadata"].get("labels", {})),
            on_node,
        ),
    ]
    tasks = [asyncio.create_task(informer.run()) for informer in informers]
    for informer in informers:
        await informer.synced.wait()
    try:
        yield kube, seen
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await kube.close()


async def annotate(kube: Kube, seen: Seen, nodes: list[str]) -> None:
    gate = asyncio.Semaphore(IN_FLIGHT)

    async def one(name: str) -> None:
        async with gate:
            patch = {"metadata": {"annotations": {names.ANNOTATION_OPT_IN: "true"}}}
            seen.annotated[name] = time.monotonic()
            await kube.merge_patch(NODES, name, patch, field_manager="bench")

    await asyncio.gather(*(one(name) for name in nodes))


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@contextlib.contextmanager
def process(command: list[str], environment: dict[str, str]) -> Iterator[psutil.Process]:
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with log.open("wb") as output:
            started = subprocess.Popen(command, env={**os.environ, **environment}, stdout=output, stderr=output)
        try:
            yield psutil.Process(started.pid)
            if started.poll() is not None:
                raise SystemExit(f"{command[0]} ended by itself:\n{log.read_text()[-3000:]}")
        finally:
            started.terminate()
            started.wait(30)


async def http_ready(port: int) -> None:
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(b"GET /readyz HTTP/1.0\r\n\r\n")
                status = await reader.readline()
                writer.close()
                if b" 200 " in status:
                    return
            await asyncio.sleep(0.1)


def trellis(info: ClusterInfo, port: int, max_unavailable: str) -> tuple[list[str], dict[str, str]]:
    environment = {
        "TRELLIS_KUBECONFIG": info.kubeconfig,
        "TRELLIS_NATS_URL": info.nats_url,
        "TRELLIS_HEALTH_PORT": str(port),
        "TRELLIS_INSTALLER_IMAGE": "example.com/installer:1",
        "TRELLIS_MAX_UNAVAILABLE": max_unavailable,
        "TRELLIS_LOG_LEVEL": "warning",
    }
    return [sys.executable, "-m", "trellis_cli", "run", *SERVICES], environment


def kwasm(binary: str, info: ClusterInfo, port: int) -> tuple[list[str], dict[str, str]]:
    environment = {
        "KUBECONFIG": info.kubeconfig,
        "CONTROLLER_NAMESPACE": "kwasm",
        "INSTALLER_IMAGE": "example.com/installer:1",
    }
    return [
        str(Path(binary).resolve()),
        f"--health-probe-bind-address=127.0.0.1:{port}",
        "--metrics-bind-address=127.0.0.1:0",
    ], environment


def percentile(values: list[float], share: float) -> float:
    return statistics.quantiles(values, n=100)[round(share * 100) - 1] if len(values) > 1 else values[0]


def report(title: str, seen: Seen, memory: dict[str, float], cpu: float) -> None:
    first = min(seen.annotated.values())
    waits = [seen.job[name] - at for name, at in seen.annotated.items()]
    print(f"{title}")
    print(f"  nodes annotated in             {max(seen.annotated.values()) - first:8.2f} s")
    print(f"  all Jobs exist after           {max(seen.job.values()) - first:8.2f} s   from the first annotation")
    print(f"  annotation → Job, p50 / p99    {percentile(waits, 0.5):8.2f} s / {percentile(waits, 0.99):.2f} s")
    print(f"  memory ready / peak            {memory['ready']:8.1f} MiB / {memory['peak']:.1f} MiB resident")
    print(f"  processor time                 {cpu:8.2f} s", flush=True)


async def measure(
    command: tuple[list[str], dict[str, str]], port: int, info: ClusterInfo, nodes: int, *, labelled: bool = False
) -> tuple[Seen, dict[str, float], float]:
    names_ = [f"node-{index:04d}" for index in range(nodes)]
    peak = 0.0
    async with watching(info) as (kube, seen):
        await ensure_namespace(kube)
        with process(*command) as running:
            await http_ready(port)
            ready = running.memory_info().rss / 2**20

            async def sample() -> None:
                nonlocal peak
                while True:
                    peak = max(peak, running.memory_info().rss / 2**20)
                    await asyncio.sleep(0.1)

            sampler = asyncio.create_task(sample())
            await annotate(kube, seen, names_)
            await until(lambda: len(seen.job) >= nodes, seen, 300, "all Jobs exist")
            if labelled:
                await until(lambda: len(seen.labelled) >= nodes, seen, 600, "all nodes are labelled")
                await asyncio.sleep(3)  # the Jobs are cleared away
            sampler.cancel()
            times = running.cpu_times()
            return seen, {"ready": ready, "peak": peak}, times.user + times.system


async def ensure_namespace(kube: Kube) -> None:
    await kube.ensure_namespace("kwasm", {})


async def all_at_once(nodes: int) -> None:
    async with local_cluster(nodes=nodes, quick_jobs=False) as info:
        port = free_port()
        seen, memory, cpu = await measure(trellis(info, port, "100%"), port, info, nodes)
        report(
            f"Trellis, {nodes} nodes at once, maxUnavailable 100%, both services in one process",
            seen,
            memory,
            cpu,
        )


async def to_the_label(nodes: int) -> None:
    """The whole way, with a controller manager that is not slowed by its client limits: does memory hold?"""
    async with local_cluster(nodes=nodes) as info:
        port = free_port()
        seen, memory, _ = await measure(trellis(info, port, "100%"), port, info, nodes, labelled=True)
        took = max(seen.labelled.values()) - min(seen.annotated.values())
        print(f"Trellis, {nodes} nodes at once, through to the label")
        print(f"  all nodes labelled after       {took:8.2f} s")
        print(f"  memory peak                    {memory['peak']:8.1f} MiB resident", flush=True)


async def peer(binary: str, nodes: int) -> None:
    async with local_cluster(nodes=nodes, quick_jobs=False) as info:
        port = free_port()
        seen, memory, cpu = await measure(kwasm(binary, info, port), port, info, nodes)
        report(f"KWasm operator, {nodes} nodes at once (it labels without waiting for the Job)", seen, memory, cpu)


async def limited(nodes: int) -> None:
    """Never more than the limit in progress, and nothing written when there is nothing to do: from the audit log."""
    async with local_cluster(nodes=nodes, audit=True) as info:
        port = free_port()
        assert info.audit_log is not None
        audit = Path(info.audit_log)
        async with watching(info) as (kube, seen):
            command = trellis(info, port, str(LIMIT))
            with process(*command):
                await http_ready(port)
                await annotate(kube, seen, [f"node-{index:04d}" for index in range(nodes)])
                await until(lambda: len(seen.labelled) >= nodes, seen, 900, "all nodes are labelled")
                took = max(seen.labelled.values()) - min(seen.annotated.values())
                await until(
                    lambda: not ours(audit, 0, "jobs", "delete") < nodes, seen, 120, "all Jobs are cleared away"
                )
                await asyncio.sleep(5)  # what is said last may still be on its way
                offset = size(audit)
                await asyncio.sleep(IDLE_SECONDS)
                idle = records(audit, offset)
        print(f"Trellis, {nodes} nodes, maxUnavailable {LIMIT} (from the API server's audit log)")
        most = most_in_progress(records(audit, 0))
        print(f"  most nodes in progress         {most:8d}")
        print(f"  all nodes labelled after       {took:8.2f} s")
        print(f"  writes by Trellis, in all      {len([r for r in records(audit, 0) if is_ours(r)]):8d}")
        others = [r for r in idle if is_ours(r) and r["objectRef"]["resource"] != "leases"]
        leases = [r for r in idle if is_ours(r) and r["objectRef"]["resource"] == "leases"]
        print(f"  idle for {IDLE_SECONDS} s: lease renewals  {len(leases):8d}, other writes {len(others)}", flush=True)
        if most > LIMIT or others:
            raise SystemExit("the limit or the silence was broken")


def size(audit: Path) -> int:
    return audit.stat().st_size


def records(audit: Path, since: int) -> list[dict[str, Any]]:
    with audit.open("rb") as log:
        log.seek(since)
        return [json.loads(line) for line in log if line.endswith(b"\n")]


def is_ours(record: dict[str, Any]) -> bool:
    return "trellis" in record.get("userAgent", "") and "bench" not in record.get("userAgent", "")


def ours(audit: Path, since: int, resource: str, verb: str) -> int:
    return sum(
        1 for r in records(audit, since) if is_ours(r) and r["verb"] == verb and r["objectRef"]["resource"] == resource
    )


def most_in_progress(history: list[dict[str, Any]]) -> int:
    """In progress: from the creation of a node's Job until the result is written on the Node."""
    at_work: set[str] = set()
    most = 0
    for record in history:
        if not is_ours(record) or record["responseStatus"]["code"] >= 300:
            continue
        reference, verb = record["objectRef"], record["verb"]
        if reference["resource"] == "jobs" and verb == "create":
            at_work.add(reference["name"].rsplit("-", 3)[0])
            most = max(most, len(at_work))
        elif reference["resource"] == "nodes" and verb == "patch":
            at_work.discard(reference["name"])
    return most


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1000, help="simulated nodes (default 1000)")
    parser.add_argument("--limited-nodes", type=int, default=200, help="nodes of the part with a limit (default 200)")
    parser.add_argument("--peer", metavar="BINARY", help="KWasm operator to measure beside it")
    parser.add_argument("--only", choices=["trellis", "peer", "limited"], help="one part alone")
    options = parser.parse_args()
    print(f"machine: {describe()}", flush=True)
    if options.only in (None, "trellis"):
        asyncio.run(all_at_once(options.nodes))
        asyncio.run(to_the_label(options.nodes))
    if options.peer and options.only in (None, "peer"):
        asyncio.run(peer(options.peer, options.nodes))
    elif not options.peer:
        print("KWasm operator: NOT RUN, give --peer BINARY (built from its public source)")
    if options.only in (None, "limited"):
        asyncio.run(limited(options.limited_nodes))


if __name__ == "__main__":
    main()
