"""The wiring for wasmCloud v2: what is read, and what is published when the bus or the API group is unavailable."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from math import inf, isnan
from typing import Any, cast

import orjson
import pytest
import structlog

from host_manager.domain.v2.published import object_of
from host_manager.timings import Timings
from host_manager.v2.gather import V2Cache
from host_manager.v2.heartbeats import CompleteHeartbeats
from host_manager.v2.reconciler import KEY, V2Reconciler
from host_manager.v2.watches import V2Watches, only_numbers
from support.cluster.kube_world import until
from support.v2.explained import bare, kube_of
from support.v2.recordings import recording
from trellis.bus.bus import Bus, BusUnavailable, EventRefused
from trellis.events.envelope import EventData
from trellis.events.wasmcloud_v2 import HeartbeatsLost, HeartbeatsRestored, WasmHostReady, WorkloadStarted
from trellis.kube.changes import Change, ChangeKind
from trellis.kube.resources import ARTIFACTS, NAMESPACES, WASM_HOSTS, WASMCLOUD_V2, WORKLOADS
from trellis.kube.transport import HttpRequest, Reply
from trellis.telemetry import current_trace
from trellis.v2.hosts import view_host
from trellis.v2.messages import HostHeartbeat
from trellis.v2.reception import Reception, ReceptionState
from trellis.v2.snapshot import Part
from trellis_dev.fakes.fake import FakeKube, status_reply

SHORT = Timings(v2_settle=0.01, v2_look=0.05, v2_served=0.05, publish=0.01)


class SomeBus:
    """Stores events; ``trouble``: the error of the next attempts. ``restored``: events of an older stream."""

    def __init__(self) -> None:
        self.stored: list[EventData] = []
        self.restored: list[EventData] = []
        self.connected = asyncio.Event()
        self.connected.set()
        self.tried: list[tuple[str, str]] = []
        self.traces: dict[str, set[str]] = {}
        self.trouble: Exception | None = None

    async def publish(self, event: EventData, *, dedup: str) -> None:
        self.tried.append((object_of(event), dedup))
        if self.trouble is not None:
            raise self.trouble
        trace = current_trace()
        assert trace is not None
        self.traces.setdefault(object_of(event), set()).add(trace.trace_id)
        self.stored.append(event)

    async def last_events(self, models: Sequence[type[EventData]]) -> AsyncIterator[EventData]:
        assert self.connected.is_set()
        for event in self.restored:
            if isinstance(event, tuple(models)):
                yield event

    @property
    def published(self) -> list[str]:
        return [f"{event.noun}.{event.event_name}" for event in self.stored]


class World:
    """The components as ``app`` wires them, with a loop in place of the queue."""

    def __init__(self, kube: FakeKube, *places: str) -> None:
        self.kube, self.bus, self.woken = kube, SomeBus(), asyncio.Event()
        self.cache = V2Cache(kube, places=places)
        self.watches = V2Watches(self.cache, self.woken.set, SHORT)
        self.reconciler = V2Reconciler(self.cache, cast("Bus", self.bus), kube.telemetry, SHORT)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async def reconcile() -> None:
            while True:
                await self.reconciler.run(KEY, None)
                await asyncio.sleep(0.01)

        tasks = [asyncio.create_task(self.watches.run()), asyncio.create_task(reconcile())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            done = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(item, asyncio.CancelledError) for item in done), done


def lists_of_v2(kube: FakeKube) -> set[str]:
    return {request.path for request in kube.api.requests if "runtime.wasmcloud.dev/" in request.path}


async def test_existing_objects_are_published_once_and_nothing_is_written() -> None:
    world = World(kube_of("03", 2.1))
    async with world.running():
        await until(lambda: "workload_deployment.ready" in world.bus.published, "it is published")
        await asyncio.sleep(0.2)
    assert sorted(world.bus.published) == [
        *["wasm_host.ready"] * 2,
        *["workload.started"] * 3,
        "workload_deployment.ready",
    ]
    assert world.kube.writes == []
    traces = [trace for found in world.bus.traces.values() for trace in found]
    assert all(len(found) == 1 for found in world.bus.traces.values())
    assert len(traces) == len(set(traces)) == 3, "the two hosts and the deployment have a trace each"


async def test_in_a_cluster_without_the_api_group_only_the_group_is_requested() -> None:
    world = World(bare())
    async with world.running():
        await asyncio.sleep(0.2)
        assert lists_of_v2(world.kube) == set()
        assert not world.bus.tried


async def test_the_group_can_appear_and_vanish_later() -> None:
    world = World(bare())
    async with world.running():
        for res in WASMCLOUD_V2:
            world.kube.define(res)
        await until(lambda: bool(world.cache.informers), "it is watched")
        world.kube.put(WASM_HOSTS, recorded_host() | {"metadata": {"name": "h", "namespace": "default"}})
        await until(lambda: "default/h" in world.cache.hosts, "it is read")
        world.kube.remove(WASM_HOSTS, "h", "default")
        await until(lambda: not world.cache.hosts, "its objects are deleted with the CRD")
        world.kube.answer_next(
            -1, lambda _: status_reply(404, "NotFound", "no"), when=on("/apis/runtime.wasmcloud.dev")
        )
        world.kube.cut_watches()
        await until(lambda: not world.cache.informers, "it is not watched any more")
        world.kube.answer_next(0, lambda _: status_reply(404, "NotFound", "no"))
        await until(lambda: bool(world.cache.informers), "it is watched again")
    assert world.kube.health.readiness().ok


async def test_a_version_that_is_not_served_any_more_ends_the_watches_and_readiness_recovers() -> None:
    world = World(kube_of("03", 2.1))
    group = "/apis/runtime.wasmcloud.dev"

    def newer(request: HttpRequest) -> Reply:
        if request.path == group:
            return Reply(200, orjson.dumps({"versions": [{"version": "v1beta1"}]}), {})
        return status_reply(404, "NotFound", "no")

    with structlog.testing.capture_logs() as logs:
        async with world.running():
            await until(lambda: len(world.bus.stored) == 6, "all of them")
            world.kube.answer_next(-1, newer, when=on(group))
            world.kube.cut_watches()
            await until(lambda: not world.cache.informers, "the watches end, although there are objects")
            assert world.kube.health.readiness().ok
            await asyncio.sleep(0.2)
    assert not [published_event for published_event in world.bus.published if published_event.endswith("gone")]
    assert [line["served"] for line in logs if "supported" in line] == [["v1beta1"]]


def recorded_host() -> dict[str, Any]:
    return next(item for item in recording("01").objects(20.0) if item["kind"] == "Host")


async def test_an_outage_of_the_bus_loses_and_repeats_nothing() -> None:
    world = World(kube_of("03", 2.1))
    world.bus.trouble = BusUnavailable()
    async with world.running():
        await until(lambda: len(world.bus.tried) > 3, "it is tried again")
        assert len(set(world.bus.tried)) == 1, "a retry has the ID of the first attempt"
        world.bus.trouble = None
        await until(lambda: len(world.bus.stored) == 6, "all of them")
        await asyncio.sleep(0.1)
    assert len(world.bus.stored) == 6
    assert len({dedup for _, dedup in world.bus.tried}) == 6


class Reached:
    """The reception of heartbeats in a state that the test sets; no heartbeat is evaluated."""

    def __init__(self, reception: Reception) -> None:
        self.reception = reception

    def messages(self, _hosts: object) -> None:
        return None

    async def run(self) -> None:
        await asyncio.Event().wait()


async def test_an_outage_of_heartbeats_is_published_after_that_of_the_bus_and_once() -> None:
    world = World(kube_of("03", 2.1))
    nats = Reached(Reception(ReceptionState.LOST, 20.0, "nats://n:4222", "refused"))
    world.cache.heartbeats = cast("CompleteHeartbeats", nats)
    async with world.running():
        await until(lambda: "heartbeats.lost" in world.bus.published, "it is published")
        world.bus.trouble = BusUnavailable()
        nats.reception = Reception(ReceptionState.RECEIVING, 20.0, "nats://n:4222", "", 3)
        await until(lambda: world.bus.tried[-3:] == [world.bus.tried[-1]] * 3, "its end is tried again, with one ID")
        nats.reception = Reception(ReceptionState.LOST, 20.0, "nats://n:4222", "refused")
        await asyncio.sleep(0.05)
        nats.reception = Reception(ReceptionState.RECEIVING, 20.0, "nats://n:4222", "", 3)
        await asyncio.sleep(0.05)
        world.bus.trouble = None
        await until(lambda: "heartbeats.restored" in world.bus.published, "its end is published")
        await asyncio.sleep(0.1)
    about = [event for event in world.bus.stored if event.noun == "heartbeats"]
    assert [event.event_name for event in about] == ["lost", "restored"]


async def test_a_former_leaders_outage_ends_once_after_a_restart_in_configured_namespaces() -> None:
    world = World(kube_of("03", 2.1), "apps")
    since = datetime(2026, 1, 1, tzinfo=UTC)
    common: dict[str, Any] = {"scope": "Nats", "name": "host_manager", "since": since, "server": "", "hosts": 2}
    world.bus.restored = [HeartbeatsLost(**common, reason="ConnectionLost", message="")]
    state = Reception(ReceptionState.RECEIVING, 40.0, "nats://n:4222", "", 3)
    world.cache.heartbeats = cast("CompleteHeartbeats", Reached(state))
    async with world.running():
        await until(lambda: "heartbeats.restored" in world.bus.published, "it is published")
        await asyncio.sleep(0.1)
    [end] = [event for event in world.bus.stored if isinstance(event, HeartbeatsRestored)]
    assert end.since == since


async def test_the_watch_of_hosts_is_complete_until_its_last_answer_and_never_while_it_fails() -> None:
    world = World(kube_of("03", 2.1))
    assert world.cache.watched() == -inf
    async with world.running():
        await until(lambda: len(world.bus.stored) == 6, "all of them")
        assert 0 <= world.kube.now() - world.cache.watched() < 30
        world.kube.fail_next(-1, when=on(WASM_HOSTS.path()))
        world.kube.cut_watches()
        await until(lambda: world.cache.watched() == -inf, "it fails")


async def test_an_event_that_the_stream_refuses_does_not_block_others() -> None:
    world = World(kube_of("03", 2.1))
    world.bus.trouble = EventRefused()
    async with world.running():
        await until(lambda: len({dedup for _, dedup in world.bus.tried}) == 6, "each is tried")
        await asyncio.sleep(0.1)
    assert len(world.bus.tried) == 6


async def test_a_state_that_returns_has_another_id() -> None:
    world = World(kube_of("03", 2.1))
    async with world.running():
        await until(lambda: len(world.bus.stored) == 6, "all of them")
        world.cache.forget_published()
        await until(lambda: len(world.bus.stored) == 12, "after the loss of the stream")
    assert len({dedup for _, dedup in world.bus.tried}) == 12


def of_others(namespace: str) -> list[EventData]:
    """Return published events about objects that do not exist."""
    host = WasmHostReady(namespace=namespace, name="h", uid="u-h", host_id="i", address="10.0.0.1", environment="")
    names = {"namespace": namespace, "name": "w", "uid": "u-w", "deployment": "", "replica_set": "", "host_id": "i"}
    return [host, WorkloadStarted(**names)]


async def test_a_restart_while_the_bus_is_unavailable_repeats_nothing() -> None:
    first = World(kube_of("03", 2.1))
    async with first.running():
        await until(lambda: len(first.bus.stored) == 6, "all of them")
    second = World(first.kube)
    second.bus.restored = [*first.bus.stored]
    second.bus.connected.clear()
    async with second.running():
        await until(lambda: second.cache.working == 1, "the objects are read meanwhile")
        assert not second.bus.tried
        second.bus.connected.set()
        await until(lambda: second.cache.recalled == 1, "read")
        await asyncio.sleep(0.1)
    assert not second.bus.tried


async def test_a_stream_restored_from_a_backup_gets_what_changed_since() -> None:
    world = World(kube_of("03", 2.1))
    async with world.running():
        await until(lambda: len(world.bus.stored) == 6, "all of them")
        world.bus.restored = [*world.bus.stored[:3], *of_others("wasmcloud-system")]
        del world.bus.stored[:]
        world.cache.forget_published()
        await until(lambda: len(world.bus.stored) >= 5, "the difference")
        await asyncio.sleep(0.1)
    assert len(world.bus.stored) == 5, "the three that the backup lacks, and the end of the two that it has"
    assert {"wasm_host.gone", "workload.gone"} <= set(world.bus.published)


async def test_objects_of_unwatched_namespaces_do_not_count_as_deleted() -> None:
    world = World(kube_of("03", 2.1), "apps", "wasmcloud-system")
    world.bus.restored = of_others("elsewhere")
    async with world.running():
        await until(lambda: len(world.bus.stored) >= 6, "those of the watched namespaces")
        await asyncio.sleep(0.1)
    assert not [published_event for published_event in world.bus.published if published_event.endswith("gone")]


async def test_a_watched_namespace_without_permission_blocks_no_other_one_and_loses_nothing() -> None:
    world = World(kube_of("03", 2.1), "apps", "wasmcloud-system", "denied")
    world.bus.restored = of_others("denied")
    denied = on_any(f"/namespaces/denied/{res.plural}" for res in WASMCLOUD_V2)
    world.kube.answer_next(-1, lambda _: status_reply(403, "Forbidden", "no"), when=denied)
    async with world.running():
        await until(lambda: "workload_deployment.ready" in world.bus.published, "those of the other namespaces")
        await asyncio.sleep(0.1)
        assert sorted(set(world.bus.published)) == ["workload.started", "workload_deployment.ready"]
        assert "denied/w" in world.cache.published.workloads


async def test_the_last_host_of_the_watched_namespaces_is_published_as_deleted() -> None:
    world = World(kube_of("03", 2.1), "apps", "wasmcloud-system")
    async with world.running():
        await until(lambda: world.bus.published.count("wasm_host.ready") == 2, "they are published")
        for host in world.kube.objects(WASM_HOSTS):
            world.kube.remove(WASM_HOSTS, host["metadata"]["name"], "wasmcloud-system")
        await until(lambda: world.bus.published.count("wasm_host.gone") == 2, "their end is, too")


async def test_an_object_beyond_the_limit_of_etcd_is_watched_and_published() -> None:
    world = World(kube_of("03", 2.1))
    async with world.running():
        await until(lambda: world.bus.published.count("wasm_host.ready") == 2, "they are published")
        host = world.kube.objects(WASM_HOSTS)[0]
        metadata = {"name": "large", "namespace": "wasmcloud-system", "annotations": {"x": "y" * 2 * 2**20}}
        world.kube.put(WASM_HOSTS, host | {"metadata": metadata, "hostId": "large"})
        await until(lambda: world.bus.published.count("wasm_host.ready") == 3, "the large one is, too")


async def test_a_deleted_workload_is_published_as_deleted() -> None:
    world = World(kube_of("03", 2.1))
    async with world.running():
        await until(lambda: len(world.bus.stored) == 6, "all of them")
        workload = world.kube.objects(WORKLOADS)[0]["metadata"]
        world.kube.remove(WORKLOADS, workload["name"], workload["namespace"])
        await until(lambda: "workload.gone" in world.bus.published, "it is published")
    assert world.bus.stored[-1].key() == (workload["namespace"], workload["name"])


async def test_nothing_is_kept_of_a_host_whose_name_never_returns() -> None:
    world = World(kube_of("03", 2.1))
    async with world.running():
        await until(lambda: len(world.cache.stored) == 3, "the hosts and the deployment")
        world.kube.remove(WASM_HOSTS, world.kube.objects(WASM_HOSTS)[0]["metadata"]["name"], "wasmcloud-system")
        await until(lambda: "wasm_host.gone" in world.bus.published, "it is published")
        await until(lambda: len(world.cache.stored) == 2, "dropped")


def on_any(parts: Iterable[str]) -> Callable[[HttpRequest], bool]:
    found = tuple(parts)
    return lambda request: request.path.endswith(found)


def on(path: str) -> Callable[[HttpRequest], bool]:
    return lambda request: request.path.startswith(path)


async def test_without_a_permission_nothing_is_concluded_and_the_service_is_ready() -> None:
    kube = kube_of("03", 2.1)
    kube.answer_next(1000, lambda _: status_reply(403, "Forbidden", "no"), when=on(ARTIFACTS.path()))
    world = World(kube)
    async with world.running():
        await until(lambda: Part.ARTIFACTS in world.cache.informers, "it is watched")
        await until(lambda: all(item.answered.is_set() for item in world.cache.informers[Part.ARTIFACTS]), "refused")
        await asyncio.sleep(0.1)
        assert kube.health.readiness().ok
    assert world.bus.tried == []


async def test_hosts_outside_of_the_configured_namespaces_are_unknown_and_not_missing() -> None:
    world = World(kube_of("00", 0.3), "apps")
    async with world.running():
        await until(lambda: bool(world.cache.informers), "it is watched")
        await until(lambda: bool(world.cache.deployments), "it is read")
        await asyncio.sleep(0.1)
    assert all("/namespaces/apps/" in path for path in lists_of_v2(world.kube))
    assert world.bus.tried == []


async def test_metrics_have_objects_by_health_while_the_group_is_served() -> None:
    world = World(kube_of("03", 2.1))
    metrics = world.kube.telemetry.metrics

    def value(kind: str, health: str) -> float | None:
        labels = {"service": "test", "kind": kind, "health": health}
        return metrics.registry.get_sample_value("trellis_wasmcloud_objects", labels)

    async with world.running():
        await until(lambda: value("Workload", "Healthy") == 3, "counted")
        assert (value("Host", "Healthy"), value("WorkloadDeployment", "Healthy")) == (2, 1)
        working = metrics.registry.get_sample_value("trellis_wasmcloud_operator_working", {"service": "test"})
        assert working == 1
    assert value("Workload", "Healthy") is None


class Series:
    """Reads metrics of wasmCloud v2."""

    def __init__(self, world: World) -> None:
        self._registry = world.kube.telemetry.metrics.registry

    def objects(self, kind: str) -> float | None:
        labels = {"service": "test", "kind": kind, "health": "Healthy"}
        return self._registry.get_sample_value("trellis_wasmcloud_objects", labels)

    def cpu(self, host: str) -> float | None:
        labels = {"service": "test", "host_namespace": "wasmcloud-system", "host": host}
        return self._registry.get_sample_value("trellis_wasmcloud_host_cpu_ratio", labels)


async def test_metrics_do_not_depend_on_the_bus() -> None:
    world = World(kube_of("03", 2.1))
    world.bus.connected.clear()
    series = Series(world)
    async with world.running():
        await until(lambda: series.objects("Workload") == 3, "counted")
        world.kube.remove(WORKLOADS, world.kube.objects(WORKLOADS)[0]["metadata"]["name"], "apps")
        await until(lambda: series.objects("Workload") == 2, "counted again")


async def test_metrics_of_a_kind_that_cannot_be_read_any_more_have_no_value() -> None:
    world = World(kube_of("03", 2.1))
    series = Series(world)
    async with world.running():
        await until(lambda: series.objects("Workload") == 3, "counted")
        world.kube.answer_next(-1, lambda _: status_reply(403, "Forbidden", "no"), when=on(WORKLOADS.path()))
        world.kube.cut_watches()
        await until(lambda: isnan(series.objects("Workload") or 0.0), "unknown")
        assert isnan(series.objects("WorkloadDeployment") or 0.0)


async def test_numbers_of_hosts_end_with_the_term() -> None:
    world = World(kube_of("03", 2.1))
    series = Series(world)
    async with world.running():
        await until(lambda: bool(world.cache.hosts), "read")
        world.cache.numbers.show({("wasmcloud-system", "one"): HostHeartbeat("1", cpu=50.0)})
        assert series.cpu("one") == 0.5
    assert series.cpu("one") is None


async def test_the_silence_of_all_hosts_is_an_operator_that_does_not_work_and_no_event_of_a_host() -> None:
    world = World(kube_of("12", 33.5))
    metrics = world.kube.telemetry.metrics
    async with world.running():
        await until(lambda: bool(world.cache.healths), "evaluated")
        working = metrics.registry.get_sample_value("trellis_wasmcloud_operator_working", {"service": "test"})
        assert working == 0
    assert "wasm_host.silent" not in world.bus.published


@pytest.mark.parametrize("behind", [-7200.0, 50.0])
async def test_an_operator_with_another_clock_works_once_it_records_a_heartbeat(behind: float) -> None:
    world = World(kube_of("03", 2.1))
    now = world.kube.now() + behind
    world.kube.now = lambda: now  # type: ignore[method-assign]
    async with world.running():
        await until(lambda: len(world.cache.hosts) == 2, "they are read")
        recorded = {"lastSeen": datetime.fromtimestamp(now - behind + 3, UTC).isoformat()}
        for host in world.kube.objects(WASM_HOSTS):
            world.kube.put(WASM_HOSTS, host | {"status": host["status"] | recorded})
        await until(lambda: "workload_deployment.ready" in world.bus.published, "it is published")
        assert world.cache.working == 1
    assert world.bus.published.count("wasm_host.ready") == 2


def test_the_numbers_of_a_heartbeat_wake_nothing() -> None:
    before = recorded_host()
    beats = [item for at in (35.0, 50.0, 62.0) for item in recording("01").objects(at) if item["kind"] == "Host"]
    old = view_host(before)
    for beat in beats:
        assert only_numbers(Change(ChangeKind.MODIFIED, "k", old, view_host(beat)))
    other = view_host(beats[-1] | {"hostname": "10.0.0.99"})
    assert not only_numbers(Change(ChangeKind.MODIFIED, "k", old, other))
    assert not only_numbers(Change(ChangeKind.ADDED, "k", None, old))


@pytest.mark.parametrize(("seconds", "woken"), [(15.0, False), (34.0, False), (40.0, True)])
async def test_the_first_heartbeat_after_a_silence_is_published_at_once(seconds: float, woken: bool) -> None:
    world = World(kube_of("03", 2.1))
    async with world.running():
        await until(lambda: len(world.bus.stored) == 6, "all of them")
        world.woken.clear()
        host = world.kube.objects(WASM_HOSTS)[0]
        at = datetime.fromisoformat(host["status"]["lastSeen"]).timestamp() + seconds
        recorded = {"lastSeen": datetime.fromtimestamp(at, UTC).isoformat()}
        world.kube.put(WASM_HOSTS, host | {"status": host["status"] | recorded})
        await until(lambda: at in {item.last_seen for item in world.cache.hosts.values()}, "received")
        assert world.woken.is_set() == woken


async def test_the_outage_of_one_of_two_operators_is_an_operator_that_does_not_work() -> None:
    world = World(kube_of("03", 2.1))
    world.kube.put(NAMESPACES, {"metadata": {"name": "other-system"}})
    for host in world.kube.objects(WASM_HOSTS):
        metadata = {"name": host["metadata"]["name"], "namespace": "other-system"}
        old = {"lastSeen": datetime.fromtimestamp(world.kube.now() - 60, UTC).isoformat()}
        world.kube.put(
            WASM_HOSTS, host | {"metadata": metadata, "hostId": metadata["name"], "status": host["status"] | old}
        )
    async with world.running():
        await until(lambda: "workload_deployment.ready" in world.bus.published, "the other operator works")
        assert world.cache.working == 0
    assert "wasm_host.silent" not in world.bus.published
