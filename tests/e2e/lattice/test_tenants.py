"""Applications of tenants: a real wadm that serves several, on a NATS with accounts, with real hosts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from application_manager.timings import Timings
from support.lattices.host_behaviour import own_lattice
from support.lattices.host_world import PATIENCE, HostWorld
from support.lattices.real_lattice import Wadm, application, http_server
from support.nats.tenants import (
    EAST,
    WEST,
    TenantLattice,
    control_prefix,
    from_own_account,
    from_wadms_account,
    url_of,
)
from support.nodes.fleet import eventually
from support.wadm.application_behaviour import ApplicationBehaviour, models
from support.wadm.application_world import ApplicationWorld, application_world
from support.wadm.store_behaviour import followed, manifest, until
from trellis.lattice.connection.address import LatticeAddress, NatsAddress
from trellis.lattice.domain.store import AbsenceReason
from trellis.lattice.follow.lattice_watches import LatticeWatches, Part
from trellis.lattice.timings import LatticeTimings, ListingTimings

pytestmark = pytest.mark.cluster

SERVER = {"components": [http_server()]}
OFTEN = Timings(lattice=LatticeTimings(listing=ListingTimings(every=1.0)))


class OfATenant(ApplicationBehaviour):
    """``tenant``: whose applications they are; wash speaks in the tenant's account."""

    tenant = EAST

    @pytest.fixture
    async def wadm(self, apps: ApplicationWorld, tenant_lattice: TenantLattice) -> AsyncIterator[Wadm]:
        async with Wadm.of(url_of(tenant_lattice.nats.port, self.tenant), apps.lattice) as client:
            yield client


class TestFromWadmsAccount(OfATenant):
    """Its storage is read there."""

    @pytest.fixture
    def apps(self, hosts: HostWorld, tenant_lattice: TenantLattice) -> Iterator[ApplicationWorld]:
        with application_world(hosts, tenant_lattice.nats.port, own_lattice(), from_wadms_account(self.tenant)) as made:
            yield made

    async def test_an_applied_application_runs_on_the_hosts_of_the_tenant(
        self, apps: ApplicationWorld, wadm: Wadm, tenant_lattice: TenantLattice
    ) -> None:
        await runs(apps, wadm, tenant_lattice)


class FromATenantsAccount(OfATenant):
    """Wadm is asked."""

    proves = False

    @pytest.fixture
    def apps(self, hosts: HostWorld, tenant_lattice: TenantLattice) -> Iterator[ApplicationWorld]:
        with application_world(
            hosts, tenant_lattice.nats.port, own_lattice(), from_own_account(self.tenant), OFTEN
        ) as made:
            yield made


class TestFromATenantsAccount(FromATenantsAccount):
    """East receives wadm's events."""

    async def test_an_applied_application_runs_on_the_hosts_of_the_tenant(
        self, apps: ApplicationWorld, wadm: Wadm, tenant_lattice: TenantLattice
    ) -> None:
        await runs(apps, wadm, tenant_lattice)


class TestFromAnAccountThatHearsNothing(FromATenantsAccount):
    """West is only answered."""

    tenant = WEST


async def runs(apps: ApplicationWorld, wadm: Wadm, servers: TenantLattice) -> None:
    """An application goes through its life on a host."""
    apps.group()
    async with servers.hosts(apps.lattice), apps.hosts.service(), apps.manager():
        await eventually(
            lambda: len(apps.hosts.status("group").get("latticeHosts") or ()) == 1, "a host", seconds=PATIENCE
        )
        apps.apply("web", SERVER)
        await apps.condition("web", "Ready", "True", "Deployed")
        scalers = apps.status("web")["scalers"]
        assert [(scaler["kind"], scaler["status"]) for scaler in scalers] == [("DaemonScaler", "deployed")]
        apps.undeploy("web")
        await apps.condition("web", "Ready", "True", "Undeployed")
        apps.delete("web")
        await apps.deleted("web")
        assert await models(wadm) == {}


async def test_tenants_whose_lattices_have_one_name_do_not_see_each_others_applications(
    tenant_lattice: TenantLattice,
) -> None:
    lattice, url = own_lattice(), url_of(tenant_lattice.nats.port)
    east = LatticeAddress(NatsAddress(url), lattice, control_prefix(EAST))
    west = LatticeAddress(NatsAddress(url), lattice, control_prefix(WEST))
    async with followed(east) as ours, followed(west) as theirs:
        await ours.synced()
        await theirs.synced()
        await ours.wadm.put(manifest("web", "v1"))
        await theirs.wadm.put(manifest("web", "v2"))
        await theirs.wadm.put(manifest("api", "v1"))
        await ours.shows("web", "v1")
        await theirs.shows("web", "v2")
        await theirs.shows("api", "v1")
        await theirs.wadm.delete("web")
        await theirs.lacks("web", AbsenceReason.DELETED)
        await ours.shows("web", "v1")
        assert list(ours.store.names()) == ["web"]
        async with Wadm.of(url_of(tenant_lattice.nats.port, WEST), lattice) as wash:
            assert set(await models(wash)) == {"api"}
            await wash.put(application("new", http_server(), version="v1"))
            await theirs.shows("new", "v1")
        await until(lambda: list(ours.store.names()) == ["web"])


async def test_hosts_of_a_tenant_are_seen_from_wadms_account_only_as_the_tenants(
    tenant_lattice: TenantLattice,
) -> None:
    lattice, url = own_lattice(), url_of(tenant_lattice.nats.port)
    lattices: LatticeWatches[str] = LatticeWatches("trellis-test", lambda _: None, parts=(Part.HOSTS, Part.MODELS))

    def ids(tenant: str) -> list[str]:
        view = lattices.view(tenant)
        return [] if view is None else [seen.host.id for seen in view.hosts]

    async with tenant_lattice.hosts(lattice) as (host,), lattices:
        for tenant in (EAST, WEST):
            await lattices.need(tenant, LatticeAddress(NatsAddress(url), lattice, control_prefix(tenant)))
        await until(lambda: ids(EAST) == [host.id])
        assert ids(WEST) == []
        await until(lambda: (view := lattices.view(EAST)) is not None and view.models is not None)
