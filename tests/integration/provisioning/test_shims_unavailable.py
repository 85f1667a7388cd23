"""Unavailable Shims and nodes: skipped and named, abandoned in mid-work, left over at last; several Shims in a row."""

from __future__ import annotations

import asyncio
import http
from dataclasses import replace

import pytest

from support.nodes.fleet import KUBELET, SHORT, Fleet, eventually
from support.nodes.kubelets import kubelets
from support.nodes.shims import SHIMS, Shim
from support.suite.naming import lacking
from trellis.config.timings import DeletionTimings
from trellis.provisioning.reasons import Reason as NodeReason
from trellis.provisioning.shim_status import Reason

pytestmark = [pytest.mark.cluster, pytest.mark.thorough]


def show_ready(fleet: Fleet, node: str, status: str) -> None:
    """Set a node's Ready condition."""
    fleet.patch(node, {"status": {"conditions": [{"type": "Ready", "status": status}]}}, "/status")


async def cut_off(fleet: Fleet, node: str) -> None:
    """Let a node be as after its grace time without a kubelet; its pods are played all the same."""

    def ready() -> bool:
        conditions = fleet.node(node)["status"].get("conditions") or []
        return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)

    await eventually(ready, f"{node} is ready")
    fleet.patch(node, {"metadata": {"annotations": {KUBELET: None}}})
    show_ready(fleet, node, "Unknown")


def heal(fleet: Fleet, node: str) -> None:
    """Give a node its kubelet again: it becomes Ready by itself."""
    fleet.patch(node, {"metadata": {"annotations": {KUBELET: "fake"}}})


def play_pods(fleet: Fleet, node: str) -> None:
    """Be the kubelet of a node that has none: end what is to be deleted, let the other installers succeed."""
    pods = f"/api/v1/namespaces/{fleet.installers}/pods"
    for pod in fleet.api.call("GET", f"{pods}?fieldSelector=spec.nodeName%3D{node}")[1]["items"]:
        path = f"{pods}/{pod['metadata']['name']}"
        if "deletionTimestamp" in pod["metadata"]:
            fleet.api.call("DELETE", path, {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0})
        else:
            fleet.api.call("PATCH", f"{path}/status", {"status": {"phase": "Succeeded"}})


async def test_shims_that_come_one_soon_after_another_are_one_change_of_a_node(fleet: Fleet, shim: Shim) -> None:
    nodes = shim.add_nodes(3)
    others = [Shim(fleet), Shim(fleet)]
    for number, other in enumerate(others):
        other.name = other.handler = f"{shim.name}-{number}"
    timings = replace(SHORT, settle=1.0, deletions=DeletionTimings(settle=2.0))
    async with fleet.services(timings), kubelets(fleet):
        await fleet.both_listen()
        offset = fleet.audit_offset()
        for item in (shim, *others):
            item.apply(max_update=3)
            await asyncio.sleep(0.2)
        await eventually(lambda: all(item.has(node) for item in (shim, *others) for node in nodes), "all", seconds=60)
        assert jobs_created(fleet, offset) == len(nodes)
        for item in (shim, *others):
            item.delete()
            await asyncio.sleep(0.2)
        await eventually(lambda: not any(item.found() for item in (shim, *others)), "all gone", seconds=60)
        assert jobs_created(fleet, offset) == 2 * len(nodes)


def jobs_created(fleet: Fleet, offset: int) -> int:
    """Count the installer Jobs made since an audit offset; one that is requested twice is refused, and no Job."""
    made = ("create", "jobs", fleet.installers, http.HTTPStatus.CREATED)
    return sum(
        (
            write["verb"],
            write["objectRef"].get("resource"),
            write["objectRef"].get("namespace"),
            write["responseStatus"]["code"],
        )
        == made
        for write in fleet.writes(offset)
    )


async def test_a_node_that_is_not_ready_is_passed_by_and_named_until_it_is(fleet: Fleet, shim: Shim) -> None:
    unavailable, *others = shim.add_nodes(3)
    await cut_off(fleet, unavailable)
    async with fleet.services(), kubelets(fleet):
        shim.apply()
        await eventually(lambda: all(map(shim.has, others)), "the others have it", seconds=60)
        await eventually(lambda: unavailable in shim.message("Progressing"), "it is named")
        assert shim.condition("Progressing") == ("True", "Updating")
        await fleet.quiet()
        heal(fleet, unavailable)
        await eventually(lambda: shim.condition("Progressing") == ("False", "Updated"), "it has it, too", seconds=60)
        assert unavailable not in shim.message("Progressing")


async def test_a_node_that_disappears_during_work_frees_its_slot_after_the_deadline(fleet: Fleet, shim: Shim) -> None:
    others, unavailable = shim.add_nodes(2), f"away-{fleet.id}"
    fleet.add_named(unavailable, opted_in=False, kubelet=False)
    show_ready(fleet, unavailable, "True")
    fleet.patch(unavailable, {"metadata": {"labels": {"test": fleet.id}}})
    async with fleet.services(job_deadline=5), kubelets(fleet):
        shim.apply()
        await eventually(lambda: fleet.job_of(unavailable), "work begins")
        show_ready(fleet, unavailable, "Unknown")
        await eventually(lambda: all(map(shim.has, others)), "the others have it", seconds=60)
        failing = ("True", Reason.FAILING.value)
        await eventually(lambda: shim.condition("Degraded") == failing, "the failure is reported")
        assert lacking(shim.message("Degraded"), unavailable, NodeReason.NODE_NOT_READY, "DeadlineExceeded") == []
        await fleet.event(unavailable, "ProvisionFailed")
        show_ready(fleet, unavailable, "True")

        def provisioned() -> bool:
            play_pods(fleet, unavailable)
            return shim.condition("Progressing") == ("False", "Updated")

        await eventually(provisioned, "it has it, too", seconds=60)
        await fleet.quiet()


async def test_a_deleted_shim_leaves_a_dead_node_behind_and_reports_it(fleet: Fleet, shim: Shim) -> None:
    dead, *others = shim.add_nodes(3)
    async with fleet.services(replace(SHORT, unreachable=4.0)), kubelets(fleet):
        shim.apply(max_update=3)
        await eventually(lambda: shim.condition("Progressing") == ("False", "Updated"), "all have it", seconds=60)
        await cut_off(fleet, dead)
        shim.delete()
        await eventually(lambda: dead in shim.message("Progressing"), "the dead one is named")
        await eventually(lambda: shim.found() is None, "the Shim is gone all the same", seconds=30)
        assert not any(map(shim.has, others))
        assert shim.runtime_class() is None
        left = f"/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3D{shim.name}"
        events = {event["reason"]: event["message"] for event in fleet.api.call("GET", left)[1]["items"]}
        assert dead in events["UnreachableNodesLeft"]
        assert fleet.api.call("GET", f"{SHIMS}/{shim.name}")[0] == http.HTTPStatus.NOT_FOUND
