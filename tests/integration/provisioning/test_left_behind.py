"""Failed rollbacks on simulated nodes: the remains are named, have no label, and are removed in the end."""

from __future__ import annotations

import pytest

from support.nodes.fleet import Fleet, eventually
from support.nodes.kubelets import kubelets
from support.nodes.shims import Shim
from trellis import names
from trellis.provisioning.revisions import label_selector
from trellis.provisioning.views import UNDO, decode_digests

pytestmark = [pytest.mark.cluster, pytest.mark.thorough]


def named(fleet: Fleet, node: str) -> dict[str, str]:
    """Return the versions that a node names, by Shim."""
    return decode_digests(fleet.annotations(node).get(names.ANNOTATION_SHIMS))


def blamed(fleet: Fleet, node: str) -> set[str]:
    """Return the Shims that failures on a node are blamed on."""
    return set(decode_digests(fleet.annotations(node).get(names.ANNOTATION_BLAMED)))


def undoing(fleet: Fleet) -> bool:
    """Say whether a Job takes something back."""
    return any(job["metadata"]["labels"][names.LABEL_OPERATION] == UNDO for job in fleet.jobs())


async def test_remains_of_a_deleted_shim_are_removed_although_the_rollback_failed(fleet: Fleet, shim: Shim) -> None:
    [node] = shim.add_nodes(0, "sick-stuck")
    async with fleet.services(retry_max="600s"), kubelets(fleet) as disks:
        shim.apply(verify={"canary": True})
        await eventually(lambda: undoing(fleet), "it is to be taken back", seconds=60)
        shim.delete()
        await eventually(lambda: shim.found() is None, "the Shim is gone", seconds=90)
        assert shim.handler not in disks[node].shims
        assert not any(key.startswith("trellis.dev/") for key in fleet.annotations(node))


async def test_remains_of_a_failed_rollback_are_named_and_removed_with_their_shim(fleet: Fleet, shim: Shim) -> None:
    [node] = shim.add_nodes(0, "sick-stuck")
    async with fleet.services(retry_max="600s"), kubelets(fleet) as disks:
        shim.apply(verify={"canary": True})
        await eventually(lambda: names.ANNOTATION_FAILURE in fleet.annotations(node), "it failed", seconds=60)
        assert named(fleet, node) == {shim.name: "?"}
        assert not shim.has(node)
        await eventually(lambda: shim.condition("Degraded") == ("True", "NodesFailing"), "the Shim says so", seconds=60)
        assert shim.counts() == (1, 0, 0)
        assert shim.handler in disks[node].shims
        shim.delete()
        await eventually(lambda: shim.found() is None, "the Shim is gone", seconds=90)
        assert shim.handler not in disks[node].shims
        assert not any(key.startswith("trellis.dev/") for key in fleet.annotations(node))


async def test_without_a_version_to_go_back_to_a_node_has_no_label_until_one_works(fleet: Fleet, shim: Shim) -> None:
    [node] = shim.add_nodes(0, "sick")
    revisions = f"/apis/apps/v1/namespaces/{fleet.system}/controllerrevisions?labelSelector={label_selector(shim.name)}"
    async with fleet.services(retry_max="600s"), kubelets(fleet):
        shim.apply(verify={"canary": False})
        await eventually(lambda: shim.has(node), "the node has the first version", seconds=60)
        first = named(fleet, node)[shim.name]
        fleet.api.call("DELETE", revisions)
        shim.apply(sha256="cd" * 32, verify={"canary": True})
        await eventually(lambda: names.ANNOTATION_FAILURE in fleet.annotations(node), "it failed", seconds=60)
        assert named(fleet, node) == {shim.name: f"?{first}"}
        assert not shim.has(node)
        assert names.LABEL_WASM_READY not in fleet.labels(node)
        _, *added = fleet.annotations(node)[names.ANNOTATION_FAILURE].split("; ")
        assert any(shim.name in item for item in added), "it names the Shim whose former version is lost"
        shim.apply(sha256="cd" * 32, path="mended.tar.gz", verify={"canary": False})
        await eventually(lambda: shim.has(node), "a version that works gives the label back", seconds=60)
        shim.delete()
        await eventually(lambda: shim.found() is None, "the Shim is gone", seconds=60)


async def test_a_shim_added_and_a_shim_changed_by_one_job_are_both_rolled_back(fleet: Fleet, shim: Shim) -> None:
    added = Shim(fleet, "slight")
    [node] = shim.add_nodes(0, "sick")
    async with fleet.services(retry_max="600s"), kubelets(fleet) as disks:
        shim.apply(verify={"canary": False})
        await eventually(lambda: shim.has(node), "the node has the first version", seconds=60)
        first, before = named(fleet, node), dict(disks[node].shims)
        shim.apply(sha256="cd" * 32, verify={"canary": True})
        added.apply(verify={"canary": True})
        both = {shim.name, added.name}
        await eventually(lambda: blamed(fleet, node) == both, "both have failed", seconds=90)
        assert named(fleet, node) == first
        assert disks[node].shims == before
        assert shim.has(node)
        assert not added.has(node)
        for item in (added, shim):
            item.delete()
            await eventually(lambda item=item: item.found() is None, f"{item.name} is gone", seconds=60)
