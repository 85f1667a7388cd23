"""The pods of Shims for a rollout: views, lists, and the plan and the status that follow from them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from provisioner.cache import Cache
from provisioner.domain.rollout_pods import view_rollout_pod
from provisioner.domain.shim_status import status_of
from provisioner.planner import FleetReconciler
from provisioner.rollout_apply import RolloutEffects
from provisioner.rollout_pods import RolloutPods
from provisioner.settings import Settings
from provisioner.shim_gather import ShimGather
from provisioner.timings import RolloutPodTimings, Timings
from support.suite.naming import lacking
from support.wasm_pods import objects
from trellis.bus.bus import Bus
from trellis.bus.consume.queue import KeyedQueue
from trellis.crds.shim import WorkloadPolicy
from trellis.kube.recorder import EventRecorder
from trellis.kube.resources import CONFIGMAPS, NAMESPACES, PODS, SHIMS
from trellis.provisioning.ledger import read_ledger
from trellis.provisioning.shim_status import Reason
from trellis.provisioning.shims import ShimView, view_shim, wanted_shim_for
from trellis.provisioning.views import NodeView, Target, encode_digests
from trellis.telemetry import Metrics, setup
from trellis_dev.fakes.fake import FakeKube, status_reply
from trellis_dev.testing.builders import a_node, verified_node

SETTINGS = Settings()
OWNER = ("ReplicaSet", "web-5d4f8c7b9d", "uid-rs")


@pytest.mark.parametrize(
    ("pod", "broken", "reason"),
    [
        pytest.param(objects.pod(), False, "", id="ready"),
        pytest.param(objects.pod("p", objects.CREATING), False, "Starting", id="starting"),
        pytest.param(objects.pod("p", objects.crashing(137)), True, "ShimError", id="crashing"),
        pytest.param(
            objects.pod("p", objects.container(last=objects.ended(137), restarts=1)),
            False,
            "ShimError",
            id="restarted with the runtime",
        ),
        pytest.param(
            objects.pod("p", objects.container(objects.waiting("ImagePullBackOff"))), True, "PullFailed", id="no image"
        ),
        pytest.param(
            objects.pod("p", objects.container(objects.waiting("CreateContainerError", "x"))),
            True,
            "ContainerNotCreated",
            id="not created",
        ),
        pytest.param(
            objects.unscheduled("p", message="1 Insufficient cpu."), False, "Unschedulable", id="without a node"
        ),
    ],
)
def test_the_reason_of_a_pod_is_that_of_explain(pod: objects.Manifest, broken: bool, reason: str) -> None:
    found = view_rollout_pod(pod)
    assert (found.broken, found.reason) == (broken, reason)


@pytest.mark.parametrize(
    ("owner", "expected"),
    [
        (OWNER, ("Deployment", "web")),
        (("ReplicaSet", "own-set", "u"), ("ReplicaSet", "own-set")),
        (("StatefulSet", "db-5d4f8c7b9d", "u"), ("StatefulSet", "db-5d4f8c7b9d")),
    ],
)
def test_the_owner_of_a_replicaset_is_its_deployment(owner: tuple[str, str, str], expected: tuple[str, str]) -> None:
    found = view_rollout_pod(objects.pod("p", owner=owner))
    assert (found.owner_kind, found.owner_name) == expected


@pytest.mark.parametrize("manifest", [None, [], {}, {"metadata": 3, "spec": [], "status": "x"}])
def test_a_pod_of_any_content_has_a_view(manifest: object) -> None:
    assert not view_rollout_pod(manifest).ready


class NoBus:
    """A bus that keeps the events."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    async def publish(self, event: object, *, dedup: str) -> None:
        del dedup
        self.events.append(event)


class Rollout:
    """Shim spin in version 2 on nodes with version 1, over an API server in memory."""

    def __init__(self, *nodes: str, policy: WorkloadPolicy = WorkloadPolicy.HALT) -> None:
        self.kube = FakeKube()
        self.kube.put(NAMESPACES, {"metadata": {"name": SETTINGS.namespace}})
        space = self.kube.put(NAMESPACES, {"metadata": {"name": objects.SPACE}})
        self.owner = (*OWNER[:2], space["metadata"]["uid"])  # of an object that exists: others are garbage-collected
        self.timings = Timings(rollout_pods=RolloutPodTimings(settle=0.0, look=0.01, fresh=0.0))
        rolling = {"maxUpdate": 1, "workloads": policy.value}
        spec = objects.shim()["spec"] | {"rolloutStrategy": {"type": "rolling", "rolling": rolling}}
        self.shim = view_shim(self.kube.put(SHIMS, {"metadata": {"name": "spin"}, "spec": spec}))
        self.nodes = {name: self.having(name, "1") for name in nodes}
        self.shims: dict[str, ShimView] = {"spin": self.shim}
        self.cache = Cache(self.kube, SETTINGS, self.nodes, self.shims, timings=self.timings)
        self.bus, telemetry = NoBus(), setup("test", metrics=Metrics())
        effects = RolloutEffects(
            self.kube, cast("Bus", self.bus), EventRecorder(self.kube, component="test"), self.cache
        )
        queue = cast("KeyedQueue[str]", type("Queue", (), {"add": lambda *_: None})())
        pods = RolloutPods(self.kube, self.timings.rollout_pods)
        self.asked: list[None] = []
        self.planner = FleetReconciler(
            *(self.kube, self.cache, effects, telemetry, queue, pods),
            status_soon=lambda: self.asked.append(None),
        )
        for name in nodes:
            self.put_pod(name)

    def having(self, name: str, digest: str) -> NodeView:
        node = verified_node(a_node(name), Target((("spin", digest),)).digest, "handler")
        return replace(node, shims=encode_digests({"spin": digest}))

    def put_pod(self, node: str, *statuses: objects.Manifest) -> None:
        self.kube.put(PODS, objects.pod(f"web-{node}", *statuses, node=node, owner=self.owner))

    def end(self, name: str) -> None:
        wanted = wanted_shim_for(self.shim, "amd64", require_checksum=True)
        self.nodes[name] = self.having(name, getattr(wanted, "digest", ""))
        self.cache.fleet.take(name)

    async def plan(self) -> list[str]:
        """Plan once; return the nodes in progress."""
        await self.planner.run("", None)
        [manifest] = self.kube.objects(CONFIGMAPS) or [{"metadata": {}}]
        found = read_ledger(manifest)
        return sorted(name for name, node in self.nodes.items() if node.uid in found.entries)

    async def conditions(self) -> dict[str, Any]:
        snapshot = await ShimGather(self.kube, self.cache).snapshot("spin")
        assert snapshot is not None
        return {item.type: item for item in status_of(snapshot).conditions}


async def test_a_version_that_breaks_a_pod_halts_and_reports_the_pod() -> None:
    rollout = Rollout("a", "b")
    assert await rollout.plan() == ["a"]
    rollout.end("a")
    rollout.put_pod("a", objects.crashing(137))
    assert await rollout.plan() == []
    found = await rollout.conditions()
    assert found["Degraded"].reason == Reason.WORKLOAD_NOT_READY.value
    assert not lacking(found["Degraded"].message, "shop/web-a", "ShimError", "node a")
    assert (found["Progressing"].status, found["Progressing"].reason) == ("False", Reason.HALTED.value)
    assert found["Stalled"].status == "True"
    [event] = rollout.bus.events
    assert (event.event_name, event.reason, event.pod) == ("halted", Reason.WORKLOAD_NOT_READY.value, "shop/web-a")
    rollout.put_pod("a")
    assert await rollout.plan() == ["b"]
    assert rollout.bus.events[-1].event_name == "resumed"


async def test_while_it_waits_the_shim_names_the_pod() -> None:
    rollout = Rollout("a", "b", policy=WorkloadPolicy.WAIT)
    await rollout.plan()
    rollout.end("a")
    rollout.put_pod("a", objects.crashing(137))
    asked = len(rollout.asked)
    assert await rollout.plan() == []
    assert len(rollout.asked) == asked + 1
    found = await rollout.conditions()
    assert (found["Progressing"].status, found["Progressing"].reason) == ("True", Reason.WAITING_FOR_PODS.value)
    assert not lacking(found["Progressing"].message, "shop/web-a")
    assert found["Degraded"].status == "False"


async def test_a_rollout_is_complete_when_the_pods_of_its_last_node_are_ready() -> None:
    rollout = Rollout("a", policy=WorkloadPolicy.WAIT)
    await rollout.plan()
    rollout.end("a")
    rollout.put_pod("a", objects.crashing(137))
    await rollout.plan()
    found = await rollout.conditions()
    assert (found["Progressing"].status, found["Progressing"].reason) == ("True", Reason.WAITING_FOR_PODS.value)
    assert not lacking(found["Progressing"].message, "shop/web-a")
    assert found["Ready"].status == "False"
    rollout.put_pod("a")
    await rollout.plan()
    found = await rollout.conditions()
    assert (found["Progressing"].status, found["Progressing"].reason) == ("False", Reason.UPDATED.value)
    assert found["Ready"].status == "True"


async def test_a_list_that_is_refused_is_no_reason_to_begin() -> None:
    rollout = Rollout("a")
    refused = status_reply(403, "Forbidden", "pods is forbidden")
    rollout.kube.answer_next(9, lambda _: refused, when=lambda request: request.path == PODS.path())
    assert await rollout.plan() == []
    found = await rollout.conditions()
    assert (found["Degraded"].status, found["Degraded"].reason) == ("True", Reason.WORKLOADS_UNKNOWN.value)


async def test_pods_are_listed_only_while_a_rollout_depends_on_them() -> None:
    def lists(rollout: Rollout) -> int:
        return sum(request.path == PODS.path() for request in rollout.kube.api.requests)

    ignoring = Rollout("a", policy=WorkloadPolicy.IGNORE)
    await ignoring.plan()
    assert lists(ignoring) == 0
    resting = Rollout("a")
    resting.end("a")
    await resting.planner.run("", None)
    assert lists(resting) == 0
    changing = Rollout("a")
    await changing.plan()
    assert lists(changing) == 1


async def test_installer_pods_are_listed_once_and_again_after_a_refusal() -> None:
    rollout = Rollout("a")
    path = PODS.path(SETTINGS.installer_namespace)
    refused = status_reply(403, "Forbidden", "pods is forbidden")
    rollout.kube.answer_next(1, lambda _: refused, when=lambda request: request.path == path)
    await rollout.plan()
    assert rollout.cache.may_have_pods("a"), "unknown, not absent"
    for _ in range(2):
        await rollout.plan()
    assert not rollout.cache.may_have_pods("a")
    assert sum(request.path == path for request in rollout.kube.api.requests) == 2


async def test_pods_of_other_classes_are_not_kept() -> None:
    kube = FakeKube()
    kube.put(NAMESPACES, {"metadata": {"name": objects.SPACE}})
    kube.put(PODS, objects.pod("mine"))
    kube.put(PODS, objects.pod("other", runtime_class="kata"))
    found = await RolloutPods(kube, RolloutPodTimings()).read(frozenset({"spin-v2"}))
    assert [pod.name for pod in found.of("spin-v2") or ()] == ["mine"]
    assert found.by_class is not None
    assert found.by_class.keys() == {"spin-v2"}
