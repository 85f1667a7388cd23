"""Policies that change installer Jobs when they are created: no Job is lost, and each change is reported."""

from __future__ import annotations

import http

import pytest

from provisioner.admission_changes import Changed
from support.cluster.mutating_policies import mutating, put, remove
from support.nodes.fleet import Fleet, Manifest, eventually
from support.nodes.kubelets import kubelets
from support.nodes.shims import Shim
from support.suite.tiers import first_of
from trellis import names
from trellis.provisioning.reasons import Reason

pytestmark = pytest.mark.cluster

IMAGE = "example.com/installer:1"
POD = "/spec/template/spec"


def label(key: str) -> str:
    return f'"/metadata/labels/" + jsonpatch.escapeKey("{key}")'


@pytest.mark.thorough
async def test_a_policy_that_sets_managed_by_hides_no_job(fleet: Fleet) -> None:
    nodes = fleet.add(*["node"] * 6)
    policy = put(label(names.LABEL_MANAGED_BY), '"policy"')
    async with mutating(fleet, policy), fleet.services(max_unavailable="2", installer_image=IMAGE):
        await fleet.all_provisioned(nodes, seconds=60)
        await fleet.quiet()
        assert not any(Reason.JOB_CHANGED.value in fleet.events(node) for node in nodes)


@pytest.mark.parametrize("what", first_of([Changed.MARKS, Changed.NODE]))
async def test_a_job_that_admission_makes_useless_is_deleted_and_reported(fleet: Fleet, what: Changed) -> None:
    [other] = fleet.add("node", opted_in=False)
    mutation = {
        Changed.MARKS: remove(label(names.LABEL_NODE_UID)),
        Changed.NODE: put(f'"{POD}/nodeName"', f'"{other}"'),
    }[what]
    async with fleet.services(installer_image=IMAGE):
        async with mutating(fleet, mutation):
            [node] = fleet.add("node")
            message = await fleet.event(node, Reason.JOB_CHANGED.value)
            assert what.value in message
            assert not fleet.provisioned(node)
        await fleet.all_provisioned([node], seconds=30)
        await fleet.quiet()


@pytest.mark.thorough
async def test_further_changes_by_admission_are_reported_and_the_node_is_provisioned(fleet: Fleet) -> None:
    [node] = fleet.add("node")
    mirror = put(f'"{POD}/containers/0/image"', '"mirror.example.com/installer:1"')
    endless = remove('"/spec/activeDeadlineSeconds"')
    async with mutating(fleet, mirror, endless), fleet.services(installer_image=IMAGE):
        await fleet.all_provisioned([node], seconds=30)
        message = await fleet.event(node, Reason.JOB_CHANGED.value)
        assert Changed.IMAGE.value in message
        assert Changed.DEADLINE.value in message
        await fleet.quiet()


@pytest.mark.thorough
async def test_a_job_that_is_suspended_is_reported_at_once_and_retried_within_seconds(fleet: Fleet, shim: Shim) -> None:
    """Kueue suspends each Job of a namespace, and leaves one without a queue suspended for ever."""
    [node] = shim.add_nodes(1)
    async with kubelets(fleet), fleet.services() as running:
        async with mutating(fleet, put('"/spec/suspend"', "true")):
            shim.apply()
            reason = Reason.INSTALLER_REFUSED.value
            await eventually(lambda: shim.condition("Degraded") == ("True", reason), "reported on the Shim")
            assert "suspended" in shim.message("Degraded")
            assert "suspended" in await fleet.event(node, reason)
            assert any("suspended" in cause for item in running for cause in item.health.readiness().reasons)
        await eventually(lambda: shim.has(node), "provisioned", seconds=30)
        await fleet.quiet()
        await eventually(lambda: all(item.health.readiness().ok for item in running), "ready again")


@pytest.mark.thorough
async def test_a_job_that_is_suspended_while_it_runs_is_reported_at_once_and_replaced(fleet: Fleet, shim: Shim) -> None:
    [hangs, other] = sorted(shim.add_nodes(1, "hangs"))
    reason = Reason.INSTALLER_REFUSED.value
    # Kubernetes may count a pod that was deleted because of the suspension as a failed one.
    async with kubelets(fleet), fleet.services(job_retries=2) as running:
        shim.apply(max_update=1)
        former = await eventually(lambda: at_work(fleet, hangs), "the installer runs")
        suspend(fleet, former)
        await eventually(lambda: shim.condition("Degraded") == ("True", reason), "reported on the Shim")
        assert "suspended" in await fleet.event(hangs, reason)
        assert any("suspended" in cause for item in running for cause in item.health.readiness().reasons)
        await eventually(lambda: shim.has(other), "another node has the slot", seconds=30)
        again = await eventually(lambda: at_work(fleet, hangs), "the node is tried again", seconds=30)
        assert again["metadata"]["uid"] != former["metadata"]["uid"]
        await eventually(lambda: shim.condition("Degraded")[0] == "False", "the Shim has recovered")
        assert not fleet.annotations(hangs).get(names.ANNOTATION_FAILURE), "nothing failed there"
        suspend(fleet, again)
        await eventually(lambda: fleet.job_of(hangs)["spec"]["suspend"] and not at_work(fleet, hangs), "it is stopped")
        shim.delete()
        await eventually(lambda: shim.found() is None, "the Shim is gone", seconds=30)
        await fleet.quiet()


def at_work(fleet: Fleet, node: str) -> Manifest | None:
    """Return the Job of a node if a pod of it runs."""
    job = fleet.job_of(node)
    return job if job is not None and job["status"].get("active") else None


def suspend(fleet: Fleet, job: Manifest) -> None:
    """Suspend a Job as kubectl or Kueue does."""
    path = f"/apis/batch/v1/namespaces/{fleet.installers}/jobs/{job['metadata']['name']}"
    assert fleet.api.call("PATCH", path, {"spec": {"suspend": True}})[0] == http.HTTPStatus.OK
