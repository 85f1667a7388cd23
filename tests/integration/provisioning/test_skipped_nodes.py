"""Nodes that no installer can run on, and pods that hang: they hold no slot, and the other nodes go on."""

from __future__ import annotations

import http
from dataclasses import replace

import pytest

from support.nodes.fleet import SHORT, Fleet, eventually
from support.nodes.kubelets import kubelets
from support.nodes.shims import Shim
from trellis import names
from trellis.provisioning.reasons import Reason

pytestmark = pytest.mark.cluster

REAL = 10
FOREIGN = {
    "afargate": ({"eks.amazonaws.com/compute-type": "fargate"}, (), Reason.FARGATE_NODE),
    "avirtual": ({"type": "virtual-kubelet"}, ("virtual-kubelet.io/provider",), Reason.VIRTUAL_KUBELET_NODE),
    "ascaling": ({}, ("ToBeDeletedByClusterAutoscaler",), Reason.NODE_SCALING_DOWN),
    "akarpenter": ({}, ("karpenter.sh/disrupted",), Reason.NODE_SCALING_DOWN),
    "adeleting": ({}, (), Reason.NODE_DELETING),
}
"""By prefix of the node's name, which sorts before those of real nodes: labels, taints, and why it is skipped."""


def foreign_nodes(fleet: Fleet) -> dict[str, Reason]:
    """Create two nodes of each foreign sort that the test's Shim is for; return why each is skipped."""
    made = {}
    for prefix, (labels, taints, reason) in FOREIGN.items():
        for node in fleet.add(prefix, prefix, opted_in=False):
            spec = {"taints": [{"key": key, "effect": "NoSchedule"} for key in taints]}
            fleet.patch(node, {"metadata": {"labels": {**labels, "test": fleet.id}}, "spec": spec})
            if reason is Reason.NODE_DELETING:
                fleet.patch(node, {"metadata": {"finalizers": ["test.trellis.dev/termination"]}})
                fleet.delete(node)
            made[node] = reason
    return made


@pytest.mark.thorough
async def test_nodes_that_run_no_installer_hold_no_slot(fleet: Fleet, shim: Shim) -> None:
    foreign = foreign_nodes(fleet)
    real = shim.add_nodes(REAL)
    try:
        async with fleet.services(), kubelets(fleet):
            shim.apply(max_update=2)
            await eventually(lambda: all(map(shim.has, real)), "the real nodes have it", seconds=60)
            await eventually(lambda: shim.condition("Progressing") == ("False", "Updated"), "the rollout is complete")
            assert shim.counts() == (REAL, REAL, REAL)
            assert shim.condition("Degraded")[0] == "False"
            assert shim.condition("NodesSkipped") == ("True", Reason.NODE_SCALING_DOWN.value)
            for node, reason in foreign.items():
                await eventually(lambda node=node, reason=reason: reason.value in fleet.events(node), (node, reason))
            assert not [job for job in fleet.jobs() if job["metadata"]["annotations"][names.ANNOTATION_NODE] in foreign]

            back = next(node for node in foreign if node.startswith("akarpenter"))
            fleet.patch(back, {"spec": {"taints": None}})
            await eventually(lambda: shim.has(back), "a node without its mark is provisioned", seconds=30)
            shim.delete()
            await eventually(lambda: shim.found() is None, "the Shim is gone", seconds=60)
    finally:
        for node in foreign:
            fleet.api.call("PATCH", f"/api/v1/nodes/{node}", {"metadata": {"finalizers": None}})


@pytest.mark.thorough
async def test_a_pod_that_hangs_in_terminating_on_a_ready_node_holds_no_slot(fleet: Fleet) -> None:
    hung = [f"ahung-{fleet.id}-{index}" for index in range(2)]
    for node in hung:
        fleet.add_named(node, kubelet=False)
    real = fleet.add(*["node"] * REAL)
    ready = {"conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]}
    for node in hung:
        fleet.patch(node, {"status": ready}, "/status")
    image = "example.com/installer:1"
    short = replace(SHORT, nodes=replace(SHORT.nodes, grace=2.0))
    async with fleet.services(short, max_unavailable="2", job_deadline=3, installer_image=image):
        await eventually(lambda: all(fleet.job_of(node) for node in hung), "both slots are taken")
        await eventually(lambda: all(map(fleet.provisioned, real)), "the real nodes are provisioned", seconds=60)
        for node in hung:
            failure = fleet.annotations(node)[names.ANNOTATION_FAILURE]
            assert Reason.INSTALLER_POD_STUCK.value in failure
        pods = f"/api/v1/namespaces/{fleet.installers}/pods"
        left = fleet.api.call("GET", pods)[1]["items"]
        of_hung = [pod for pod in left if pod["spec"]["nodeName"] in hung]
        assert len(of_hung) == len(hung), "no second installer beside one that may still run"
        assert not set(fleet.ledger()) & {fleet.node(node)["metadata"]["uid"] for node in hung}
        path = f"{pods}/{of_hung[0]['metadata']['name']}"
        first = fleet.job_of(of_hung[0]["spec"]["nodeName"])
        # That its Job is deleted by hand does not end the pod: still no second installer comes.
        second = fleet.job_of(of_hung[1]["spec"]["nodeName"])
        assert second is not None
        fleet.delete_job(second["metadata"]["name"])
        await eventually(lambda: fleet.job_of(of_hung[1]["spec"]["nodeName"]) is None, "its Job is gone")
        stuck = Reason.INSTALLER_POD_STUCK.value
        await eventually(lambda: stuck in fleet.events(of_hung[1]["spec"]["nodeName"]), "it is said on the node")
        assert fleet.job_of(of_hung[1]["spec"]["nodeName"]) is None
        now = {"gracePeriodSeconds": 0}
        assert (
            fleet.api.call("DELETE", path, {"kind": "DeleteOptions", "apiVersion": "v1", **now})[0]
            == http.HTTPStatus.OK
        )

        def tried_again() -> bool:
            job = fleet.job_of(of_hung[0]["spec"]["nodeName"])
            return job is not None and first is not None and job["metadata"]["uid"] != first["metadata"]["uid"]

        await eventually(tried_again, "the node is tried again once its pod is gone", seconds=30)
