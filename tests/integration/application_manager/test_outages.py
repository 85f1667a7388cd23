"""Applications while servers are away: a real API server, a real NATS that is killed, a stand-in for wadm.

The suite is held by the real wadm, too, in ``tests/e2e/lattice/test_outages.py``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from support.host_behaviour import own_lattice
from support.host_world import HostWorld
from support.kept import KeptWorld, kept_world
from support.outage_behaviour import OutageBehaviour, Servers
from support.real_lattice import Wadm
from support.wadm_stand_in import WadmStandIn
from trellis.localcluster.nats import NatsServer

pytestmark = [pytest.mark.cluster, pytest.mark.nats, pytest.mark.xdist_group("cluster")]


@pytest.fixture
async def stand_in(nats_server: NatsServer) -> AsyncIterator[WadmStandIn]:
    async with WadmStandIn(nats_server.url, own_lattice()) as started:
        yield started


@pytest.fixture
def kept(hosts: HostWorld, nats_server: NatsServer, stand_in: WadmStandIn) -> Iterator[KeptWorld]:
    with kept_world(hosts, nats_server.port, stand_in.lattice) as made:
        yield made


@pytest.fixture
async def wadm(stand_in: WadmStandIn) -> AsyncIterator[Wadm]:
    async with Wadm.of(stand_in.url, stand_in.lattice) as client:
        yield client


@pytest.fixture
def servers(stand_in: WadmStandIn, nats_server: NatsServer) -> Servers:
    async def start_wadm() -> None:
        await stand_in.__aenter__()

    return Servers(
        nats_server.url,
        kill_wadm=stand_in.__aexit__,
        start_wadm=start_wadm,
        kill_nats=lambda: asyncio.to_thread(nats_server.kill),
        start_nats=lambda: asyncio.to_thread(nats_server.start),
    )


class TestStandIn(OutageBehaviour):
    """With the stand-in."""
