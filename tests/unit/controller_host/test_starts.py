"""The work of a start of the whole service: turns, calls and requests for each controller, counted, not timed.

The service as ``app`` joins it, with real guests, over an API server in memory.
"""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import threading
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pytest

from controller_host.app import compose
from controller_host.guest.runtime import Runtime
from controller_host.module import loading
from controller_host.settings import Settings
from controller_host.timings import Timings, TurnTimings
from trellis.events.envelope import EventData
from trellis.kube.resources import CONFIGMAPS, NAMESPACES, WASM_CONTROLLERS
from trellis.kube.transport import HttpRequest, Reply
from trellis.runtime.service import Base, Work
from trellis.telemetry import Telemetry, setup
from trellis.telemetry.health import Health
from trellis.telemetry.metrics import Metrics
from trellis_dev.fakes.fake import FakeKube

RING = Path(__file__).parents[3] / "deploy" / "examples" / "controllers" / "ring.wasm"
SIZE = 12
DEADLINE = 30.0


class SilentBus:
    async def publish(self, event: EventData, *, dedup: str) -> None:
        assert event.event_name
        assert dedup


@dataclass
class Term:
    """One process's time: its parts at work."""

    work: Work
    telemetry: Telemetry
    kube: FakeKube
    health: Health

    def metric(self, name: str, **labels: str) -> float:
        found = self.telemetry.metrics.registry.get_sample_value(name, {"service": "controller_host"} | labels)
        return found or 0.0

    @property
    def turns(self) -> float:
        return self.metric("trellis_handler_seconds_count", queue="controllers")

    @property
    def calls(self) -> float:
        return self.metric("trellis_controller_call_seconds_count")

    @property
    def statuses(self) -> Counter[str]:
        """Return how often each controller's status was written."""
        return Counter(
            request.path.split("/")[-2]
            for request in self.kube.api.requests
            if request.method == "PATCH" and request.path.endswith("/status")
        )

    @property
    def others(self) -> int:
        """Requests that are no writes of a status."""
        return len(self.kube.api.requests) - self.statuses.total()

    async def until(self, state: str) -> None:
        async with asyncio.timeout(DEADLINE):
            while (  # noqa: ASYNC110 - of many parts
                self.metric("trellis_controllers", state=state) != SIZE
                or self.turns < SIZE
                or any(queue.depth for queue in self.work.queues)
            ):
                await asyncio.sleep(0.05)


@dataclass
class Cluster:
    """The parts that outlive a process: the API server, the disk."""

    directory: Path
    kube: FakeKube = field(default_factory=FakeKube)
    timings: Timings = field(default_factory=Timings)

    def __post_init__(self) -> None:
        modules = self.directory / "modules"
        modules.mkdir()
        shutil.copy(RING, modules)
        self.kube.api.fault = allow
        self.kube.put(NAMESPACES, {"metadata": {"name": "team-a"}})
        module = {"path": RING.name, "sha256": hashlib.sha256(RING.read_bytes()).hexdigest()}
        for number in range(SIZE):
            metadata: dict[str, Any] = {"namespace": "team-a", "name": f"ring-{number}"}
            self.kube.put(CONFIGMAPS, {"metadata": metadata | {"labels": {"ring": str(number)}}})
            watch = {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "labelSelector": {"matchLabels": {"ring": str(number)}},
            }
            spec = {
                "module": module,
                "serviceAccountName": "ring",
                "watches": [watch],
                "config": {"next": f"ring-{(number + 1) % SIZE}"},
                "idle": {"suspendAfter": "0s"},
            }
            self.kube.put(WASM_CONTROLLERS, {"metadata": metadata | {"generation": 1}, "spec": spec})

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Term]:
        """Run the service until it is to end, and end it as it ends itself."""
        self.kube.api.requests.clear()
        telemetry = setup("controller_host", metrics=Metrics())
        settings = Settings(
            nats_url="nats://127.0.0.1:1",
            controller_data_dir=self.directory / "data",
            controller_modules_dir=self.directory / "modules",
            controller_resources=("v1/ConfigMap",),
        )
        health = Health("controller_host")
        base = Base(telemetry, health, self.kube, SilentBus(), "test")  # type: ignore[arg-type]
        work = compose(settings, base, timings=self.timings)
        tasks = [asyncio.create_task(informer.run()) for informer in work.informers]
        tasks += [asyncio.create_task(run()) for run in work.background]
        try:
            await asyncio.gather(*(informer.synced.wait() for informer in work.informers))
            assert work.prepare is not None
            await work.prepare()
            tasks += [asyncio.create_task(queue.work(run)) for queue, run in work.queues.items()]
            work.list_all()
            yield Term(work, telemetry, self.kube, health)
            await asyncio.gather(*(close(5.0) for close in work.closing))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def allow(request: HttpRequest) -> Reply | None:
    """Answer reviews, which the API server in memory knows nothing of."""
    if request.path.endswith("subjectaccessreviews"):
        return Reply(201, orjson.dumps({"status": {"allowed": True}}), {})
    return None


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


async def test_a_first_start_calls_each_once_and_the_next_one_costs_no_call_and_no_write(cluster: Cluster) -> None:
    async with cluster.running() as first:
        await first.until("Suspended")
        assert first.calls == SIZE
        # To ask for the module, to start with it, and to be told what was listed later, in one or two parts.
        assert first.turns <= 4 * SIZE
        assert set(first.statuses) == {f"ring-{number}" for number in range(SIZE)}
        assert max(first.statuses.values()) <= 2
        before = first.others
        first.work.list_all()
        await first.until("Suspended")
        assert (first.calls, first.others) == (SIZE, before)
    for request in list(cluster.kube.objects(WASM_CONTROLLERS)):
        assert request["status"]["observedGeneration"] == 1
    async with cluster.running() as second:
        await second.until("Suspended")
        assert second.turns <= 2 * SIZE
        assert second.calls == 0
        assert second.metric("trellis_controller_cold_starts_total") == 0
        assert [request.path for request in second.kube.writes] == []
        turns = second.turns
        cluster.kube.cut_watches()
        second.work.list_all()
        await second.until("Suspended")
        assert (second.turns, second.calls, second.kube.writes) == (turns + SIZE, 0, [])
        assert all(queue.backing_off == 0 for queue in second.work.queues)


async def test_a_status_write_of_the_service_causes_no_turn(cluster: Cluster) -> None:
    async with cluster.running() as term:
        await term.until("Suspended")
        turns = term.turns
        versions = {item["metadata"]["resourceVersion"] for item in cluster.kube.objects(WASM_CONTROLLERS)}
        for item in list(cluster.kube.objects(WASM_CONTROLLERS)):
            cluster.kube.put(WASM_CONTROLLERS, item | {"status": item["status"] | {"calls": 99}})
        informer = term.work.informers[0]
        async with asyncio.timeout(DEADLINE):
            while {view.resource_version for view in informer.objects.values()} & versions:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.02)
        assert term.turns == turns
        assert next(iter(term.work.queues)).depth == 0


async def test_an_engine_that_cannot_be_loaded_stands_in_each_status_and_in_readiness_until_it_can(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[threading.Thread] = []

    def load(*arguments: Any) -> Runtime:
        tries.append(threading.current_thread())
        if len(tries) == 1:
            raise ImportError("libc.so.6: version `GLIBC_2.38' not found")
        return Runtime(*arguments)

    monkeypatch.setattr(loading, "_runtime", load)
    cluster.timings = Timings(turns=TurnTimings(engine=0.5))

    def ready_of(one: dict[str, Any]) -> dict[str, Any]:
        conditions = one.get("status", {}).get("conditions", ())
        return next((condition for condition in conditions if condition["type"] == "Ready"), {})

    async with cluster.running() as term:
        seen: set[str] = set()
        async with asyncio.timeout(DEADLINE):
            while len(seen) < SIZE:
                for item in cluster.kube.objects(WASM_CONTROLLERS):
                    if ready_of(item).get("reason") == "EngineUnavailable":
                        assert "GLIBC_2.38" in ready_of(item)["message"]
                        assert term.health.readiness().reasons[0].startswith("engine: ")
                        seen.add(item["metadata"]["name"])
                await asyncio.sleep(0.005)
        await term.until("Suspended")
        assert term.calls == SIZE
        assert term.health.readiness().ok
        assert term.health.parts()["engine"]
        async with asyncio.timeout(DEADLINE):
            while {ready_of(item)["status"] for item in cluster.kube.objects(WASM_CONTROLLERS)} != {"True"}:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.02)
        assert len(tries) == 2
        assert threading.main_thread() not in tries, "it would hold up the event loop"
    assert "engine" not in term.health.parts()
