"""Real wadm and a real host: what becomes of an application, in wadm's own words."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.lattices.host_behaviour import Lattice, own_lattice
from support.lattices.real_lattice import RealLattice, Wadm, application, http_server, wasm_component


@pytest.fixture
def lattice() -> str:
    return own_lattice()


@pytest.fixture
async def wadm(real_lattice: RealLattice, lattice: str) -> AsyncIterator[Wadm]:
    async with Wadm.of(real_lattice.url, lattice) as client:
        yield client


async def test_an_application_is_put_deployed_undeployed_and_deleted(
    real_lattice: RealLattice, lattice: str, wadm: Wadm
) -> None:
    async with real_lattice.hosts(lattice) as [host], Lattice.of(real_lattice.url, lattice) as watched:
        put = await wadm.put(application("web", http_server(), version="v1"))
        assert (put["result"], put["name"], put["current_version"]) == ("created", "web", "v1")
        assert await wadm.names() == {"web"}
        assert (await wadm.deploy("web"))["result"] == "acknowledged"
        status = await wadm.until("web", "deployed")
        assert [(scaler["kind"], scaler["status"]["type"]) for scaler in status["scalers"]] == [
            ("DaemonScaler", "deployed")
        ]
        assert (await watched.event("provider_started", host.id))["data"]["image_ref"] == "http-server"
        inventory = (await watched.request(f"host.get.{host.id}"))["response"]
        assert [provider["id"] for provider in inventory["providers"]] == ["web-httpserver"]

        assert (await wadm.undeploy("web"))["result"] == "acknowledged"
        await wadm.until("web", "undeployed")
        await watched.event("provider_stopped", host.id)
        assert (await wadm.delete("web"))["result"] == "deleted"
        assert await wadm.names() == set()


async def test_without_a_host_that_fits_an_application_fails_and_states_the_reason_until_there_is_one(
    real_lattice: RealLattice, lattice: str, wadm: Wadm
) -> None:
    await wadm.put(application("picky", http_server(zone="b"), version="v1"))
    async with real_lattice.hosts(lattice, zone="a"):
        await wadm.deploy("picky")
        failed = await wadm.until("picky", "failed")
        assert "0 eligible hosts found" in failed["status"]["message"]
        async with real_lattice.hosts(lattice, zone="b"):
            await wadm.until("picky", "deployed")


async def test_a_component_that_cannot_be_read_fails_with_the_reason(
    real_lattice: RealLattice, lattice: str, wadm: Wadm, tmp_path: Path
) -> None:
    image = f"file://{tmp_path}/none.wasm"
    async with real_lattice.hosts(lattice):
        await wadm.put(application("broken", wasm_component("http", image), version="v1"))
        await wadm.deploy("broken")
        failed = await wadm.until("broken", "failed")
        assert "failed to fetch component" in failed["status"]["message"]
        assert "No such file or directory" in failed["status"]["message"]


async def test_killed_and_started_again_wadm_knows_what_it_knew(
    real_lattice: RealLattice, lattice: str, wadm: Wadm
) -> None:
    async with real_lattice.hosts(lattice) as [host]:
        await wadm.put(application("kept", http_server(), version="v1"))
        await wadm.deploy("kept")
        await wadm.until("kept", "deployed")
        await asyncio.to_thread(real_lattice.kill_wadm)
        await asyncio.to_thread(host.kill)
        await asyncio.to_thread(real_lattice.start_wadm)
        assert await wadm.names() == {"kept"}
        async with Lattice.of(real_lattice.url, lattice) as watched, real_lattice.hosts(lattice) as [other]:
            await watched.event("provider_started", other.id)
