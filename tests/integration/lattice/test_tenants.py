"""Lattices of tenants on a NATS with accounts: seen from wadm's own account, and from a tenant's."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from collections.abc import AsyncIterator, Iterator
from typing import Any

import nats
import pytest
from nats.aio.msg import Msg
from nats.js.api import StreamConfig
from nats.js.kv import KeyValue

from support.lattices.lattice_speaker import LatticeSpeaker
from support.nats.buses import eventually
from support.nats.tenants import EAST, HOSTS_STREAM, PASSWORD, USERS, WEST, control_prefix, url_of, write_accounts
from support.suite.settling import settle
from support.wadm.manifests import ANY_HOST, capability, link
from support.wadm.manifests import manifest as with_listener
from support.wadm.store_behaviour import StoreBehaviour, World, followed, manifest, until
from support.wadm.wadm_stand_in import WadmStandIn
from trellis.lattice.connection.address import LatticeAddress, NatsAddress
from trellis.lattice.connection.lattice_connection import LatticeConnection
from trellis.lattice.domain.replies import Status
from trellis.lattice.domain.store import AbsenceReason
from trellis.lattice.domain.subjects import STREAM_WADM
from trellis.lattice.follow.comparison import Comparison
from trellis.lattice.follow.forwarder import Forwarder, LatticeEvent
from trellis.lattice.follow.lattice_watches import LatticeWatches, Part
from trellis.lattice.timings import ComparisonTimings, LatticeTimings, ListingTimings
from trellis_dev.localcluster.nats import NatsServer

pytestmark = [pytest.mark.nats]

Json = dict[str, Any]
NEVER = 3600.0
OFTEN = LatticeTimings(listing=ListingTimings(every=0.1))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    directory = tmp_path_factory.mktemp("accounts")
    with NatsServer(directory / "server", config=write_accounts(directory)) as started:
        yield started


@pytest.fixture
def lattice() -> str:
    return f"l-{secrets.token_hex(4)}"


def options(account: str = "") -> Json:
    return {"user": USERS[account], "password": PASSWORD}


def from_wadms(server: NatsServer, lattice: str, tenant: str) -> LatticeAddress:
    return LatticeAddress(NatsAddress(url_of(server.port)), lattice, control_prefix(tenant))


def from_its_own(server: NatsServer, lattice: str, tenant: str) -> LatticeAddress:
    return LatticeAddress(NatsAddress(url_of(server.port, tenant)), lattice)


def wadm_of(server: NatsServer, lattice: str, tenant: str) -> WadmStandIn:
    return WadmStandIn(server.url, lattice, options(), account=tenant)


class TestStandIn(StoreBehaviour):
    """From wadm's account a tenant's lattice is seen as any other."""

    @pytest.fixture
    async def world(self, server: NatsServer, lattice: str) -> AsyncIterator[World]:
        async with wadm_of(server, lattice, EAST) as stand_in:

            async def kv() -> KeyValue:
                return stand_in.kv

            lose, make = stand_in.lose_bucket, stand_in.make_bucket
            yield World(url_of(server.port), lattice, kv, lose, make, account=EAST)


@pytest.mark.parametrize("place", [from_wadms, from_its_own])
async def test_tenants_whose_lattices_have_one_name_see_their_own_applications(
    server: NatsServer, lattice: str, place: Any
) -> None:
    async with (
        wadm_of(server, lattice, EAST),
        wadm_of(server, lattice, WEST),
        followed(place(server, lattice, EAST), timings=OFTEN) as east,
        followed(place(server, lattice, WEST), timings=OFTEN) as west,
    ):
        await east.synced()
        await west.synced()
        await east.wadm.put(manifest("web", "v1"))
        await west.wadm.put(manifest("web", "v2"))
        await west.wadm.put(manifest("api", "v1"))
        await east.shows("web", "v1")
        await west.shows("web", "v2")
        await west.shows("api", "v1")
        await west.wadm.delete("web")
        await west.lacks("web", AbsenceReason.DELETED if place is from_wadms else AbsenceReason.UNKNOWN)
        await east.shows("web", "v1")
        assert list(east.store.names()) == ["web"]
        assert [model.name for model in await east.wadm.models()] == ["web"]


async def test_clusters_claim_lattices_of_one_name_for_each_tenant(server: NatsServer, lattice: str) -> None:
    async with (
        followed(from_wadms(server, lattice, EAST), "one") as east,
        followed(from_wadms(server, lattice, WEST), "two") as west,
    ):
        await until(lambda: east.followers.owner(east.lattice_id) == "one")
        await until(lambda: west.followers.owner(west.lattice_id) == "two")
        async with followed(from_wadms(server, lattice, EAST), "three") as third:
            await until(lambda: third.followers.owner(third.lattice_id) == "one")


async def test_a_tenants_statuses_come_with_the_list_if_no_events_are_received(
    server: NatsServer, lattice: str
) -> None:
    address = from_its_own(server, lattice, WEST)
    async with wadm_of(server, lattice, WEST) as wadm, followed(address, timings=OFTEN) as seen:
        await seen.synced()
        await seen.wadm.put(manifest("web", "v1"))
        await until(lambda: seen.store.status("web") == Status("undeployed"))
        await wadm.publish("web", "failed", "no host")
        await until(lambda: seen.store.status("web") == Status("failed", "no host"))


async def test_a_tenant_sees_its_changes_and_received_statuses_before_the_next_list(
    server: NatsServer, lattice: str
) -> None:
    address, never = from_its_own(server, lattice, EAST), LatticeTimings(listing=ListingTimings(every=NEVER))
    async with wadm_of(server, lattice, EAST) as wadm, followed(address, timings=never) as seen:
        await seen.synced()
        await seen.wadm.put(manifest("web", "v1"))
        await seen.shows("web", "v1")
        await seen.wadm.deploy("web", "v1")
        await seen.shows("web", "v1", deployed="v1")
        async with followed(from_wadms(server, lattice, EAST)) as other:
            await other.synced()
            await other.wadm.undeploy("web")
            await wadm.client.publish(f"wadm.evt.{lattice}.manifest_unpublished", b'{"data": {"name": "web"}}')
            await seen.shows("web", "v1")


async def test_hosts_are_followed_and_queried_under_the_prefix_of_their_tenant(
    server: NatsServer, lattice: str
) -> None:
    lattices: LatticeWatches[str] = LatticeWatches("trellis-test", lambda _: None, parts=(Part.HOSTS,))

    def ids(tenant: str) -> list[str]:
        view = lattices.view(tenant)
        return [] if view is None else [seen.host.id for seen in view.hosts]

    async with (
        LatticeSpeaker(server.url, lattice, options=options(EAST)) as east,
        LatticeSpeaker(server.url, lattice, options=options(WEST)) as west,
        lattices,
    ):
        east.add("N1")
        for tenant in (EAST, WEST):
            await lattices.need(tenant, from_wadms(server, lattice, tenant))
        await eventually(lambda: ids(EAST) == ["N1"])
        west.add("N2")
        await west.beat("N2")
        await eventually(lambda: ids(WEST) == ["N2"])
        await east.stop("N1")
        await eventually(lambda: ids(EAST) == [])
        assert ids(WEST) == ["N2"]


async def test_a_host_in_wadms_account_is_received_unchanged(server: NatsServer, lattice: str) -> None:
    lattices: LatticeWatches[str] = LatticeWatches("trellis-test", lambda _: None, parts=(Part.HOSTS,))
    async with LatticeSpeaker(server.url, lattice, options=options()) as speaker, lattices:
        await lattices.need("group", from_wadms(server, lattice, EAST))
        await eventually(lambda: (view := lattices.view("group")) is not None and view.settled)
        speaker.add("N1")
        await speaker.beat("N1")
        await eventually(lambda: (view := lattices.view("group")) is not None and len(view.hosts) == 1)


@contextlib.asynccontextmanager
async def linked(address: LatticeAddress) -> AsyncIterator[LatticeConnection]:
    made = LatticeConnection(address.nats, "test", lambda: None)
    running = asyncio.create_task(made.run())
    try:
        async with asyncio.timeout(60):
            await made.there()
        yield made
    finally:
        running.cancel()
        await asyncio.wait({running})


@contextlib.asynccontextmanager
async def compared(address: LatticeAddress, timings: LatticeTimings = LatticeTimings()) -> AsyncIterator[Comparison]:
    async with linked(address) as link_:
        made = Comparison(address, link_, lambda _names, _trace: None, timings)
        running = asyncio.create_task(made.run())
        try:
            await eventually(lambda: made.applications.complete)
            yield made
        finally:
            running.cancel()
            await asyncio.wait({running})


def ports(comparison: Comparison) -> dict[str, list[int]]:
    return {
        name: [listener.port for listener in application.listeners]
        for name, application in comparison.applications.deployed().items()
    }


async def test_an_event_of_another_tenants_lattice_of_the_name_is_no_word_about_this_one(
    server: NatsServer, lattice: str
) -> None:
    web = capability("web", link("0.0.0.0:80"), ANY_HOST)
    async with wadm_of(server, lattice, EAST) as wadm, compared(from_wadms(server, lattice, EAST)) as seen:
        for name in ("theirs", "shop"):
            event = {"specversion": "1.0", "source": "wadm", "data": with_listener(name, web)}
            if name == "shop":  # this one's: it is asked for
                async with followed(from_wadms(server, lattice, EAST)) as other:
                    await other.synced()
                    await other.wadm.put(with_listener(name, web, version="v1"))
                    await other.wadm.deploy(name, "v1")
            await wadm.client.publish(f"wadm.evt.{lattice}.manifest_published", json.dumps(event).encode())
        await eventually(lambda: "shop" in ports(seen))
        assert "theirs" not in ports(seen)


async def test_named_configurations_are_asked_of_a_tenants_host(server: NatsServer, lattice: str) -> None:
    web = capability("web", link(None, source={"config": [{"name": "of-web"}]}), ANY_HOST)
    host = await nats.connect(server.url, **options(EAST))
    reply: Json = {"success": True, "message": "", "response": {"ADDRESS": "0.0.0.0:9090", "password": "secret"}}

    async def answer(message: Msg) -> None:
        await message.respond(json.dumps(reply).encode())

    await host.subscribe(f"wasmbus.ctl.v1.{lattice}.config.get.of-web", cb=answer)
    await settle(host)
    address = from_wadms(server, lattice, EAST)
    async with wadm_of(server, lattice, EAST), followed(address) as other:
        await other.synced()
        await other.wadm.put(with_listener("shop", web, version="v1"))
        await other.wadm.deploy("shop", "v1")
        async with compared(address) as seen:
            await eventually(lambda: ports(seen) == {"shop": [9090]})
    await host.close()


async def test_events_are_copied_with_their_tenants_lattice(server: NatsServer, lattice: str) -> None:
    client = await nats.connect(server.url, **options())
    jetstream = client.jetstream()
    await jetstream.add_stream(StreamConfig(name=STREAM_WADM, subjects=["wadm.evt.*.>"], max_age=70))
    await jetstream.add_stream(HOSTS_STREAM)
    taken: dict[str, list[LatticeEvent]] = {EAST: [], WEST: []}
    async with contextlib.AsyncExitStack() as stack:
        for tenant, events in taken.items():
            address = from_wadms(server, lattice, tenant)
            link_ = await stack.enter_async_context(linked(address))

            async def take(event: LatticeEvent, events: list[LatticeEvent] = events) -> None:
                events.append(event)

            running = asyncio.create_task(Forwarder(link_, address, f"test-{address.token}", take).run())
            stack.push_async_callback(asyncio.wait, {running})
            stack.callback(running.cancel)
        body = {"specversion": "1.0", "id": "1", "data": {}}
        for tenant, event in ((EAST, "provider_started"), (WEST, "component_scaled")):
            async with LatticeSpeaker(server.url, lattice, options=options(tenant)) as speaker:
                await speaker.raw(f"wasmbus.evt.{lattice}.{event}", json.dumps(body).encode())
        await eventually(lambda: all(taken.values()))
        assert [(item.lattice, item.event) for item in taken[EAST]] == [(lattice, "provider_started")]
        assert [(item.lattice, item.event) for item in taken[WEST]] == [(lattice, "component_scaled")]
    await client.close()


async def test_without_events_of_wadm_it_is_polled_more_often(server: NatsServer, lattice: str) -> None:
    address = from_its_own(server, lattice, WEST)
    timings = LatticeTimings(comparison=ComparisonTimings(every=20.0, events_missing=0.05))
    async with wadm_of(server, lattice, WEST) as wadm, compared(address, timings) as seen, followed(address) as other:
        await other.synced()
        for name in ("first", "second"):
            await other.wadm.put(with_listener(name, version="v1"))
        await other.wadm.deploy("first", "v1")
        await eventually(lambda: set(ports(seen)) == {"first"})
        requested = wadm.requested.count("list")
        await eventually(lambda: wadm.requested.count("list") > requested + 15)  # seldom asked, that takes five minutes
        await other.wadm.deploy("second", "v1")
        await eventually(lambda: set(ports(seen)) == {"first", "second"})


async def test_the_documented_permissions_are_sufficient(server: NatsServer, lattice: str) -> None:
    viewer = NatsAddress(f"nats://viewer:{PASSWORD}@127.0.0.1:{server.port}")
    address = LatticeAddress(viewer, lattice, control_prefix(EAST))
    lattices: LatticeWatches[str] = LatticeWatches("trellis-test", lambda _: None, parts=(Part.HOSTS,))
    async with (
        wadm_of(server, lattice, EAST),
        LatticeSpeaker(server.url, lattice, options=options(EAST)) as host,
        followed(address) as seen,
        lattices,
    ):
        await seen.synced()
        await seen.wadm.put(manifest("web", "v1"))
        await seen.shows("web", "v1")
        await seen.wadm.delete("web")
        await seen.lacks("web", AbsenceReason.DELETED)
        await until(lambda: seen.followers.owner(seen.lattice_id) == "one")
        assert seen.store.reason == ""
        host.add("N1")
        await lattices.need("group", address)
        await until(lambda: (view := lattices.view("group")) is not None and len(view.hosts) == 1)
