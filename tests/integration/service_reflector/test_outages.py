"""NATS and wadm come and go: nothing is taken away because of that, and nothing is lost."""

from __future__ import annotations

import asyncio
import random

import pytest

from support.lattices.host_world import PATIENCE
from support.lattices.reflected import ReflectedWorld, Wadm
from support.nodes.fleet import eventually
from support.wadm.manifests import ANY_HOST, capability, link, manifest
from trellis.kube.resources import SERVICES

pytestmark = pytest.mark.cluster


def reflected(world: ReflectedWorld) -> set[str]:
    return {item["metadata"]["name"] for item in world.hosts.call("GET", SERVICES)["items"]}


async def mirrors(world: ReflectedWorld, *wanted: str) -> None:
    try:
        await eventually(lambda: reflected(world) == set(wanted), "Services", seconds=PATIENCE)
    except AssertionError:
        pytest.fail(f"there are {reflected(world)}, not {set(wanted)}")


async def requested_again(wadm: Wadm) -> None:
    """Wait until wadm was asked from now on."""
    before = wadm.requested
    await eventually(lambda: wadm.requested > before, "wadm is asked", seconds=PATIENCE)


async def test_changes_during_an_outage_of_nats_are_caught_up(world: ReflectedWorld) -> None:
    world.group("group", "away-lattice")
    async with world.wadm("away-lattice") as wadm, world.reflector():
        for name in ("stays", "goes"):
            await wadm.deploy(manifest(name))
        await mirrors(world, "stays", "goes")
        world.server.kill()
        await wadm.undeploy("goes", quietly=True)
        await wadm.deploy(manifest("comes"), quietly=True)
        await asyncio.to_thread(world.server.start)
        await mirrors(world, "stays", "comes")


@pytest.mark.thorough
async def test_no_event_is_lost_while_nats_restarts_again_and_again(world: ReflectedWorld) -> None:
    world.group("group", "restart-lattice")
    async with world.wadm("restart-lattice") as wadm, world.reflector():
        wanted = set()
        for number in range(40):
            if number % 10 == 4:
                world.server.kill()
            await wadm.deploy(manifest(f"again-{number}"))
            wanted.add(f"again-{number}")
            if number % 4 == 3:
                await wadm.undeploy(f"again-{number - 1}")
                wanted.remove(f"again-{number - 1}")
            if number % 10 == 8:
                await asyncio.to_thread(world.server.start)
        await mirrors(world, *wanted)


async def test_a_wadm_that_does_not_answer_removes_nothing(world: ReflectedWorld) -> None:
    world.group("group", "mute-lattice")
    async with world.wadm("mute-lattice") as wadm:
        async with world.reflector():
            await wadm.deploy(manifest("mute"))
            await mirrors(world, "mute")
        wadm.answers = False
        async with world.reflector():
            await requested_again(wadm)
            await wadm.deploy(manifest("new"))
            await mirrors(world, "mute", "new")
            await requested_again(wadm)
            assert reflected(world) == {"mute", "new"}
            # Its own word is enough where it cannot be asked.
            await wadm.undeploy("new")
            await mirrors(world, "mute")
            wadm.answers = True
            await wadm.undeploy("mute")
            await mirrors(world)


async def test_endpoints_follow_the_hosts_while_a_lattice_is_unavailable(world: ReflectedWorld) -> None:
    world.group("group", "far-lattice")
    first = world.pod("group", "host-1")
    async with world.wadm("far-lattice") as wadm:
        async with world.reflector():
            await wadm.deploy(manifest("far"))
            await mirrors(world, "far")
            await world.leads_to("far", first)
        world.server.kill()
        async with world.reflector():
            second = world.pod("group", "host-2")
            await world.leads_to("far", first, second)
            assert reflected(world) == {"far"}
        await asyncio.to_thread(world.server.start)


@pytest.mark.thorough
async def test_applications_deployed_before_the_start_are_found(world: ReflectedWorld) -> None:
    world.group("group", "old-lattice")
    async with world.wadm("old-lattice") as wadm:
        await wadm.deploy(manifest("old"), quietly=True)
        async with world.reflector():
            await mirrors(world, "old")
        await wadm.undeploy("old", quietly=True)
        async with world.reflector():
            await mirrors(world)


@pytest.mark.thorough
async def test_shuffled_and_doubled_events_end_in_what_wadm_has(world: ReflectedWorld) -> None:
    world.group("group", "mixed-lattice")
    names = [f"mixed-{number}" for number in range(12)]
    async with world.wadm("mixed-lattice") as wadm, world.reflector():
        events: list[tuple[str, object]] = []
        for name in names:
            events += [("manifest_published", manifest(name))] * 2
            events += [("manifest_unpublished", {"name": name})] * 2
        events += [("manifest_published", {"no": "manifest"}), ("manifest_unpublished", [])]
        # Their times are those of the wire, so what is said last is seldom what is so: wadm decides.
        random.Random(7).shuffle(events)
        for name in names[::2]:
            port = 9000 + names.index(name)
            application = manifest(name, capability("httpserver", link(f"0.0.0.0:{port}"), ANY_HOST), version="v9")
            await wadm.deploy(application, quietly=True)
        for event, data in events:
            await wadm.publish(event, data)
        await mirrors(world, *names[::2])
        for name in names[::2]:
            await world.has_service(name, 9000 + names.index(name))


async def test_each_service_is_reported_once(world: ReflectedWorld) -> None:
    world.group("group", "told-lattice")
    async with world.wadm("told-lattice") as wadm:
        async with world.reflector():
            await wadm.deploy(manifest("told"))
            await mirrors(world, "told")
        async with world.reflector():
            await requested_again(wadm)
            await wadm.undeploy("told")
            await mirrors(world)
            events = await world.hosts.fleet.published_events(2)
    assert [item.event["type"] for item in events] == [
        "dev.trellis.service.reflected.v1",
        "dev.trellis.service.removed.v1",
    ]
