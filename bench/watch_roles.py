"""The two processes that ``bench/watch.py`` starts in Python: who writes Nodes, and our informer that watches them.

In: a role, the path of a kubeconfig, and commands on standard input, one a line. Out: one JSON object a line, as
``peers/clientgo`` gives them. Times are nanoseconds since 1970 of this machine's clock. Each is a process of its own,
so that neither the writing nor the measuring runs in the event loop that is measured.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from trellis.kube.access import Access
from trellis.kube.client import Kube
from trellis.kube.informer import Change, Informer
from trellis.kube.resources import NODES, Manifest
from trellis.provisioning.node_shape import NODE_SHAPE
from trellis.provisioning.nodes_and_jobs import view_node
from trellis.provisioning.views import NodeView
from trellis.runtime import gc
from trellis.telemetry import setup
from trellis.telemetry.health import Health

ANNOTATION = "bench.trellis.dev/sent"
IN_FLIGHT = 8
"""With more the server would be measured, which queues what it cannot take at once."""


def answer(**what: object) -> None:
    print(json.dumps(what), flush=True)


async def commands() -> AsyncIterator[list[str]]:
    while line := await asyncio.to_thread(sys.stdin.readline):
        yield line.split()


@dataclass(frozen=True, slots=True)
class Seen:
    """The view of a Node in the services, and the time of its write."""

    view: NodeView
    sent: str | None


def project(manifest: Manifest) -> Seen:
    return Seen(view_node(manifest), (manifest["metadata"].get("annotations") or {}).get(ANNOTATION))


async def watch(kube: Kube) -> None:
    """Watch Nodes by the informer every service uses."""
    seen: list[tuple[str, int, int]] = []

    def on_change(change: Change[Seen]) -> None:
        now = time.time_ns()
        new, old = change.new, change.old
        if new is not None and new.sent is not None and old is not None and old.sent != new.sent:
            seen.append((change.key, int(new.sent), now))

    informer = Informer(kube, NODES, project, on_change, shape=NODE_SHAPE)
    running: asyncio.Task[None] | None = None
    async for command, *_ in commands():
        if command == "report":
            answer(seen=seen)
            seen.clear()
            continue
        # A relist is what begins a run: what is known stays known and is compared with what comes.
        if running is not None:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        informer.synced.clear()
        began = time.perf_counter()
        running = asyncio.create_task(informer.run())
        await informer.synced.wait()
        answer(seconds=time.perf_counter() - began, objects=len(informer.objects), accept="application/json")


async def write(kube: Kube, nodes: list[str], rate: float, count: int) -> list[tuple[str, int, int]]:
    """Annotate Nodes in turn with the time, so many a second, whether or not earlier ones were answered."""
    written: list[tuple[str, int, int]] = []
    gate = asyncio.Semaphore(IN_FLIGHT)

    async def one(name: str) -> None:
        async with gate:
            sent = time.time_ns()
            patch = {"metadata": {"annotations": {ANNOTATION: str(sent)}}}
            await kube.merge_patch(NODES, name, patch, field_manager="bench")
            written.append((name, sent, time.time_ns()))

    loop = asyncio.get_running_loop()
    began = loop.time()
    async with asyncio.TaskGroup() as tasks:
        for number in range(count):
            await asyncio.sleep(max(0.0, began + number / rate - loop.time()))
            tasks.create_task(one(nodes[number % len(nodes)]))
    return written


async def writer(kube: Kube) -> None:
    async for rate, count, *nodes in commands():
        answer(written=await write(kube, nodes, float(rate), int(count)))


async def main(role: str, kubeconfig: str) -> None:
    kube = await Kube.connect(Access(Path(kubeconfig)), telemetry=setup("bench"), health=Health("bench"))
    await kube.probe()
    gc.freeze()  # as the services do
    answer(ready=True)
    await {"watch": watch, "write": writer}[role](kube)
    await kube.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
