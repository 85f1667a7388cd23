"""The reports about workloads over the API server in memory: owners, causes, Events, traces, limits, metrics."""

from __future__ import annotations

import asyncio
import http
import time
from collections import Counter
from dataclasses import replace
from typing import Any, cast

import pytest

from provisioner.domain.workloads.decide import Cause, Observed, Workload
from provisioner.workloads.evidence import SHOWN, Evidence, shown_pods
from provisioner.workloads.warnings import BURST, Warnings
from support.cluster.kube_world import until
from support.wasm_pods.objects import (
    CREATING,
    IMAGE,
    READY,
    SPACE,
    container,
    crashing,
    event,
    node,
    pod,
    sandbox,
    spin_app,
    unscheduled,
    waiting,
    workload,
)
from support.wasm_pods.reported import SHORT, World, forbidden, of_deployment, owned
from trellis.bus.bus import BusUnavailable
from trellis.events.wasm_workloads import WasmWorkloadFailed
from trellis.kube.recorder import EventRecorder, ObjectRef
from trellis.kube.resources import (
    CRON_JOBS,
    DEPLOYMENTS,
    EVENTS,
    JOBS,
    NODES,
    PODS,
    REPLICA_SETS,
    SPIN_APPS,
    STATEFUL_SETS,
)
from trellis.kube.transport import HttpRequest, Reply
from trellis.limits.token_bucket import TokenBucket
from trellis_dev.fakes.fake import status_reply

STATEFUL = ("StatefulSet", "db", "uid-db")


async def test_a_deployment_fails_and_recovers_in_the_trace_of_its_pod() -> None:
    world = World(of_deployment(lambda owner: pod("hello-1-a", crashing(137, "OOMKilled"), owner=owner)))
    async with world.running():
        await world.until_published("failed Deployment hello OutOfMemory")
        await until(lambda: world.warnings == [("Deployment", "hello", "OutOfMemory")], "an Event on the Deployment")
        world.change(pod("hello-1-a", READY))
        await world.until_published("failed Deployment hello OutOfMemory", "recovered Deployment hello")
        await asyncio.sleep(0.2)
    assert len(set(world.bus.traces)) == 1
    created = next(iter(world.bus.stored.values())).pod_uid
    assert world.bus.traces[0] == world.kube.telemetry.trace_of(f"{created}/created").trace_id
    assert len(world.bus.stored) == 2
    assert world.warnings == [("Deployment", "hello", "OutOfMemory")]


async def test_a_new_leader_publishes_nothing_twice_and_writes_no_second_event() -> None:
    world = World(of_deployment(lambda owner: pod("hello-1-a", crashing(137, "OOMKilled"), owner=owner)))
    async with world.running():
        await world.until_published("failed Deployment hello OutOfMemory")
        await until(lambda: bool(world.warnings), "an Event")
    world.bus.restored = [*world.bus.stored.values()]
    world.begin()
    async with world.running():
        await asyncio.sleep(0.2)
        assert len(world.bus.stored) == 1
        [found] = world.kube.objects(EVENTS)
        assert found["count"] == 1
        world.change(pod("hello-1-a", READY))
        await world.until_published("failed Deployment hello OutOfMemory", "recovered Deployment hello")
    assert len(set(world.bus.traces)) == 1


async def test_a_new_leader_writes_no_second_event_about_a_workload_that_had_recovered() -> None:
    world = World(of_deployment(lambda owner: pod("hello-1-a", crashing(137, "OOMKilled"), owner=owner)))
    async with world.running():
        await world.until_published("failed Deployment hello OutOfMemory")
        world.change(pod("hello-1-a", READY))
        await world.until_published("failed Deployment hello OutOfMemory", "recovered Deployment hello")
    world.bus.restored = [*world.bus.stored.values()]
    world.begin()
    async with world.running():
        world.change(pod("hello-1-a", crashing(137, "OOMKilled", restarts=9)))
        await until(lambda: len(world.bus.stored) == 3, "it failed again")
        await asyncio.sleep(0.2)
    [found] = world.kube.objects(EVENTS)
    assert found["count"] == 1


async def test_warnings_wait_until_the_events_of_a_former_leader_are_read() -> None:
    world = World([(PODS, unscheduled("bare", selector={"zone": "none"}))])
    own = {"reportingComponent": "test", "type": "Warning"}
    query = ",".join(f"{name}={value}" for name, value in own.items())
    refused = Counter[str]()

    def unavailable(request: HttpRequest) -> Reply:
        refused[request.path] += 1
        return status_reply(http.HTTPStatus.SERVICE_UNAVAILABLE, "ServiceUnavailable", "later")

    world.kube.answer_next(3, unavailable, when=lambda request: request.query.get("fieldSelector") == query)
    async with world.running():
        await world.until_published("failed Pod bare NoNodeWithLabel")
        await until(lambda: bool(world.warnings), "an Event")
    assert refused.total() == 3


async def test_a_new_leader_knows_the_events_about_owners_of_other_api_groups() -> None:
    replica_set = owned(workload("hello-1", owner=("Rollout", "hello", "uid-rollout")), "argoproj.io/v1alpha1")
    of_set = ("ReplicaSet", "hello-1", "uid-hello-1")
    rollout = (STATEFUL_SETS, workload("rollout"))  # has the UID: this API server has no Rollouts
    made = owned(pod("hello-1-a", crashing(137, "OOMKilled"), owner=of_set), "apps/v1")
    world = World([rollout, (REPLICA_SETS, replica_set), (PODS, made)])
    async with world.running():
        await world.until_published("failed Rollout hello OutOfMemory")
    world.bus.restored = [*world.bus.stored.values()]
    world.begin()
    async with world.running():
        await asyncio.sleep(0.2)
        assert len(world.bus.stored) == 1
        world.change(pod("hello-1-a", READY))
        await world.until_published("failed Rollout hello OutOfMemory", "recovered Rollout hello")


async def test_warnings_and_metrics_do_not_wait_for_the_bus() -> None:
    sick = [(PODS, unscheduled(f"sick-{number}", selector={"zone": "none"})) for number in range(2)]
    world = World(sick)
    world.bus.trouble = BusUnavailable("away")
    labels = {"service": world.kube.telemetry.service, "handler": "spin", "node": "", "state": "failed"}
    read = world.kube.telemetry.metrics.registry.get_sample_value
    async with world.running():
        await until(lambda: len(world.warnings) == 2, "Events on both")
        await until(lambda: read("trellis_wasm_pods", labels) == 2, "the metric")
        assert not world.bus.stored
        world.bus.trouble = None
        await until(lambda: len(world.bus.stored) == 2, "published")


@pytest.mark.parametrize("connected", [False, True], ids=["no NATS", "no answer of JetStream"])
async def test_causes_are_known_before_the_published_events_can_be_read(connected: bool) -> None:
    world = World([(PODS, unscheduled("bare", selector={"zone": "none"}))], replace(SHORT, recall=0.02))
    if not connected:
        world.bus.connected.clear()
    world.bus.readable.clear()
    labels = {"service": world.kube.telemetry.service, "handler": "spin", "node": "", "state": "failed"}
    async with world.running():
        await until(lambda: world.warnings == [("Pod", "bare", "NoNodeWithLabel")], "an Event")
        read = world.kube.telemetry.metrics.registry.get_sample_value
        await until(lambda: read("trellis_wasm_pods", labels) == 1, "the metric")
        assert not world.bus.stored
        world.bus.connected.set()
        world.bus.readable.set()
        await world.until_published("failed Pod bare NoNodeWithLabel")


async def test_a_lost_bus_delays_events_and_a_new_stream_gets_them_again() -> None:
    world = World([(STATEFUL_SETS, workload("db")), (PODS, pod("db-0", owner=STATEFUL))])
    world.bus.trouble = BusUnavailable("away")
    async with world.running():
        await until(lambda: world.parts.watch.known, "known")
        await asyncio.sleep(0.05)
        assert not world.bus.stored
        world.bus.trouble = None
        await world.until_published("running StatefulSet db")
        world.parts.reconciler.forget_published()
        await world.until_published("running StatefulSet db", "running StatefulSet db")


@pytest.mark.parametrize(
    ("version", "owner"), [("batch/v1", "CronJob nightly"), ("batch.volcano.sh/v1alpha1", "Job nightly-1")]
)
async def test_the_owner_of_a_job_is_its_cron_job_and_a_foreign_job_is_its_own(version: str, owner: str) -> None:
    job = owned(workload("nightly-1", owner=("CronJob", "nightly", "uid-nightly")), "batch/v1")
    made = owned(pod("nightly-1-x", owner=("Job", "nightly-1", "uid-nightly-1")), version)
    world = World([(CRON_JOBS, workload("nightly")), (JOBS, job), (PODS, made)])
    async with world.running():
        await world.until_published(f"running {owner}")


async def test_the_owner_of_a_spin_application_is_the_spin_app() -> None:
    deployment = owned(workload(owner=("SpinApp", "hello", "uid-app-hello")), "core.spinkube.dev/v1alpha1")
    [_, *others] = of_deployment(lambda owner: pod("hello-1-a", owner=owner))
    world = World([(SPIN_APPS, spin_app()), (DEPLOYMENTS, deployment), *others])
    async with world.running():
        await world.until_published("running SpinApp hello")
        await asyncio.sleep(0.1)
    assert len(world.reads("replicasets/")) == len(world.reads("deployments/")) == 1, "one read of each"


async def test_the_first_span_of_the_trace_begins_with_the_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(of_deployment(lambda owner: pod("hello-1-a", crashing(137, "OOMKilled"), owner=owner)))
    begin, begun = world.kube.telemetry.begin, list[tuple[str, int | None]]()

    def noted(name: str, cause: str, *, start_ns: int | None = None, attributes: Any = None) -> Any:
        begun.append((name, start_ns))
        return begin(name, cause, start_ns=start_ns, attributes=attributes)

    monkeypatch.setattr(world.kube.telemetry, "begin", noted)
    async with world.running():
        await world.until_published("failed Deployment hello OutOfMemory")
        [found] = world.parts.pods.objects.values()
        world.change(pod("hello-1-a", READY))
        await world.until_published("failed Deployment hello OutOfMemory", "recovered Deployment hello")
    assert begun == [("pod hello-1-a", int(found.created_at * 1e9))], "later events continue the trace"


async def test_reads_of_events_have_a_rate_limit_and_bounded_memory() -> None:
    world = World([])
    evidence = Evidence(world.kube, replace(SHORT, reads=1e-9))
    view = world.parts.pods.view
    pods = [found for number in range(1100) if (found := view(pod(f"p-{number}", CREATING), {"spin-v2"})) is not None]
    read = [await evidence.read(item) for item in pods[:50]]
    assert sum(read) == len(world.reads("/events")) == SHORT.reads_burst
    evidence = Evidence(world.kube, replace(SHORT, reads=0.0))
    for item in pods:
        assert await evidence.read(item)
    assert evidence.knows(pods[-1])
    assert not evidence.knows(pods[0]), "the first one was dropped"
    evidence.forget(pods[-1])
    assert not evidence.knows(pods[-1])


async def test_the_first_read_of_a_pod_comes_before_the_repeated_ones_of_others() -> None:
    world = World([])
    made = [world.parts.pods.view(pod(name, CREATING), {"spin-v2"}) for name in ("former", "new", "other")]
    former, new, other = (item for item in made if item is not None)
    evidence = Evidence(world.kube, replace(SHORT, look=60.0, reads=1e-9, reads_burst=1.0))
    assert await evidence.read(former)
    assert not await evidence.read(new), "the limit is reached"
    evidence._limit = TokenBucket(0.0)
    assert not await evidence.read(former)
    assert await evidence.read(new)
    assert await evidence.read(former)
    evidence._limit = TokenBucket(1e-9, 1.0)
    assert await evidence.read(former)
    assert not await evidence.read(other)
    evidence._limit = TokenBucket(0.0)
    evidence.forget(other)
    assert await evidence.read(former), "a pod that is gone delays nothing"


def test_events_are_read_of_a_few_pods_on_different_nodes() -> None:
    view = World([]).parts.pods.view
    nodes = ("n1", "n1", "n1", "n2", "n3", "n4")
    made = [view(pod(f"p-{number}", CREATING, node=node), {"spin-v2"}) for number, node in enumerate(nodes)]
    pods = [item for item in made if item is not None]
    assert [item.name for item in shown_pods(pods)] == ["p-0", "p-3", "p-4"]
    assert [item.name for item in shown_pods(pods[:3])] == ["p-0", "p-1", "p-2"]
    assert not shown_pods([replace(item, node="") for item in pods])


async def test_a_pod_without_controller_is_a_workload() -> None:
    world = World([(PODS, pod("bare"))])
    async with world.running():
        await world.until_published("running Pod bare")


async def test_an_owner_that_cannot_be_read_is_the_controller_of_the_pod() -> None:
    world = World(of_deployment(lambda owner: pod("hello-1-a", owner=owner)))
    world.kube.answer_next(1, forbidden, when=lambda request: "replicasets" in request.path)
    async with world.running():
        await world.until_published("running ReplicaSet hello-1")


async def test_events_of_a_pod_show_a_sandbox_that_fails_and_pods_that_work_are_not_read() -> None:
    stuck = [pod(f"db-{number}", CREATING, owner=STATEFUL, node="n1") for number in range(9)]
    world = World(
        [
            (STATEFUL_SETS, workload("db")),
            *((PODS, item) for item in stuck),
            (PODS, pod("well")),
            *(
                (EVENTS, sandbox("failed to start shim: exec format error", name=item["metadata"]["name"]))
                for item in stuck
            ),
        ]
    )
    async with world.running():
        await until(lambda: "failed StatefulSet db ShimNotExecutable" in world.bus.published, "its cause")
    assert len({*world.reads_of_events()}) <= 3, "the Events of a few pods"
    assert not world.reads("/log")


async def test_a_cause_waits_for_the_events_that_can_show_another_one() -> None:
    back_off = container(waiting("ImagePullBackOff", "Back-off pulling image"))
    pulling = [pod(f"db-{number}", back_off, owner=STATEFUL) for number in range(6)]
    words = f'Failed to pull image "{IMAGE}": not found'
    world = World(
        [
            (STATEFUL_SETS, workload("db")),
            *((PODS, item) for item in pulling),
            *((EVENTS, event("Failed", words, name=item["metadata"]["name"])) for item in pulling),
        ]
    )
    async with world.running():
        await until(lambda: bool(world.bus.published), "published")
        await asyncio.sleep(0.1)
    assert world.bus.published == ["failed StatefulSet db ImageNotFound"], (
        "no PullFailed of pods whose Events are not read"
    )


async def test_the_message_of_the_scheduler_counts_once_it_has_had_time_for_another_attempt() -> None:
    large = unscheduled("large", message="0/1 nodes are available: 1 Insufficient memory.")
    world = World([(PODS, large), (PODS, unscheduled("bare", selector={"zone": "none"}))], replace(SHORT, patience=60))
    async with world.running():
        await world.until_published("failed Pod bare NoNodeWithLabel")
        await asyncio.sleep(0.1)
        assert len(world.bus.stored) == 1
    world = World([(PODS, large)])
    async with world.running():
        await world.until_published("failed Pod large Unschedulable")


async def test_a_clock_of_the_api_server_that_is_set_back_delays_no_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    large = unscheduled("large", message="0/1 nodes are available: 1 Insufficient memory.")
    world, back = World([(PODS, large)], replace(SHORT, patience=0.3)), 0.0
    monkeypatch.setattr(world.kube, "now", lambda: time.time() - back)
    async with world.running():
        await until(lambda: bool(world.parts.reconciler.gather._verdicts), "evaluated")
        back = 3600.0
        await world.until_published("failed Pod large Unschedulable")


async def test_a_confirmed_reason_counts_for_the_pods_whose_events_are_not_read() -> None:
    crashed = [pod(f"db-{number}", crashing(3), owner=STATEFUL) for number in range(8)]
    world = World([(STATEFUL_SETS, workload("db")), *((PODS, item) for item in crashed)])
    async with world.running():
        await world.until_published("failed StatefulSet db Exited")
    [found] = world.bus.stored.values()
    assert isinstance(found, WasmWorkloadFailed)
    assert (found.failing, found.pods) == (8, 8)
    assert len({*world.reads_of_events()}) == SHOWN


async def test_a_pod_in_deletion_on_a_lost_node_is_the_failure_of_its_stateful_set() -> None:
    lost = pod("db-0", container(), owner=STATEFUL, node="n2", deleting=True)
    world = World([(STATEFUL_SETS, workload("db")), (NODES, node("n2", ready=False)), (PODS, lost)])
    async with world.running():
        await world.until_published("failed StatefulSet db NodeNotReady")
        await until(lambda: world.warnings == [("StatefulSet", "db", "NodeNotReady")], "an Event")


async def test_without_permission_for_events_the_objects_decide() -> None:
    world = World([(STATEFUL_SETS, workload("db")), (PODS, pod("db-0", crashing(137), owner=STATEFUL))])
    world.kube.answer_next(99, forbidden, when=lambda request: request.path.endswith("/events"))
    async with world.running():
        await world.until_published("failed StatefulSet db ShimError")


async def test_no_warning_is_written_if_the_setting_disables_them() -> None:
    world = World([(PODS, unscheduled("bare", selector={"zone": "none"}))], workload_warnings=False)
    async with world.running():
        await world.until_published("failed Pod bare NoNodeWithLabel")
        await asyncio.sleep(0.05)
    assert not world.warnings


async def test_owners_that_fail_one_after_the_other_cause_no_storm_of_events() -> None:
    world = World([])
    async with world.running():
        await until(lambda: world.parts.watch.known, "known")
        for number in range(60):
            world.kube.put(PODS, unscheduled(f"bare-{number}", selector={"zone": "none"}))
            await asyncio.sleep(0.002)
        await until(lambda: len(world.bus.stored) == 60, "each is published", 10.0)
        assert len(world.warnings) == BURST
        for number in range(60):
            world.kube.remove(PODS, f"bare-{number}", SPACE)
        await until(lambda: not world.parts.pods.controllers(), "gone")
        await until(lambda: not world.parts.reconciler._members, "dropped")
    assert all(isinstance(item, WasmWorkloadFailed) for item in world.bus.stored.values())


async def test_the_first_event_of_an_owner_comes_before_the_repeated_ones_of_others() -> None:
    written = list[str]()

    class Recorder:
        component = "test"

        async def record(self, *, regarding: ObjectRef, **_: str) -> None:
            written.append(regarding.name)

    timings = replace(SHORT, warn_again=0.0, look=60.0)
    warnings = Warnings(World([]).kube, cast("EventRecorder", Recorder()), timings)
    owners = [Workload("shop", "v1", "Pod", f"p{number}", f"u{number}") for number in range(BURST + 1)]
    failing = Observed("p", "u", "spin-v2", cause=Cause("Exited", "words"))
    for owner in owners:
        await warnings.warn(owner, [failing])
    assert written == [f"p{number}" for number in range(BURST)]
    warnings._limits["shop", "Exited"].bucket = TokenBucket(1e-9, 1.0)
    for owner in owners:
        await warnings.warn(owner, [failing])
    assert written[BURST:] == [f"p{BURST}"]


async def test_hundreds_of_pending_pods_are_one_failure() -> None:
    pending = [
        (PODS, unscheduled(f"db-{number:03}", selector={"zone": "none"}, owner=STATEFUL)) for number in range(500)
    ]
    world = World([(STATEFUL_SETS, workload("db")), *pending], replace(SHORT, look=15.0))
    async with world.running():
        await until(lambda: bool(world.bus.stored), "published", 30.0)
        await until(lambda: bool(world.warnings), "an Event")
    [found] = world.bus.stored.values()
    assert isinstance(found, WasmWorkloadFailed)
    assert (found.failing, found.pods, found.reason) == (500, 500, "NoNodeWithLabel")
    assert len(world.warnings) == 1
    assert not world.reads_of_events()


async def test_an_evicted_pod_whose_deployment_has_another_one_is_not_failed() -> None:
    evicted = {"phase": "Failed", "reason": "Evicted", "message": "the node was low on memory"}
    world = World(
        [
            *of_deployment(
                lambda owner: pod("hello-1-a", owner=owner),
                lambda owner: pod("hello-1-b", CREATING, owner=owner, **evicted),
            ),
            (PODS, pod("alone", CREATING, **evicted)),
        ]
    )

    def value(state: str) -> float | None:
        labels = {"service": world.kube.telemetry.service, "handler": "spin", "node": "n1", "state": state}
        return world.kube.telemetry.metrics.registry.get_sample_value("trellis_wasm_pods", labels)

    async with world.running():
        await until(lambda: value("replaced") == 1, "that of the Deployment")
        await until(lambda: value("failed") == 1, "the one without an owner")
        assert value("running") == 1


async def test_pods_whose_runtime_class_was_deleted_have_the_handler_of_its_shim() -> None:
    world = World([(PODS, pod("bare"))])
    labels = {"service": world.kube.telemetry.service, "handler": "spin", "node": "n1", "state": "running"}
    async with world.running():
        await world.until_published("running Pod bare")
        world.classes.clear()
        world.kube.put(PODS, pod("other"))
        read = world.kube.telemetry.metrics.registry.get_sample_value
        await until(lambda: read("trellis_wasm_pods", labels) == 2, "the metric")


async def test_pods_are_counted_by_handler_node_and_state_and_restarts_are_added() -> None:
    world = World(
        [
            (STATEFUL_SETS, workload("db")),
            (PODS, pod("db-0", owner=STATEFUL)),
            (PODS, pod("db-1", crashing(137, "OOMKilled", restarts=4), owner=STATEFUL)),
            (PODS, unscheduled("db-2", selector={"zone": "none"}, owner=STATEFUL)),
        ]
    )

    def value(name: str, **labels: str) -> float | None:
        labels = {"service": world.kube.telemetry.service, "handler": "spin", **labels}
        return world.kube.telemetry.metrics.registry.get_sample_value(f"trellis_wasm_{name}", labels)

    async with world.running():
        await until(lambda: value("pods", node="n1", state="running") == 1, "running")
        await until(lambda: value("pods", node="n1", state="failed") == 1, "failed")
        await until(lambda: value("pods", node="", state="failed") == 1, "without a node")
        world.change(pod("db-1", crashing(137, "OOMKilled", restarts=6)))
        await until(lambda: value("pod_restarts_total") == 2, "restarts since the first list")
        world.kube.remove(PODS, "db-2", SPACE)
        await until(lambda: value("pods", node="", state="failed") is None, "the series ends")
    assert value("pods", node="n1", state="running") is None
