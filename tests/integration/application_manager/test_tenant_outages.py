"""Applications of tenants while servers are away: a real API server, a real NATS with accounts, a stand-in for wadm."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.lattices.host_behaviour import own_lattice
from support.lattices.host_world import HostWorld
from support.lattices.real_lattice import Wadm
from support.nats.tenants import EAST, from_own_account, from_wadms_account, url_of, write_accounts
from support.wadm.application_world import QUICK, ApplicationWorld, application_world
from support.wadm.outage_behaviour import OutageBehaviour, Servers
from support.wadm.wadm_stand_in import WadmStandIn
from trellis_dev.localcluster.nats import NatsServer

pytestmark = [pytest.mark.cluster, pytest.mark.nats]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsServer]:
    with NatsServer(tmp_path / "server", config=write_accounts(tmp_path)) as started:
        yield started


class OfATenant(OutageBehaviour):
    """``place``: from where the lattice is seen."""

    @staticmethod
    def place() -> dict[str, Any]:
        raise NotImplementedError

    @pytest.fixture
    async def stand_in(self, server: NatsServer) -> AsyncIterator[WadmStandIn]:
        async with WadmStandIn(url_of(server.port), own_lattice(), account=EAST) as started:
            yield started

    @pytest.fixture
    def apps(self, hosts: HostWorld, server: NatsServer, stand_in: WadmStandIn) -> Iterator[ApplicationWorld]:
        with application_world(hosts, server.port, stand_in.lattice, self.place(), QUICK) as made:
            yield made

    @pytest.fixture
    async def wadm(self, server: NatsServer, stand_in: WadmStandIn) -> AsyncIterator[Wadm]:
        async with Wadm.of(url_of(server.port, EAST), stand_in.lattice) as client:
            yield client

    @pytest.fixture
    def servers(self, stand_in: WadmStandIn, server: NatsServer) -> Servers:
        async def start_wadm() -> None:
            await stand_in.__aenter__()

        return Servers(
            url_of(server.port),
            kill_wadm=stand_in.__aexit__,
            start_wadm=start_wadm,
            kill_nats=lambda: asyncio.to_thread(server.kill),
            start_nats=lambda: asyncio.to_thread(server.start),
        )


@pytest.mark.thorough
class TestFromWadmsAccount(OfATenant):
    """Its storage is read there."""

    @staticmethod
    def place() -> dict[str, Any]:
        return from_wadms_account(EAST)


@pytest.mark.thorough
class TestFromATenantsAccount(OfATenant):
    """Wadm is asked."""

    proves = False

    @staticmethod
    def place() -> dict[str, Any]:
        return from_own_account(EAST)
