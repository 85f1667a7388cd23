"""When the controllers of pods that are refused are asked to try again."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from host_manager import pod_retries
from host_manager.domain.group import Inputs
from host_manager.domain.snapshot import Head, Snapshot
from host_manager.pod_retries import PodRetries
from trellis.kube.timings import RefusalTimings

FAILURE = {"conditions": [{"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate"}]}


class Clock:
    def __init__(self) -> None:
        self.now = 100.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(pod_retries, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


def group(status: dict[str, Any], name: str = "group", kind: str = "Deployment") -> Snapshot:
    workload = {"kind": kind, "metadata": {"name": name, "generation": 1}, "spec": {}, "status": status}
    head = Head("g", name, "uid-1", "1", 1)
    return Snapshot(head, None, Inputs(), (), {(kind, name): workload}, (), {}, "2026-01-01T00:00:00Z")


def test_refused_pods_are_tried_again_every_few_seconds_until_they_are_not_refused(clock: Clock) -> None:
    retries = PodRetries(RefusalTimings(retry=15.0, spread=0.5))
    assert not retries.fill(group(FAILURE)).retry_pods, "its controller tried a moment ago"
    assert retries.left("g/group") == 15.0
    clock.now += 15.0
    assert retries.fill(group(FAILURE)).retry_pods
    retries.tried("g/group")
    assert retries.left("g/group") == 15.5, "half a second more for each that is refused"
    clock.now += 20.0
    assert not retries.fill(group({})).retry_pods
    assert retries.left("g/group") is None


@pytest.mark.parametrize(
    ("status", "refused"),
    [
        ({"observedGeneration": 1, "desiredNumberScheduled": 3, "currentNumberScheduled": 2}, True),
        ({"observedGeneration": 1, "desiredNumberScheduled": 3, "currentNumberScheduled": 3}, False),
        ({"observedGeneration": 0, "desiredNumberScheduled": 3, "currentNumberScheduled": 2}, False),
    ],
    ids=["a node lacks its pod", "all are there", "its controller has not seen it"],
)
def test_a_daemon_set_that_lacks_pods_counts_as_refused(status: dict[str, Any], *, refused: bool) -> None:
    retries = PodRetries()
    retries.fill(group(status, kind="DaemonSet"))
    assert (retries.left("g/group") is not None) is refused


def test_a_group_without_pods_is_not_refused() -> None:
    retries = PodRetries()
    assert not retries.fill(replace(group({}), children={})).retry_pods
    assert retries.left("g/group") is None
