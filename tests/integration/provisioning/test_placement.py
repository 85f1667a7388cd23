"""Pods of a RuntimeClass go where the Shim says; the RuntimeClass is that of one Shim, and follows its spec alone."""

from __future__ import annotations

import http
from typing import Any

import pytest

from support.nodes.fleet import Fleet, Manifest, eventually
from support.nodes.kubelets import kubelets
from support.nodes.shims import CLASSES, Shim
from trellis import names

pytestmark = pytest.mark.cluster

TAINT = {"key": "dedicated", "value": "wasm", "effect": "NoSchedule"}
EVICTING = {"key": "spot", "effect": "NoExecute"}
TOLERATIONS = [{"key": "dedicated", "value": "wasm"}, {"key": "spot", "operator": "Exists", "effect": "NoExecute"}]


def placed(shim: Shim, scheduling: Manifest | None) -> dict[str, Any]:
    """Return the part of the Shim's spec with a placement, None for none."""
    fields = {"scheduling": scheduling} if scheduling is not None else {"scheduling": None}
    return {"runtimeClass": {"name": shim.name, "handler": shim.handler, **fields}}


def run(fleet: Fleet, name: str, runtime_class: str, query: str = "", **spec: Any) -> tuple[int, Manifest]:
    """Create a pod with a RuntimeClass, as a controller does; return the status and the answer."""
    containers = [{"name": "wasm", "image": "example.com/hello"}]
    pod = {"metadata": {"name": name}, "spec": {"runtimeClassName": runtime_class, "containers": containers, **spec}}
    return fleet.api.call("POST", f"/api/v1/namespaces/{fleet.system}/pods{query}", pod)


def tried(fleet: Fleet, runtime_class: str) -> Manifest:
    """Return a pod as admission would change it now: it has its own copies of RuntimeClasses, by a watch."""
    status, pod = run(fleet, "tried", runtime_class, "?dryRun=All")
    assert status == http.HTTPStatus.CREATED, pod
    return pod


def pod_of(fleet: Fleet, name: str) -> Manifest:
    return fleet.api.call("GET", f"/api/v1/namespaces/{fleet.system}/pods/{name}")[1]


def unschedulable(fleet: Fleet, name: str) -> bool:
    conditions = (pod_of(fleet, name).get("status") or {}).get("conditions") or ()
    return any(item["type"] == "PodScheduled" and item.get("reason") == "Unschedulable" for item in conditions)


def tolerated(pod: Manifest) -> set[str]:
    """Return the keys of the taints that a pod tolerates, without those that Kubernetes adds."""
    keys = {item.get("key", "") for item in pod["spec"].get("tolerations") or ()}
    return {key for key in keys if not key.startswith("node.kubernetes.io/")}


async def test_pods_go_to_tainted_nodes_that_the_shim_chooses_for_them(fleet: Fleet, shim: Shim) -> None:
    edge, other = shim.add_nodes(2)
    fleet.patch(edge, {"metadata": {"labels": {"tier": "edge"}}})
    for node in (edge, other):
        fleet.patch(node, {"spec": {"taints": [TAINT, EVICTING]}})
    async with fleet.services(), kubelets(fleet):
        scheduling = {"nodeSelector": {"tier": "edge"}, "tolerations": TOLERATIONS}
        shim.apply(verify={"canary": True}, max_update=2, **placed(shim, scheduling))
        await eventually(lambda: shim.condition("Available") == ("True", "AllNodesReady"), "available", seconds=60)
        assert {fleet.annotations(node)[names.ANNOTATION_VERIFIED] for node in (edge, other)} == {"canary"}
        made = shim.runtime_class() or {}
        selector = {shim.name: names.SHIM_PROVISIONED, "tier": "edge"}
        assert made["scheduling"] == {"nodeSelector": selector, "tolerations": TOLERATIONS}
        await fleet.quiet()

        status, pod = run(fleet, "first", shim.name, tolerations=[{"key": "own", "operator": "Exists"}])
        assert status == http.HTTPStatus.CREATED, pod
        assert pod["spec"]["nodeSelector"] == selector
        assert tolerated(pod) == {"own", "dedicated", "spot"}
        await eventually(lambda: pod_of(fleet, "first")["spec"].get("nodeName") == edge, "scheduled", seconds=30)
        assert run(fleet, "elsewhere", shim.name, nodeSelector={"tier": "core"})[0] == http.HTTPStatus.FORBIDDEN

        offset = fleet.audit_offset()
        shim.apply(verify={"canary": True}, max_update=2, **placed(shim, None))
        await eventually(
            lambda: (shim.runtime_class() or {})["scheduling"] == {"nodeSelector": {shim.name: "provisioned"}},
            "the RuntimeClass follows",
        )
        assert (shim.runtime_class() or {})["metadata"]["uid"] == made["metadata"]["uid"]
        assert tolerated(pod_of(fleet, "first")) == {"own", "dedicated", "spot"}  # a running pod keeps its own
        await eventually(lambda: not tolerated(tried(fleet, shim.name)), "admission knows it")
        run(fleet, "second", shim.name)
        await eventually(lambda: unschedulable(fleet, "second"), "no node for a pod without toleration", seconds=30)
        await eventually(shim.observed, "the status is that of the spec")
        written = {write["objectRef"]["resource"] for write in fleet.writes(offset) if fleet.id in str(write)}
        assert "jobs" not in written, "a placement changes nothing on nodes"

        for name in ("first", "second"):
            fleet.api.call("DELETE", f"/api/v1/namespaces/{fleet.system}/pods/{name}", {"gracePeriodSeconds": 0})
        shim.delete()
        await eventually(lambda: shim.found() is None, "the Shim is gone", seconds=60)


async def test_a_placement_that_no_node_matches_is_on_the_shim(fleet: Fleet, shim: Shim) -> None:
    [node] = shim.add_nodes(1)
    async with fleet.services(), kubelets(fleet):
        shim.apply(**placed(shim, {"nodeSelector": {"tier": "edge"}}))
        await eventually(lambda: shim.has(node), "verified all the same", seconds=60)
        field = "spec.runtimeClass.scheduling.nodeSelector"
        await eventually(lambda: field in shim.message("Ready"), "the Shim says so")
        fleet.patch(node, {"metadata": {"labels": {"tier": "edge"}}})
        await eventually(lambda: shim.message("Ready") and field not in shim.message("Ready"), "a node matches")
        shim.delete()
        await eventually(lambda: shim.found() is None, "the Shim is gone", seconds=60)


async def test_a_runtime_class_that_a_person_changes_or_deletes_is_restored_and_reported(
    fleet: Fleet, shim: Shim
) -> None:
    path = f"{CLASSES}/{shim.name}"
    overhead = {"overhead": {"podFixed": {"memory": "1024Mi"}}}  # the API server stores 1Gi
    async with fleet.services(), kubelets(fleet):
        shim.apply(runtimeClass={"name": shim.name, "handler": shim.handler, **overhead})
        await eventually(shim.observed, "the status is that of the spec")
        made = shim.runtime_class() or {}
        assert made["metadata"]["labels"] == {names.LABEL_MANAGED_BY: names.MANAGED_BY, names.LABEL_SHIM: shim.name}
        assert made["overhead"] == {"podFixed": {"memory": "1Gi"}}
        assert "RuntimeClassRestored" not in fleet.events(shim.name)

        patch = {"metadata": {"labels": {"team": "a"}}, "scheduling": {"nodeSelector": {"gpu": "true"}}}
        assert fleet.api.call("PATCH", path, patch)[0] == http.HTTPStatus.OK
        await eventually(
            lambda: (shim.runtime_class() or {}).get("scheduling") == made["scheduling"], "the placement is restored"
        )
        assert (shim.runtime_class() or {})["metadata"]["labels"]["team"] == "a"
        message = await fleet.event(shim.name, "RuntimeClassRestored")
        assert "scheduling.nodeSelector" in message

        assert fleet.api.call("DELETE", path)[0] == http.HTTPStatus.OK
        again = await eventually(shim.runtime_class, "there is one again")
        assert again["metadata"]["uid"] != made["metadata"]["uid"]
        offset = fleet.audit_offset()
        shim.delete()
        await eventually(lambda: shim.found() is None, "the Shim is gone", seconds=60)
        rewritten = [
            write
            for write in fleet.writes(offset)
            if write["objectRef"].get("name") == shim.name and write["objectRef"]["resource"] == "runtimeclasses"
        ]
        verbs = [write["verb"] for write in rewritten if write["verb"] != "create"]  # which the log may have late
        assert verbs == ["delete"], "an equal amount is no difference"


async def test_a_runtime_class_of_two_shims_is_that_of_the_older_until_it_goes(fleet: Fleet, shim: Shim) -> None:
    older, younger = shim, Shim(fleet, "z")
    older.apply()
    younger.apply(runtimeClass={"name": older.name, "handler": younger.handler})
    try:
        async with fleet.services(), kubelets(fleet):
            conflict = ("True", "RuntimeClassConflict")
            await eventually(lambda: younger.condition("Degraded") == conflict, "the younger one is in conflict")
            await eventually(lambda: older.condition("Degraded") == ("False", "Healthy"), "the older one is not")
            assert older.name in younger.message("Degraded")
            assert (older.runtime_class() or {})["handler"] == older.handler
            older.delete()
            await eventually(lambda: older.found() is None, "the older one is gone", seconds=60)
            await eventually(
                lambda: (older.runtime_class() or {}).get("handler") == younger.handler, "the younger one has it"
            )
            await eventually(lambda: younger.condition("Degraded") == ("False", "Healthy"), "no conflict any more")
            younger.delete()
            await eventually(lambda: younger.found() is None, "the younger one is gone", seconds=60)
            await eventually(lambda: older.runtime_class() is None, "no RuntimeClass is left")
    finally:
        for each in (older, younger):
            fleet.api.call(
                "PATCH", f"/apis/runtime.spinkube.dev/v1alpha1/shims/{each.name}", {"metadata": {"finalizers": None}}
            )
            each.delete()
