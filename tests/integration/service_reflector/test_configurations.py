"""Applications that leave their address to a named configuration of the lattice."""

from __future__ import annotations

import json
from typing import Any

import pytest
from nats.js.kv import KeyValue

from support.lattices.host_world import PATIENCE
from support.lattices.reflected import ReflectedWorld, Wadm
from support.nodes.fleet import eventually
from support.wadm.manifests import ANY_HOST, capability, link, manifest

pytestmark = pytest.mark.cluster


def named(name: str, configuration: str, version: str = "v1") -> dict[str, Any]:
    """An application that listens where a configuration says."""
    source = {"config": [{"name": configuration}]}
    return manifest(name, capability("httpserver", link(None, source=source), ANY_HOST), version=version)


async def bucket(wadm: Wadm) -> KeyValue:
    """Make the bucket in which hosts keep the configurations of a lattice."""
    return await wadm.speaker.client.jetstream().create_key_value(bucket=f"CONFIGDATA_{wadm.speaker.lattice}")


async def put(wadm: Wadm, kept: KeyValue, name: str, *, quietly: bool = False, **properties: str) -> None:
    """Set a configuration, and say so as a host does."""
    await kept.put(name, json.dumps(properties).encode())
    if not quietly:
        await wadm.speaker.publish_event("config_set", {"config_name": name})


@pytest.mark.thorough
async def test_a_service_follows_the_configuration_that_its_application_names(world: ReflectedWorld) -> None:
    world.group("group", "named-lattice")
    address = world.pod("group", "host-1")
    async with world.wadm("named-lattice") as wadm:
        kept = await bucket(wadm)
        await put(wadm, kept, "web", address="0.0.0.0:8081", token="s3cret-token")
        async with world.reflector():
            await wadm.deploy(named("named", "web"))
            before = await world.has_service("named", 8081)
            await world.leads_to("named", address)
            assert "s3cret-token" not in json.dumps(before)
            await put(wadm, kept, "web", address="0.0.0.0:8082")
            after = await world.has_service("named", 8082)
            assert after["metadata"]["uid"] == before["metadata"]["uid"]
            # Two applications by one configuration, and another version of the first.
            await wadm.deploy(named("other", "web"))
            await wadm.deploy(named("named", "web", version="v2"))
            await world.has_service("other", 8082)
        await put(wadm, kept, "web", quietly=True, address="0.0.0.0:8083")
        async with world.reflector():
            for name in ("named", "other"):
                await world.has_service(name, 8083)
            await kept.delete("web")
            await wadm.speaker.publish_event("config_deleted", {"config_name": "web"})
            for name in ("named", "other"):
                await world.has_no_service(name)
            await eventually(lambda: " web " in world.warnings().get("NoAddress", ""), "an Event", seconds=PATIENCE)
            await put(wadm, kept, "web", address="0.0.0.0:8084")
            await world.has_service("named", 8084)


async def test_a_missing_configuration_is_reported_and_found_later(world: ReflectedWorld) -> None:
    world.group("group", "late-lattice")
    async with world.wadm("late-lattice") as wadm, world.reflector():
        await wadm.deploy(named("late", "web"))
        await eventually(lambda: "NoAddress" in world.warnings(), "an Event", seconds=PATIENCE)
        assert world.service("late") is None
        await put(wadm, await bucket(wadm), "web", port="9000")
        await world.has_service("late", 9000)


@pytest.mark.thorough
async def test_without_an_answer_of_wadm_a_service_keeps_what_it_has(world: ReflectedWorld) -> None:
    world.group("group", "kept-lattice")
    async with world.wadm("kept-lattice") as wadm:
        kept = await bucket(wadm)
        await put(wadm, kept, "web", address="0.0.0.0:8081")
        await wadm.deploy(named("kept", "web"), quietly=True)
        async with world.reflector():
            before = await world.has_service("kept", 8081)
        # Where a new one listens is not known before its configuration is read, which follows wadm's answer.
        wadm.answers = False
        async with world.reflector():
            requested = wadm.requested
            await wadm.deploy(named("new", "other"))
            await eventually(lambda: wadm.requested > requested, "wadm is asked", seconds=PATIENCE)
            found = world.service("kept")
            assert found is not None
            assert found["metadata"]["uid"] == before["metadata"]["uid"]
            assert world.service("new") is None
