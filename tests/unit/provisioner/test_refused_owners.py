"""Reports about owners whose pods the API server refuses: causes, ages of the evidence, limits, permissions."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from provisioner.domain.shim_resources import view_runtime_class
from provisioner.workloads import refused_creations
from provisioner.workloads.refused_creations import RefusedCreations
from provisioner.workloads.warnings import BURST
from support.cluster.kube_world import until
from support.suite.naming import lacking
from support.wasm_pods.objects import (
    READY,
    SPACE,
    Manifest,
    container,
    ended,
    event,
    pod,
    runtime_class,
    shim,
    spin_app,
    workload,
)
from support.wasm_pods.reported import SHORT, Objects, World, forbidden, owned
from trellis.events.wasm_workloads import WasmWorkloadFailed
from trellis.kube.changes import Change, ChangeKind
from trellis.kube.resources import (
    CRON_JOBS,
    DAEMON_SETS,
    DEPLOYMENTS,
    EVENTS,
    JOBS,
    PODS,
    REPLICA_SETS,
    RUNTIME_CLASSES,
    SHIMS,
    SPIN_APPS,
    STATEFUL_SETS,
    Resource,
    key_of,
)
from trellis.limits.token_bucket import TokenBucket
from trellis.read_model.reading.cluster import Reading
from trellis.read_model.reading.explained_pods import pods_page

QUOTA = 'pods "x" is forbidden: exceeded quota: small, requested: pods=1, used: pods=1, limited: pods=1'
MISSING = 'pods "x" is forbidden: pod rejected: RuntimeClass "lost" not found'
FAILS = {"conditions": [{"type": "ReplicaFailure", "status": "True", "message": QUOTA}]}
SHIM_OF_LOST = (SHIMS, shim("lost", runtimeClass={"name": "lost", "handler": "lost"}))
"""A Shim whose RuntimeClass does not exist."""


def refusal(res: Resource, name: str, words: str = QUOTA, **fields: Any) -> tuple[Resource, Manifest]:
    """Return an Event of a controller; ``fields``: ``ago`` (seconds), ``uid``, ``called`` (its name)."""
    at = datetime.fromtimestamp(time.time() - fields.get("ago", 5.0), UTC).isoformat()
    uid = fields.get("uid", f"uid-{name}")
    made = event("FailedCreate", f"Error creating: {words}", name, kind=res.kind, api=res.api_version, at=at, uid=uid)
    made["metadata"]["name"] = fields.get("called", f"{name}.refused")
    return EVENTS, made


def of_refused(words: str = QUOTA, *, ago: float = 5.0, **fields: Any) -> Objects:
    """Return a Deployment with a ReplicaSet that is refused; ``fields``: of the ReplicaSet."""
    made = owned(workload("hello-1", owner=("Deployment", "hello", "uid-hello"), **fields), "apps/v1")
    of_class = fields.get("runtime_class", "spin-v2")
    above = workload(runtime_class=of_class, status=fields.get("status", {}), replicas=fields.get("replicas", 1))
    return [(DEPLOYMENTS, above), (REPLICA_SETS, made), refusal(REPLICA_SETS, "hello-1", words, ago=ago)]


def pod_of_set(name: str, **fields: Any) -> tuple[Resource, Manifest]:
    return PODS, pod(name, READY, owner=("ReplicaSet", "hello-1", "uid-hello-1"), **fields)


def add_pod(world: World, name: str, **fields: Any) -> None:
    """Create a pod of the ReplicaSet that works."""
    [found] = world.kube.objects(REPLICA_SETS)
    world.kube.put(PODS, pod(name, READY, owner=("ReplicaSet", "hello-1", found["metadata"]["uid"]), **fields))


def change_set(world: World, **fields: Any) -> None:
    """Change the ReplicaSet; ``fields``: ``status``, and those of the spec."""
    [found] = world.kube.objects(REPLICA_SETS)
    status = {"status": fields.pop("status")} if "status" in fields else {}
    world.kube.put(REPLICA_SETS, found | {"spec": found["spec"] | fields} | status)


def failed(world: World) -> WasmWorkloadFailed:
    """Return the only event, about a failure."""
    [found] = world.bus.stored.values()
    assert isinstance(found, WasmWorkloadFailed)
    return found


async def test_a_missing_runtime_class_is_reported_and_recovers_once_pods_work() -> None:
    world = World([SHIM_OF_LOST, *of_refused(MISSING, runtime_class="lost")])
    async with world.running():
        await world.until_published("failed Deployment hello RuntimeClassMissing")
        await until(lambda: world.warnings == [("Deployment", "hello", "RuntimeClassMissing")], "an Event")
        found = failed(world)
        assert (found.pod, found.pod_uid, found.pods, found.failing, found.runtime_class) == ("", "", 0, 0, "lost")
        page = await pods_page(Reading(world.kube, "trellis-system"), "deployment", "hello", SPACE)
        assert page.cause is not None
        assert (found.reason, found.message) == (page.cause.reason, page.cause.shown)
        made = world.kube.put(RUNTIME_CLASSES, runtime_class("lost", "lost"))
        world.classes["lost"] = view_runtime_class(made)
        await asyncio.sleep(0.2)
        assert len(world.bus.stored) == 1, "the controller has not retried yet"
        add_pod(world, "hello-1-a", runtime_class="lost")
        await world.until_published("failed Deployment hello RuntimeClassMissing", "recovered Deployment hello")
        await asyncio.sleep(0.2)
    assert len(world.bus.stored) == 2
    assert len(world.warnings) == 1
    assert not world.parts._refused.uids()


async def test_a_quota_is_reported_beside_the_pods_that_work() -> None:
    world = World([*of_refused(status=FAILS, replicas=2), pod_of_set("hello-1-a")])
    async with world.running():
        await world.until_published("failed Deployment hello PodsRefused")
        found = failed(world)
        assert (found.pod, found.pods, found.failing) == ("", 1, 0)
        assert lacking(found.message, "exceeded quota: small", "kubectl describe resourcequota") == []
        page = await pods_page(Reading(world.kube, "trellis-system"), "deployment", "hello", SPACE)
        assert page.cause is not None
        assert (found.reason, found.message) == (page.cause.reason, page.cause.shown)
        await asyncio.sleep(0.2)
        assert len(world.bus.stored) == 1
        change_set(world, status={})
        add_pod(world, "hello-1-b")
        await world.until_published("failed Deployment hello PodsRefused", "recovered Deployment hello")


async def test_a_new_leader_publishes_nothing_twice_and_recovers_nothing_before_it_has_read() -> None:
    world = World([*of_refused(status=FAILS, replicas=2), pod_of_set("hello-1-a")])
    async with world.running():
        await world.until_published("failed Deployment hello PodsRefused")
        await until(lambda: bool(world.warnings), "an Event")
    world.bus.restored = [*world.bus.stored.values()]
    world.begin()
    spent = world.parts._refused._limit = TokenBucket(1e-9)
    assert spent.take(time.monotonic())
    async with world.running():
        await until(lambda: world.parts._refused.waiting, "not read")
        await asyncio.sleep(0.2)
        assert len(world.bus.stored) == 1
        world.parts._refused._limit = TokenBucket(0.0)
        await until(lambda: not world.parts._refused.waiting, "read")
        await asyncio.sleep(0.2)
        assert len(world.bus.stored) == 1
        [found] = [item for item in world.kube.objects(EVENTS) if item.get("reportingComponent") == "test"]
        assert found["count"] == 1
        change_set(world, status={}, replicas=1)
        await world.until_published("failed Deployment hello PodsRefused", "recovered Deployment hello")


async def test_a_new_leader_restores_a_job_whose_pods_are_refused() -> None:
    world = World([(JOBS, workload("once")), refusal(JOBS, "once")])
    async with world.running():
        await world.until_published("failed Job once PodsRefused")
    world.bus.restored = [*world.bus.stored.values()]
    world.begin()
    async with world.running():
        await until(lambda: bool(world.parts._refused.uids()), "read")
        await asyncio.sleep(0.2)
    assert len(world.bus.stored) == 1


JOB_OF_CRON = owned(workload("nightly-1", owner=("CronJob", "nightly", "uid-nightly")), "batch/v1")
CRON = workload("nightly", jobTemplate={"spec": {"template": workload()["spec"]["template"]}})
APP_DEPLOYMENT = owned(workload(owner=("SpinApp", "hello", "uid-app-hello")), "core.spinkube.dev/v1alpha1")


@pytest.mark.parametrize(
    ("objects", "owner"),
    [
        ([(STATEFUL_SETS, workload("db")), refusal(STATEFUL_SETS, "db")], "StatefulSet db"),
        (
            [(DAEMON_SETS, workload("log", status={"desiredNumberScheduled": 2})), refusal(DAEMON_SETS, "log")],
            "DaemonSet log",
        ),
        ([(JOBS, workload("once")), refusal(JOBS, "once")], "Job once"),
        ([(CRON_JOBS, CRON), (JOBS, JOB_OF_CRON), refusal(JOBS, "nightly-1")], "CronJob nightly"),
        ([(CRON_JOBS, CRON), refusal(CRON_JOBS, "nightly", 'jobs "x" is forbidden')], "CronJob nightly"),
        ([(SPIN_APPS, spin_app()), (DEPLOYMENTS, APP_DEPLOYMENT), *of_refused()[1:]], "SpinApp hello"),
    ],
    ids=["StatefulSet", "DaemonSet", "Job", "Job of a CronJob", "CronJob", "SpinApp"],
)
async def test_each_owner_is_reported(objects: Objects, owner: str) -> None:
    world = World(objects)
    async with world.running():
        await world.until_published(f"failed {owner} PodsRefused")
        await until(lambda: [f"{kind} {name}" for kind, name, _ in world.warnings] == [owner], "an Event")


@pytest.mark.parametrize(
    "objects",
    [
        of_refused(ago=3600.0),
        of_refused(replicas=0),
        [(STATEFUL_SETS, workload("db")), refusal(STATEFUL_SETS, "db", uid="former")],
        [refusal(STATEFUL_SETS, "deleted")],
        [(JOBS, workload("once", suspend=True)), refusal(JOBS, "once")],
        [
            (JOBS, workload("once", status={"conditions": [{"type": "Complete", "status": "True"}]})),
            refusal(JOBS, "once"),
        ],
        of_refused(runtime_class=""),
    ],
    ids=["an old Event", "scaled to zero", "another UID", "deleted", "suspended", "complete", "no RuntimeClass"],
)
async def test_an_event_is_no_evidence_about_an_owner_that_was_mended(objects: Objects) -> None:
    world = World([*objects, (PODS, pod("bare"))])
    async with world.running():
        await world.until_published("running Pod bare")
        await until(lambda: not world.parts._refused.waiting, "read")
        await asyncio.sleep(0.2)
    assert world.bus.published == ["running Pod bare"]
    assert not world.warnings


async def test_an_owner_with_a_later_pod_has_recovered_although_its_event_remains() -> None:
    world = World([*of_refused(ago=60.0), pod_of_set("hello-1-a")])
    async with world.running():
        await world.until_published("running Deployment hello")
        await asyncio.sleep(0.2)
        [found] = [item for item in world.kube.objects(EVENTS) if item["reason"] == "FailedCreate"]
        world.kube.put(EVENTS, found)
        world.kube.remove(PODS, "hello-1-a", SPACE)
        await asyncio.sleep(0.2)
    assert world.bus.published == ["running Deployment hello"]


async def test_a_refusal_that_the_next_attempt_ends_is_not_reported() -> None:
    world = World(of_refused(ago=0.0), replace(SHORT, patience=0.4))
    async with world.running():
        await until(lambda: world.parts._refused.waiting, "seen")
        add_pod(world, "hello-1-a")
        await until(lambda: not world.parts._refused.waiting, "read")
        await world.until_published("running Deployment hello")
    assert not world.warnings


async def test_evidence_that_is_not_repeated_expires() -> None:
    world = World([*of_refused(ago=-1.0, replicas=2), pod_of_set("hello-1-a")], replace(SHORT, refused_for=3.0))
    async with world.running():
        await world.until_published("failed Deployment hello PodsRefused")
        await until(lambda: len(world.bus.stored) == 2, "recovered without evidence")
    assert world.bus.published[1] == "recovered Deployment hello"
    assert not world.parts.watch.refused.objects


async def test_a_controller_of_another_runtime_class_is_read_once() -> None:
    world = World([*of_refused(runtime_class="kata"), (PODS, pod("bare"))])
    async with world.running():
        await world.until_published("running Pod bare")
        await until(lambda: len(world.reads("replicasets/")) == 1, "read")
        [found] = world.kube.objects(REPLICA_SETS)
        for ago in (3.0, 2.0, 1.0):
            world.kube.put(*refusal(REPLICA_SETS, "hello-1", ago=ago, uid=found["metadata"]["uid"]))
            await asyncio.sleep(0.05)
        assert len(world.reads("replicasets/")) == 1
        assert not world.parts.watch.refused.objects
        world.classes["kata"] = view_runtime_class(world.kube.put(RUNTIME_CLASSES, runtime_class("kata", "spin")))
        world.parts.watch.classes_changed()
        await until(lambda: len(world.bus.stored) == 2, "reported once a Shim provides it")
    assert world.bus.published[1] == "failed Deployment hello PodsRefused"


async def test_reads_of_controllers_have_a_rate_limit() -> None:
    many = [(JOBS, workload(f"job-{number}", runtime_class="kata")) for number in range(60)]
    world = World([*many, *(refusal(JOBS, f"job-{number}") for number in range(60))], replace(SHORT, reads=1e-9))
    async with world.running():
        await until(lambda: len(world.reads("jobs/")) >= SHORT.reads_burst, "the burst")
        assert len(world.reads("jobs/")) == SHORT.reads_burst
    assert not world.bus.stored


async def test_many_refused_owners_are_published_each_and_cause_no_storm_of_events() -> None:
    names = [f"db-{number}" for number in range(60)]
    sets = [(STATEFUL_SETS, workload(name)) for name in names]
    world = World([*sets, *(refusal(STATEFUL_SETS, name) for name in names)])
    world.parts._refused._limit = TokenBucket(0.0)
    async with world.running():
        await until(lambda: len(world.bus.stored) == 60, "each is published", 10.0)
        assert len(world.warnings) == BURST
        for name in names:
            world.kube.remove(STATEFUL_SETS, name, SPACE)
        await until(lambda: not world.parts._refused.uids(), "dropped")
        await until(lambda: not world.parts.reconciler._members, "dropped")


async def test_the_last_words_of_a_container_are_reported_beside_a_later_refusal() -> None:
    lost = pod(
        "nightly-1-x",
        container({"terminated": ended(3)}),
        phase="Failed",
        restartPolicy="Never",
        owner=("Job", "nightly-1", "uid-nightly-1"),
    )
    later = owned(workload("nightly-2", owner=("CronJob", "nightly", "uid-nightly")), "batch/v1")
    world = World([(CRON_JOBS, CRON), (JOBS, JOB_OF_CRON), (PODS, owned(lost, "batch/v1"))])
    async with world.running():
        await world.until_published("failed CronJob nightly Exited")
        [cron] = world.kube.objects(CRON_JOBS)
        later["metadata"]["ownerReferences"][0]["uid"] = cron["metadata"]["uid"]
        made = world.kube.put(JOBS, later)
        world.kube.put(*refusal(JOBS, "nightly-2", ago=-1.0, uid=made["metadata"]["uid"]))
        await world.until_published("failed CronJob nightly Exited", "failed CronJob nightly PodsRefused")


async def test_without_permission_for_events_the_pods_are_reported() -> None:
    world = World([*of_refused(), (PODS, pod("bare"))])
    world.kube.answer_next(99, forbidden, when=lambda request: request.path.endswith("/events"))
    async with world.running():
        await world.until_published("running Pod bare")
        notes = " ".join(world.kube.health.notes())
    assert lacking(notes, "events", "reason=FailedCreate") == []
    assert not world.kube.health.readiness().reasons


async def test_without_permission_for_a_controller_there_is_a_note() -> None:
    world = World([*of_refused(), (STATEFUL_SETS, workload("db")), refusal(STATEFUL_SETS, "db"), (PODS, pod("bare"))])
    world.kube.answer_next(99, forbidden, when=lambda request: "/replicasets/" in request.path)
    async with world.running():
        await until(lambda: len(world.bus.stored) == 2, "the others are reported")
        assert {*world.bus.published} == {"running Pod bare", "failed StatefulSet db PodsRefused"}
        assert lacking(" ".join(world.kube.health.notes()), "replicasets") == []
        world.kube.api.fault = None
        [found] = world.kube.objects(REPLICA_SETS)
        world.kube.put(*refusal(REPLICA_SETS, "hello-1", ago=0.0, uid=found["metadata"]["uid"]))
        await until(lambda: "failed Deployment hello PodsRefused" in world.bus.published, "once it may")
        assert not world.kube.health.notes()


async def test_the_first_span_of_the_trace_names_the_owner() -> None:
    world = World(of_refused())
    async with world.running():
        await world.until_published("failed Deployment hello PodsRefused")
    [found], [trace] = world.bus.stored.values(), world.bus.traces
    assert trace == world.kube.telemetry.trace_of(f"{found.uid}/refused").trace_id


class Creations:
    """The Events in memory, as an informer fills them."""

    def __init__(self) -> None:
        self.store = RefusedCreations(time.time, 1200.0)

    def put(self, name: str, **fields: Any) -> bool:
        """Show an Event; return whether it is kept."""
        _, manifest = refusal(JOBS, name, **fields)
        key, view = key_of(manifest), self.store.view(manifest, {"spin-v2"})
        old = self.store.objects.pop(key, None)
        if view is not None:
            self.store.objects[key] = view
        if view is not None or old is not None:
            self.store.take(Change(ChangeKind.MODIFIED, key, old, view))
        return view is not None


def test_the_number_of_events_and_of_dismissed_controllers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refused_creations, "MOST", 3)
    seen = Creations()
    assert [seen.put(f"job-{number}") for number in range(4)] == [True, True, True, False]
    assert seen.put("job-0", ago=1.0), "a known one is kept"
    for number in range(5):
        seen.store.dismiss(f"uid-job-{number}", time.time() + 60.0, "kata")
    assert not seen.store.objects
    assert [seen.put(f"job-{number}") for number in range(5)] == [True, True, False, False, False]


def test_the_newest_event_about_a_controller_counts() -> None:
    seen = Creations()
    for ago, words in ((20.0, "first"), (5.0, "last"), (10.0, "second")):
        seen.put("job", words=words, ago=ago, called=words)
    newest = seen.store.newest("uid-job")
    assert newest is not None
    assert newest.event.message.endswith("last")
    assert len(newest.event.message) < 600


@pytest.mark.parametrize("manifest", [{}, {"involvedObject": None}, {"involvedObject": {"kind": ["Job"]}}])
def test_an_event_of_an_unknown_form_is_not_kept(manifest: Manifest) -> None:
    assert Creations().store.view(manifest, {"spin-v2"}) is None


def test_events_of_other_kinds_are_not_kept() -> None:
    _, manifest = refusal(JOBS, "job")
    manifest["involvedObject"]["apiVersion"] = "batch.volcano.sh/v1alpha1"
    assert Creations().store.view(manifest, {"spin-v2"}) is None
