"""Jobs that count as having no pod created."""

from __future__ import annotations

from typing import Any

import pytest

from provisioner.refusals import PodRefusals, view_pod_refusal
from trellis import names
from trellis.provisioning.nodes_and_jobs import view_job

METADATA = {"name": "job", "namespace": "installers", "uid": "u1", "resourceVersion": "1", "generation": 1}


def job(*, suspend: bool, **metadata: Any) -> dict[str, Any]:
    return {"metadata": METADATA | metadata, "spec": {"suspend": suspend}, "status": {}}


@pytest.mark.parametrize("generation", [1, 2], ids=["created so", "suspended later"])
def test_a_job_that_is_suspended_has_no_pod_until_it_is_resumed_or_goes(generation: int) -> None:
    refusals, resumed = PodRefusals(), view_job(job(suspend=False, generation=generation + 1))
    suspended = view_job(job(suspend=True, generation=generation))
    refusals.take_job(None, suspended)
    assert "installers" in refusals.reason_of("u1")
    refusals.take_job(suspended, resumed)
    assert not refusals.reason_of("u1")
    refusals.take_job(None, suspended)
    refusals.take_job(suspended, None)
    assert not refusals.reason_of("u1")


def test_a_job_that_is_being_deleted_is_none_of_them() -> None:
    refusals = PodRefusals()
    refusals.take_job(None, view_job(job(suspend=True, deletionTimestamp="2026-01-01T00:00:00Z")))
    assert not refusals.reason_of("u1")


@pytest.mark.parametrize(("count", "has_pods"), [("active", True), ("terminating", True), ("failed", False)])
def test_a_suspended_job_has_pods_while_these_may_run(count: str, has_pods: bool) -> None:
    assert view_job(job(suspend=True) | {"status": {count: 1}}).has_pods is has_pods
    assert view_job(job(suspend=False) | {"status": {count: 1}}).has_pods


@pytest.mark.parametrize(
    "expected_text",
    [
        'Error creating: pods "{}" is forbidden: exceeded quota: none, requested: pods=1, used: pods=0',
        'Error creating: admission webhook "x" denied the request: pod installers/{} and {}.x have no team',
    ],
)
def test_one_refusal_of_pods_with_random_names_has_the_same_words_each_time(expected_text: str) -> None:
    name = names.installer_job_name("n" * 60, "uid", "digest", "provision", 1)
    messages = {
        view_pod_refusal(event(name, expected_text.format(pod, pod))).message
        for pod in (f"{name}-abcde", f"{name}-x2z9q")
    }
    assert messages == {expected_text.format(name, name)}


def event(job: str, message: str) -> dict[str, Any]:
    involved = {"kind": "Job", "name": job, "uid": "u1"}
    return {"involvedObject": involved, "message": message, "lastTimestamp": "2026-01-01T00:00:00Z"}
