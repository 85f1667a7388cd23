"""A lattice with a stand-in for wadm on a real NATS, and its applications on a real API server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from support.host_behaviour import own_lattice
from support.host_world import HostWorld
from support.kept import KeptWorld, kept_world
from support.real_lattice import Wadm
from support.wadm_stand_in import WadmStandIn
from trellis.localcluster.nats import NatsServer


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
