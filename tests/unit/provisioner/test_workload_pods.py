"""The watch of Wasm pods: views, indexes, RuntimeClasses that appear and vanish, pods of other ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from provisioner.domain.shim_resources import view_runtime_class
from provisioner.domain.workloads.classes import provided_classes
from provisioner.workloads.pods import Controller, WorkloadPod
from provisioner.workloads.refused_creations import RefusedCreation, RefusedCreations
from provisioner.workloads.watches import PodWatch
from support.cluster.kube_world import until
from support.wasm_pods.objects import SPACE, Manifest, crashing, kube_of, pod, runtime_class, shim, workload
from trellis import names
from trellis.kube.changes import Change, ChangeKind
from trellis.kube.resources import PODS, STATEFUL_SETS, Resource
from trellis.provisioning.shims import view_shim

OWNER = ("ReplicaSet", "hello-1", "uid-rs")
OWNED = ("StatefulSet", "db", "uid-db")


class Seen:
    """The watch in a loop. ``classes``: RuntimeClasses that Shims provide."""

    def __init__(self, *classes: str, objects: Sequence[tuple[Resource, Manifest]] = ()) -> None:
        self.kube = kube_of(*objects)
        self.classes, self.changes, self.known = frozenset(classes), list[Change[WorkloadPod]](), 0
        self.refusals = list[Change[RefusedCreation]]()
        self.watch = PodWatch(
            self.kube,
            lambda: self.classes,
            self.changes.append,
            self.refusals.append,
            self._on_known,
            settle=0.01,
            refused=RefusedCreations(self.kube.now, 1200.0),
        )

    def _on_known(self) -> None:
        self.known += 1

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.watch.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def provide(self, *classes: str) -> None:
        self.classes = frozenset(classes)
        self.watch.classes_changed()

    @property
    def names(self) -> set[str]:
        return {item.name for item in self.watch.pods.objects.values()}


def view(manifest: dict[str, object]) -> WorkloadPod:
    found = Seen().watch.pods.view(manifest, {"spin-v2"})
    assert found is not None
    return found


def test_a_pod_that_works_has_no_details_and_a_pod_that_does_not_has_them() -> None:
    well, sick = view(pod()), view(pod("sick", crashing(1)))
    assert (well.works, well.details, well.node) == (True, None, "n1")
    assert well.created_at == well.ready_at > 0
    assert (sick.works, sick.restarts) == (False, 4)
    assert sick.details is not None
    completed = view(pod("done", crashing(0), phase="Succeeded"))
    assert (completed.completed, completed.works, completed.details) == (True, True, None)


def test_a_pod_without_controller_is_its_own_owner() -> None:
    assert view(pod()).controller == Controller("v1", "Pod", "hello", "uid-hello")
    assert (view(pod(owner=OWNER)).owner_kind, view(pod(owner=OWNER)).owner_name) == OWNER[:2]


def test_a_static_pod_is_its_own_owner_and_not_its_node() -> None:
    found = view(pod("kube-x-n1", owner=("Node", "n1", "uid-n1")))
    assert found.controller == Controller("v1", "Pod", "kube-x-n1", "uid-kube-x-n1")


@pytest.mark.parametrize("broken", [None, [], {}, {"metadata": None, "spec": {"runtimeClassName": ["spin-v2"]}}])
def test_an_object_of_an_unknown_form_is_no_wasm_pod(broken: object) -> None:
    assert Seen().watch.pods.view(broken, {"spin-v2"}) is None


def test_classes_are_those_that_shims_name_and_those_with_their_handler() -> None:
    classes = [
        view_runtime_class(item | {"metadata": item["metadata"] | {"resourceVersion": "1"}})
        for item in (runtime_class("mine"), runtime_class("other", "kata"))
    ]
    assert provided_classes([view_shim(shim())], classes) == {"mine", "spin-v2"}
    assert provided_classes([], classes) == frozenset()
    canaries = replace(classes[0], labels=((names.LABEL_CANARY, "true"),))
    assert provided_classes([view_shim(shim())], [canaries]) == {"spin-v2"}, "canaries are no workloads"


async def test_only_pods_of_provided_classes_are_kept() -> None:
    owned = [pod("a", owner=OWNED), pod("b", node="n2", owner=OWNED), pod("c", runtime_class="kata")]
    seen = Seen("spin-v2", objects=[(STATEFUL_SETS, workload("db")), *((PODS, item) for item in owned)])
    async with seen.running():
        await until(lambda: seen.watch.known, "known")
        await until(lambda: seen.known == 1, "reported")
        pods = seen.watch.pods
        assert [item.name for item in pods.of_class("spin-v2")] == ["a", "b"]
        assert [item.name for item in pods.on_nodes(["n2", "n3"])] == ["b"]
        [controller] = pods.controllers()
        assert (controller.kind, controller.name) == OWNED[:2]
        assert not pods.of_class("kata")
        first, second = pods.of_controller(controller.uid)
        assert first.controller is second.controller
        seen.kube.remove(PODS, "b", SPACE)
        await until(lambda: not pods.on_nodes(["n2"]), "gone from the indexes")
        seen.kube.remove(PODS, "a", SPACE)
        await until(lambda: not pods.controllers(), "the controller is dropped with its last pod")


async def test_another_set_of_classes_adds_and_drops_pods_and_keeps_the_views_of_the_others() -> None:
    seen = Seen("spin-v2")
    for item in (pod("a"), pod("b", runtime_class="slight")):
        seen.kube.put(PODS, item)
    async with seen.running():
        await until(lambda: seen.names == {"a"}, "the first class")
        seen.provide("spin-v2", "slight")
        await until(lambda: seen.names == {"a", "b"}, "both")
        assert [item.kind for item in seen.changes] == [ChangeKind.ADDED] * 2
        seen.provide("slight")
        await until(lambda: seen.names == {"b"}, "the second")
        seen.provide()
        await until(lambda: not seen.names, "none")
        assert not seen.watch.known
        assert not seen.watch.pods.of_class("slight")


async def test_without_a_class_no_pod_is_read() -> None:
    seen = Seen()
    async with seen.running():
        await asyncio.sleep(0.05)
    assert not [request for request in seen.kube.api.requests if request.path.endswith(("/pods", "/events"))]


async def test_an_error_of_the_watch_is_not_lost() -> None:
    seen = Seen("spin-v2", objects=[(PODS, pod())])

    def fails() -> None:
        raise RuntimeError("broken")

    seen.watch.on_known = fails
    async with asyncio.timeout(15):
        with pytest.raises(ExceptionGroup) as raised:
            await seen.watch.run()
    assert raised.group_contains(RuntimeError, match="broken")
    assert not seen.watch.known
