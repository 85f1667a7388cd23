"""The reports of provisioner about workloads, over an API server in memory and a bus in memory.

In: objects. Out: the published events, the Warning Events, the requests. Called by tests.
"""

from __future__ import annotations

import asyncio
import http
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

from provisioner.cache import Cache
from provisioner.domain.shim_resources import view_runtime_class
from provisioner.settings import Settings
from provisioner.timings import Timings, WorkloadTimings
from provisioner.workloads.reconciler import KEY
from provisioner.workloads.wiring import Workloads
from support.cluster.kube_world import until
from support.wasm_pods.objects import WORLD, Manifest, kube_of, workload
from trellis.events.envelope import EventData
from trellis.events.wasm_workloads import WasmWorkloadEventData
from trellis.kube.recorder import EventRecorder
from trellis.kube.resources import (
    DEPLOYMENTS,
    EVENTS,
    NODES,
    PODS,
    REPLICA_SETS,
    RUNTIME_CLASSES,
    SHIMS,
    Resource,
)
from trellis.kube.transport import HttpRequest, Reply
from trellis.provisioning.nodes_and_jobs import view_node
from trellis.provisioning.shims import view_shim
from trellis.runtime.run import Base
from trellis.telemetry import current_trace
from trellis_dev.fakes.fake import status_reply

SHORT = WorkloadTimings(
    settle=0.01,
    classes=0.01,
    look=0.05,
    patience=0.0,
    events_again=0.2,
    events_wait=0.02,
    steady=0.0,
    measure=0.0,
    publish=0.01,
    refused_again=0.02,
)
Objects = Sequence[tuple[Resource, Manifest]]


class SomeBus:
    """Stores events by ID; ``trouble``: the error of the next attempts. ``restored``: events of an older stream.

    ``readable``: cleared while JetStream does not answer.
    """

    def __init__(self) -> None:
        self.stored: dict[str, WasmWorkloadEventData] = {}
        self.restored: list[EventData] = []
        self.traces: list[str] = []
        self.trouble: Exception | None = None
        self.connected, self.readable = asyncio.Event(), asyncio.Event()
        self.connected.set()
        self.readable.set()

    async def publish(self, event: WasmWorkloadEventData, *, dedup: str) -> None:
        if self.trouble is not None:
            raise self.trouble
        trace = current_trace()
        assert trace is not None
        assert dedup not in self.stored
        self.traces.append(trace.trace_id)
        self.stored[dedup] = event

    async def last_events(self, models: Sequence[type[EventData]]) -> AsyncIterator[EventData]:
        await self.readable.wait()
        for item in self.restored:
            assert isinstance(item, tuple(models))
            yield item

    @property
    def published(self) -> list[str]:
        return [
            " ".join(filter(None, (item.event_name, item.kind, item.name, getattr(item, "reason", ""))))
            for item in self.stored.values()
        ]


class World:
    """The parts as ``app`` wires them, over the objects of an API server, with a loop in place of the queue."""

    def __init__(self, objects: Objects, timings: WorkloadTimings = SHORT, **settings: Any) -> None:
        self.kube = kube_of(*WORLD, *objects, spinkube=True)
        self.bus, self.timings = SomeBus(), timings
        self.nodes = {found.name: found for found in map(view_node, self.kube.objects(NODES))}
        self.shims = {found.name: found for found in map(view_shim, self.kube.objects(SHIMS))}
        self.classes = {found.name: found for found in map(view_runtime_class, self.kube.objects(RUNTIME_CLASSES))}
        self.settings = settings
        self.begin()

    def begin(self) -> None:
        """Begin a leadership term."""
        kube, telemetry = self.kube, self.kube.telemetry
        timings = Timings(workloads=self.timings)
        cache = Cache(kube, Settings(**self.settings), self.nodes, self.shims, timings=timings)
        base = cast("Base", SimpleNamespace(kube=kube, bus=self.bus, telemetry=telemetry))
        self.parts = Workloads(base, cache, EventRecorder(kube, component="test"), self.classes, lambda: True)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async def reconcile() -> None:
            while True:
                await self.parts.reconciler.run(KEY, None)
                await asyncio.sleep(0.01)

        tasks = [asyncio.create_task(self.parts.run()), asyncio.create_task(reconcile())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            done = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(item, asyncio.CancelledError) for item in done), done

    async def until_published(self, *wanted: str) -> None:
        await until(lambda: self.bus.published == [*wanted], f"{wanted}, not {self.bus.published}")

    @property
    def warnings(self) -> list[tuple[str, str, str]]:
        found = [item for item in self.kube.objects(EVENTS) if item.get("reportingComponent") == "test"]
        return [(item["involvedObject"]["kind"], item["involvedObject"]["name"], item["reason"]) for item in found]

    def change(self, manifest: Manifest) -> None:
        """Replace a pod, with its UID."""
        stored = next(
            item for item in self.kube.objects(PODS) if item["metadata"]["name"] == manifest["metadata"]["name"]
        )
        kept = {name: stored["metadata"][name] for name in ("uid", "creationTimestamp", "ownerReferences")}
        self.kube.put(PODS, manifest | {"metadata": manifest["metadata"] | kept})

    def reads(self, part: str) -> list[HttpRequest]:
        """Return the reads of paths with this part."""
        return [request for request in self.kube.api.requests if part in request.path and request.method == "GET"]

    def reads_of_events(self) -> list[str]:
        """Return the field selectors of the reads of Events about one pod."""
        found = (request.query.get("fieldSelector", "") for request in self.reads("/events"))
        return [selector for selector in found if "involvedObject.uid" in selector]


def forbidden(request: HttpRequest) -> Reply:
    """Answer that the account may not read this."""
    return status_reply(http.HTTPStatus.FORBIDDEN, "Forbidden", f"cannot read {request.path}")


def owned(manifest: Manifest, version: str) -> Manifest:
    """Set the API version of the controller of an object."""
    [owner] = manifest["metadata"]["ownerReferences"]
    owner["apiVersion"] = version
    return manifest


def of_deployment(*pods: Callable[[tuple[str, str, str]], Manifest]) -> Objects:
    """Return a Deployment, its ReplicaSet, and pods of it."""
    replica_set = owned(workload("hello-1", owner=("Deployment", "hello", "uid-hello")), "apps/v1")
    made = [owned(make(("ReplicaSet", "hello-1", "uid-hello-1")), "apps/v1") for make in pods]
    return [(DEPLOYMENTS, workload()), (REPLICA_SETS, replica_set), *((PODS, item) for item in made)]
