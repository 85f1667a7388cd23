"""The report of `trellis check` about pods and their answers: the unhealthy one is named, with a reason."""

from __future__ import annotations

from typing import Any

import pytest

from support.suite.naming import lacking
from trellis_cli.check.model import Answer, PodView, parts_of, reasons_of, view_pods

Manifest = dict[str, Any]


def pod(name: str, component: str, *, health: bool = True, **status: object) -> Manifest:
    ports = [{"name": "health", "containerPort": 8081}] if health else []
    labels = {"app.kubernetes.io/component": component}
    return {"metadata": {"name": name, "labels": labels}, "spec": {"containers": [{"ports": ports}]}, "status": status}


def test_pods_that_serve_nothing_or_ended_are_not_asked() -> None:
    ending = pod("c", "provisioner", podIP="10.0.0.3")
    ending["metadata"]["deletionTimestamp"] = "x"
    found = view_pods(
        [
            pod("b", "provisioner", podIP="fd00::2"),
            pod("a", "provisioner", podIP="10.0.0.1"),
            ending,
            pod("d", "uninstall", health=False, podIP="10.0.0.4"),
            pod("e", "provisioner", phase="Succeeded", podIP="10.0.0.5"),
        ]
    )
    assert [item.url for item in found] == ["http://10.0.0.1:8081/readyz", "http://[fd00::2]:8081/readyz"]


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (
            {"containerStatuses": [{"state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}}]},
            "ErrImagePull: no such image",
        ),
        (
            {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "full"}]},
            "Unschedulable: full",
        ),
        ({"containerStatuses": [{"state": {"running": {}}}]}, ""),
        ({}, ""),
    ],
)
def test_a_pod_that_does_not_run_states_the_reason(status: Manifest, reason: str) -> None:
    assert [view_pod.waits for view_pod in view_pods([pod("a", "provisioner", **status)])] == [reason]


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        ({"ok": True, "services": {"provisioner": {"ok": True, "reasons": []}}}, 200, ""),
        (
            {"ok": False, "services": {"provisioner": {"ok": False, "reasons": ["nats: away", "kubernetes: away"]}}},
            503,
            "provisioner: nats: away; kubernetes: away",
        ),
        ({"ok": False, "services": {}}, 503, "/readyz returns 503"),
        ("nonsense", 404, "/readyz returns 404"),
        (None, 200, ""),
    ],
)
def test_a_process_that_is_not_ready_is_reported(body: object, status: int, reason: str) -> None:
    assert reasons_of(body, status) == reason


def test_a_service_without_a_pod_is_a_problem_and_so_is_one_sick_pod() -> None:
    well, sick = PodView("provisioner", "p-1", "x", ""), PodView("provisioner", "p-2", "x", "")
    answers = [Answer(well, ""), Answer(sick, "nats: away")]
    [item, other] = parts_of(["provisioner", "host-manager"], answers)
    assert lacking(item.text, "1 of 2") == []
    assert lacking(item.problem, "p-2: nats: away") == []
    assert lacking(other.problem, "Deployment") == []
    [alone] = parts_of([], answers)
    assert alone.name == "provisioner"
    [nothing] = parts_of([], [])
    assert "TRELLIS_NAMESPACE" in nothing.problem
