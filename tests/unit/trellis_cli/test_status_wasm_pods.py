"""Wasm pods in ``trellis status``: one row for all, one for each workload with a problem, as its page has it."""

from __future__ import annotations

from typing import Any

import pytest

from support.wasm_pods.objects import (
    READY,
    SPACE,
    WORLD,
    container,
    crashing,
    executor,
    kube_of,
    node,
    pod,
    sandbox,
    shim,
    spin_app,
    unscheduled,
    workload,
)
from trellis.kube.resources import (
    CRON_JOBS,
    DAEMON_SETS,
    DEPLOYMENTS,
    EVENTS,
    JOBS,
    NODES,
    PODS,
    RUNTIME_CLASSES,
    SHIMS,
    SPIN_APP_EXECUTORS,
    SPIN_APPS,
    STATEFUL_SETS,
    Resource,
)
from trellis.read_model.health import Health
from trellis.read_model.reading.cluster import Reading
from trellis.read_model.reading.explained_pods import pods_page
from trellis.read_model.reading.wasm_pods import read_wasm_pods
from trellis.read_model.wasm_pods.reasons import Reason
from trellis_cli.status.command import _wasm_pods
from trellis_cli.status.row import Part
from trellis_cli.status.wasm_pods import ROWS_MOST, WASM_PODS, wasm_pods_part, workload_parts
from trellis_dev.fakes.fake import FakeKube, status_reply

OF_SET = ("ReplicaSet", "hello-5d8f", "uid-hello")
OF_APP = ("SpinApp", "app", "uid-app-app")
OF_APP_SET = ("ReplicaSet", "app-5d8f", "uid-app")


def cluster(*more: tuple[Resource, Any], spinkube: bool = True) -> FakeKube:
    """Return workloads of several states."""
    spin = [
        (SPIN_APPS, spin_app("app")),
        (SPIN_APP_EXECUTORS, executor()),
        (DEPLOYMENTS, workload("app", owner=OF_APP)),
        (PODS, pod("app-a", owner=OF_APP_SET)),
    ]
    return kube_of(
        *WORLD,
        (DEPLOYMENTS, workload(replicas=2)),
        (PODS, pod("hello-a", owner=OF_SET)),
        (PODS, unscheduled("hello-b", owner=OF_SET, selector={"zone": "x"})),
        (STATEFUL_SETS, workload("set")),
        (PODS, pod("set-0", container(ready=False), owner=("StatefulSet", "set", "uid-set"))),
        (DAEMON_SETS, workload("every", status={"desiredNumberScheduled": 1})),
        (PODS, pod("every-a", owner=("DaemonSet", "every", "uid-every"))),
        (JOBS, workload("once", status={"conditions": [{"type": "Complete", "status": "True"}]})),
        (
            CRON_JOBS,
            workload("nightly", suspend=True, jobTemplate={"spec": {"template": workload()["spec"]["template"]}}),
        ),
        (PODS, pod("alone", crashing(137))),
        (PODS, pod("other", runtime_class="gvisor")),
        (DEPLOYMENTS, workload("plain", runtime_class="")),
        *(spin if spinkube else ()),
        *more,
        spinkube=spinkube,
    )


def reader(kube: FakeKube) -> Reading:
    return Reading(kube, "trellis-system")


async def parts(kube: FakeKube) -> tuple[Part, list[Part]]:
    row, rows = await _wasm_pods(kube, "trellis-system")
    return row, [*rows]


def named(row: Part) -> dict[str, dict[str, Any]]:
    return {f"{item['kind']} {item['name']}": item for item in row.data["workloads"]}


async def test_there_is_one_row_for_each_owner_and_each_pod_without_one() -> None:
    row, _ = await parts(cluster())
    assert {name: (item["ready"], item["pods"]) for name, item in named(row).items()} == {
        "Deployment hello": (1, 2),
        "StatefulSet set": (0, 1),
        "DaemonSet every": (1, 1),
        "Job once": (0, 0),
        "CronJob nightly": (0, 0),
        "Pod alone": (0, 1),
        "SpinApp app": (1, 1),
    }
    assert {item["shim"] for item in named(row).values()} == {"spin"}
    assert {item["runtime_class"] for item in named(row).values()} == {"spin-v2"}
    assert (row.data["count"], row.data["pods"], row.data["pods_ready"]) == (7, 6, 3)
    assert row.ok is False


async def test_each_workload_has_the_health_and_the_reason_of_its_page() -> None:
    lines = "Error: unknown import: `wasi:nn/graph` has not been defined"
    kube = cluster(
        (PODS, pod("bad", container({"waiting": {"reason": "ContainerCreating"}}), node="n2")),
        (NODES, node("n2", handlers=("runc",))),
        (EVENTS, sandbox('no runtime for "spin" is configured', name="bad", uid="uid-bad")),
    )
    kube.put_log(SPACE, "alone", "app", lines)
    row, _ = await parts(kube)
    reading = reader(kube)
    for item in named(row).values():
        page = await pods_page(reading, item["kind"].lower(), item["name"], item["namespace"])
        assert (item["health"], item["reason"]) == (page.verdict.health.value, page.verdict.reason), item["name"]
        assert item["message"] == (page.verdict.message or None)
    reasons = {item["reason"] for item in named(row).values()}
    expected = {Reason.NO_NODE_WITH_LABEL, Reason.HANDLER_NOT_CONFIGURED, Reason.SUSPENDED, Reason.HEALTHY}
    assert expected | {Reason.INTERFACE_MISSING} <= reasons


async def test_the_table_has_the_workloads_with_a_problem_the_most_severe_first() -> None:
    _, rows = await parts(cluster())
    assert [(row.name, row.ok) for row in rows] == [
        ("pod shop/alone", False),
        ("deployment shop/hello", False),
        ("statefulset shop/set", True),
    ]
    assert "trellis explain deployment/hello -n shop" in rows[1].problem
    assert Reason.NO_NODE_WITH_LABEL in rows[1].problem
    assert Health.PROGRESSING in rows[2].text


async def test_the_number_of_rows_is_bounded() -> None:
    many = [(PODS, unscheduled(f"p{number:02}", selector={"zone": "x"})) for number in range(ROWS_MOST + 5)]
    row, rows = await parts(kube_of(*WORLD, *many))
    assert len(rows) == ROWS_MOST + 1
    assert "5" in rows[-1].text
    assert row.data["count"] == ROWS_MOST + 5


async def test_a_cluster_without_spinkube_has_no_error() -> None:
    row, _ = await parts(cluster(spinkube=False))
    assert row.unread == ""
    assert "SpinApp" not in row.problem


@pytest.mark.parametrize(
    "shims", [(), ((SHIMS, shim(runtimeClass={"name": "o", "handler": "other"})),)], ids=["no Shim", "another Shim"]
)
async def test_without_a_shim_with_the_handler_there_is_no_row(shims: tuple[tuple[Resource, Any], ...]) -> None:
    kube = kube_of(WORLD[0], WORLD[1], *shims, (PODS, pod("alone", crashing(137))))
    row, rows = await parts(kube)
    assert (row.data["count"], rows, row.ok) == (0, [], True)
    read = [request.path for request in kube.api.requests if request.path.endswith("/pods")]
    assert bool(read) is bool(shims), "without Shims no pod is read"


def forbid(kube: FakeKube, *plurals: str) -> None:
    why = 'x is forbidden: User "a" cannot list resource "{}" in API group "" at the cluster scope'
    kube.answer_next(
        99,
        lambda request: status_reply(403, "Forbidden", why.format(request.path.rsplit("/", 1)[1])),
        when=lambda request: request.path.rsplit("/", 1)[1] in plurals,
    )


@pytest.mark.parametrize(
    "res",
    [PODS, EVENTS, NODES, RUNTIME_CLASSES, DEPLOYMENTS, STATEFUL_SETS, JOBS, CRON_JOBS, SPIN_APPS, SPIN_APP_EXECUTORS],
    ids=lambda res: res.plural,
)
async def test_a_kind_that_cannot_be_listed_is_named_and_the_rest_is_shown(res: Resource) -> None:
    kube = cluster()
    forbid(kube, res.plural)
    row, rows = await parts(kube)
    assert res.plural in row.unread
    found = named(row)
    assert "DaemonSet every" in found
    assert rows or res is PODS
    if res is PODS:
        assert row.data["pods"] is None
        assert {item["reason"] for item in found.values() if item["health"] == "Unknown"} == {Reason.PODS_UNKNOWN}
    if res is DEPLOYMENTS:
        assert found["Deployment hello"]["pods"] == 2, "its pods show that it exists"


async def test_without_shims_nothing_is_concluded() -> None:
    kube = cluster()
    forbid(kube, SHIMS.plural)
    row, rows = await parts(kube)
    assert (row.ok, row.data["count"], rows) == (None, 0, [])
    assert SHIMS.plural in row.unread


async def test_the_requests_do_not_depend_on_the_number_of_pods() -> None:
    counts = []
    for number in (1, 120):
        pods = [(PODS, pod(f"p{each}", READY, owner=OF_SET)) for each in range(number)]
        kube = kube_of(*WORLD, (DEPLOYMENTS, workload(replicas=number)), *pods)
        found = await read_wasm_pods(reader(kube))
        assert wasm_pods_part(found.snapshot, found.workloads).data["pods_ready"] == number
        assert workload_parts(found.workloads) == []
        counts.append(len(kube.api.requests))
    assert counts[0] == counts[1]
    assert WASM_PODS == "wasm-pods"
