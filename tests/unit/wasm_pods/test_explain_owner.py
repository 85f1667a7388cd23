"""Owners of Wasm pods: their template, the refusals of their controllers, and the earliest cause of their pods."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from support.suite.naming import lacking
from support.wasm_pods.objects import (
    CREATING,
    Manifest,
    container,
    crashing,
    ended,
    event,
    executor,
    node,
    pod,
    runtime_class,
    shim,
    spin_app,
    unscheduled,
    workload,
)
from trellis.provisioning.nodes_and_jobs import view_node
from trellis.provisioning.shims import view_shim
from trellis.read_model.explain.page import Explanation
from trellis.read_model.explain.subject import Beside
from trellis.read_model.health import Health
from trellis.read_model.wasm_pods.explain.owner import explain_owner
from trellis.read_model.wasm_pods.owners import label_selector, view_executor, view_owner, view_runtime_class
from trellis.read_model.wasm_pods.pods import view_event, view_pod
from trellis.read_model.wasm_pods.reasons import Reason
from trellis.read_model.wasm_pods.snapshot import Part, Snapshot

REFUSED = 'pods "hello-1-" is forbidden: {}'
FAILS = [{"type": "ReplicaFailure", "status": "True", "message": REFUSED.format("exceeded quota: pods")}]


def snapshot(pods: Sequence[Manifest] = (), events: Sequence[Manifest] = (), **parts: Any) -> Snapshot:
    made = Snapshot(
        pods=[*map(view_pod, pods)],
        events=[*map(view_event, events)],
        classes=[view_runtime_class(runtime_class())],
        nodes=[view_node(node())],
        shims=[view_shim(shim())],
    )
    return replace(made, **parts)


def page(of: Snapshot, manifest: Manifest, kind: str = "Deployment") -> Explanation:
    return explain_owner(of, view_owner(kind, manifest), manifest, Beside())


def outcome(found: Explanation) -> tuple[str | None, Health]:
    return found.cause.reason if found.cause else None, found.verdict.health


def refusal(words: str, name: str = "hello") -> Manifest:
    return event("FailedCreate", f"Error creating: {REFUSED.format(words)}", name, kind="Job")


def cron(runtime_class: str = "spin-v2") -> Manifest:
    """Return a CronJob."""
    return workload(jobTemplate={"spec": {"template": workload(runtime_class=runtime_class)["spec"]["template"]}})


def later(made: Manifest) -> Manifest:
    """Return a pod that was created after the others."""
    made["metadata"]["creationTimestamp"] = "2026-11-27T10:01:00Z"
    return made


BEFORE = "2026-11-27T09:59:00Z"
"""Before the pods of :func:`pod` were created."""
COMPLETE = {"type": "Complete", "status": "True"}
DEADLINE = {
    "type": "Failed",
    "status": "True",
    "reason": "DeadlineExceeded",
    "message": "Job was active longer than specified deadline",
}
STALLED = [
    {
        "type": "Progressing",
        "status": "False",
        "reason": "ProgressDeadlineExceeded",
        "message": 'ReplicaSet "hello-2" has timed out progressing.',
    }
]
CORDONED = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


CASES: dict[str, tuple[str, Manifest, Snapshot, str | None, Health]] = {
    "ready": ("Deployment", workload(), snapshot([pod()]), None, Health.HEALTHY),
    "one of two pods": ("Deployment", workload(replicas=2), snapshot([pod()]), Reason.WAITING, Health.PROGRESSING),
    "no RuntimeClass, no pod": (
        "Deployment",
        workload(),
        snapshot(classes=[]),
        Reason.RUNTIME_CLASS_MISSING,
        Health.DEGRADED,
    ),
    "no RuntimeClass any more": ("Deployment", workload(), snapshot([pod()], classes=[]), None, Health.HEALTHY),
    "pods are refused": (
        "Deployment",
        workload(status={"conditions": FAILS}),
        snapshot(),
        Reason.PODS_REFUSED,
        Health.DEGRADED,
    ),
    "pods of a Job are refused": (
        "Job",
        workload(),
        snapshot(events=[refusal("quota")]),
        Reason.PODS_REFUSED,
        Health.DEGRADED,
    ),
    "its RuntimeClass did not exist, and cannot be read": (
        "StatefulSet",
        workload(),
        snapshot(
            events=[refusal('pod rejected: RuntimeClass "spin-v2" not found')], classes=[], unread={Part.CLASSES: "no"}
        ),
        Reason.RUNTIME_CLASS_MISSING,
        Health.DEGRADED,
    ),
    "pods were refused, and exist now": (
        "StatefulSet",
        workload(),
        snapshot([pod()], [refusal("x")]),
        None,
        Health.HEALTHY,
    ),
    "pods were refused, and a later one was created": (
        "StatefulSet",
        workload(replicas=3),
        snapshot([pod("db-0", CREATING)], [event("FailedCreate", REFUSED, at=BEFORE, kind="StatefulSet")]),
        Reason.STARTING,
        Health.PROGRESSING,
    ),
    "a pod was created, and later ones are refused": (
        "StatefulSet",
        workload(replicas=3),
        snapshot([pod("db-0", CREATING)], [event("FailedCreate", REFUSED, kind="StatefulSet")]),
        Reason.PODS_REFUSED,
        Health.DEGRADED,
    ),
    "scaled to zero": ("Deployment", workload(replicas=0), snapshot(), None, Health.SUSPENDED),
    "a Job that is suspended": ("Job", workload(suspend=True), snapshot(), None, Health.SUSPENDED),
    "a CronJob that has not run": ("CronJob", workload(), snapshot(), None, Health.HEALTHY),
    "a Job that is complete": (
        "Job",
        workload(status={"conditions": [{"type": "Complete", "status": "True"}]}),
        snapshot([pod("a", crashing(1))]),
        None,
        Health.HEALTHY,
    ),
    "a Job whose pods failed": (
        "Job",
        workload(),
        snapshot([pod("a", container({"terminated": {"exitCode": 1}}), phase="Failed", restartPolicy="Never")]),
        Reason.EXITED,
        Health.DEGRADED,
    ),
    "a pod that was evicted and has a successor": (
        "Deployment",
        workload(),
        snapshot([pod("old", CREATING, phase="Failed", reason="Evicted"), pod("new")]),
        None,
        Health.HEALTHY,
    ),
    "a pod that a shutdown of its node has ended without an error": (
        "Deployment",
        workload(),
        snapshot([pod("old", container({"terminated": ended(0, "Completed")}), phase="Succeeded")]),
        Reason.WAITING,
        Health.PROGRESSING,
    ),
    "a pod that is being deleted": (
        "Deployment",
        workload(),
        snapshot([pod("old", crashing(1), deleting=True), pod("new")]),
        None,
        Health.HEALTHY,
    ),
    "a DaemonSet without nodes": (
        "DaemonSet",
        workload(status={"desiredNumberScheduled": 0}),
        snapshot(nodes=[view_node(node(labels={}))]),
        Reason.NO_NODE_WITH_LABEL,
        Health.DEGRADED,
    ),
    "a DaemonSet on tainted nodes": (
        "DaemonSet",
        workload(),
        snapshot(nodes=[view_node(node(taints=[{"key": "gpu", "effect": "NoSchedule"}]))]),
        Reason.TAINT_NOT_TOLERATED,
        Health.DEGRADED,
    ),
    "a DaemonSet whose RuntimeClass cannot be read": (
        "DaemonSet",
        workload(status={"desiredNumberScheduled": 0}),
        snapshot(
            nodes=[view_node(node(taints=[{"key": "gpu", "effect": "NoSchedule"}]))],
            classes=[],
            unread={Part.CLASSES: "no"},
        ),
        Reason.WAITING,
        Health.PROGRESSING,
    ),
    "a DaemonSet on a cordoned node": (
        "DaemonSet",
        workload(),
        snapshot(nodes=[view_node(node(taints=[CORDONED]))]),
        Reason.WAITING,
        Health.PROGRESSING,
    ),
    "a rollout whose new pod is broken": (
        "Deployment",
        workload(replicas=2, status={"observedGeneration": 1, "updatedReplicas": 1}),
        snapshot([pod("old-1"), pod("old-2"), pod("new", crashing(3))]),
        Reason.EXITED,
        Health.DEGRADED,
    ),
    "a rollout whose new pods are refused": (
        "Deployment",
        workload(status={"conditions": FAILS}),
        snapshot([pod("old")]),
        Reason.PODS_REFUSED,
        Health.DEGRADED,
    ),
    "a rollout to a RuntimeClass that is missing": (
        "Deployment",
        workload(runtime_class="spin-v9"),
        snapshot([pod("old")]),
        Reason.RUNTIME_CLASS_MISSING,
        Health.DEGRADED,
    ),
    "a rollout that has begun": (
        "Deployment",
        workload(status={"observedGeneration": 1}),
        snapshot([pod("old")]),
        Reason.NOT_READY,
        Health.PROGRESSING,
    ),
    "a rollout that is finished": (
        "Deployment",
        workload(status={"observedGeneration": 1, "updatedReplicas": 1}),
        snapshot([pod()]),
        None,
        Health.HEALTHY,
    ),
    "a rollout that makes no progress": (
        "Deployment",
        workload(status={"conditions": STALLED}),
        snapshot([pod("old")]),
        Reason.ROLLOUT_STALLED,
        Health.DEGRADED,
    ),
    "a rollout that makes no progress, because of a pod": (
        "Deployment",
        workload(status={"conditions": STALLED}),
        snapshot([pod("old"), pod("new", crashing(3))]),
        Reason.EXITED,
        Health.DEGRADED,
    ),
    "paused before its first pod": (
        "Deployment",
        workload(paused=True),
        snapshot(),
        Reason.SUSPENDED,
        Health.SUSPENDED,
    ),
    "paused in a rollout": (
        "Deployment",
        workload(paused=True, status={"observedGeneration": 1}),
        snapshot([pod("old")]),
        Reason.SUSPENDED,
        Health.SUSPENDED,
    ),
    "paused, with the current pods": (
        "Deployment",
        workload(paused=True, status={"observedGeneration": 1, "updatedReplicas": 1}),
        snapshot([pod()]),
        None,
        Health.HEALTHY,
    ),
    "a StatefulSet whose pod is being deleted on a lost node": (
        "StatefulSet",
        workload(),
        snapshot([pod("db-0", container(), deleting=True)], nodes=[view_node(node(ready=False))]),
        Reason.NODE_NOT_READY,
        Health.DEGRADED,
    ),
    "a StatefulSet whose pod is being deleted": (
        "StatefulSet",
        workload(),
        snapshot([pod("db-0", container(), deleting=True)]),
        Reason.DELETING,
        Health.PROGRESSING,
    ),
    "a Deployment whose former pod is being deleted on a lost node": (
        "Deployment",
        workload(),
        snapshot([pod("a", container(), deleting=True), pod("b", node="n2")], nodes=[view_node(node(ready=False))]),
        None,
        Health.HEALTHY,
    ),
    "a Job whose second attempt runs": (
        "Job",
        workload(),
        snapshot(
            [
                later(pod("b", CREATING)),
                pod("a", container({"terminated": ended(1)}), phase="Failed", restartPolicy="Never"),
            ]
        ),
        Reason.STARTING,
        Health.PROGRESSING,
    ),
    "a parallel Job with one failed pod": (
        "Job",
        workload(parallelism=2),
        snapshot([pod("b"), pod("a", container({"terminated": ended(1)}), phase="Failed", restartPolicy="Never")]),
        Reason.EXITED,
        Health.DEGRADED,
    ),
    "a StatefulSet whose first pod is broken": (
        "StatefulSet",
        workload(replicas=3),
        snapshot([pod("hello-0", crashing(3))]),
        Reason.EXITED,
        Health.DEGRADED,
    ),
    "a Job that has failed, and its pods are deleted": (
        "Job",
        workload(status={"conditions": [DEADLINE]}),
        snapshot(),
        Reason.JOB_FAILED,
        Health.DEGRADED,
    ),
    "a Job that has failed, by its pod": (
        "Job",
        workload(status={"conditions": [DEADLINE]}),
        snapshot([pod("a", container({"terminated": {"exitCode": 1}}), phase="Failed", restartPolicy="Never")]),
        Reason.EXITED,
        Health.DEGRADED,
    ),
    "a Job of which a pod that fails is refused by its policy": (
        "Job",
        workload(status={"conditions": [{**DEADLINE, "type": "FailureTarget", "reason": "PodFailurePolicy"}]}),
        snapshot(),
        Reason.JOB_FAILED,
        Health.DEGRADED,
    ),
    "a Job of no pods": ("Job", workload(parallelism=0), snapshot(), None, Health.SUSPENDED),
    "a CronJob that is suspended": ("CronJob", workload(suspend=True), snapshot(), None, Health.SUSPENDED),
    "a CronJob whose Jobs cannot be read": (
        "CronJob",
        cron(),
        snapshot(unread={Part.JOBS: "no"}),
        Reason.PODS_UNKNOWN,
        Health.UNKNOWN,
    ),
    "a CronJob whose Job is refused": (
        "CronJob",
        cron(),
        snapshot(events=[refusal("quota")]),
        Reason.PODS_REFUSED,
        Health.DEGRADED,
    ),
    "a CronJob whose newest Job is complete": (
        "CronJob",
        cron(),
        snapshot(job=view_owner("Job", workload("hello-1", status={"conditions": [COMPLETE]}))),
        None,
        Health.HEALTHY,
    ),
    "a CronJob whose newest Job has failed": (
        "CronJob",
        cron(),
        snapshot(job=view_owner("Job", workload("hello-1", status={"conditions": [DEADLINE]}))),
        Reason.JOB_FAILED,
        Health.DEGRADED,
    ),
    "a CronJob that has completed a run after its newest Job, which is deleted since": (
        "CronJob",
        cron() | {"status": {"lastSuccessfulTime": "2026-11-28T10:00:00Z"}},
        snapshot(job=view_owner("Job", workload("hello-1", status={"conditions": [DEADLINE]}))),
        None,
        Health.HEALTHY,
    ),
    "a CronJob that has completed a run before its newest Job": (
        "CronJob",
        cron() | {"status": {"lastSuccessfulTime": "2026-11-26T10:00:00Z"}},
        snapshot(job=view_owner("Job", workload("hello-1", status={"conditions": [DEADLINE]}))),
        Reason.JOB_FAILED,
        Health.DEGRADED,
    ),
    "a CronJob, the pods of whose newest Job are refused": (
        "CronJob",
        cron(),
        snapshot(events=[refusal("quota", "hello-1")], job=view_owner("Job", workload("hello-1"))),
        Reason.PODS_REFUSED,
        Health.DEGRADED,
    ),
    "a CronJob whose next Job has no RuntimeClass": (
        "CronJob",
        cron("spin-v9"),
        snapshot(job=view_owner("Job", workload("hello-1", status={"conditions": [COMPLETE]}))),
        Reason.RUNTIME_CLASS_MISSING,
        Health.DEGRADED,
    ),
    "a DaemonSet that works": (
        "DaemonSet",
        workload(status={"desiredNumberScheduled": 1}),
        snapshot([pod()]),
        None,
        Health.HEALTHY,
    ),
    "being deleted": (
        "Deployment",
        {"metadata": {**workload()["metadata"], "deletionTimestamp": "2026-11-27T10:00:00Z"}},
        snapshot(),
        Reason.DELETING,
        Health.PROGRESSING,
    ),
    "its pods cannot be read": (
        "Deployment",
        workload(),
        snapshot(unread={Part.PODS: "this account cannot list pods"}),
        Reason.PODS_UNKNOWN,
        Health.UNKNOWN,
    ),
}


@pytest.mark.parametrize(("kind", "manifest", "of", "reason", "health"), CASES.values(), ids=CASES)
def test_an_owner_has_the_cause_of_its_pods(
    kind: str, manifest: Manifest, of: Snapshot, reason: str | None, health: Health
) -> None:
    found = page(of, manifest, kind)
    assert outcome(found) == (reason, health), found.headline
    assert found.subject == f"{kind.lower()} shop/hello"


def test_the_earliest_cause_comes_first_with_the_number_of_its_pods() -> None:
    pods = [pod("c", crashing(3)), pod("b", crashing(4)), unscheduled("a", message="no node"), pod("d")]
    found = page(snapshot(pods, nodes=[view_node(node())]), workload(replicas=4))
    assert outcome(found) == (Reason.UNSCHEDULABLE, Health.DEGRADED)
    assert lacking(found.headline, "1 of 4 pods", "(a)") == []
    exited = next(line for line in found.lines if line.reason == Reason.EXITED)
    assert lacking(exited.text, "2 of 4 pods", "(b)", "status 4") == []


ADVICE = {
    "a quota": ("exceeded quota: pods, requested: pods=1", ("`kubectl describe resourcequota -n shop`",)),
    "a policy of pods": ('violates PodSecurity "restricted:latest": runAsNonRoot != true', ("securityContext",)),
}


@pytest.mark.parametrize(("words", "named"), ADVICE.values(), ids=ADVICE)
def test_a_refusal_names_what_to_change(words: str, named: tuple[str, ...]) -> None:
    found = page(snapshot(), workload(status={"conditions": [{**FAILS[0], "message": REFUSED.format(words)}]}))
    assert outcome(found)[0] == Reason.PODS_REFUSED
    assert found.cause is not None
    assert lacking(found.cause.do, *named) == []


def test_a_failed_job_is_named_with_the_reason_of_its_condition() -> None:
    found = page(snapshot(), workload(status={"conditions": [DEADLINE]}), "Job")
    assert lacking(found.headline, "DeadlineExceeded", "`kubectl describe job -n shop hello`") == []


def test_a_cron_job_names_its_newest_job() -> None:
    newest = view_owner("Job", workload("hello-7", status={"conditions": [COMPLETE]}))
    assert any("hello-7" in line.text for line in page(snapshot(job=newest), cron(), "CronJob").lines)


def test_a_pod_of_a_former_template_that_a_stateful_set_does_not_replace_is_named() -> None:
    labels = {"controller-revision-hash": "hello-1"}
    pods = [pod("hello-0", crashing(3), labels=labels)]
    for revision, named in (("hello-1", False), ("hello-2", True)):
        found = page(snapshot(pods), workload(status={"updateRevision": revision}), "StatefulSet")
        assert outcome(found)[0] == Reason.EXITED
        assert any(line.about == "rollout" and "hello-0" in line.do for line in found.lines) is named


def test_a_cause_comes_before_progress() -> None:
    found = page(snapshot([pod("a", CREATING), pod("b", crashing(3))]), workload(replicas=2))
    assert outcome(found) == (Reason.EXITED, Health.DEGRADED)


OF_APP = ("SpinApp", "hello", "uid-app-hello")
SPIN: dict[str, tuple[dict[str, Any], str | None, Health]] = {
    "works": ({"pods": [view_pod(pod())]}, None, Health.HEALTHY),
    "its pod crashes": ({"pods": [view_pod(pod("hello", crashing(3)))]}, Reason.EXITED, Health.DEGRADED),
    "no executor": ({"executor": None}, Reason.EXECUTOR_MISSING, Health.DEGRADED),
    "no Deployment": ({"deployment": None}, Reason.DEPLOYMENT_MISSING, Health.DEGRADED),
    "a Deployment of another owner": (
        {"deployment": view_owner("Deployment", workload()), "pods": [view_pod(pod())]},
        Reason.DEPLOYMENT_MISSING,
        Health.DEGRADED,
    ),
    "another system runs it": (
        {"executor": view_executor(executor(creates=False))},
        Reason.PODS_UNKNOWN,
        Health.UNKNOWN,
    ),
    "its Deployment cannot be read": (
        {"deployment": None, "unread": {Part.DEPLOYMENTS: "no"}},
        Reason.PODS_UNKNOWN,
        Health.UNKNOWN,
    ),
    "its executor cannot be read": (
        {"executor": None, "pods": [view_pod(pod())], "unread": {Part.EXECUTORS: "no"}},
        None,
        Health.HEALTHY,
    ),
    "no RuntimeClass": ({"classes": []}, Reason.RUNTIME_CLASS_MISSING, Health.DEGRADED),
}


@pytest.mark.parametrize(("parts", "reason", "health"), SPIN.values(), ids=SPIN)
def test_a_spin_app_has_the_cause_of_its_executor_or_its_deployment(
    parts: dict[str, Any], reason: str | None, health: Health
) -> None:
    given: dict[str, Any] = {
        "executor": view_executor(executor()),
        "deployment": view_owner("Deployment", workload(owner=OF_APP)),
    } | parts
    found = page(replace(snapshot(), **given), spin_app(), "SpinApp")
    assert outcome(found) == (reason, health), found.headline


def test_a_missing_executor_is_named_with_its_namespace() -> None:
    found = page(snapshot(), spin_app(executor="spin-exec"), "SpinApp")
    assert lacking(found.headline, "spinapp shop/hello", "spin-exec", "namespace shop") == []


SELECTORS: dict[str, tuple[Any, str]] = {
    "labels": ({"matchLabels": {"b": "2", "a": "1"}}, "a=1,b=2"),
    "expressions": (
        {
            "matchExpressions": [
                {"key": "a", "operator": "In", "values": ["x", "y"]},
                {"key": "b", "operator": "NotIn", "values": ["z"]},
                {"key": "c", "operator": "Exists"},
                {"key": "d", "operator": "DoesNotExist"},
            ]
        },
        "a in (x,y),b notin (z),c,!d",
    ),
    "none": ({}, ""),
    "an operator of a later version": ({"matchExpressions": [{"key": "a", "operator": "Odd"}]}, ""),
    "hostile": ({"matchLabels": 3, "matchExpressions": [4, {"key": "a", "operator": "In", "values": 5}]}, ""),
}


@pytest.mark.parametrize(("selector", "query"), SELECTORS.values(), ids=SELECTORS)
def test_a_label_selector_becomes_the_query_of_a_list(selector: Any, query: str) -> None:
    assert label_selector(selector) == query


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob", "SpinApp"])
@pytest.mark.parametrize("manifest", [{}, {"spec": 3}, {"spec": {"template": []}, "status": {"conditions": "x"}}])
def test_an_owner_of_any_content_has_a_page(kind: str, manifest: Manifest) -> None:
    found = {"metadata": {"name": "x", "namespace": "y", "uid": "z"}} | manifest
    assert page(snapshot(), found, kind).subject == f"{kind.lower()} y/x"


def test_five_thousand_pods_that_wait_for_five_thousand_nodes_are_explained_in_one_pass() -> None:
    pods = [view_pod(unscheduled(f"p{number}")) for number in range(5000)]
    taints = [{"key": "gpu", "effect": "NoSchedule"}]
    nodes = [view_node(node(f"n{number}", taints=taints)) for number in range(5000)]
    before = time.process_time()
    found = page(replace(snapshot(), pods=pods, nodes=nodes), workload(replicas=5000))
    assert time.process_time() - before < 10  # a pass of all taints for each pod takes a minute
    assert outcome(found) == (Reason.TAINT_NOT_TOLERATED, Health.DEGRADED)
    assert lacking(found.headline, "5000 of 5000 pods", "×5000") == []
