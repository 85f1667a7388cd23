"""Applications of tenants: a real API server, a real NATS with accounts, a stand-in for a wadm that serves several.

The suite is held by the real wadm, too, in ``tests/e2e/lattice/test_tenants.py``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from support.lattices.host_behaviour import own_lattice
from support.lattices.host_world import PATIENCE, HostWorld
from support.lattices.real_lattice import Wadm, application, wasm_component
from support.nats.tenants import EAST, WEST, from_own_account, from_wadms_account, url_of, write_accounts
from support.nodes.fleet import eventually
from support.wadm.application_behaviour import ApplicationBehaviour, wadm_has
from support.wadm.application_world import QUICK, ApplicationWorld, application_world, spec
from support.wadm.wadm_stand_in import WadmStandIn
from trellis import names
from trellis.lattice.domain.subjects import STREAM_MODELS
from trellis_dev.localcluster.nats import NatsServer

pytestmark = [pytest.mark.cluster, pytest.mark.nats]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    directory = tmp_path_factory.mktemp("accounts")
    with NatsServer(directory / "server", config=write_accounts(directory)) as started:
        yield started


class OfATenant(ApplicationBehaviour):
    """``tenant``: whose applications they are; wash speaks in the tenant's account."""

    tenant = EAST

    @pytest.fixture
    async def stand_in(self, server: NatsServer) -> AsyncIterator[WadmStandIn]:
        async with WadmStandIn(url_of(server.port), own_lattice(), account=self.tenant) as started:
            yield started

    @pytest.fixture
    async def wadm(self, server: NatsServer, stand_in: WadmStandIn) -> AsyncIterator[Wadm]:
        async with Wadm.of(url_of(server.port, self.tenant), stand_in.lattice) as client:
            yield client


@pytest.mark.thorough
class TestFromWadmsAccount(OfATenant):
    """Its storage is read there."""

    @pytest.fixture
    def apps(self, hosts: HostWorld, server: NatsServer, stand_in: WadmStandIn) -> Iterator[ApplicationWorld]:
        with application_world(hosts, server.port, stand_in.lattice, from_wadms_account(self.tenant), QUICK) as made:
            yield made


@pytest.mark.thorough
class TestFromATenantsAccount(OfATenant):
    """Wadm is asked, and says nothing by itself."""

    tenant = WEST
    proves = False

    @pytest.fixture
    def apps(self, hosts: HostWorld, server: NatsServer, stand_in: WadmStandIn) -> Iterator[ApplicationWorld]:
        with application_world(hosts, server.port, stand_in.lattice, from_own_account(self.tenant), QUICK) as made:
            yield made

    async def test_the_group_reports_that_deletions_are_not_verified(self, apps: ApplicationWorld, wadm: Wadm) -> None:
        apps.group()
        async with apps.hosts.service(), apps.manager():
            apps.apply("web", spec())
            await apps.synced("web")
            await wadm_has(wadm, "web")

            def condition() -> tuple[str, str, str]:
                return apps.hosts.condition("group", names.CONDITION_APPLICATIONS_SYNCED)

            await eventually(lambda: condition()[:2] == ("True", "DeletionsNotDetected"), "told", seconds=PATIENCE)
            assert STREAM_MODELS in condition()[2]


@pytest.mark.thorough
async def test_of_two_tenants_lattices_of_one_name_in_a_namespace_the_older_groups_is_meant(
    hosts: HostWorld, server: NatsServer
) -> None:
    lattice, port = own_lattice(), server.port
    async with (
        WadmStandIn(url_of(port), lattice, account=EAST),
        WadmStandIn(url_of(port), lattice, account=WEST),
        Wadm.of(url_of(port, EAST), lattice) as east,
        Wadm.of(url_of(port, WEST), lattice) as west,
    ):
        with application_world(hosts, port, lattice, from_wadms_account(EAST), QUICK) as apps:
            apps.group("one")
            apps.group("two", **from_wadms_account(WEST))
            await west.put(application("web", wasm_component("echo", "file:///none-1.wasm"), version="w1"))
            async with apps.hosts.service(), apps.manager():
                apps.apply("mine", spec(), labels={names.LABEL_LATTICE: lattice})
                await apps.synced("mine")

                def condition(name: str) -> tuple[str, str]:
                    return apps.hosts.condition(name, names.CONDITION_APPLICATIONS_SYNCED)[:2]

                await eventually(lambda: condition("two") == ("Unknown", "NameTaken"), "told", seconds=PATIENCE)
                await eventually(lambda: condition("one") == ("True", "Synced"), "told", seconds=PATIENCE)
                assert apps.find("web") is None
                assert (await east.names(), await west.names()) == ({"mine"}, {"web"})
