"""The stand-in for upstream's operator makes the objects and requests that were recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.v2.operator import make_host, make_host_status, make_start, set_conditions

RECORDED = json.loads((Path(__file__).parents[2] / "data/v2/host/objects.json").read_text())
HOST, WORKLOAD = RECORDED["host"], RECORDED["workload"]
GIVEN_BY_SERVER = {"creationTimestamp", "generation", "resourceVersion", "uid"}


def sent(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return an object without the metadata that the API server adds."""
    metadata = {key: value for key, value in manifest["metadata"].items() if key not in GIVEN_BY_SERVER}
    return {**manifest, "metadata": metadata}


@pytest.mark.parametrize("way", ["published", "answered"])
def test_host_of_a_heartbeat(way: str) -> None:
    assert make_host(HOST[way]) == sent(HOST["created"])


def test_published_heartbeat_leaves_no_numbers() -> None:
    assert make_host_status({}, HOST["afterPublished"]["lastSeen"]) == HOST["afterPublished"]


def test_answered_heartbeat_has_numbers_and_a_condition() -> None:
    seen = HOST["afterAnswered"]["lastSeen"]
    status = set_conditions(make_host_status(HOST["answered"], seen), seen, Reporting=("True", ""))
    assert status == HOST["afterAnswered"]


def test_request_that_starts_a_workload() -> None:
    assert make_start(WORKLOAD["created"]) == WORKLOAD["start"]


def test_environment_and_hosts_of_a_component_are_in_the_request() -> None:
    local = {"environment": {"config": {"COLOUR": "green"}}, "allowedHosts": ["api.test"]}
    component = {"name": "web", "image": "a", "localResources": local}
    workload = {**WORKLOAD["created"], "spec": {"components": [component]}}
    world = make_start(workload)["workload"]["witWorld"]
    resources = {"allowedHosts": ["api.test"], "environment": {"COLOUR": "green"}}
    assert world == {"components": [{"name": "web", "image": "a", "localResources": resources}]}


def test_conditions_of_a_ready_workload() -> None:
    time = WORKLOAD["ready"]["conditions"][0]["lastTransitionTime"]
    kinds = ("Config", "HostSelection", "Placement", "Sync", "Ready")
    status = set_conditions({}, time, **dict.fromkeys(kinds, ("True", "")))
    assert status["conditions"] == WORKLOAD["ready"]["conditions"]


def test_condition_keeps_its_time_while_its_status_is_the_same() -> None:
    first = set_conditions({}, "1", Sync=("False", "a"))
    second = set_conditions(first, "2", Sync=("False", "b"))
    third = set_conditions(second, "3", Sync=("True", ""))
    [condition] = second["conditions"]
    assert (condition["lastTransitionTime"], condition["message"], condition["reason"]) == ("1", "b", "Reconcile")
    assert third["conditions"] == [{"type": "Sync", "status": "True", "reason": "Available", "lastTransitionTime": "3"}]
