"""Several Shims on the same nodes: none is in another's way, and each goes without the others."""

from __future__ import annotations

import http
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from support.nodes.fleet import SHORT, Fleet, eventually
from support.nodes.kubelets import kubelets, show
from support.nodes.shims import SHIMS, Shim
from trellis import names
from trellis.config.timings import DeletionTimings

pytestmark = [pytest.mark.cluster, pytest.mark.thorough]

NEW = "cd" * 32
Make = Callable[[str], Shim]


@pytest.fixture
def make(fleet: Fleet) -> Make:
    """Make Shims beside the test's first one."""
    return partial(Shim, fleet)


async def deleted(*shims: Shim) -> None:
    for shim in shims:
        shim.delete()
    for shim in shims:
        await eventually(lambda shim=shim: shim.found() is None, f"{shim.name} is gone", seconds=60)


async def test_shims_that_are_applied_together_cost_a_node_one_job_and_go_one_by_one(
    fleet: Fleet, shim: Shim, make: Make
) -> None:
    slight = make("slight")
    [node] = shim.add_nodes(1)
    async with fleet.services(replace(SHORT, settle=1.0)), kubelets(fleet) as disks:
        offset = fleet.audit_offset()
        shim.apply()
        slight.apply()
        await eventually(lambda: shim.has(node) and slight.has(node), "the node has both", seconds=60)
        await fleet.quiet()
        assert jobs_made(fleet, offset) == 1
        assert set(disks[node].shims) == {shim.handler, slight.handler}

        await deleted(shim)
        await fleet.quiet()
        assert set(disks[node].shims) == {slight.handler}
        assert slight.has(node)
        assert not shim.has(node)
        assert jobs_made(fleet, offset) == 2
        await deleted(slight)
        assert not disks[node].shims


def jobs_made(fleet: Fleet, offset: int) -> int:
    created = (write for write in fleet.writes(offset) if write["verb"] == "create")
    places = [(write.get("objectRef") or {}) for write in created]
    return sum(place.get("resource") == "jobs" and place.get("namespace") == fleet.installers for place in places)


async def test_a_handler_belongs_to_one_shim_and_is_free_after_its_deletion(
    fleet: Fleet, shim: Shim, make: Make
) -> None:
    rival = make("rival")
    rival.handler = shim.handler
    [node] = shim.add_nodes(1)
    async with fleet.services(), kubelets(fleet) as disks:
        shim.apply()
        await eventually(lambda: shim.has(node), "the first has it", seconds=60)
        await fleet.quiet()
        rival.apply()
        await eventually(lambda: rival.condition("Degraded") == ("True", "HandlerConflict"), "the other is refused")
        assert shim.name in rival.message("Degraded")
        assert rival.name in rival.message("Degraded")
        await eventually(lambda: shim.condition("Degraded")[0] == "False", "the first is well")
        assert not fleet.jobs()

        [later] = shim.add_nodes(1)
        await eventually(lambda: shim.has(later), "the rollout of the first continues", seconds=60)
        assert not rival.has(later)

        await deleted(shim)
        await eventually(lambda: rival.has(node), "the other has it now", seconds=60)
        assert disks[node].shims[shim.handler].name == rival.name
        await eventually(lambda: rival.condition("Degraded") == ("False", "Healthy"), "and is well")
        await deleted(rival)


async def test_a_shim_that_is_paused_or_refused_holds_no_other_on_its_nodes(
    fleet: Fleet, shim: Shim, make: Make
) -> None:
    slight, third = make("slight"), make("third")
    [node] = shim.add_nodes(1)
    async with fleet.services(), kubelets(fleet) as disks:
        shim.apply()
        await eventually(lambda: shim.has(node), "it is installed", seconds=60)
        await fleet.quiet()
        was = disks[node].shims[shim.handler]

        shim.apply(sha256=NEW, paused=True)
        slight.apply()
        await eventually(lambda: slight.has(node), "beside a paused one", seconds=60)
        await fleet.quiet()
        assert disks[node].shims[shim.handler] == was

        patch = {"spec": {"paused": False, "fetchStrategy": {"anonHttp": {"sha256": None}}}}
        assert fleet.api.call("PATCH", f"{SHIMS}/{shim.name}", patch)[0] == http.HTTPStatus.OK
        await eventually(lambda: shim.condition("Degraded") == ("True", "ChecksumMissing"), "refused")
        third.apply()
        await eventually(lambda: third.has(node), "beside a refused one", seconds=60)
        assert disks[node].shims[shim.handler] == was
        assert shim.has(node)
        await deleted(shim, slight, third)


async def test_the_annotation_means_the_default_shims(fleet: Fleet, shim: Shim) -> None:
    shim.labels = {names.LABEL_KWASM_DEFAULT: "true"}
    [node] = fleet.add("node", opted_in=False)
    async with fleet.services(installer_image=""), kubelets(fleet) as disks:
        fleet.annotate(node, "true")
        message = await eventually(lambda: fleet.events(node).get("NothingToInstall"), "the node says so")
        assert names.LABEL_KWASM_DEFAULT in message
        assert not fleet.jobs()

        shim.apply(nodeSelector={"nothing": "bears-this"})
        await eventually(lambda: shim.has(node), "the annotated node has it", seconds=60)
        assert fleet.provisioned(node)
        assert set(disks[node].shims) == {shim.handler}

        fleet.annotate(node, None)
        await eventually(lambda: not disks[node].shims and not shim.has(node), "it is gone again", seconds=60)
        await fleet.quiet()
        assert not fleet.provisioned(node)
        await deleted(shim)


async def test_recreate_is_all_nodes_at_once(fleet: Fleet, shim: Shim) -> None:
    nodes = shim.add_nodes(4)
    recreate = {"type": "recreate", "rolling": {"maxUpdate": 1}}
    async with fleet.services(), kubelets(fleet):
        shim.apply(rolloutStrategy=recreate)
        await eventually(lambda: shim.counts() == (4, 4, 4), "every node has it", seconds=60)
        await fleet.quiet()
        offset = fleet.audit_offset()
        shim.apply(path="take-5s", sha256=NEW, rolloutStrategy=recreate)
        await eventually(lambda: len(fleet.ledger()) == len(fleet.jobs()) == len(nodes), "all in work", seconds=30)
        await eventually(lambda: shim.condition("Progressing") == ("False", "Updated"), "updated", seconds=60)
        await fleet.quiet()
        assert fleet.most_in_progress(offset) == len(nodes)
        await deleted(shim)


async def test_a_shim_whose_object_was_deleted_by_force_is_removed_all_the_same(fleet: Fleet, shim: Shim) -> None:
    [node] = shim.add_nodes(1)
    async with kubelets(fleet) as disks:
        async with fleet.services():
            shim.apply()
            await eventually(lambda: shim.has(node), "the node has it", seconds=60)
            await fleet.quiet()
        shim.delete()
        fleet.api.call("PATCH", f"{SHIMS}/{shim.name}", {"metadata": {"finalizers": None}})
        assert shim.found() is None
        async with fleet.services(replace(SHORT, deletions=DeletionTimings(settle=0.5, grace=1.0))):
            await eventually(lambda: not disks[node].shims, "the installer took it away", seconds=60)
            await fleet.quiet()
            assert not any(key.startswith("trellis.dev/") for key in fleet.annotations(node))


async def test_a_handler_that_vanishes_is_installed_again(fleet: Fleet, shim: Shim) -> None:
    [node] = shim.add_nodes(1)
    async with fleet.services(), kubelets(fleet) as disks:
        shim.apply()
        await eventually(lambda: shim.has(node), "the node has it", seconds=60)
        await fleet.quiet()
        offset = fleet.audit_offset()
        disks[node].shims.clear()  # its /etc was made anew
        show(fleet, node, disks[node])
        message = await eventually(lambda: fleet.events(node).get("HandlerVanished"), "the node says so")
        assert shim.handler in message
        await eventually(lambda: set(disks[node].shims) == {shim.handler} and shim.has(node), "it is back", seconds=60)
        await fleet.quiet()
        assert jobs_made(fleet, offset) == 1
        await deleted(shim)


async def test_the_reason_that_keeps_a_shim_on_its_node_is_reported_on_the_shim(
    fleet: Fleet, shim: Shim, make: Make
) -> None:
    forced = make("forced")
    [node] = shim.add_nodes(1)
    async with fleet.services(), kubelets(fleet) as disks:
        shim.apply()
        forced.apply(removalPolicy="Force")
        await eventually(lambda: shim.has(node) and forced.has(node), "both are there", seconds=60)
        await eventually(shim.runtime_class, "its RuntimeClass")
        await fleet.quiet()
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "wasm", "namespace": fleet.system},
            "spec": {
                "nodeName": node,
                "runtimeClassName": shim.name,
                "containers": [{"name": "wasm", "image": "example.com/hello"}],
            },
        }
        pods = f"/api/v1/namespaces/{fleet.system}/pods"
        status, answer = fleet.api.call("POST", pods, pod)
        assert status == http.HTTPStatus.CREATED, answer
        shim.delete()
        await deleted(forced)  # force for the one takes nothing of the other
        await eventually(lambda: shim.condition("Degraded") == ("True", "RuntimeInUse"), "Degraded", seconds=30)
        assert f"{fleet.system}/wasm" in shim.message("Degraded")
        assert node in shim.message("Degraded")
        assert set(disks[node].shims) == {shim.handler}
        shim.apply(removalPolicy="Drain")
        await eventually(lambda: shim.found() is None, "drained and gone", seconds=90)
