"""Admission refuses what service_reflector writes: reported, without a hot loop, and recovered from within seconds."""

from __future__ import annotations

import asyncio
import http
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from support.cluster.validating_policies import refusing, rule
from support.lattices.host_world import PATIENCE
from support.lattices.reflected import ReflectedWorld
from support.nodes.fleet import eventually
from support.wadm.manifests import manifest
from trellis import names
from trellis.kube.resources import ENDPOINT_SLICES, EVENTS, LEASES, SERVICES, Resource
from trellis.runtime.run import LedService

pytestmark = pytest.mark.cluster

MESSAGE = "no team label"
RECOVERY = 30.0
OBSERVED = 8.0
MOST_WRITES = 6
"""In OBSERVED seconds: the first attempts of a key with a grown backoff, and one more of each of the tested keys."""


@asynccontextmanager
async def refused(
    world: ReflectedWorld, res: Resource, namespace: str, body: dict[str, Any], only: str = "true", *more: str
) -> AsyncIterator[None]:
    """Have the API server refuse a kind in a namespace for the time of a block; ``body``: what is refused then."""
    fleet = world.hosts.fleet
    probe = {"apiVersion": res.api_version, "kind": res.kind, "metadata": {"name": "probe", "namespace": namespace}}
    fleet.api.call("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})

    def in_force() -> bool:
        status, answer = fleet.api.call("POST", f"{res.path(namespace)}?dryRun=All", probe | body)
        assert status in {http.HTTPStatus.CREATED, http.HTTPStatus.FORBIDDEN, http.HTTPStatus.UNPROCESSABLE_ENTITY}
        return MESSAGE in str(answer)

    here = f"request.namespace == '{namespace}' && ({only})"
    matched = rule(res.group, res.plural, "CREATE", "UPDATE", *more)
    async with refusing(fleet, matched, MESSAGE, here, in_force):
        yield


def writes(world: ReflectedWorld, offset: int, res: Resource) -> int:
    """Return how often a kind was written in the test's namespace since an audit offset."""
    refs = [write.get("objectRef", {}) for write in world.hosts.fleet.writes(offset)]
    return sum((ref.get("resource"), ref.get("namespace")) == (res.plural, world.hosts.namespace) for ref in refs)


def unready(service: LedService) -> bool:
    return any(MESSAGE in reason for reason in service.health.readiness().reasons)


async def reported(world: ReflectedWorld) -> None:
    await eventually(lambda: MESSAGE in world.warnings().get("WriteRefused", ""), "an Event", seconds=PATIENCE)


async def test_services_without_a_label_that_a_policy_demands_are_reported_and_the_manifest_can_give_it(
    world: ReflectedWorld,
) -> None:
    world.group("group", "refused-lattice")
    address = world.pod("group", "host-1")
    body = {"spec": {"ports": [{"port": 1}]}}
    unlabelled = "!has(object.metadata.labels) || !('team' in object.metadata.labels)"
    async with world.wadm("refused-lattice") as wadm, world.reflector():
        await wadm.deploy(manifest("before"))
        kept = await world.has_service("before", 8080)
        async with refused(world, SERVICES, world.hosts.namespace, body, unlabelled):
            await wadm.deploy(manifest("without"))
            await reported(world)
            await wadm.deploy(manifest("labelled", **{f"{names.SERVICE_LABEL_PREFIX}team": "shop"}))
            await world.has_service("labelled", 8080)
            await world.leads_to("labelled", address)
            offset = world.hosts.fleet.audit_offset()
            await asyncio.sleep(OBSERVED)
            assert writes(world, offset, SERVICES) <= MOST_WRITES
            assert world.service("without") is None
            found = world.service("before")
            assert found is not None
            assert found["metadata"]["uid"] == kept["metadata"]["uid"]
        await eventually(lambda: world.service("without") is not None, "recovered", seconds=RECOVERY)
        await world.leads_to("without", address)


@pytest.mark.thorough
async def test_endpoint_slices_that_are_refused_are_reported_and_follow_once_they_are_not(
    world: ReflectedWorld,
) -> None:
    world.group("group", "sliced-lattice")
    address = world.pod("group", "host-1")
    body = {"addressType": "IPv4", "endpoints": []}
    ours = f"has(object.metadata.labels) && object.metadata.labels['{names.LABEL_SLICE_MANAGED_BY}']"
    ours = f"object.metadata.name == 'probe' || ({ours} == '{names.SLICE_MANAGED_BY}')"
    async with world.wadm("sliced-lattice") as wadm, world.reflector():
        async with refused(world, ENDPOINT_SLICES, world.hosts.namespace, body, ours):
            await wadm.deploy(manifest("shop"))
            await world.has_service("shop", 8080)
            await reported(world)
            offset = world.hosts.fleet.audit_offset()
            await asyncio.sleep(OBSERVED)
            assert writes(world, offset, ENDPOINT_SLICES) <= MOST_WRITES
        await eventually(lambda: world.addresses("shop") == {address}, "recovered", seconds=RECOVERY)


@pytest.mark.thorough
async def test_events_that_are_refused_keep_nothing_from_being_done(
    world: ReflectedWorld, caplog: pytest.LogCaptureFixture
) -> None:
    world.group("group", "mute-lattice")
    address = world.pod("group", "host-1")
    body = {"involvedObject": {"namespace": world.hosts.namespace}}
    async with (
        world.wadm("mute-lattice") as wadm,
        refused(world, EVENTS, world.hosts.namespace, body),
        world.reflector() as service,
    ):
        offset = world.hosts.fleet.audit_offset()
        taken = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "taken"}, "spec": {"ports": [{"port": 1}]}}
        world.hosts.call("POST", SERVICES, body=taken)
        await wadm.deploy(manifest("taken"))
        await wadm.deploy(manifest("shop"))
        await world.leads_to("shop", address)
        await asyncio.sleep(OBSERVED)
        tried = writes(world, offset, EVENTS)
        assert 1 <= tried <= MOST_WRITES
        assert service.health.readiness().ok
        assert not [record for record in caplog.records if record.name == "trellis.bus.consume.queue"], (
            "no key fails for an Event"
        )


@pytest.mark.thorough
async def test_leases_that_are_refused_are_named_by_readiness_at_a_start_and_while_leading(
    world: ReflectedWorld,
) -> None:
    world.group("group", "leased-lattice")
    address = world.pod("group", "host-1")
    system = world.hosts.fleet.system
    async with world.wadm("leased-lattice") as wadm:
        async with refused(world, LEASES, system, {"spec": {}}), world.reflector() as service:
            await eventually(lambda: unready(service), "not ready, with the API server's words", seconds=PATIENCE)
        async with world.reflector() as service:
            await wadm.deploy(manifest("shop"))
            await world.leads_to("shop", address)
            async with refused(world, LEASES, system, {"spec": {}}):
                await eventually(lambda: unready(service), "not ready while leading", seconds=PATIENCE)
            await eventually(lambda: service.health.readiness().ok, "recovered", seconds=RECOVERY)
            await wadm.deploy(manifest("later"))
            await eventually(lambda: world.addresses("later") == {address}, "leads again", seconds=RECOVERY)
