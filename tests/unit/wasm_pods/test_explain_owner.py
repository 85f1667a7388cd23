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
from trellis.wasm_pods.explain.owner import explain_owner
from trellis.wasm_pods.owners import label_selector, view_executor, view_owner, view_runtime_class
from trellis.wasm_pods.pods import view_event, view_pod
from trellis.wasm_pods.reasons import Reason
from trellis.wasm_pods.snapshot import Part, Snapshot

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


def refusal(words: str) -> Manifest:
    return event("FailedCreate", f"Error creating: {REFUSED.format(words)}", "hello", kind="Job")


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


def test_a_cause_comes_before_progress() -> None:
    found = page(snapshot([pod("a", CREATING), pod("b", crashing(3))]), workload(replicas=2))
    assert outcome(found) == (Reason.EXITED, Health.DEGRADED)


SPIN: dict[str, tuple[dict[str, Any], str | None, Health]] = {
    "works": ({"pods": [view_pod(pod())]}, None, Health.HEALTHY),
    "its pod crashes": ({"pods": [view_pod(pod("hello", crashing(3)))]}, Reason.EXITED, Health.DEGRADED),
    "no executor": ({"executor": None}, Reason.EXECUTOR_MISSING, Health.DEGRADED),
    "no Deployment": ({"deployment": None}, Reason.DEPLOYMENT_MISSING, Health.DEGRADED),
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
        "deployment": view_owner("Deployment", workload()),
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
