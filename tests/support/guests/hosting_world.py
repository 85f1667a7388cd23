"""A host of controllers whose guests, watches and sources are a test's own, on a real directory.

In: programs by their bytes, objects, specs. Out: requests to guests. Called by the tests of hosting.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from controller_host.domain.maximum_limits import Acceptance, MaximumLimits
from controller_host.domain.residents import Residents
from controller_host.domain.views import ControllerView, view_controller
from controller_host.guest.faults import FaultKind, GuestFault
from controller_host.host_calls.calling import Calling
from controller_host.module.preparing import Preparing
from controller_host.scheduler.hosted import Hosted
from controller_host.scheduler.hosting import Hosting
from controller_host.scheduler.outcomes import Callbacks, Outcomes
from controller_host.scheduler.starting import Parts
from controller_host.scheduler.turns import Places
from controller_host.state.disk_space import DiskSpace
from controller_host.state.progress import Progress
from controller_host.timings import Timings
from controller_host.watches.delivery_selection import DeliverySelection
from support.guests.fake_guests import Behaviour, FakeGuests, FakeInstance
from support.guests.hosting_parts import SomeSources, SomeWatches
from trellis.bus.consume.queue import KeyedQueue
from trellis.kube.resources import NAMESPACES
from trellis.limits.backoff import Backoff
from trellis.telemetry import TraceContext, setup
from trellis.telemetry.metrics import Metrics
from trellis_dev.fakes.fake import FakeKube

DEADLINE = 40.0

KEY = "team-a/mirror"


class World:
    """A host, its disk, and everything around it. ``restart`` makes another one on the same disk."""

    def __init__(self, directory: Path, programs: dict[bytes, Behaviour]) -> None:
        self.directory = directory
        self.telemetry = setup("test", metrics=Metrics())
        self.kube = FakeKube(telemetry=self.telemetry)
        self.kube.put(NAMESPACES, {"metadata": {"name": "team-a"}})
        self.guests = FakeGuests(programs)
        self.watches = SomeWatches()
        self.sources = SomeSources()
        self.sources.modules = {name.decode(): name for name in programs}
        self.views: dict[str, ControllerView] = {}
        self.seen: list[tuple[str, str, int]] = []
        self.changed: list[str] = []
        self.budget = 0
        self.threads = 8
        self.sources_interval = 0.05
        self.shared = 0.0
        self.maximum_limits = MaximumLimits()
        self.timings = Timings()

    def add(
        self, program: str, name: str = "mirror", generation: int = 1, namespace: str = "team-a", **spec: Any
    ) -> str:
        metadata = {"namespace": namespace, "name": name, "uid": f"uid-{name}", "generation": generation}
        body = {
            "module": {"configMap": {"name": program, "key": "module.wasm"}},
            "serviceAccountName": "mirror",
            "watches": [{"apiVersion": "v1", "kind": "ConfigMap"}],
            "idle": {"suspendAfter": "0s"},
        } | spec
        view = view_controller({"metadata": metadata, "spec": body})
        self.views[view.key] = view
        if hasattr(self, "queue"):
            self.queue.add(view.key)
        return view.key

    @asynccontextmanager
    async def running(self) -> AsyncIterator[World]:
        progress = Progress(self.directory)
        pool = ThreadPoolExecutor(self.threads)

        class NoKinds:
            async def resource(self, api_version: str, kind: str) -> Any:
                raise AssertionError((api_version, kind))

        calling = Calling(lambda _: self.kube, NoKinds(), self.telemetry, lambda _: None)
        self.queue = KeyedQueue[str](workers=self.threads, name="controllers", telemetry=self.telemetry)
        self.hosting = Hosting(
            parts=Parts(self.guests, progress, self.telemetry, DiskSpace(timings=self.timings.disk), self.timings),
            calling=calling,
            preparing=Preparing(lambda _: self.kube, self.sources, self.guests, progress, pool, self.shared),
            selection=DeliverySelection(self.watches, self.timings.turns),
            outcomes=Outcomes(
                Callbacks(lambda item: self.changed.append(item.key), lambda _: None, lambda _: None),
                Backoff(first=0.01, cap=0.05),
            ),
            pool=pool,
            residents=Residents(self.budget),
            views=self.views,
            sources_interval=self.sources_interval,
            wake=self.queue.add,
            acceptance=Acceptance(self.maximum_limits),
            places=Places(self.threads),
        )
        self.turns = 0
        work = asyncio.create_task(self.queue.work(self._turn))
        for key in self.views:
            self.queue.add(key)
        try:
            yield self
            await asyncio.gather(self.queue.drain(2.0), self.hosting.close(2.0))
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            pool.shutdown()
            progress.close()

    async def _turn(self, key: str, trace: TraceContext | None) -> float | None:
        self.turns += 1
        return await self.hosting.run(key, trace)

    def one(self, key: str = KEY) -> Hosted:
        return self.hosting.hosted[key]

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        async with asyncio.timeout(DEADLINE):
            while not condition():  # noqa: ASYNC110 - of many parts
                await asyncio.sleep(0.005)
        assert condition(), what

    async def at_rest(self, key: str = KEY) -> None:
        """Wait until a controller is prepared and has nothing to do."""

        def is_so() -> bool:
            item = self.hosting.hosted.get(key)
            return (
                item is not None
                and item.listed
                and not item.busy
                and not len(item.work_queue)
                and self.queue.depth == 0
            )

        await self.until(is_so, "at rest")


def names_in(requests: Iterable[dict[str, Any]]) -> list[str]:
    return [request["key"]["name"] for request in requests]


class Recorder:
    """A guest that records its requests, in memory and out of it."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.inits: list[dict[str, Any]] = []
        self.counts: list[int] = []

    def __call__(self, instance: FakeInstance, export: str, request: dict[str, Any]) -> dict[str, Any]:
        if export == "init":
            self.inits.append(request)
            return {}
        if export == "save":
            return {"count": instance.state.get("count", 0)}
        if export == "migrate":
            instance.state["count"] = request["from"]["state"]["count"]
            self.inits.append(request)
            return {}
        instance.state["count"] = instance.state.get("count", 0) + 1
        self.counts.append(instance.state["count"])
        self.requests.append(request)
        return self.answer(instance, request)

    def answer(self, instance: FakeInstance, request: dict[str, Any]) -> dict[str, Any]:
        del instance, request
        return {}


def trapping(kind: FaultKind = FaultKind.TRAPPED, on: str = "bad") -> Behaviour:
    def behave(instance: FakeInstance, export: str, request: dict[str, Any]) -> dict[str, Any]:
        del instance
        if export == "reconcile" and request["key"]["name"] == on:
            raise GuestFault(kind, "unreachable")
        return {}

    return behave


class Hostile(Recorder):
    """A guest that keeps the thread that it is called in until the test is over."""

    def __init__(self) -> None:
        super().__init__()
        self.over = threading.Event()
        self.inside = 0

    def __call__(self, instance: FakeInstance, export: str, request: dict[str, Any]) -> dict[str, Any]:
        del instance, export, request
        self.inside += 1
        self.over.wait(DEADLINE * 2)
        self.inside -= 1
        return {}
