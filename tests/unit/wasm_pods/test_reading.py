"""The reader of pages of Wasm pods: requests, permissions, kinds that are not served, logs."""

from __future__ import annotations

from typing import Any

import pytest

from support.suite.naming import lacking
from support.wasm_pods.objects import (
    SPACE,
    WORLD,
    Manifest,
    container,
    crashing,
    event,
    executor,
    kube_of,
    pod,
    spin_app,
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
from trellis.read_model.errors import AnswerError
from trellis.read_model.explain.page import Explanation
from trellis.read_model.health import Health
from trellis.read_model.reading.cluster import Reading
from trellis.read_model.reading.explained_pods import LOGS_MOST, pods_page
from trellis.read_model.reading.find import ObjectNotFoundError
from trellis.read_model.reading.pod_kinds import KINDS, RESOURCES
from trellis.read_model.reading.wasm_pods import read_wasm_pods
from trellis.read_model.wasm_pods.reasons import Reason
from trellis.read_model.wasm_pods.snapshot import Part
from trellis_dev.fakes.fake import FakeKube, status_reply

OF_SET: dict[str, Any] = {"owner": ("ReplicaSet", "hello-5d8f", "uid-hello")}
"""The UID is that of the Deployment: the server deletes objects without an owner, and has no ReplicaSets."""


async def explained(kube: FakeKube, kind: str, name: str = "hello") -> Explanation:
    return await pods_page(Reading(kube, "trellis-system"), kind, name, SPACE)


def forbid(kube: FakeKube, res: Resource, suffix: str = "") -> None:
    of = f'resource "{res.plural}" in API group "{res.group}"'
    words = f'{res.plural} is forbidden: User "a" cannot list {of} at the cluster scope'

    def refused(request: Any) -> bool:
        return bool(request.path.endswith(suffix or f"/{res.plural}"))

    kube.answer_next(99, lambda _: status_reply(403, "Forbidden", words), when=refused)


async def test_a_pod_is_explained_with_its_events() -> None:
    kube = kube_of(*WORLD, (PODS, pod("hello", container())), (EVENTS, event("Unhealthy", "Readiness probe failed")))
    page = await explained(kube, "pod")
    assert page.cause is not None
    assert page.cause.reason == Reason.PROBE_FAILED
    assert any(line.about == "event" for line in page.lines)
    assert kube.writes == []


async def test_a_row_has_the_reason_for_which_pods_are_unknown() -> None:
    kube = kube_of(*WORLD, (PODS, pod("hello", container())))
    proxy = "the proxy permits no lists"
    kube.answer_next(
        99, lambda _: status_reply(403, "Forbidden", proxy), when=lambda request: request.path == PODS.path()
    )
    found = await read_wasm_pods(Reading(kube, "trellis-system"))
    assert proxy in found.snapshot.unread[Part.PODS]


async def test_an_event_of_another_pod_is_not_read() -> None:
    other = event("Unhealthy", "Readiness probe failed", "other")
    kube = kube_of(*WORLD, (PODS, pod("other")), (PODS, pod("hello", container())), (EVENTS, other))
    page = await explained(kube, "pod")
    assert page.cause is not None
    assert page.cause.reason == Reason.NOT_READY


async def test_the_log_of_a_container_that_ended_is_the_evidence() -> None:
    kube = kube_of(*WORLD, (PODS, pod("hello", crashing(137))))
    kube.put_log(SPACE, "hello", "app", "one\nError: unknown import: `wasi:http/types::x` has not been defined\n")
    page = await explained(kube, "pod")
    assert page.cause is not None
    assert page.cause.reason == Reason.INTERFACE_MISSING
    [request] = [item for item in kube.api.requests if item.path.endswith("/log")]
    assert "previous" not in request.query


async def test_the_log_of_a_former_run_is_read_while_the_next_one_runs() -> None:
    last = {"exitCode": 3, "reason": "Error"}
    kube = kube_of(*WORLD, (PODS, pod("hello", container(last=last, restarts=1))))
    await explained(kube, "pod")
    [request] = [item for item in kube.api.requests if item.path.endswith("/log")]
    assert request.query["previous"] == "true"


async def test_no_log_of_a_pod_that_works_is_read() -> None:
    kube = kube_of(*WORLD, (PODS, pod("hello", container(ready=True, last={"exitCode": 3}, restarts=1))))
    assert (await explained(kube, "pod")).cause is None
    assert not [item for item in kube.api.requests if item.path.endswith("/log")]


async def test_colours_in_a_log_do_not_hide_the_error() -> None:
    kube = kube_of(*WORLD, (PODS, pod("hello", crashing(137))))
    kube.put_log(
        SPACE, "hello", "app", "\x1b[31mError\x1b[0m: unknown \x1b[1mimport\x1b[0m: `a::b` has not been defined\n"
    )
    page = await explained(kube, "pod")
    assert page.cause is not None
    assert page.cause.reason == Reason.INTERFACE_MISSING
    assert "\x1b" not in str(page.document())


async def test_a_log_of_long_lines_is_read_to_its_end_and_shown_in_part() -> None:
    kube = kube_of(*WORLD, (PODS, pod("hello", crashing(3))))
    lines = [f"{number} {'x' * 16000}" for number in range(300)]
    kube.put_log(SPACE, "hello", "app", "\n".join(lines))
    page = await explained(kube, "pod")
    assert lacking(page.headline, "297", "298", "299") == []
    assert len(str(page.document())) < 20_000


async def test_credentials_in_a_log_are_hidden() -> None:
    kube = kube_of(*WORLD, (PODS, pod("hello", crashing(3))))
    kube.put_log(SPACE, "hello", "app", "cannot connect to redis://user:s3cret@redis:6379\n")
    page = await explained(kube, "pod")
    assert lacking(page.headline, "redis:6379") == []
    assert "s3cret" not in str(page.document())


async def test_a_log_that_cannot_be_read_is_named() -> None:
    kube = kube_of(*WORLD, (PODS, pod("hello", crashing(3))))
    forbid(kube, PODS, "/log")
    page = await explained(kube, "pod")
    assert page.cause is not None
    assert page.cause.reason == Reason.EXITED
    assert lacking(page.cause.text, "list pods") == []


@pytest.mark.parametrize("res", [NODES, RUNTIME_CLASSES, SHIMS, EVENTS])
async def test_a_forbidden_list_is_named_and_no_absence(res: Resource) -> None:
    for state, expected in ((pod(), None), (pod("hello", crashing(3)), Reason.EXITED)):
        kube = kube_of(*WORLD, (PODS, state))
        forbid(kube, res)
        page = await explained(kube, "pod")
        assert (page.cause.reason if page.cause else None) == expected
        assert any(lacking(line.text, f"list {res.plural}") == [] for line in page.lines)


async def test_a_cluster_without_the_crd_of_shims_has_none() -> None:
    kube = kube_of(*WORLD[:2], (PODS, pod()), without=SHIMS)
    page = await explained(kube, "pod")
    assert page.cause is None
    assert not any(line.about == "permissions" for line in page.lines)


async def test_a_deployment_has_the_pods_of_its_replica_sets() -> None:
    other = pod("stranger", crashing(9), owner=("ReplicaSet", "hallo-1", "uid-hello"))
    kube = kube_of(
        *WORLD,
        (DEPLOYMENTS, workload(replicas=2)),
        (PODS, pod("a", **OF_SET)),
        (PODS, pod("b", crashing(3), **OF_SET)),
        (PODS, other),
    )
    page = await explained(kube, "deployment")
    assert page.cause is not None
    assert page.cause.reason == Reason.EXITED
    assert lacking(page.cause.text, "1 of 2 pods", "(b)", "status 3") == []


STRANGERS = {
    "of a Deployment with a longer name": ("ReplicaSet", "hello-canary-5d8f", "uid-x", "5d8f", "apps/v1"),
    "of a ReplicaSet that no Deployment created": ("ReplicaSet", "hello-old", "uid-x", "5d8f", "apps/v1"),
    "without the label of its template": ("ReplicaSet", "hello-5d8f", "uid-x", None, "apps/v1"),
    "of another kind of this name": ("ReplicaSet", "hello-5d8f", "uid-x", "5d8f", "example.com/v1"),
}


@pytest.mark.parametrize(("kind", "name", "uid", "label", "version"), STRANGERS.values(), ids=STRANGERS)
async def test_a_pod_that_only_has_the_labels_of_a_deployment_is_not_its_own(
    kind: str, name: str, uid: str, label: str | None, version: str
) -> None:
    foreign = pod("stranger", crashing(9), owner=(kind, name, uid))
    foreign["metadata"]["labels"] = {"app": "hello", **({"pod-template-hash": label} if label else {})}
    foreign["metadata"]["ownerReferences"][0] |= {"apiVersion": version, "uid": "uid-hello"}
    kube = kube_of(*WORLD, (DEPLOYMENTS, workload()), (PODS, pod("a", **OF_SET)), (PODS, foreign))
    page = await explained(kube, "deployment")
    assert page.cause is None
    assert "stranger" not in str(page.document())


async def test_pods_whose_owner_references_are_a_circle_are_explained() -> None:
    first, second = (
        pod(name, crashing(3), owner=("Pod", other, f"uid-{other}")) for name, other in (("a", "b"), ("b", "a"))
    )
    kube = kube_of(*WORLD, (PODS, pod("b")), (PODS, first))
    kube.put(PODS, {**second, "metadata": {key: value for key, value in second["metadata"].items() if key != "uid"}})
    page = await explained(kube, "pod", "a")
    assert page.cause is not None
    assert page.cause.reason == Reason.EXITED


WORKLOADS = {"statefulset": STATEFUL_SETS, "daemonset": DAEMON_SETS, "job": JOBS}


@pytest.mark.parametrize("kind", WORKLOADS)
async def test_the_pods_of_a_workload_are_those_that_it_owns(kind: str) -> None:
    res = WORKLOADS[kind]
    owner = workload(status={"desiredNumberScheduled": 1})
    kube = kube_of(
        *WORLD,
        (res, owner),
        (PODS, pod("mine", crashing(3), owner=(res.kind, "hello", "uid-hello"))),
        (PODS, pod("another", crashing(4), owner=(res.kind, "hello", "uid-n1"))),
    )
    page = await explained(kube, kind)
    assert page.cause is not None
    assert page.cause.reason == Reason.EXITED
    assert "status 3" in page.cause.text


async def test_a_cron_job_has_the_pods_of_its_newest_job() -> None:
    cron = workload(jobTemplate={"spec": {"template": workload()["spec"]["template"]}})
    of = ("CronJob", "hello", "uid-hello")
    old, new = workload("hello-1", owner=of), workload("hello-2", owner=of)
    old["metadata"]["creationTimestamp"] = "2026-11-27T08:00:00Z"
    kube = kube_of(
        *WORLD,
        (CRON_JOBS, cron),
        (JOBS, old),
        (JOBS, new),
        (JOBS, workload("other")),
        (PODS, pod("a", crashing(7), owner=("Job", "hello-1", "uid-hello-1"))),
        (PODS, pod("b", crashing(3), owner=("Job", "hello-2", "uid-hello-2"))),
    )
    page = await explained(kube, "cronjob")
    assert page.cause is not None
    assert "status 3" in page.cause.text


async def test_a_cron_job_has_the_refusal_of_the_pods_of_its_newest_job() -> None:
    cron = workload(jobTemplate={"spec": {"template": workload()["spec"]["template"]}})
    refused = event("FailedCreate", "Error creating: exceeded quota: pods", "hello-1", kind="Job")
    kube = kube_of(
        *WORLD,
        (CRON_JOBS, cron),
        (JOBS, workload("hello-1", owner=("CronJob", "hello", "uid-hello"))),
        (EVENTS, refused),
    )
    page = await explained(kube, "cronjob")
    assert page.cause is not None
    assert page.cause.reason == Reason.PODS_REFUSED


FORBIDDEN = {
    "deployment": (PODS, EVENTS, NODES, RUNTIME_CLASSES, SHIMS),
    "statefulset": (PODS,),
    "daemonset": (PODS,),
    "job": (PODS,),
    "cronjob": (PODS, JOBS),
    "spinapp": (PODS, DEPLOYMENTS, SPIN_APP_EXECUTORS),
}


@pytest.mark.parametrize(("kind", "res"), [(kind, res) for kind, each in FORBIDDEN.items() for res in each])
async def test_a_forbidden_list_of_owners_is_named_and_no_absence(kind: str, res: Resource) -> None:
    cron = {"jobTemplate": {"spec": {"template": workload()["spec"]["template"]}}}
    app = ("SpinApp", "hello", "uid-app-hello")
    kube = kube_of(
        *WORLD,
        (SPIN_APPS, spin_app()),
        (SPIN_APP_EXECUTORS, executor()),
        (DEPLOYMENTS, workload(owner=app)),
        (PODS, pod("a", **OF_SET)),
        (STATEFUL_SETS, workload()),
        (DAEMON_SETS, workload(status={"desiredNumberScheduled": 1})),
        (JOBS, workload()),
        (CRON_JOBS, workload("cron", **cron)),
        (JOBS, workload("cron-1", owner=("CronJob", "cron", "uid-cron"))),
        spinkube=True,
    )
    forbid(kube, res)
    page = await explained(kube, kind, "cron" if kind == "cronjob" else "hello")
    assert any(lacking(line.text, f"list {res.plural}") == [] for line in page.lines)
    assert page.verdict.health in {Health.HEALTHY, Health.UNKNOWN}


def spin(*more: tuple[Resource, Manifest], with_executor: bool = True) -> FakeKube:
    of = ("SpinApp", "hello", "uid-app-hello")
    made = [(SPIN_APPS, spin_app()), (DEPLOYMENTS, workload(owner=of))]
    made += [(SPIN_APP_EXECUTORS, executor())] if with_executor else []
    return kube_of(*WORLD, *made, *more, spinkube=True)


async def test_a_spin_app_has_the_pods_of_its_deployment() -> None:
    page = await explained(spin((PODS, pod("a", crashing(3), **OF_SET))), "spinapp")
    assert page.cause is not None
    assert page.cause.reason == Reason.EXITED
    assert [line.about for line in page.lines][:3] == ["spinapp", "executor", "runtimeclass"]


@pytest.mark.parametrize("name", ["a,b", "a=b=c", "a/../b", "x" * 300, "", "é"])
async def test_a_spin_app_with_any_executor_has_a_page(name: str) -> None:
    kube = kube_of(*WORLD, (SPIN_APPS, spin_app(executor=name)), (SPIN_APP_EXECUTORS, executor()), spinkube=True)
    page = await explained(kube, "spinapp")
    assert page.cause is not None
    assert page.cause.reason == Reason.EXECUTOR_MISSING


async def test_a_deployment_with_the_name_of_a_spin_app_is_not_its_own() -> None:
    kube = kube_of(
        *WORLD,
        (SPIN_APPS, spin_app()),
        (SPIN_APP_EXECUTORS, executor()),
        (DEPLOYMENTS, workload()),
        (PODS, pod("a", **OF_SET)),
        spinkube=True,
    )
    page = await explained(kube, "spinapp")
    assert page.cause is not None
    assert page.cause.reason == Reason.DEPLOYMENT_MISSING


async def test_a_spin_app_without_its_executor_has_that_cause() -> None:
    page = await explained(spin(with_executor=False), "spinapp")
    assert page.cause is not None
    assert page.cause.reason == Reason.EXECUTOR_MISSING


async def test_spin_apps_of_a_cluster_without_spinkube_are_an_error() -> None:
    with pytest.raises(AnswerError):
        await explained(kube_of(*WORLD), "spinapp")


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "spinapp"])
async def test_an_object_that_does_not_exist_has_a_page(kind: str) -> None:
    with pytest.raises(ObjectNotFoundError) as found:
        await explained(kube_of(*WORLD), kind, "nobody")
    assert found.value.page.verdict.health is Health.MISSING


async def test_the_number_of_requests_does_not_depend_on_the_number_of_pods() -> None:
    counts = []
    for number in (5, 500):
        pods = [(PODS, pod(f"p{index}", crashing(3), **OF_SET)) for index in range(number)]
        kube = kube_of(*WORLD, (DEPLOYMENTS, workload(replicas=number)), *pods)
        page = await explained(kube, "deployment")
        assert page.cause is not None
        assert f"{number} of {number} pods" in page.cause.text
        counts.append(len([item for item in kube.api.requests if "continue" not in item.query]))
        assert len([item for item in kube.api.requests if item.path.endswith("/log")]) == LOGS_MOST
    assert counts[0] == counts[1]


def test_every_kind_has_a_resource_of_its_name() -> None:
    assert {kind: res.kind.lower() for kind, res in RESOURCES.items()} == {kind: kind for kind in KINDS}
