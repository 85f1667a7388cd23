"""Failed pods of owners that need none: a Deployment at 0 replicas, a complete Job, a later run of a CronJob."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from provisioner.domain.workloads.decide import Workload
from provisioner.workloads.finished_owners import FinishedOwners
from provisioner.workloads.pods import WorkloadPod
from support.cluster.kube_world import until
from support.wasm_pods.objects import CREATING, SPACE, Manifest, container, crashing, ended, pod, workload
from support.wasm_pods.reported import SHORT, Objects, World, forbidden, owned
from trellis.kube.resources import CRON_JOBS, DEPLOYMENTS, JOBS, PODS, REPLICA_SETS

EVICTED: dict[str, Any] = {"phase": "Failed", "reason": "Evicted", "message": "the node was low on memory"}
OF_SET = ("ReplicaSet", "hello-1", "uid-hello-1")


def of_set(name: str, *statuses: Manifest, **fields: Any) -> tuple[Any, Manifest]:
    return PODS, owned(pod(name, *statuses, owner=OF_SET, **fields), "apps/v1")


def scaled(replicas: int, *pods: tuple[Any, Manifest]) -> Objects:
    replica_set = workload("hello-1", owner=("Deployment", "hello", "uid-hello"), replicas=replicas)
    return [(DEPLOYMENTS, workload(replicas=replicas)), (REPLICA_SETS, owned(replica_set, "apps/v1")), *pods]


def state(world: World, name: str) -> float | None:
    labels = {"service": world.kube.telemetry.service, "handler": "spin", "node": "n1", "state": name}
    return world.kube.telemetry.metrics.registry.get_sample_value("trellis_wasm_pods", labels)


async def test_an_evicted_pod_of_a_deployment_that_is_scaled_down_is_no_failure() -> None:
    completed = of_set("done", container({"terminated": ended(0, "Completed")}), phase="Succeeded")
    world = World(scaled(0, of_set("old", CREATING, **EVICTED), of_set("new"), completed))
    async with world.running():
        await world.until_published("running Deployment hello")
        assert not world.reads("replicasets/")[1:], "it is read for its owner only"
        world.kube.remove(PODS, "new", SPACE)
        await until(lambda: state(world, "running") is None, "the last pod is gone")
        await until(lambda: state(world, "replaced") == 1, "the evicted one does not count")
        await asyncio.sleep(0.2)
        assert world.bus.published == ["running Deployment hello"]
        assert not world.warnings
        assert len(world.reads("replicasets/")) == 2, "and once for the pods that it keeps"


async def test_an_evicted_pod_of_a_deployment_that_needs_pods_is_a_failure_until_it_needs_none() -> None:
    world = World(scaled(1, of_set("old", CREATING, **EVICTED)))
    async with world.running():
        await world.until_published("failed Deployment hello PodFailed")
        await until(lambda: state(world, "failed") == 1, "the metric")
        [manifest] = [item for item in world.kube.objects(REPLICA_SETS) if item["metadata"]["name"] == "hello-1"]
        world.kube.put(REPLICA_SETS, manifest | {"spec": manifest["spec"] | {"replicas": 0}})
        await until(lambda: state(world, "replaced") == 1, "it is scaled down")


FAILED = container({"terminated": ended(1)})
COMPLETE = {"conditions": [{"type": "Complete", "status": "True"}]}
FINAL = {"conditions": [{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}]}


def of_job(name: str, *statuses: Manifest, job: str = "nightly-1", **fields: Any) -> tuple[Any, Manifest]:
    return PODS, owned(pod(name, *statuses, owner=("Job", job, f"uid-{job}"), **fields), "batch/v1")


def job_of(name: str, **fields: Any) -> tuple[Any, Manifest]:
    return JOBS, owned(workload(name, owner=("CronJob", "nightly", "uid-nightly"), **fields), "batch/v1")


async def test_a_failed_pod_of_a_job_that_is_complete_is_no_failure() -> None:
    pods = (of_job("a", FAILED, phase="Failed"), of_job("b", container({"terminated": ended(0)}), phase="Succeeded"))
    world = World([(JOBS, workload("nightly-1", status=COMPLETE)), *pods])
    async with world.running():
        await world.until_published("running Job nightly-1")
        await until(lambda: state(world, "replaced") == 1, "the metric")
    assert not world.warnings


async def test_a_job_that_has_failed_is_read_once() -> None:
    world = World([(JOBS, workload("nightly-1", status=FINAL)), of_job("a", FAILED, phase="Failed")])
    async with world.running():
        await world.until_published("failed Job nightly-1 Exited")
        await asyncio.sleep(0.2)
    assert len(world.reads("jobs/")) == 2, "once for its owner"


@pytest.mark.parametrize(("succeeded", "counts"), [("2026-11-27T09:00:00Z", True), ("2999-11-27T09:00:00Z", False)])
async def test_a_failed_job_counts_until_its_cron_job_has_completed_a_later_one(succeeded: str, counts: bool) -> None:
    cron = workload("nightly", status={"lastSuccessfulTime": succeeded})  # successfulJobsHistoryLimit is 0
    world = World([(CRON_JOBS, cron), job_of("nightly-1", status=FINAL), of_job("a", FAILED, phase="Failed")])
    async with world.running():
        await until(lambda: state(world, "failed" if counts else "replaced") == 1, "the metric")
        await asyncio.sleep(0.1)
    assert world.bus.published == (["failed CronJob nightly Exited"] if counts else [])


async def test_a_replica_set_that_cannot_be_read_needs_its_pods() -> None:
    world = World(scaled(0, of_set("old", CREATING, **EVICTED)))
    world.kube.answer_next(99, forbidden, when=lambda request: "replicasets" in request.path)
    async with world.running():
        await world.until_published("failed ReplicaSet hello-1 PodFailed")


async def test_reads_of_replica_sets_have_a_rate_limit_and_end_with_their_pods() -> None:
    world = World([])
    finished = FinishedOwners(world.kube, replace(SHORT, reads=1e-9))
    owner = Workload(SPACE, "apps/v1", "Deployment", "hello", "u")

    def of(number: int, made: Manifest) -> Mapping[str, Sequence[WorkloadPod]]:
        found = world.parts.pods.view(made, {"spin-v2"})
        assert found is not None
        return {f"uid-{number}": [found]}

    def failed(number: int) -> Mapping[str, Sequence[WorkloadPod]]:
        owner = ("ReplicaSet", f"set-{number}", f"uid-{number}")
        return of(number, owned(pod("old", CREATING, owner=owner, **EVICTED), "apps/v1"))

    read = [await finished.read(owner, failed(number)) for number in range(50)]
    assert sum(read) == len(world.reads("replicasets/")) == SHORT.reads_burst
    assert await finished.read(owner, of(99, pod("crashing", crashing(1), owner=("ReplicaSet", "set-99", "uid-99"))))
    [[first]] = failed(0).values()
    assert finished.is_needless(first), "its ReplicaSet is deleted"
    running = world.parts.pods.view(pod("new"), {"spin-v2"})
    assert running is not None
    assert await finished.read(owner, {**failed(0), "uid-running": [running]})
    assert not finished.is_needless(first), "another one runs: the next read is a new one"
    assert not await finished.read(owner, failed(0)), "the limit is reached"
    [[second]] = failed(1).values()
    assert finished.is_needless(second)
    finished.keep(())
    assert not finished.is_needless(second)
