"""Host groups that are deleted together, or with their CRD: the circuit breaker is asked for each of their hosts."""

from __future__ import annotations

import http
import os

import pytest

from support.cluster.crd_deletion import define_again, delete_definition, restored, served, terminating
from support.lattices.host_world import PATIENCE, HostWorld
from support.nodes.breakers import paused_by
from support.nodes.fleet import Fleet, eventually
from support.suite.typed import typed_meanwhile
from trellis import names
from trellis.kube.breaker import DELETION_PAUSED
from trellis.kube.resources import DEPLOYMENTS, EVENTS, HOST_CONFIGS, Manifest
from trellis.limits.breaker import Limits

pytestmark = pytest.mark.cluster

ALLOWED = Limits().objects
ONE = {"one": ALLOWED + 2}
TWO = {"one": ALLOWED - 1, "two": ALLOWED - 1}


async def running_groups(hosts: HostWorld, replicas: dict[str, int]) -> set[str]:
    """Create groups, and return the uids of their pods."""
    for name, count in replicas.items():
        hosts.create(name, hostReplicas=count)
    for name in replicas:
        await hosts.settled(name)
    found = running(hosts, replicas)
    assert len(found) == sum(replicas.values())
    return found


def running(hosts: HostWorld, replicas: dict[str, int]) -> set[str]:
    return {pod["metadata"]["uid"] for name in replicas for pod in hosts.pods(name)}


def paused(hosts: HostWorld) -> list[str]:
    """Return the groups that report it; the others may go at any moment, so each is read once."""
    return [name for name in TWO if (found := hosts.find(HOST_CONFIGS, name)) is not None and is_paused(found)]


def is_paused(group: Manifest) -> bool:
    conditions = {condition["type"]: condition for condition in (group.get("status") or {}).get("conditions") or ()}
    degraded = conditions.get("Degraded", {})
    return (degraded.get("status"), degraded.get("reason")) == ("True", "MassDeletion")


def reasons(hosts: HostWorld) -> set[str]:
    return {item["reason"] for item in hosts.call("GET", EVENTS)["items"]}


async def keep_hosts(hosts: HostWorld, group: str) -> None:
    """Do what the condition of a held group names for a user who wants to keep its hosts."""
    orphan = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Orphan"}
    hosts.call("DELETE", HOST_CONFIGS, group, orphan)
    await eventually(lambda: removed_finalizer(hosts, group), "the finalizer is removed")


def removed_finalizer(hosts: HostWorld, group: str) -> bool:
    """Remove the finalizer from a group as it is; False if the garbage collector changed the group meanwhile."""
    metadata = hosts.call("GET", HOST_CONFIGS, group)["metadata"]
    kept = [finalizer for finalizer in metadata.get("finalizers") or () if finalizer != names.FINALIZER_HOSTS]
    body = {"metadata": {"finalizers": kept, "resourceVersion": metadata["resourceVersion"]}}
    status, _ = hosts.api.call("PATCH", HOST_CONFIGS.path(hosts.namespace, group), body)
    return status == http.HTTPStatus.OK


async def close_breaker(fleet: Fleet) -> None:
    done = await typed_meanwhile({**os.environ, **fleet.environment()}, "circuit-breaker", "close", "host-manager")
    assert done.returncode == 0, done.stderr


async def test_the_only_group_keeps_its_hosts_when_the_crd_is_deleted_until_a_user_confirms_it(
    hosts: HostWorld,
) -> None:
    with restored(hosts.api, HOST_CONFIGS, hosts.namespace):
        async with hosts.service() as service:
            before = await running_groups(hosts, ONE)
            delete_definition(hosts.api, HOST_CONFIGS)
            await eventually(lambda: paused(hosts), "held, and reported on the group", seconds=PATIENCE)
            assert terminating(hosts.api, HOST_CONFIGS)
            assert running(hosts, ONE) == before
            assert service.health.readiness().ok
            await eventually(lambda: {DELETION_PAUSED, "MassDeletion"} <= reasons(hosts), "Events", seconds=PATIENCE)
            await close_breaker(hosts.fleet)
            await eventually(lambda: not served(hosts.api, HOST_CONFIGS), "a user confirmed it", seconds=PATIENCE)
            await define_again(hosts.api, HOST_CONFIGS)


@pytest.mark.thorough
async def test_hosts_of_deleted_groups_are_adopted_by_equal_groups(hosts: HostWorld) -> None:
    with restored(hosts.api, HOST_CONFIGS, hosts.namespace):
        async with hosts.service():
            before = await running_groups(hosts, TWO)
            delete_definition(hosts.api, HOST_CONFIGS)
            await eventually(lambda: paused(hosts), "held", seconds=PATIENCE)
            assert len(before & running(hosts, TWO)) >= len(before) - ALLOWED
            assert paused_by(hosts.fleet, "host_manager", "hosts")
            kept = {name: hosts.call("GET", DEPLOYMENTS, name)["metadata"]["uid"] for name in paused(hosts)}
            templates = {name: hosts.call("GET", DEPLOYMENTS, name)["spec"]["template"] for name in kept}
            for name in kept:
                await keep_hosts(hosts, name)
            await define_again(hosts.api, HOST_CONFIGS)
            for name, workload in kept.items():
                uid = hosts.create(name, hostReplicas=TWO[name])["metadata"]["uid"]
                await hosts.settled(name)
                found = hosts.call("GET", DEPLOYMENTS, name)
                assert found["metadata"]["uid"] == workload
                assert [owner_reference["uid"] for owner_reference in found["metadata"]["ownerReferences"]] == [uid]
                assert found["spec"]["template"] == templates[name], "its hosts are restarted"
            await eventually(
                lambda: paused_by(hosts.fleet, "host_manager", "hosts") == 0, "open, and nothing is held any more"
            )


@pytest.mark.thorough
async def test_groups_deleted_together_share_what_the_circuit_breaker_permits(hosts: HostWorld) -> None:
    async with hosts.service():
        before = await running_groups(hosts, TWO)
        for name in TWO:
            hosts.call("DELETE", HOST_CONFIGS, name)
        await eventually(lambda: paused(hosts), "held", seconds=PATIENCE)
        assert len(before & running(hosts, TWO)) >= len(before) - ALLOWED


@pytest.mark.thorough
async def test_one_group_deleted_by_itself_goes_with_all_of_its_hosts(hosts: HostWorld) -> None:
    async with hosts.service():
        await running_groups(hosts, ONE)
        hosts.call("DELETE", HOST_CONFIGS, "one")
        await eventually(lambda: hosts.find(HOST_CONFIGS, "one") is None, "deleted", seconds=PATIENCE)
        await eventually(lambda: not running(hosts, ONE), "its hosts too", seconds=PATIENCE)
        assert DELETION_PAUSED not in reasons(hosts)
