"""The real wasmCloud host does what the stub does: one suite for both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping

import pytest

from support.lattices.host_behaviour import SECONDS, HostBehaviour, NewHost, Running, own_lattice
from support.lattices.real_lattice import HostProcess, RealLattice
from trellis_dev.localcluster.processes import wait_ended


@pytest.fixture
def url(real_lattice: RealLattice) -> str:
    return real_lattice.url


@pytest.fixture
def lattice() -> str:
    return own_lattice()


class TestRealHost(HostBehaviour):
    @pytest.fixture
    async def new_host(self, real_lattice: RealLattice, lattice: str) -> AsyncIterator[NewHost]:
        started: list[HostProcess] = []

        async def start(labels: Mapping[str, str], heartbeat: float) -> Running:
            host = await asyncio.to_thread(real_lattice.start_host, lattice, labels, round(heartbeat))
            started.append(host)

            async def ended() -> None:
                assert await asyncio.to_thread(wait_ended, [host.process], SECONDS) == []

            async def terminate() -> None:
                await asyncio.to_thread(host.terminate)

            async def kill() -> None:
                await asyncio.to_thread(host.kill)

            return Running(host.id, terminate, kill, ended)

        yield start
        for host in started:
            await asyncio.to_thread(host.kill)
