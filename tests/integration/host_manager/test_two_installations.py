"""Two installations of host_manager in one cluster, without a claim: a group has its hosts once all the same."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from support.lattices.host_world import PATIENCE, HostWorld
from support.nodes.fleet import eventually
from trellis import names
from trellis.kube.resources import DEPLOYMENTS, HOST_CONFIGS, LEASES, NAMESPACES, Resource
from trellis.runtime.run import LedService

pytestmark = [pytest.mark.cluster, pytest.mark.thorough]

REPLICA_SETS = Resource("apps", "v1", "replicasets", "ReplicaSet", namespaced=True)
CALM = 5.0
"""Seconds without a write; the sources of a group are looked at each second."""


def other(world: HostWorld) -> dict[str, str]:
    """Return the settings of a second installation, which has a bus of its own."""
    name = f"{world.fleet.id}-other"
    return {"namespace": name, "cluster": name, "identity": "other"}


@pytest.fixture
def elsewhere(hosts: HostWorld) -> Iterator[HostWorld]:
    """A second namespace with groups; the namespaces go after the test."""
    name = f"{hosts.fleet.id}-groups"
    hosts.api.call("POST", NAMESPACES.path(), {"metadata": {"name": name}})
    made = HostWorld(hosts.fleet, name)
    yield made
    made.clean_up()
    for item in (name, other(hosts)["namespace"]):
        hosts.api.call("DELETE", NAMESPACES.path(name=item))


@contextlib.asynccontextmanager
async def both(one: dict[str, Any], two: dict[str, Any], world: HostWorld) -> AsyncIterator[list[LedService]]:
    """Run two installations that both lead."""
    async with world.service(**one) as first, world.service(**two) as second:
        lease = LEASES.path(other(world)["namespace"], names.LEASE_PREFIX + "host-manager")
        await eventually(lambda: world.api.ok(lease), "the second leads", seconds=PATIENCE)
        for service in (first, second):
            await eventually(lambda item=service: item.health.readiness().ok, "both are ready", seconds=PATIENCE)
        yield [first, second]


def calm(world: HostWorld, since: int) -> bool:
    """Say whether nothing was written in a namespace for a while."""
    records = (
        write
        for write in world.fleet.writes(since)
        if (write.get("objectRef") or {}).get("namespace") == world.namespace
    )
    ours = [record for record in records if record["objectRef"]["resource"] != "events"]
    newest = max((datetime.fromisoformat(item["requestReceivedTimestamp"]) for item in ours), default=None)
    return newest is not None and (datetime.now(UTC) - newest).total_seconds() > CALM


def replica_sets(world: HostWorld) -> int:
    return len(world.call("GET", REPLICA_SETS)["items"])


@pytest.mark.usefixtures("elsewhere")
async def test_two_installations_on_one_group_do_as_one_would(hosts: HostWorld) -> None:
    since = hosts.fleet.audit_offset()
    async with both({}, other(hosts), hosts):
        hosts.create("group", hostReplicas=2)
        await hosts.settled("group")
        await eventually(lambda: calm(hosts, since), "nothing more is written", seconds=PATIENCE)
        made = hosts.find(DEPLOYMENTS, "group")
        assert made is not None
        assert replica_sets(hosts) == 1, "its pods were never made anew"
        assert len(hosts.pods("group")) == 2

        hosts.change("group", hostReplicas=3, logLevel="DEBUG")
        await hosts.settled("group")
        await eventually(lambda: calm(hosts, since), "nothing more is written", seconds=PATIENCE)
        changed = hosts.find(DEPLOYMENTS, "group")
        assert changed is not None
        assert changed["metadata"]["uid"] == made["metadata"]["uid"]
        assert replica_sets(hosts) == 2, "one change is one roll"
        await eventually(lambda: len(hosts.pods("group")) == 3, "three hosts", seconds=PATIENCE)

        hosts.call("DELETE", HOST_CONFIGS, "group")
        await eventually(lambda: hosts.find(HOST_CONFIGS, "group") is None, "the group goes", seconds=PATIENCE)
        await eventually(lambda: hosts.pods("group") == [], "its hosts go", seconds=PATIENCE)
        assert hosts.find(DEPLOYMENTS, "group") is None


async def test_two_confined_installations_see_to_their_own_namespaces(hosts: HostWorld, elsewhere: HostWorld) -> None:
    since = hosts.fleet.audit_offset()
    item = {"watch_namespaces": (hosts.namespace,)}
    two = other(hosts) | {"watch_namespaces": (elsewhere.namespace,)}
    async with both(item, two, hosts) as [first, _]:
        for world in (hosts, elsewhere):
            world.create("group", hostReplicas=1)
        for world in (hosts, elsewhere):
            await world.settled("group")
            await eventually(lambda world=world: calm(world, since), "nothing more is written", seconds=PATIENCE)
            assert replica_sets(world) == 1
        await eventually(lambda: first.health.readiness().ok, "ready", seconds=PATIENCE)
