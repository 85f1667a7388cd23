"""Workloads that are Ready although they have nothing to run: the schema and the hosts of wasmCloud v2 accept them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from support.v2.manifests import (
    Manifest,
    condition,
    make_deployment,
    make_host,
    make_replica_set,
    make_service,
    make_slice,
    make_snapshot,
    make_workload,
)
from trellis.read_model.entities.v2_entities import v2_deployment_entity, workload_entity
from trellis.read_model.explain.subject import Beside
from trellis.read_model.health import Health
from trellis.v2.cluster import Cluster
from trellis.v2.explain.deployment import explain_deployment
from trellis.v2.explain.service import explain_routed_service
from trellis.v2.explain.workload import explain_workload
from trellis.v2.reasons import Reason
from trellis.v2.snapshot import Part, Snapshot
from trellis.v2.workloads import STEPS
from trellis_cli.v2.row import v2_part

SERVICE = {"kubernetes": {"service": {"name": "web"}}}
HTTP = {"hostInterfaces": [{"namespace": "wasi", "package": "http", "interfaces": ["incoming-handler"]}]}
DAEMON = {"service": {"image": "registry.test/job:1"}}
WEB = {"components": [{"name": "web", "image": "registry.test/app:1"}]}
EMPTY: dict[str, dict[str, Any]] = {
    "no field": {},
    "no component": {"components": []},
    "interfaces without a component": HTTP,
    "a Service without a component": {"components": [], **SERVICE, **HTTP},
}
WRONG = (Health.DEGRADED, Reason.COMPONENTS_MISSING)
WELL = (Health.HEALTHY, Reason.HEALTHY)


STARTED = [condition(kind) for kind in STEPS]
FAILED = [*STARTED[:2], condition("Placement", status="False", message="failed to pull image")]


def owned(name: str, replica_set: str, spec: dict[str, Any], conditions: list[Manifest]) -> Manifest:
    found = make_workload(name, conditions, spec=spec)
    found["metadata"]["ownerReferences"] = [{"controller": True, "name": replica_set, "uid": f"uid-{replica_set}"}]
    return found


def rollout(former: dict[str, Any], current: dict[str, Any], conditions: list[Manifest]) -> Snapshot:
    """Return a rollout: a Workload of each template is there, and that of the current one has ``conditions``."""
    deployment = make_deployment(template={"spec": current})
    deployment["status"] |= {"previousReplicaSet": {"name": "rs1"}, "currentReplicaSet": {"name": "rs2"}}
    snapshot = make_snapshot(
        [make_host()],
        [owned("former", "rs1", former, STARTED), owned("current", "rs2", current, conditions)],
        deployment=deployment,
        services=[make_service()],
        slices=[make_slice("web", "10.0.0.1")],
    )
    [replica_set] = snapshot.replica_sets
    names = ("rs1", "rs2")
    sets = [replace(replica_set, meta=replace(replica_set.meta, name=name, uid=f"uid-{name}")) for name in names]
    return replace(snapshot, replica_sets=sets)


def world(spec: dict[str, Any], replicas: int = 1) -> Snapshot:
    return make_snapshot(
        [make_host()],
        [make_workload(spec=spec)] if replicas else [],
        replica_set=make_replica_set(replicas, spec=spec),
        deployment=make_deployment(replicas, template={"spec": spec}),
        services=[make_service()],
        slices=[make_slice("web", "10.0.0.1")],
    )


@pytest.mark.parametrize(("spec", "expected"), [*((it, WRONG) for it in EMPTY.values()), (WEB, WELL), (DAEMON, WELL)])
def test_all_pages_agree_that_nothing_runs(spec: dict[str, Any], expected: tuple[Health, Reason]) -> None:
    snapshot = world(spec)
    cluster, [workload], [deployment] = Cluster(snapshot), snapshot.workloads, snapshot.deployments
    for page in (
        explain_workload(snapshot, workload, Beside()),
        explain_deployment(snapshot, deployment, Beside()),
    ):
        assert (page.verdict.health, page.verdict.reason) == expected
        assert (page.cause is not None) is (expected is WRONG)
    for entity in (workload_entity(cluster, workload, "web"), v2_deployment_entity(cluster, deployment)):
        assert (entity["health"], entity["reason"]) == expected
    assert bool(v2_part(snapshot).problem) is (expected is WRONG)


def test_a_service_of_nothing_is_not_healthy() -> None:
    for spec, expected in (({**SERVICE, **HTTP}, WRONG), ({**SERVICE, **HTTP, **WEB}, WELL)):
        snapshot = world(spec)
        [service] = snapshot.services
        verdict = explain_routed_service(snapshot, service, Beside()).verdict
        assert (verdict.health, verdict.reason) == expected


def test_a_template_without_components_is_known_if_its_workloads_are_not() -> None:
    snapshot = replace(world({}), workloads=(), unread={Part.WORKLOADS: "this account cannot list workloads"})
    verdict = explain_deployment(snapshot, snapshot.deployments[0], Beside()).verdict
    assert (verdict.health, verdict.reason) == WRONG


def test_a_template_without_components_and_replicas_is_suspended() -> None:
    snapshot = world({}, replicas=0)
    verdict = explain_deployment(snapshot, snapshot.deployments[0], Beside()).verdict
    assert (verdict.health, verdict.reason) == (Health.SUSPENDED, Reason.SCALED_TO_ZERO)


def test_a_former_template_without_components_does_not_serve() -> None:
    for former, serves in (({**SERVICE, **HTTP}, False), ({**SERVICE, **HTTP, **WEB}, True)):
        snapshot = rollout(former, {**SERVICE, **HTTP, **WEB}, FAILED)
        page = explain_deployment(snapshot, snapshot.deployments[0], Beside())
        assert page.verdict.reason == Reason.START_FAILED
        assert any(line.reason == Reason.ROLLING_OUT for line in page.lines) is serves


def test_a_service_has_the_cause_of_workloads_with_components_if_there_are_any() -> None:
    full = {**SERVICE, **HTTP, **WEB}
    for former, current, conditions, expected in (
        ({**SERVICE, **HTTP}, full, FAILED, Reason.NOT_READY),
        ({**SERVICE, **HTTP}, full, STARTED, Reason.HEALTHY),
        (full, {**SERVICE, **HTTP}, STARTED, Reason.HEALTHY),
        ({**SERVICE, **HTTP}, {**SERVICE, **HTTP}, STARTED, Reason.COMPONENTS_MISSING),
    ):
        snapshot = rollout(former, current, conditions)
        assert explain_routed_service(snapshot, snapshot.services[0], Beside()).verdict.reason == expected


@pytest.mark.parametrize(("spec", "reason"), [({}, Reason.COMPONENTS_MISSING), (WEB, Reason.HEALTHY)])
def test_a_workload_changed_in_place_may_run_its_former_spec(spec: dict[str, Any], reason: Reason) -> None:
    for generation, conditions, warned in ((1, STARTED, False), (2, STARTED, True), (2, STARTED[:2], False)):
        workload = make_workload(conditions=conditions, spec=spec)
        workload["metadata"]["generation"] = generation
        del workload["metadata"]["ownerReferences"]
        snapshot = make_snapshot([make_host()], [workload])
        page = explain_workload(snapshot, snapshot.workloads[0], Beside())
        assert any(line.reason == Reason.SPEC_CHANGED for line in page.lines) is warned
        if conditions is STARTED:
            assert page.verdict.reason == reason


def test_the_resolution_names_the_object_with_the_template() -> None:
    snapshot = world(SERVICE | HTTP)
    [replica_set] = snapshot.replica_sets
    alone = replace(replica_set, meta=replace(replica_set.meta, owner="", owner_name=""))
    deployment, replicas = "WorkloadDeployment web", "WorkloadReplicaSet rs1"
    for sets, named, other in (
        ([replica_set], deployment, replicas),
        ([alone], replicas, "WorkloadDeployment"),
        ([], replicas, deployment),  # not known yet, or not permitted
    ):
        found = replace(snapshot, replica_sets=sets)
        workload, service = found.workloads[0], found.services[0]
        causes = [explain_workload(found, workload, Beside()).cause]
        if sets == [replica_set]:
            causes.append(explain_routed_service(found, service, Beside()).cause)
        for cause in causes:
            assert cause is not None
            assert named in cause.do
            assert other not in cause.do


def test_a_workload_without_an_owner_is_to_be_created_again() -> None:
    """The operator sends a Workload to its host once, so a changed spec would look healthy and run nothing."""
    workload = make_workload(spec={})
    del workload["metadata"]["ownerReferences"]
    snapshot = make_snapshot([make_host()], [workload])
    cause = explain_workload(snapshot, snapshot.workloads[0], Beside()).cause
    assert cause is not None
    assert "delete" in cause.do
