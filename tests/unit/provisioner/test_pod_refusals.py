"""Which Jobs count as such of which no pod is created."""

from __future__ import annotations

from typing import Any

import pytest

from provisioner.pod_refusals import PodRefusals
from trellis.node_and_job import view_job

METADATA = {"name": "job", "namespace": "installers", "uid": "u1", "resourceVersion": "1", "generation": 1}


def job(*, suspend: bool, **metadata: Any) -> dict[str, Any]:
    return {"metadata": METADATA | metadata, "spec": {"suspend": suspend}, "status": {}}


def test_a_job_that_was_created_suspended_has_no_pod_until_it_is_resumed_or_goes() -> None:
    refusals, suspended, resumed = PodRefusals(), view_job(job(suspend=True)), view_job(job(suspend=False))
    refusals.take_job(None, suspended)
    assert "installers" in refusals.words("u1")
    refusals.take_job(suspended, resumed)
    assert not refusals.words("u1")
    refusals.take_job(None, suspended)
    refusals.take_job(suspended, None)
    assert not refusals.words("u1")


@pytest.mark.parametrize("metadata", [{"generation": 2}, {"deletionTimestamp": "2026-01-01T00:00:00Z"}])
def test_a_job_that_may_have_had_a_pod_or_is_being_deleted_is_none_of_them(metadata: dict[str, Any]) -> None:
    refusals = PodRefusals()
    refusals.take_job(None, view_job(job(suspend=True, **metadata)))
    assert not refusals.words("u1")
