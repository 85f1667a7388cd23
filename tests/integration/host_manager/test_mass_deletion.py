"""The CRD of host groups is deleted with many of them: the circuit breaker pauses that, and hosts can be kept."""

from __future__ import annotations

import pytest

from support.defined import define_again, delete_definition
from support.fleet import eventually
from support.host_world import PATIENCE, HostWorld
from trellis import names
from trellis.crds.host_config import WasmCloudHostConfig
from trellis.crds.kinds import KINDS
from trellis.kube.breaker import HELD
from trellis.kube.resources import DEPLOYMENTS, EVENTS, HOST_CONFIGS

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster")]

GROUPS = [f"group-{number}" for number in range(9)]
LIMIT = 5


def deployments(world: HostWorld) -> dict[str, str]:
    """Return the uid of each group's Deployment that is not being deleted."""
    found = [one["metadata"] for one in world.call("GET", DEPLOYMENTS)["items"]]
    return {one["name"]: one["uid"] for one in found if "deletionTimestamp" not in one}


def keep_hosts(world: HostWorld, group: str) -> None:
    """Do what the condition of a paused group names for whoever wants to keep its hosts."""
    orphan = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Orphan"}
    world.call("DELETE", HOST_CONFIGS, group, orphan)
    found = world.call("GET", HOST_CONFIGS, group)
    kept = [one for one in found["metadata"]["finalizers"] if one != names.FINALIZER_HOSTS]
    world.call("PATCH", HOST_CONFIGS, group, {"metadata": {"finalizers": kept}})


async def test_host_groups_deleted_with_their_crd_wait_for_the_circuit_breaker_and_their_hosts_can_be_kept(
    hosts: HostWorld,
) -> None:
    async with hosts.service():
        for name in GROUPS:
            hosts.create(name)
        for name in GROUPS:
            await hosts.settled(name)
        before = deployments(hosts)
        delete_definition(hosts.api, HOST_CONFIGS)

        def paused() -> list[str]:
            return [one for one in GROUPS if hosts.find(HOST_CONFIGS, one)]

        await eventually(lambda: len(paused()) == len(GROUPS) - LIMIT, "the others are let go", seconds=PATIENCE)
        held = paused()
        for name in held:
            await eventually(
                lambda name=name: hosts.condition(name, "Degraded")[:2] == ("True", "MassDeletion"),
                "its condition tells",
                seconds=PATIENCE,
            )
        assert paused() == held
        events = {one["involvedObject"]["name"] for one in hosts.call("GET", EVENTS)["items"] if one["reason"] == HELD}
        assert events == set(held)
        await eventually(lambda: deployments(hosts).keys() == set(held), "the garbage is collected", seconds=PATIENCE)
        for name in held:
            keep_hosts(hosts, name)
        [kind] = [one for one in KINDS if one.model is WasmCloudHostConfig]
        await define_again(hosts.api, kind, HOST_CONFIGS)
        for name in held:
            hosts.create(name)
        for name in held:
            await hosts.settled(name)
        assert deployments(hosts) == {name: before[name] for name in held}


async def test_a_finalizer_removed_by_hand_from_a_living_group_is_put_back(hosts: HostWorld) -> None:
    async with hosts.service():
        hosts.create("group")
        await hosts.settled("group")
        before = deployments(hosts)
        hosts.call("PATCH", HOST_CONFIGS, "group", {"metadata": {"finalizers": None}})

        def back() -> bool:
            return names.FINALIZER_HOSTS in hosts.call("GET", HOST_CONFIGS, "group")["metadata"].get("finalizers", [])

        await eventually(back, "the finalizer is back", seconds=PATIENCE)
        assert deployments(hosts) == before
