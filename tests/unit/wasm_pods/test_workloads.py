"""Workloads of Wasm pods: one for each owner and each pod without one, in any order of changes."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from support.wasm_pods.objects import CREATING, Manifest, executor, node, pod, runtime_class, shim, spin_app, workload
from trellis import names
from trellis.provisioning.nodes_and_jobs import view_node
from trellis.provisioning.shims import view_shim
from trellis.read_model.health import Health
from trellis.read_model.wasm_pods.owners import view_executor, view_owner, view_runtime_class
from trellis.read_model.wasm_pods.pods import view_pod
from trellis.read_model.wasm_pods.reasons import Reason
from trellis.read_model.wasm_pods.snapshot import Part, Snapshot
from trellis.read_model.wasm_pods.workloads import (
    Id,
    Inventory,
    Workload,
    creator_of,
    nodes_of,
    providing_shim,
    wasm_classes,
)

CLASSES = frozenset({"spin-v2"})
SNAPSHOT = Snapshot(classes=[view_runtime_class(runtime_class())], nodes=[view_node(node())], shims=[view_shim(shim())])
OF_SET = ("ReplicaSet", "hello-5d8f", "uid-rs")
OF_APP = ("SpinApp", "hello", "uid-app-hello")
OF_CRON = ("CronJob", "nightly", "uid-nightly")


def inventory(*objects: tuple[str, Manifest], unread: tuple[str, ...] = ()) -> Inventory:
    made = Inventory(unread=unread)
    for kind, manifest in objects:
        put(made, kind, manifest)
    return made


def put(into: Inventory, kind: str, manifest: Manifest, *, there: bool = True) -> set[Id]:
    key = f"{manifest['metadata']['namespace']}/{manifest['metadata']['name']}"
    if kind == "Pod":
        return into.put_pod(key, view_pod(manifest) if there else None)
    if kind == "SpinAppExecutor":
        return into.put_executor(key, view_executor(manifest) if there else None)
    return into.put_owner(kind, key, view_owner(kind, manifest) if there else None)


def rows(found: Inventory) -> dict[Id, Workload]:
    every = {id_: found.workload(id_, CLASSES) for id_ in found.ids()}
    return {id_: item for id_, item in every.items() if item is not None}


def without_hash(made: Manifest) -> Manifest:
    del made["metadata"]["labels"]["pod-template-hash"]
    return made


CASES: dict[str, tuple[list[tuple[str, Manifest]], dict[Id, int]]] = {
    "a Deployment": (
        [("Deployment", workload()), ("Pod", pod("a", owner=OF_SET)), ("Pod", pod("b", owner=OF_SET))],
        {("Deployment", "shop/hello"): 2},
    ),
    "pods of a StatefulSet, a DaemonSet and a Job": (
        [
            ("StatefulSet", workload("set")),
            ("Pod", pod("set-0", owner=("StatefulSet", "set", "uid-set"))),
            ("DaemonSet", workload("every")),
            ("Job", workload("once")),
            ("Pod", pod("once-a", owner=("Job", "once", "uid-once"))),
        ],
        {("StatefulSet", "shop/set"): 1, ("DaemonSet", "shop/every"): 0, ("Job", "shop/once"): 1},
    ),
    "pods without an owner, one of a controller without a page": (
        [("Pod", pod("a")), ("Pod", pod("b", owner=("Rollout", "b", "uid-b")))],
        {("Pod", "shop/a"): 1, ("Pod", "shop/b"): 1},
    ),
    "a pod of a ReplicaSet of Argo Rollouts, which scales the Deployment of its template to 0": (
        [("Deployment", workload(replicas=0)), ("Pod", without_hash(pod("a", owner=OF_SET)))],
        {("Deployment", "shop/hello"): 0, ("Pod", "shop/a"): 1},
    ),
    "a pod whose owner does not exist": ([("Pod", pod("a", owner=OF_SET))], {("Pod", "shop/a"): 1}),
    "a SpinApp": (
        [
            ("SpinApp", spin_app()),
            ("SpinAppExecutor", executor()),
            ("Deployment", workload(owner=OF_APP)),
            ("Pod", pod("a", owner=OF_SET)),
        ],
        {("SpinApp", "shop/hello"): 1},
    ),
    "a SpinApp whose executor has no RuntimeClass": (
        [("SpinApp", spin_app()), ("SpinAppExecutor", executor(class_name=""))],
        {},
    ),
    "a SpinApp without a Deployment": (
        [("SpinApp", spin_app()), ("SpinAppExecutor", executor())],
        {("SpinApp", "shop/hello"): 0},
    ),
    "a Deployment with the name of a SpinApp that does not own it": (
        [("SpinApp", spin_app()), ("SpinAppExecutor", executor()), ("Deployment", workload())],
        {("SpinApp", "shop/hello"): 0, ("Deployment", "shop/hello"): 0},
    ),
    "a CronJob with its newest Job": (
        [
            ("CronJob", workload("nightly", jobTemplate={"spec": {"template": workload()["spec"]["template"]}})),
            ("Job", workload("nightly-1", owner=OF_CRON)),
            ("Job", workload("nightly-2", owner=OF_CRON)),
            ("Pod", pod("nightly-1-a", owner=("Job", "nightly-1", "uid-nightly-1"))),
            ("Pod", pod("nightly-2-a", owner=("Job", "nightly-2", "uid-nightly-2"))),
            ("Pod", pod("nightly-2-b", owner=("Job", "nightly-2", "uid-nightly-2"))),
        ],
        {("CronJob", "shop/nightly"): 2},
    ),
    "another RuntimeClass, or none": (
        [
            ("Deployment", workload(runtime_class="")),
            ("Pod", pod("a", owner=OF_SET, runtime_class="")),
            ("Pod", pod("b", runtime_class="gvisor")),
        ],
        {},
    ),
    "pods whose RuntimeClass a webhook sets": (
        [("Deployment", workload(runtime_class="")), ("Pod", pod("a", owner=OF_SET))],
        {("Deployment", "shop/hello"): 1},
    ),
}


@pytest.mark.parametrize(("objects", "found"), CASES.values(), ids=CASES)
def test_there_is_one_workload_for_each_owner(objects: list[tuple[str, Manifest]], found: dict[Id, int]) -> None:
    assert {id_: len(item.pods) for id_, item in rows(inventory(*objects)).items()} == found


@pytest.mark.parametrize(("objects", "found"), CASES.values(), ids=CASES)
def test_a_change_names_each_workload_that_it_changes(
    objects: list[tuple[str, Manifest]], found: dict[Id, int]
) -> None:
    del found
    for order in itertools.islice(itertools.permutations(objects), 24):
        made, shown = Inventory(), dict[Id, Workload]()
        for there in (True, False):
            for kind, manifest in order:
                changed = put(made, kind, manifest, there=there)
                for id_ in changed:
                    item = made.workload(id_, CLASSES)
                    shown = {key: value for key, value in shown.items() if key != id_}
                    shown |= {id_: item} if item is not None else {}
                assert shown == rows(made)
        assert made.ids() == set()


def test_the_pods_that_a_spin_app_should_have_are_those_of_its_deployment() -> None:
    app = spin_app()
    app["spec"] = {"executor": "containerd-shim-spin", "image": "x", "enableAutoscaling": True}
    objects = [("SpinApp", app), ("SpinAppExecutor", executor()), ("Deployment", workload(owner=OF_APP, replicas=4))]
    assert rows(inventory(*objects))["SpinApp", "shop/hello"].wanted == 4
    assert rows(inventory(*objects[:2]))["SpinApp", "shop/hello"].wanted is None
    app["spec"] = {"executor": "containerd-shim-spin", "image": "x"}
    assert rows(inventory(*objects[:2]))["SpinApp", "shop/hello"].wanted == 0


def test_pods_stand_for_owners_that_cannot_be_read() -> None:
    pods = [("Pod", pod("a", owner=OF_SET)), ("Pod", pod("b", owner=OF_SET)), ("Pod", pod("c"))]
    found = rows(inventory(*pods, unread=("Deployment",)))
    assert {id_: len(item.pods) for id_, item in found.items()} == {
        ("Deployment", "shop/hello"): 2,
        ("Pod", "shop/c"): 1,
    }
    assert found["Deployment", "shop/hello"].wanted is None
    assert found["Deployment", "shop/hello"].health(SNAPSHOT).health is Health.HEALTHY


def test_the_classes_are_those_with_the_handler_of_a_shim_and_those_that_it_is_to_create() -> None:
    other = [view_runtime_class(runtime_class(name, handler)) for name, handler in (("twin", "spin"), ("g", "runsc"))]
    assert wasm_classes(replace(SNAPSHOT, classes=other)) == {"twin", "spin-v2"}
    assert wasm_classes(replace(SNAPSHOT, shims=[])) == frozenset()
    canary = runtime_class("trellis-canary-1")
    canary["metadata"]["labels"] = {names.LABEL_CANARY: "true"}
    assert wasm_classes(replace(SNAPSHOT, classes=[view_runtime_class(canary)])) == {"spin-v2"}, "canaries are no rows"
    for classes in (SNAPSHOT.classes, ()):
        found = providing_shim(replace(SNAPSHOT, classes=classes), "spin-v2")
        assert found is not None
        assert found.name == "spin"


def test_of_two_shims_with_one_handler_the_one_that_names_the_runtime_class_provides_it() -> None:
    edge = shim("edge", runtimeClass={"name": "spin-edge", "handler": "spin"})
    edge["metadata"]["creationTimestamp"] = "2026-11-27T11:00:00Z"
    classes = [view_runtime_class(runtime_class(name)) for name in ("spin-v2", "spin-edge", "own")]
    snapshot = replace(SNAPSHOT, shims=[view_shim(shim()), view_shim(edge)], classes=classes)
    found = {name: providing_shim(snapshot, name) for name in ("spin-v2", "spin-edge", "own")}
    assert {name: item.name for name, item in found.items() if item} == {
        "spin-v2": "spin",
        "spin-edge": "edge",
        "own": "spin",
    }


def test_health_is_that_of_the_owner() -> None:
    found = rows(inventory(("Deployment", workload()), ("Pod", pod("a", owner=OF_SET)), ("Pod", pod("b", CREATING))))
    assert found["Deployment", "shop/hello"].health(SNAPSHOT).reason == Reason.HEALTHY
    assert found["Pod", "shop/b"].health(SNAPSHOT).health is Health.PROGRESSING
    missing = replace(SNAPSHOT, classes=())
    empty = rows(inventory(("Deployment", workload())))["Deployment", "shop/hello"]
    assert empty.health(missing).reason == Reason.RUNTIME_CLASS_MISSING
    unread = replace(SNAPSHOT, unread={Part.PODS: "not allowed"})
    assert empty.health(unread).reason == Reason.PODS_UNKNOWN


def test_a_failed_pod_of_an_owner_without_replicas_does_not_count() -> None:
    evicted = ("Pod", pod("a", CREATING, owner=OF_SET, phase="Failed", reason="Evicted"))
    for replicas in (0, 1):
        found = rows(inventory(("Deployment", workload(replicas=replicas)), evicted))["Deployment", "shop/hello"]
        assert len(found.counted) == replicas


def test_the_pods_of_a_cron_job_are_those_of_its_last_run() -> None:
    job, of_job = workload("nightly-1", owner=OF_CRON), ("Pod", pod("a", owner=("Job", "nightly-1", "uid-nightly-1")))
    template = {"jobTemplate": {"spec": {"template": workload()["spec"]["template"]}}}
    for succeeded, number in (("2026-11-26T10:00:00Z", 1), ("2026-11-28T10:00:00Z", 0)):
        cron = workload("nightly", status={"lastSuccessfulTime": succeeded}, **template)
        found = rows(inventory(("CronJob", cron), ("Job", job), of_job))
        assert len(found["CronJob", "shop/nightly"].pods) == number


def test_snapshots_of_owners_share_the_lookups_of_the_cluster() -> None:
    first, second = SNAPSHOT.of([view_pod(pod("a"))]), SNAPSHOT.of([view_pod(pod("b"))])
    assert first.pods != second.pods
    assert vars(first)["_nodes"] is vars(second)["_nodes"]
    assert first.node("n1") is SNAPSHOT.nodes[0]


def test_nodes_have_the_number_of_pods() -> None:
    pods = [
        ("Pod", pod(name, owner=OF_SET, node=at)) for name, at in (("a", "n1"), ("b", "n1"), ("c", "n2"), ("d", ""))
    ]
    found = rows(inventory(("Deployment", workload()), *pods))["Deployment", "shop/hello"]
    assert nodes_of(found) == {"n1": 2, "n2": 1}


@pytest.mark.parametrize("kind", ["StatefulSet", "DaemonSet", "Job"])
def test_a_controller_of_another_api_group_is_none_of_kubernetes(kind: str) -> None:
    made = pod("a", owner=(kind, "web", "uid"))
    assert creator_of(view_pod(made)) == (kind, "shop/web")
    made["metadata"]["ownerReferences"][0]["apiVersion"] = "apps.kruise.io/v1beta1"
    assert creator_of(view_pod(made)) == ("Pod", "shop/a")


def test_a_replica_set_without_a_hash_is_none_of_a_deployment() -> None:
    assert creator_of(view_pod(pod("a", owner=("ReplicaSet", "plain", "uid")))) == ("Pod", "shop/a")
