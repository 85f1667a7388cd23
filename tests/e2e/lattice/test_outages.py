"""Applications while servers are unavailable: a real API server, a real NATS and a real wadm, which are killed."""

from __future__ import annotations

import asyncio

import pytest

from support.lattices.real_lattice import RealLattice
from support.wadm.outage_behaviour import OutageBehaviour, Servers

pytestmark = pytest.mark.cluster


@pytest.fixture
def servers(real_lattice: RealLattice) -> Servers:
    async def start_nats() -> None:
        await asyncio.to_thread(real_lattice.nats.start)
        await asyncio.to_thread(real_lattice.kill_wadm)
        await asyncio.to_thread(real_lattice.start_wadm)

    return Servers(
        real_lattice.url,
        kill_wadm=lambda: asyncio.to_thread(real_lattice.kill_wadm),
        start_wadm=lambda: asyncio.to_thread(real_lattice.start_wadm),
        kill_nats=lambda: asyncio.to_thread(real_lattice.nats.kill),
        start_nats=start_nats,
    )


class TestWadm(OutageBehaviour):
    """With the real one; the stand-in is held to the same."""
