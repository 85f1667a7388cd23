"""Variations of the recorded situations: other names, unknown fields, all causes or two operators in one cluster."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.v2.cases import CASES, HEARTBEATS, REPLIES, SON, Case, page
from support.v2.moved import moved, of_operator
from support.v2.recordings import Manifest, recording, snapshot_of_objects
from trellis.read_model.explain.subject import Beside
from trellis.v2.deployments import DeploymentView
from trellis.v2.explain.deployment import explain_deployment
from trellis.v2.explain.host import explain_host
from trellis.v2.host_messages import HostMessages
from trellis.v2.messages import WorkloadStatus
from trellis.v2.operators import view_operators
from trellis.v2.reasons import Reason
from trellis.v2.snapshot import Snapshot
from trellis.v2.workloads import WorkloadView, view_workload

NOW = 1_900_000_000.0
DEPLOYMENTS = {name: case for name, case in CASES.items() if case.kind == "workloaddeployment"}

OF_THE_CLUSTER = {"00", "04b", "10", "11", "11b", "12", "13"}
"""Situations without a host, or with an outage: in one cluster with others, they are no situation any more."""
WITHOUT_A_SOURCE = {Reason.PULL_FAILED, Reason.START_FAILED}
LOCAL = [
    case
    for case in DEPLOYMENTS.values()
    if case.situation not in OF_THE_CLUSTER and case.about != HEARTBEATS and case.reason not in WITHOUT_A_SOURCE
]


def reason(snapshot: Snapshot, deployment: DeploymentView) -> str | None:
    cause = explain_deployment(snapshot, deployment, Beside()).cause
    return cause.reason if cause is not None else None


def renamed(item: Manifest) -> Manifest:
    """Return an object of a cluster with other namespaces and host names."""
    text = json.dumps(item)
    for old, new in (('"apps"', '"team-a"'), ('"wasmcloud-system"', '"operators"'), (SON, "host-of-another-name")):
        text = text.replace(old, new)
    found: Manifest = json.loads(text)
    return found


def of_a_later_release(item: Manifest) -> Manifest:
    """Return an object with unknown fields in each object, unknown conditions, and another order of the known ones."""
    found: Manifest = _extended(item)
    conditions = found.get("status", {}).get("conditions")
    if isinstance(conditions, list):
        later = [{"type": "Audited", "status": status, "message": "x"} for status in ("False", "Unknown", "Odd")]
        found["status"]["conditions"] = [*later[:1], *reversed(conditions), *later[1:], "odd", {"type": 5}]
    return {**found, "apiVersion": "runtime.wasmcloud.dev/v1beta7"}


def _extended(value: Any) -> Any:
    if isinstance(value, list):
        return [_extended(item) for item in value]
    if not isinstance(value, dict):
        return value
    free = {"labels", "annotations", "hostSelector", "config"}
    found = {key: item if key in free else _extended(item) for key, item in value.items()}
    return found | {"reclaimWindowSeconds": 30, "later": {"name": ["x", None, 1.5]}}


@pytest.mark.parametrize("change", [renamed, of_a_later_release])
@pytest.mark.parametrize("case", DEPLOYMENTS.values(), ids=DEPLOYMENTS)
def test_the_cause_does_not_depend_on_names_and_unknown_fields(
    case: Case, change: Callable[[Manifest], Manifest]
) -> None:
    found, listened = recording(case.situation), case.about.get("listened", 0.0)
    begin = case.moment - listened
    snapshot = replace(
        snapshot_of_objects(map(change, found.objects(case.moment)), found.start + case.moment),
        messages=found.messages(begin, case.moment, replies="replies" in case.about) if listened else None,
        former=[view_workload(change(it)) for it in found.objects(begin) if it["kind"] == "Workload"],
    )
    [deployment] = [item for item in snapshot.deployments if item.meta.name == case.name]
    assert reason(snapshot, deployment) == case.reason


def namespace_of(case: Case) -> str:
    return f"s{case.situation}-{case.moment:.0f}"


def one_cluster(cases: Iterable[Case], seed: int) -> Snapshot:
    """Return one cluster with the situations of all cases at this moment, each in its own namespace."""
    objects: list[Manifest] = []
    hosts: dict[str, Manifest] = {}
    former: list[WorkloadView] = []
    replies: dict[str, WorkloadStatus] = {}
    for situation, moment in sorted({(case.situation, case.moment) for case in cases}):
        found = recording(situation)
        offset, namespace = NOW - found.start - moment, f"s{situation}-{moment:.0f}"
        for item in found.objects(moment):
            made = moved(item, namespace, offset)
            if item["kind"] == "Host":
                other = hosts.get(made["hostId"], made)
                hosts[made["hostId"]] = max(made, other, key=lambda it: str(it["status"].get("lastSeen")))
            else:
                objects.append(made)
        before = found.objects(moment - REPLIES["listened"])
        former += [view_workload(moved(it, namespace, offset)) for it in before if it["kind"] == "Workload"]
        replies |= found.messages(moment - REPLIES["listened"], moment, replies=True).replies or {}
    objects += hosts.values()
    random.Random(seed).shuffle(objects)
    messages = HostMessages(REPLIES["listened"], replies=replies)
    return replace(snapshot_of_objects(objects, NOW), messages=messages, former=former)


@pytest.mark.parametrize("seed", range(3))
def test_no_cause_in_a_cluster_hides_another_one_or_reaches_what_is_healthy(seed: int) -> None:
    snapshot = one_cluster(LOCAL, seed)
    deployments = {(item.meta.namespace, item.meta.name): item for item in snapshot.deployments}
    found = {(namespace_of(case), case.name): case.reason for case in LOCAL}
    assert {key: reason(snapshot, deployments[key]) for key in found} == found
    assert len({*found.values()}) > 15


def test_a_cluster_of_one_situation_has_its_cause() -> None:
    """The construction of a cluster changes nothing by itself."""
    for case in LOCAL:
        snapshot = one_cluster([case], 0)
        [deployment] = [item for item in snapshot.deployments if item.meta.name == case.name]
        cause = page(case).cause
        assert reason(snapshot, deployment) == (cause.reason if cause is not None else None)


def judged(snapshot: Snapshot, name: str) -> dict[str, tuple[str | None, str]]:
    """Return reason and health of the WorkloadDeployments and Hosts of an operator."""
    pages = [
        explain_deployment(snapshot, it, Beside()) for it in snapshot.deployments if it.meta.namespace == f"apps-{name}"
    ]
    pages += [explain_host(snapshot, it, Beside()) for it in snapshot.hosts if it.meta.namespace == f"operator-{name}"]
    return {found.subject: (found.cause.reason if found.cause else None, found.verdict.health) for found in pages}


MOMENTS = st.sampled_from(sorted({(case.situation, case.moment) for case in CASES.values()}))


@settings(max_examples=60, deadline=None)
@given(one=MOMENTS, other=MOMENTS, seed=st.integers(0, 9))
def test_each_of_two_operators_has_the_states_that_it_has_alone(
    one: tuple[str, float], other: tuple[str, float], seed: int
) -> None:
    """Also if one of them does not work, or does not reach its NATS."""
    alone, beside = of_operator(*one, "a", NOW), of_operator(*other, "b", NOW)
    both = [*alone, *beside]
    random.Random(seed).shuffle(both)
    snapshot = snapshot_of_objects(both, NOW)
    owners = view_operators(snapshot)
    for name, objects in (("a", alone), ("b", beside)):
        if owners.owner(f"apps-{name}") == f"operator-{name}":
            assert judged(snapshot, name) == judged(snapshot_of_objects(objects, NOW), name)
