"""wadm's applications as they are seen of a real wadm, by the suite that holds the stand-in too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import nats
import pytest
from nats.js.kv import KeyValue

from support.lattices.host_behaviour import own_lattice
from support.lattices.real_lattice import RealLattice, application, http_server
from support.wadm.store_behaviour import StoreBehaviour, World, followed, until
from support.wadm.wadm_stand_in import BUCKET


@pytest.fixture
async def world(real_lattice: RealLattice) -> AsyncIterator[World]:
    client = await nats.connect(real_lattice.url, max_reconnect_attempts=-1, reconnect_time_wait=0)
    jetstream = client.jetstream()

    async def kv() -> KeyValue:
        return await jetstream.key_value(BUCKET)

    async def lose() -> None:
        await jetstream.delete_key_value(BUCKET)

    async def renew() -> None:
        await asyncio.to_thread(real_lattice.kill_wadm)
        await asyncio.to_thread(real_lattice.start_wadm)

    yield World(real_lattice.url, own_lattice(), kv, lose, renew)
    await client.close()


class TestWadm(StoreBehaviour):
    """wadm is seen as the stand-in is."""


async def test_statuses_of_a_real_application_are_received(real_lattice: RealLattice, world: World) -> None:
    async with followed(world.address) as seen:
        await seen.synced()
        await seen.wadm.put(application("web", http_server(), version="v1"))
        await seen.wadm.deploy("web", "v1")
        async with real_lattice.hosts(world.lattice):
            await until(lambda: (status := seen.store.status("web")) is not None and status.status == "deployed")
            status = seen.store.status("web")
            assert status is not None
            assert [(scaler.kind, scaler.status) for scaler in status.scalers] == [("DaemonScaler", "deployed")]
            await seen.wadm.undeploy("web")
            await until(lambda: (status := seen.store.status("web")) is not None and status.status != "deployed")


async def test_a_restart_of_everything_loses_nothing(real_lattice: RealLattice, world: World) -> None:
    async with followed(world.address) as seen:
        await seen.synced()
        await seen.wadm.put(application("web", http_server(), version="v1"))
        await seen.shows("web", "v1")
        await asyncio.to_thread(real_lattice.nats.kill)
        await until(lambda: seen.store.synced_at is None)
        await asyncio.to_thread(real_lattice.nats.start)
        await asyncio.to_thread(real_lattice.kill_wadm)
        await asyncio.to_thread(real_lattice.start_wadm)
        await seen.synced()
        await seen.shows("web", "v1")
        await seen.wadm.put(application("api", http_server(), version="v1"))
        await seen.shows("api", "v1")
