"""Entities of Wasm pods: one for each owner, with bounded size, and the same ones after any order of changes."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest

from support.wasm_pods.entities import OF_SET, Item, cluster, put, seen_wasm, statuses
from support.wasm_pods.objects import (
    CREATING,
    event,
    executor,
    node,
    pod,
    runtime_class,
    sandbox,
    shim,
    spin_app,
    unscheduled,
    workload,
)
from trellis.read_model.entities import composing_wasm
from trellis.read_model.entities.composing_wasm import PARTS, PODS, WasmComposer
from trellis.read_model.entities.journal import Entity, Journal
from trellis.read_model.entities.wasm_entities import KINDS, NODES_MOST, wasm_entity
from trellis.read_model.live.parts_wasm import wasm_parts
from trellis.read_model.wasm_pods.reasons import Reason
from trellis.read_model.wasm_pods.snapshot import Snapshot
from trellis.read_model.wasm_pods.workloads import Id, Workload

WORLD: list[Item] = [("nodes", node()), ("shims", shim()), ("runtimeclasses", runtime_class())]
OF_APP = ("SpinApp", "hello", "uid-app-hello")
OF_CRON = ("CronJob", "nightly", "uid-nightly")
MOVING: list[Item] = [
    *WORLD,
    ("deployments", workload(owner=OF_APP)),
    ("spinapps", spin_app()),
    ("spinappexecutors", executor()),
    ("wasmpods", pod("a", owner=OF_SET)),
    ("wasmpods", unscheduled("b", owner=OF_SET, selector={"zone": "x"})),
    ("wasmpods", pod("c", CREATING)),
    ("podevents", sandbox('no runtime for "spin" is configured', name="c", uid="uid-c")),
    ("podevents", event("FailedCreate", "quota", "once", kind="Job", uid="uid-once")),
    ("podevents", event("FailedCreate", "quota", "hello", kind="Deployment", uid="uid-hello")),
    ("nodes", node("n2", labels={"zone": "x"})),
    ("cronjobs", workload("nightly", jobTemplate={"spec": {"template": workload()["spec"]["template"]}})),
    ("wasmjobs", workload("nightly-1", owner=OF_CRON)),
    ("wasmjobs", workload("once")),
    ("wasmpods", pod("nightly-1-a", owner=("Job", "nightly-1", "uid-nightly-1"))),
    ("nodes", node("n1", handlers=("runc",))),
    ("runtimeclasses", runtime_class("twin")),
    ("wasmpods", pod("d", runtime_class="twin")),
]


def entities(journal: Journal) -> dict[str, Any]:
    return {id_: entity for id_, entity in journal.entities.items() if entity["kind"] != "part"}


def test_each_part_is_watched() -> None:
    assert tuple(part.name for part in wasm_parts()) == PARTS


def test_each_kind_has_an_entity() -> None:
    found = {id_: item for id_, item in seen_wasm().items() if item["kind"] != "part"}
    assert {item["kind"] for item in found.values()} == {*KINDS}
    hello = found["deployment/shop/hello"]
    assert (hello["shim"], hello["runtime_class"]) == ("shim/spin", "spin-v2")
    assert (hello["desired"], hello["pods"], hello["nodes"]) == (2, {"all": 1, "ready": 1}, ["node/n1"])
    assert found["spinapp/shop/app"]["executor"] == "containerd-shim-spin"
    assert found["spinapp/shop/app"]["reason"] == Reason.DEPLOYMENT_MISSING


@pytest.mark.parametrize("seed", range(20))
def test_any_order_of_changes_leads_to_the_same_entities(seed: int) -> None:
    chance = random.Random(seed)
    composer, journal = WasmComposer(), Journal(1000)
    composer.report(statuses())
    held: dict[tuple[str, str], Item] = {}
    for _ in range(60):
        item = chance.choice(MOVING)
        there = chance.random() < 0.7
        put(composer, item, there=there)
        name = item[0], str(item[1]["metadata"]["name"])
        held = {key: value for key, value in held.items() if key != name} | ({name: item} if there else {})
        if chance.random() < 0.5:
            journal.write(composer.flush())
            fresh = {id_: one for id_, one in seen_wasm(held.values()).items() if one["kind"] != "part"}
            assert entities(journal) == fresh


def test_nothing_is_concluded_before_each_kind_is_read() -> None:
    composer = WasmComposer()
    for item in cluster():
        put(composer, item)
    composer.report([status for status in statuses() if status.name != "deployments"] + unread("deployments"))
    assert {id_ for id_ in composer.flush() if not id_.startswith("part/")} == set()
    composer.report(statuses())
    assert "deployment/shop/hello" in composer.flush()


def unread(name: str) -> list[Any]:
    [status] = [status for status in statuses() if status.name == name]
    return [type(status)(name, synced=False, lacking={})]


@pytest.mark.parametrize("part", PARTS)
def test_a_kind_that_cannot_be_read_is_unknown_and_the_rest_is_shown(part: str) -> None:
    found = seen_wasm(lacking=[part])
    assert found[f"part/{part}"]["lacking"]
    assert len(found) > len(PARTS)
    if part == PODS:
        assert found["deployment/shop/hello"]["pods"] is None
        assert found["deployment/shop/hello"]["reason"] == Reason.PODS_UNKNOWN
    if part == "deployments":
        assert found["deployment/shop/hello"]["pods"] == {"all": 1, "ready": 1}


def test_a_namespace_without_permission_hides_nothing_of_another_one() -> None:
    composer = WasmComposer()
    for item in cluster():
        put(composer, item)
    composer.report(statuses([PODS], places=["lab"]))
    hello = composer.flush()["deployment/shop/hello"]
    assert hello is not None
    assert hello["pods"] == {"all": 1, "ready": 1}


def test_without_watches_their_parts_and_entities_are_removed() -> None:
    composer, journal = WasmComposer(), Journal(1000)
    for item in cluster():
        put(composer, item)
    composer.report(statuses())
    journal.write(composer.flush())
    for item in cluster():
        put(composer, item, there=False)
    composer.report([status for status in statuses() if status.name == PODS])
    journal.write(composer.flush())
    assert [*journal.entities] == [f"part/{PODS}"]


def test_a_change_of_one_pod_evaluates_its_workload_only(monkeypatch: pytest.MonkeyPatch) -> None:
    composer = WasmComposer()
    for item in cluster():
        put(composer, item)
    composer.report(statuses())
    composer.flush()
    evaluated: list[Id] = []

    def noted(snapshot: Snapshot, workload: Workload) -> Entity:
        evaluated.append(workload.id)
        return wasm_entity(snapshot, workload)

    monkeypatch.setattr(composing_wasm, "wasm_entity", noted)
    put(composer, ("wasmpods", pod("hello-a", CREATING, owner=OF_SET)))
    changes = composer.flush()
    assert evaluated == [("Deployment", "shop/hello")]
    assert changes["deployment/shop/hello"]["health"] == "Progressing"  # type: ignore[index]


def test_an_entity_of_many_nodes_is_bounded() -> None:
    pods: list[Item] = [
        ("wasmpods", pod(f"every-{each}", owner=("DaemonSet", "every", "uid-every"), node=f"n{each}"))
        for each in range(NODES_MOST + 50)
    ]
    owner: Item = ("daemonsets", workload("every", status={"desiredNumberScheduled": NODES_MOST + 50}))
    found = seen_wasm([*WORLD, owner, *pods])["daemonset/shop/every"]
    assert (len(found["nodes"]), found["nodes_all"]) == (NODES_MOST, NODES_MOST + 50)


def test_a_run_is_bounded_and_the_next_ones_evaluate_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(composing_wasm, "EVALUATED_MOST", 10)
    composer, journal = WasmComposer(), Journal(1000)
    for item in WORLD:
        put(composer, item)
    for each in range(30):
        put(composer, ("wasmpods", pod(f"p{each:02}")))
    composer.report(statuses())
    runs = 0
    while not runs or composer.behind:
        journal.write(composer.flush())
        runs += 1
        assert journal.entities[f"part/{PODS}"]["synced"] is not composer.behind
    assert runs > 3
    assert len(entities(journal)) == 30


def test_five_thousand_pods_are_evaluated_in_a_second() -> None:
    owners: list[Item] = [("deployments", workload(f"d{each:03}", replicas=10)) for each in range(500)]
    pods: list[Item] = [
        ("wasmpods", pod(f"p{each}", owner=("ReplicaSet", f"d{each % 500:03}-5d8f", "uid"))) for each in range(5_000)
    ]
    composer = WasmComposer()
    for item in [*WORLD, *owners, *pods]:
        put(composer, item)
    composer.report(statuses())
    began = time.process_time()
    found: dict[str, Any] = {}
    while not found or composer.behind:
        found |= composer.flush()
    assert time.process_time() - began < 5.0
    assert sum(item["pods"]["ready"] for item in found.values() if item and item["kind"] == "deployment") == 5_000
