"""The provisioner's reads and writes against the API server in memory: what a failed pod says, who wrote the ledger."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any, cast

import pytest

from provisioner.apply import Effects
from provisioner.cache import Cache
from provisioner.canary_apply import VerificationEffects
from provisioner.domain.actions import (
    Action,
    ClearRefusal,
    CreateCanary,
    CreateJob,
    DeleteJob,
    EvictPod,
    GiveBackSlot,
    JudgeFailed,
    Publish,
    Snapshot,
    User,
)
from provisioner.domain.canary import Canary
from provisioner.domain.decide import decide
from provisioner.domain.plan import Plan
from provisioner.domain.pod_readiness import Workloads
from provisioner.domain.resources import Task
from provisioner.gather import Gather
from provisioner.planner import FleetReconciler
from provisioner.rollout_apply import RolloutEffects
from provisioner.rollout_gather import fleet_snapshot, ledger_manifest
from provisioner.rollout_pods import RolloutPods
from provisioner.settings import Settings
from provisioner.watches import PLAN
from support.nodes.shown import show_job, show_ledger, show_nodes
from support.suite.naming import lacking
from trellis import names
from trellis.bus.bus import Bus, BusError, BusUnavailable, EventRefused
from trellis.bus.consume.queue import KeyedQueue
from trellis.events.envelope import EventData
from trellis.events.provision import ProvisionSucceeded
from trellis.kube.breaker import Breaker, Scope
from trellis.kube.errors import Conflict, Forbidden, Invalid, KubeError
from trellis.kube.recorder import EventRecorder
from trellis.kube.resources import CONFIGMAPS, EVENTS, JOBS, NAMESPACES, NODES, PODS
from trellis.provisioning.installer_pods import InstallerState
from trellis.provisioning.ledger import Entry, Ledger, make_ledger
from trellis.provisioning.nodes_and_jobs import view_job
from trellis.provisioning.reasons import APPLY_AGAIN, Reason
from trellis.provisioning.views import KWASM, JobState, JobView, NodeView, Target
from trellis.telemetry import Metrics, setup
from trellis_dev.fakes.fake import FakeKube, status_reply
from trellis_dev.testing.builders import DIGEST, a_job, a_node, failed, opted_in, verified_node

NS = "trellis-installers"


class SilentBus:
    """A bus that is unavailable."""

    def __init__(self) -> None:
        self.connected = asyncio.Event()
        self.trouble: type[BusError] | None = BusUnavailable
        self.published: list[str] = []

    async def publish(self, event: EventData, *, dedup: str) -> None:
        if self.trouble is not None:
            raise self.trouble(f"{type(event).__name__} {dedup}")
        self.published.append(f"{event.noun}.{event.event_name}")


@pytest.fixture
def kube() -> FakeKube:
    made = FakeKube(telemetry=setup("test", metrics=Metrics()))
    for name in (NS, "trellis-system"):
        made.put(NAMESPACES, {"metadata": {"name": name}})
    return made


@pytest.fixture
def cache(kube: FakeKube) -> Cache:
    return Cache(kube, Settings(installer_image="example.com/kwasm:1"), {}, {})


@pytest.fixture
def effects(kube: FakeKube, cache: Cache) -> Effects:
    leaders = kube.guarded(lambda: None)  # whose writes have to name what was read
    recorder = EventRecorder(leaders, component="test")
    scope = Scope("provisioner", "trellis-system", {"jobs": lambda: 1}, {})
    breaker = Breaker(leaders, recorder, scope, lambda: None)
    telemetry = setup("test", metrics=Metrics())
    verification = VerificationEffects(leaders, cache, telemetry)
    return Effects(
        leaders,
        cast("Bus", SilentBus()),
        recorder,
        cache,
        telemetry,
        breaker,
        verification,
        lambda _: None,
        lambda: None,
    )


def of_plans(effects: Effects) -> RolloutEffects:
    """Return where plans go, of the same leader."""
    return RolloutEffects(effects.kube, effects.bus, effects.recorder, effects.cache)


def pod(job: str, **status: object) -> dict[str, object]:
    labels = {"batch.kubernetes.io/job-name": job}
    return {"metadata": {"name": f"{job}-x", "namespace": NS, "labels": labels}, "status": status}


def job_in(kube: FakeKube, n: int = 1) -> JobView:
    labels = {names.LABEL_NODE_UID: f"uid-node-{n}", names.LABEL_DIGEST: DIGEST}
    annotations = {names.ANNOTATION_NODE: f"node-{n}"}
    metadata = {"name": f"node-{n}-job", "namespace": NS, "labels": labels, "annotations": annotations}
    return view_job(kube.put(JOBS, {"metadata": metadata}))


def decide_out(job: JobView) -> list[Action]:
    """Return what is decided about the Job of a node that opted out."""
    node = a_node(job.node)
    return decide(Snapshot(node.name, node, (job,), None, None, frozenset(), None, 120, 20, 2000))


FAILED = {"containerStatuses": [{"state": {"terminated": {"exitCode": 1, "reason": "Error"}}}]}


async def test_without_a_termination_message_the_log_itself_is_read(kube: FakeKube, cache: Cache) -> None:
    kube.put(PODS, pod("node-1-job", **FAILED))
    kube.put_log(NS, "node-1-job-x", names.JOB_CONTAINER, "line one\nno space left on device\n")
    show_job(cache, a_job(a_node(), JobState.FAILED))
    show_nodes(cache, [a_node()])
    snapshot = await Gather(kube, cache).snapshot("node-1")
    assert snapshot.installer == InstallerState(
        terminated="exit code 1 (Error)", log_tail="line one\nno space left on device\n"
    )


async def test_a_log_that_cannot_be_read_leaves_the_pods_own_words(kube: FakeKube, cache: Cache) -> None:
    kube.put(PODS, pod("node-1-job", **FAILED))
    kube.fail_next(5, when=lambda request: "log" in str(request))
    show_job(cache, a_job(a_node(), JobState.FAILED))
    show_nodes(cache, [a_node()])
    snapshot = await Gather(kube, cache).snapshot("node-1")
    assert snapshot.installer == InstallerState(terminated="exit code 1 (Error)")


async def test_a_ledger_another_wrote_meanwhile_is_not_written_over(
    kube: FakeKube, cache: Cache, effects: Effects
) -> None:
    rollout = of_plans(effects)
    own = Plan(Ledger({"uid-a": Entry(DIGEST, 1, 5)}))
    await rollout.write_ledger(own)
    found = kube.objects(CONFIGMAPS)[-1]
    kube.put(CONFIGMAPS, {**found, "data": {"uid-b": f"{DIGEST}/1/6"}})
    with pytest.raises(Conflict):
        await rollout.write_ledger(Plan(Ledger({})))
    assert cache.ledger is None
    cache.ledger_accepted(await ledger_manifest(kube, "trellis-system"))
    assert set(fleet_snapshot(cache, kube.now(), Workloads()).ledger.entries) == {"uid-b"}


async def test_while_the_bus_is_unavailable_results_are_recorded_and_no_unpublished_job_is_deleted(
    kube: FakeKube, effects: Effects
) -> None:
    job = job_in(kube)
    about = {"node": "node-1", "node_uid": "uid-node-1", "digest": DIGEST, "attempt": 1, "job": f"{NS}/{job.name}"}
    publish = Publish(ProvisionSucceeded.model_validate({**about, "verified": "job"}), f"{job.uid}.succeeded", job)
    again = await effects.apply(
        [
            publish,
            JudgeFailed(job, Reason.HANDLER_MISSING, "why"),
            DeleteJob(job, Reason.PROVISION_SUCCEEDED, foreground=False),
        ]
    )
    assert again == effects.cache.timings.publish
    [left] = kube.objects(JOBS)
    assert left["metadata"]["annotations"][names.ANNOTATION_JOB_FAILURE] == "HandlerMissing: why"


async def test_an_event_refused_by_the_bus_is_an_error_and_the_result_is_recorded(
    kube: FakeKube, effects: Effects
) -> None:
    cast("SilentBus", effects.bus).trouble = EventRefused
    job = job_in(kube)
    about = {"node": "node-1", "node_uid": "uid-node-1", "digest": DIGEST, "attempt": 1, "job": f"{NS}/{job.name}"}
    publish = Publish(ProvisionSucceeded.model_validate({**about, "verified": "job"}), f"{job.uid}.succeeded", job)
    with pytest.raises(EventRefused):
        await effects.apply([publish, JudgeFailed(job, Reason.HANDLER_MISSING, "why")])
    [left] = kube.objects(JOBS)
    assert left["metadata"]["annotations"][names.ANNOTATION_JOB_FAILURE] == "HandlerMissing: why"


async def test_a_deleted_job_is_not_deleted_again(kube: FakeKube, effects: Effects) -> None:
    job = job_in(kube)
    kube.remove(JOBS, job.name, NS)
    assert await effects.apply([DeleteJob(job, Reason.PROVISION_SUCCEEDED, foreground=False)]) is None


async def test_actions_paused_by_the_circuit_breaker_are_neither_published_nor_executed(
    kube: FakeKube, effects: Effects
) -> None:
    jobs = [job_in(kube, n) for n in range(7)]
    waits = [await effects.apply(decide_out(job)) for job in jobs]
    assert [wait is not None and wait > 500 for wait in waits] == [False] * 5 + [True] * 2
    assert len(kube.objects(JOBS)) == 7, "the bus is away: no Job goes unsaid"
    cast("SilentBus", effects.bus).trouble = None
    for job in jobs:
        await effects.apply(decide_out(job))
    assert [view_job(left).uid for left in kube.objects(JOBS)] == [job.uid for job in jobs[5:]]
    assert len(effects.cache._published) == 5


class Keys:
    """A queue that only notes its keys."""

    def __init__(self) -> None:
        self.added: list[str] = []

    def add(self, key: str) -> None:
        self.added.append(key)


def a_planner(effects: Effects, nodes: Keys) -> FleetReconciler:
    queue, pods = cast("KeyedQueue[str]", nodes), RolloutPods(effects.kube, effects.cache.timings.rollout_pods)
    return FleetReconciler(
        *(effects.kube, effects.cache, of_plans(effects), effects.telemetry, queue, pods), status_soon=lambda: None
    )


async def test_a_slot_given_by_a_leader_that_died_before_making_the_job_is_used(
    kube: FakeKube, cache: Cache, effects: Effects
) -> None:
    show_nodes(cache, [opted_in(a_node())])
    left = Ledger({"uid-node-1": Entry(cache.installer.digest, 1, 5)})
    kube.put(CONFIGMAPS, make_ledger("trellis-system", left, None))
    nodes = Keys()
    planner = a_planner(effects, nodes)
    await planner.run(PLAN, None)
    assert nodes.added == ["node-1"]
    await planner.run(PLAN, None)
    assert nodes.added == ["node-1"]  # it is enough to say so once per reading


class Rollout:
    """Nodes that fail or not, and the leaders that plan, one after the other."""

    def __init__(self, kube: FakeKube, effects: Effects) -> None:
        self.kube, self.effects = kube, effects
        self.bus = cast("SilentBus", effects.bus)
        self.bus.trouble = None

    async def plan(self, *, failing: int, new_leader: bool = False) -> float | None:
        cache = self.effects.cache
        if new_leader:
            cache = Cache(self.kube, cache.settings, {}, {})
            self.effects = replace(self.effects, cache=cache)
        nodes = [opted_in(a_node(f"node-{n}")) for n in range(5)]
        now = int(time.time())
        show_nodes(
            cache,
            (
                failed(node, cache.installer.digest, at=now)
                if n < failing
                else verified_node(node, cache.installer.digest)
                for n, node in enumerate(nodes)
            ),
        )
        return await a_planner(self.effects, Keys()).run(PLAN, None)


@pytest.fixture
def rollout(kube: FakeKube, effects: Effects) -> Rollout:
    return Rollout(kube, effects)


async def test_a_halt_and_its_end_are_published_once(rollout: Rollout) -> None:
    for new_leader in (False, False, True):
        await rollout.plan(failing=5, new_leader=new_leader)
    assert rollout.bus.published == ["rollout.halted"]
    for new_leader in (False, True):
        await rollout.plan(failing=0, new_leader=new_leader)
    assert rollout.bus.published == ["rollout.halted", "rollout.resumed"]


async def test_prometheus_sees_how_many_rollouts_are_halted_while_this_replica_plans(rollout: Rollout) -> None:
    telemetry = rollout.effects.telemetry

    def halted() -> float | None:
        return telemetry.metrics.registry.get_sample_value("trellis_rollouts_halted", {"service": telemetry.service})

    for failing, wanted in ((5, 1), (0, 0)):
        await rollout.plan(failing=failing)
        assert halted() == wanted
    planner = a_planner(rollout.effects, Keys())
    shown = asyncio.create_task(planner.shown())
    await asyncio.sleep(0)
    shown.cancel()
    await asyncio.gather(shown, return_exceptions=True)
    assert halted() is None, "another replica plans now"


@pytest.mark.parametrize("took", [0.05, 0.2])
async def test_after_a_ledger_that_took_long_the_next_plan_waits(
    rollout: Rollout, monkeypatch: pytest.MonkeyPatch, took: float
) -> None:
    create = rollout.kube.create

    async def slow(*given: Any, **more: Any) -> Any:
        await asyncio.sleep(took)
        return await create(*given, **more)

    cache = rollout.effects.cache
    monkeypatch.setattr(rollout.effects.kube, "create", slow)
    await rollout.plan(failing=5)
    assert cache._plan_seconds >= took
    rest = cache.rested_at - time.monotonic()
    assert 2 * took < rest <= cache.timings.plan_rest, "never longer than that, however slow the API server is"


async def test_an_unpublished_halt_is_published_later_even_by_another_leader(rollout: Rollout) -> None:
    rollout.bus.trouble = BusUnavailable
    again = await rollout.plan(failing=5)
    assert again is not None
    assert 0 < again <= rollout.effects.cache.timings.publish
    rollout.bus.trouble = None
    await rollout.plan(failing=5, new_leader=True)
    assert rollout.bus.published == ["rollout.halted"]


async def test_after_a_crash_between_the_ledger_and_the_event_the_next_leader_publishes_it(rollout: Rollout) -> None:
    async def dies(*_: object, **__: object) -> None:
        raise asyncio.CancelledError

    publish, rollout.bus.publish = rollout.bus.publish, dies  # type: ignore[method-assign]
    with pytest.raises(asyncio.CancelledError):
        await rollout.plan(failing=5)
    rollout.bus.publish = publish  # type: ignore[method-assign]
    await rollout.plan(failing=5, new_leader=True)
    assert rollout.bus.published == ["rollout.halted"]


async def test_a_new_stream_receives_the_halt_again(rollout: Rollout) -> None:
    await rollout.plan(failing=5)
    rollout.effects.cache.stream_lost()
    await rollout.plan(failing=5)
    await rollout.plan(failing=5)
    assert rollout.bus.published == ["rollout.halted"] * 2


async def test_a_halt_the_bus_refuses_is_no_reason_to_ask_for_ever(rollout: Rollout) -> None:
    rollout.bus.trouble = EventRefused
    await rollout.plan(failing=5)
    rollout.bus.trouble = None
    await rollout.plan(failing=5)
    assert rollout.bus.published == []


async def test_a_pod_that_its_budget_keeps_is_named_on_the_node(kube: FakeKube, effects: Effects) -> None:
    message = "Cannot evict pod as it would violate the pod's disruption budget."
    kube.answer_next(
        99,
        lambda _: status_reply(429, "TooManyRequests", message),
        when=lambda request: request.path.endswith("/eviction"),
    )
    await effects.apply([EvictPod(a_node(), User("apps", "web", "uid-web", "spin"))])
    [event] = kube.objects(EVENTS)
    assert (event["reason"], event["involvedObject"]["name"]) == ("DrainBlocked", "node-1")
    assert lacking(event["message"], "spin", "apps/web", message) == []


async def test_a_job_refused_by_a_quota_is_reported_on_the_node_and_retried(kube: FakeKube, effects: Effects) -> None:
    node = kube.put(NODES, {"metadata": {"name": "node-1"}})  # its Jobs are the node's
    reason = 'jobs.batch "x" is forbidden: exceeded quota: few, requested: count/jobs.batch=1'
    kube.answer_next(
        1, lambda _: status_reply(403, "Forbidden", reason), when=lambda request: request.path.endswith("jobs")
    )
    create = CreateJob(a_node(uid=node["metadata"]["uid"]), Task(Target(((KWASM, DIGEST),))), 1)
    show_ledger(effects.cache, Ledger({create.node.uid: Entry(DIGEST, 1, 5)}))
    with pytest.raises(Forbidden):
        await effects.apply([create])
    [event] = kube.objects(EVENTS)
    assert (event["type"], event["reason"], event["involvedObject"]["name"]) == (
        "Warning",
        "InstallerJobRefused",
        "node-1",
    )
    assert reason in event["message"]
    await effects.apply([create])
    assert len(kube.objects(JOBS)) == 1


async def test_a_slot_that_was_given_back_is_not_used_meanwhile(effects: Effects) -> None:
    """The deletion of a Job shows before the planner has written who has the slot."""
    node = a_node(uid="u1")
    await effects.apply([GiveBackSlot(node, 600)])
    assert effects.cache.blocked_nodes() == {node.uid}
    await effects.apply([GiveBackSlot(node, 0)])
    assert effects.cache.blocked_nodes() == frozenset()


@pytest.mark.parametrize(
    ("status", "reason", "message"),
    [
        (403, "Forbidden", 'jobs.batch is forbidden: User "x" cannot create resource "jobs" in API group "batch"'),
        (404, "NotFound", 'namespaces "trellis-installers" not found'),
    ],
    ids=["its Roles", "the namespace"],
)
async def test_a_deleted_namespace_of_installers_is_reported_with_the_remedy(
    kube: FakeKube, effects: Effects, status: int, reason: str, message: str
) -> None:
    node = a_node(uid=kube.put(NODES, {"metadata": {"name": "node-1"}})["metadata"]["uid"])
    kube.answer_next(
        1, lambda _: status_reply(status, reason, message), when=lambda request: request.path.endswith("jobs")
    )
    show_ledger(effects.cache, Ledger({node.uid: Entry(DIGEST, 1, 5)}))
    with pytest.raises(KubeError):
        await effects.apply([CreateJob(node, Task(Target(((KWASM, DIGEST),))), 1)])
    [event] = kube.objects(EVENTS)
    assert message in event["message"]
    assert APPLY_AGAIN in event["message"]
    assert effects.cache.refused.message_of(node.uid) == event["message"]
    assert not effects.cache.in_progress()


async def test_a_refusal_names_the_record_of_the_node_and_is_published_again_on_change(
    kube: FakeKube, cache: Cache, effects: Effects
) -> None:
    """Possible remains on the node are in the view of a decision, and are not recorded on the Node."""
    for digest in ("d1", "d2"):
        node = a_node(digest=digest)
        cast("dict[str, NodeView]", cache.nodes)[node.name] = node
        await effects.report_refusal(replace(node, digest="feared"), Reason.INSTALLER_REFUSED, "no")
        [event] = kube.objects(EVENTS)
        marks = event["metadata"]["annotations"]
        assert marks == {names.ANNOTATION_DIGEST: digest, names.ANNOTATION_FAILED_ATTEMPT: ""}


async def test_a_refusal_is_not_withdrawn_while_the_next_write_is_refused_too(
    kube: FakeKube, cache: Cache, effects: Effects
) -> None:
    node, canary = opted_in(a_node("a")), Canary("wasmtime", "uid-wasmtime", "wasmtime", "image")
    reported: list[str] = []
    cache.refused.report = lambda _, reason: reported.append(reason)
    cache.refusal_reported(node, Reason.INSTALLER_REFUSED, "no owner is named")
    kube.answer_next(9, lambda _: status_reply(422, "Invalid", "no owner is named"))
    with pytest.raises(Invalid):
        await effects.apply([CreateCanary(a_job(node, JobState.COMPLETE), canary), ClearRefusal(node)])
    assert "" not in reported
    assert cache.refused.message_of(node.uid)
