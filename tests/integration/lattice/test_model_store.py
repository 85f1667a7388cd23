"""wadm's applications on a real nats-server: what is seen of them, and what outages, losses and rights do to that."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from nats.js.api import ConsumerInfo
from nats.js.errors import NotFoundError
from nats.js.kv import KeyValue

from support.nats.buses import eventually_async
from support.wadm.store_behaviour import Followed, StoreBehaviour, World, followed, manifest, until
from support.wadm.wadm_stand_in import BUCKET, WadmStandIn
from trellis.lattice.connection.address import LatticeAddress, NatsAddress
from trellis.lattice.domain.replies import Scaler, Status
from trellis.lattice.domain.store import AbsenceReason
from trellis.lattice.domain.subjects import STREAM_MODELS
from trellis.lattice.timings import BucketTimings, ConnectionTimings, LatticeTimings, ListingTimings
from trellis_dev.localcluster.nats import NatsServer

pytestmark = [pytest.mark.nats]

QUICK = LatticeTimings(
    connection=ConnectionTimings(ping=0.5, backoff_first=0.1, backoff_most=0.5), bucket=BucketTimings(fetch=0.5)
)
OFTEN = LatticeTimings(listing=ListingTimings(every=0.1))


@pytest.fixture(scope="module")
def origin_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with NatsServer(tmp_path_factory.mktemp("models")) as server:
        yield server


@pytest.fixture
async def wadm(origin_server: NatsServer) -> AsyncIterator[WadmStandIn]:
    origin_server.start()
    async with WadmStandIn(origin_server.url, f"l-{secrets.token_hex(4)}") as stand_in:
        yield stand_in
        origin_server.resume()
        origin_server.start()


@pytest.fixture
def world(wadm: WadmStandIn) -> World:
    async def kv() -> KeyValue:
        return wadm.kv

    return World(wadm.url, wadm.lattice, kv, wadm.lose_bucket, wadm.make_bucket)


class TestStandIn(StoreBehaviour):
    """The stand-in is seen as wadm is."""


async def consumers(wadm: WadmStandIn) -> list[ConsumerInfo]:
    """Return those of a cluster that is called as the lattice is."""
    found: list[ConsumerInfo] = await wadm.client.jetstream().consumers_info(STREAM_MODELS)
    return [item for item in found if wadm.lattice in (item.name or "")]


async def put(seen: Followed, name: str) -> None:
    """Put an application as soon as wadm is there."""
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(Exception):
                await seen.wadm.put(manifest(name, "v1"))
                return
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("how", ["stop", "kill"])
async def test_a_restart_of_nats_loses_nothing(origin_server: NatsServer, world: World, how: str) -> None:
    async with followed(world.address) as seen:
        await seen.synced()
        await seen.wadm.put(manifest("before", "v1"))
        await seen.wadm.put(manifest("goes", "v1"))
        await seen.shows("before", "v1")
        for turn in range(3):
            await asyncio.to_thread(getattr(origin_server, how))
            await until(lambda: seen.store.synced_at is None)
            await seen.shows("before", "v1")
            await asyncio.to_thread(origin_server.start)
            await seen.synced()
            await put(seen, f"after-{turn}")
            await seen.shows(f"after-{turn}", "v1")
        await seen.wadm.delete("goes")
        await seen.lacks("goes", AbsenceReason.DELETED)


async def test_a_frozen_server_makes_the_known_state_old(origin_server: NatsServer, world: World) -> None:
    async with followed(world.address, timings=QUICK) as seen:
        await seen.synced()
        origin_server.pause()
        try:
            await until(lambda: seen.store.synced_at is None)
        finally:
            origin_server.resume()
        await seen.synced()


async def test_a_consumer_that_a_user_deleted_is_made_again(wadm: WadmStandIn, world: World) -> None:
    async with followed(world.address, wadm.lattice, QUICK) as seen:
        await seen.synced()
        for consumer in await consumers(wadm):
            with contextlib.suppress(NotFoundError):
                await wadm.client.jetstream().delete_consumer(STREAM_MODELS, consumer.name)
        await seen.wadm.put(manifest("web", "v1"))
        await seen.shows("web", "v1")


async def test_a_reader_that_ended_leaves_nothing_behind(wadm: WadmStandIn, world: World) -> None:
    timings = LatticeTimings(bucket=BucketTimings(fetch=0.5, inactive=10.0))
    async with followed(world.address, wadm.lattice, timings) as seen:
        await seen.synced()
        assert {consumer.config.inactive_threshold for consumer in await consumers(wadm)} == {10.0}
        assert all(consumer.config.mem_storage for consumer in await consumers(wadm))

    async def none() -> bool:
        return not await consumers(wadm)

    await eventually_async(none, 60.0)


async def test_two_readers_of_one_lattice_share_nothing(world: World) -> None:
    async with followed(world.address) as item, followed(world.address) as two:
        await item.synced()
        await two.synced()
        for number in range(20):
            await item.wadm.put(manifest(f"app-{number}", "v1"))
        await until(lambda: len(item.store.names()) == len(two.store.names()) == 20)


async def test_garbage_in_the_bucket_changes_nothing(wadm: WadmStandIn, world: World) -> None:
    async with followed(world.address) as seen:
        await seen.synced()
        await seen.wadm.put(manifest("web", "v1"))
        await seen.shows("web", "v1")
        await wadm.kv.put(f"{wadm.lattice}-web", b"\xff{")
        await wadm.kv.put("x.y=z/w", b"")
        await seen.wadm.put(manifest("web2", "v1"))
        await seen.shows("web2", "v1")
        await seen.shows("web", "v1")


async def test_all_is_read_again_now_and_then(world: World, wadm: WadmStandIn) -> None:
    timings = LatticeTimings(bucket=BucketTimings(fetch=0.2, every=0.5))
    async with followed(world.address, timings=timings) as seen:
        await seen.synced()
        await seen.wadm.put(manifest("web", "v1"))
        await seen.wadm.put(manifest("api", "v1"))
        await seen.shows("api", "v1")
        await wadm.client.jetstream().purge_stream(STREAM_MODELS, subject=f"$KV.{BUCKET}.{wadm.lattice}-web")
        await seen.lacks("web", AbsenceReason.UNKNOWN)
        await seen.shows("api", "v1")


async def test_a_status_is_received_and_requested(world: World, wadm: WadmStandIn) -> None:
    async with followed(world.address) as seen:
        await seen.synced()
        await seen.wadm.put(manifest("web", "v1"))
        await seen.wadm.deploy("web", "v1")
        await seen.shows("web", "v1", deployed="v1")
        seen.notified.clear()
        await wadm.publish("web", "reconciling", "soon", {"kind": "SpreadScaler", "name": "server"})
        expected = Status("reconciling", "soon", (Scaler("SpreadScaler", "server", "reconciling", "soon"),))
        await until(lambda: seen.store.status("web") == expected)
        assert ("web",) in seen.notified
        await wadm.client.publish(f"wadm.status.{wadm.lattice}.web", b'{"status": 5}')
        await wadm.publish("made-up", "deployed")
        await seen.wadm.put(manifest("api", "v1"))
        await until(lambda: seen.store.find("api") is not None)
        await wadm.publish("api", "failed", "no host")
        await until(lambda: seen.store.status("api") == Status("failed", "no host"))
        assert seen.store.status("web") == expected
        assert seen.store.status("made-up") is None, "there is no such application"
    async with followed(world.address) as seen:
        await until(lambda: seen.followers.store(seen.lattice_id) is not None and seen.store.status("web") == expected)


async def test_a_status_that_was_missed_is_requested_after_an_outage(
    origin_server: NatsServer, world: World, wadm: WadmStandIn
) -> None:
    async with followed(world.address) as seen:
        await seen.synced()
        await seen.wadm.put(manifest("web", "v1"))
        await seen.wadm.deploy("web", "v1")
        await seen.shows("web", "v1", deployed="v1")
        await wadm.publish("web", "reconciling")
        await until(lambda: seen.store.status("web") == Status("reconciling"))
        await asyncio.to_thread(origin_server.stop)
        await until(lambda: seen.store.synced_at is None)
        assert seen.store.status("web") == Status("reconciling")
        wadm.statuses["web"] = {"status": {"type": "deployed", "message": ""}, "scalers": []}
        await asyncio.to_thread(origin_server.start)
        await until(lambda: seen.store.status("web") == Status("deployed"))


USERS = """
jetstream: enabled
authorization: {{
  users: [
    {{ user: wadm, password: secret }},
    {{ user: reader, password: secret, permissions: {{
        publish: ["wadm.api.>", "$JS.API.STREAM.INFO.{stream}", "$JS.API.CONSUMER.*.{stream}.>",
                  "$JS.API.CONSUMER.MSG.NEXT.{stream}.>", "$JS.API.STREAM.*.KV_TRELLIS_LATTICES",
                  "$JS.API.STREAM.MSG.GET.KV_TRELLIS_LATTICES", "$KV.TRELLIS_LATTICES.>"],
        subscribe: ["_INBOX_trellis.>", "wadm.status.>", "wadm.evt.>", "wasmbus.evt.>"] }} }}
    {{ user: asker, password: secret, permissions: {{
        publish: ["wadm.api.>", "wasmbus.ctl.>"],
        subscribe: ["_INBOX_trellis.>", "wadm.status.>", "wadm.evt.>", "wasmbus.evt.>"] }} }}
  ]
}}
"""


@pytest.fixture(scope="module")
def users_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    directory: Path = tmp_path_factory.mktemp("users")
    config = directory / "users.conf"
    config.write_text(USERS.format(stream=STREAM_MODELS))
    with NatsServer(directory / "server", config=config) as server:
        yield server


def as_user(server: NatsServer, user: str, lattice: str) -> LatticeAddress:
    return LatticeAddress(NatsAddress(f"nats://{user}:secret@127.0.0.1:{server.port}"), lattice)


@pytest.fixture
async def guarded(users_server: NatsServer) -> AsyncIterator[WadmStandIn]:
    made = WadmStandIn(users_server.url, f"l-{secrets.token_hex(4)}", {"user": "wadm", "password": "secret"})
    async with made as stand_in:
        yield stand_in


async def test_the_documented_permissions_are_sufficient(users_server: NatsServer, guarded: WadmStandIn) -> None:
    async with followed(as_user(users_server, "reader", guarded.lattice)) as seen:
        await seen.synced()
        await seen.wadm.put(manifest("web", "v1"))
        await seen.shows("web", "v1")
        await seen.wadm.delete("web")
        await seen.lacks("web", AbsenceReason.DELETED)
        await until(lambda: seen.followers.owner(seen.lattice_id) == "one")
        assert seen.store.reason == ""


async def test_without_permission_for_the_bucket_wadm_is_queried_and_no_deletion_is_verified(
    users_server: NatsServer, guarded: WadmStandIn
) -> None:
    async with followed(as_user(users_server, "asker", guarded.lattice), timings=OFTEN) as seen:
        await seen.synced()
        assert STREAM_MODELS in seen.store.reason
        assert seen.store.bucket == ""
        await seen.wadm.put(manifest("web", "v1"))
        await seen.wadm.put(manifest("api", "v1"))
        await seen.shows("web", "v1")
        await seen.wadm.put(manifest("web", "v2"))
        await seen.wadm.deploy("web", "v1")
        await seen.shows("web", "v1", "v2", deployed="v1")
        guarded.requested.clear()
        await until(lambda: guarded.requested.count("list") >= 2)
        assert "get" not in guarded.requested, "what is known is not asked for again"
        await seen.wadm.delete("web")
        await seen.lacks("web", AbsenceReason.UNKNOWN)
        await seen.shows("api", "v1")
        # It may not claim the lattice either: then it is this cluster's.
        await until(lambda: seen.followers.owns(seen.lattice_id))


async def test_no_model_is_removed_while_wadm_does_not_answer(users_server: NatsServer, guarded: WadmStandIn) -> None:
    async with followed(as_user(users_server, "asker", guarded.lattice), timings=OFTEN) as seen:
        await seen.synced()
        await seen.wadm.put(manifest("web", "v1"))
        await seen.shows("web", "v1")
        await guarded.client.close()
        # The request that was on its way then is not answered; the next one meets nobody.
        await until(lambda: seen.store.synced_at is None and "no responders" in seen.store.reason)
        await seen.shows("web", "v1")


async def test_of_a_lattice_with_more_than_is_kept_nothing_is_known_until_it_has_less(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trellis.lattice.domain.bucket_entries.MODELS_MOST", 20)
    timings = LatticeTimings(bucket=BucketTimings(too_many=0.2))
    async with followed(world.address, timings=timings) as seen:
        await seen.synced()
        for number in range(20):
            await seen.wadm.put(manifest(f"app-{number}", "v1"))
        await until(lambda: len(seen.store.names()) == 20)
        await seen.wadm.put(manifest("one-more", "v1"))
        await until(lambda: seen.store.synced_at is None)
        assert " 20 " in seen.store.reason
        await seen.wadm.delete("one-more")
        await until(lambda: seen.store.synced_at is not None)
        assert len(seen.store.names()) == 20
        assert seen.store.find("app-0") is not None


async def joined(seen: Followed, address: LatticeAddress) -> Followed:
    """Follow another lattice of the same NATS by the same service."""
    beside = Followed(seen.followers, lattice_id=address.lattice)
    await seen.followers.follow(address.lattice, address)
    await beside.synced()
    return beside


async def test_all_lattices_of_a_nats_are_read_by_one_consumer(wadm: WadmStandIn, world: World) -> None:
    async with WadmStandIn(world.url, f"{world.lattice}-b") as other, followed(world.address, wadm.lattice) as seen:
        await seen.synced()
        await seen.wadm.put(manifest("web", "v1"))
        await seen.shows("web", "v1")
        beside = await joined(seen, LatticeAddress(NatsAddress(world.url), other.lattice))
        await beside.wadm.put(manifest("api", "v1"))
        await beside.shows("api", "v1")
        await beside.wadm.put(manifest("late", "v1"))
        await beside.shows("late", "v1")
        await seen.shows("web", "v1")
        assert sorted(seen.store.names()) == ["web"]
        assert sorted(beside.store.names()) == ["api", "late"]

        async def one() -> bool:
            return len(await consumers(wadm)) == 1

        await eventually_async(one, 60.0)


async def test_a_lattice_that_is_not_needed_any_more_takes_nothing_from_the_others(wadm: WadmStandIn) -> None:
    owns = LatticeAddress(NatsAddress(wadm.url), wadm.lattice)
    async with WadmStandIn(wadm.url, f"l-{secrets.token_hex(4)}") as other, followed(owns) as seen:
        beside = await joined(seen, LatticeAddress(NatsAddress(wadm.url), other.lattice))
        await seen.followers.follow(seen.lattice_id, None)
        await beside.wadm.put(manifest("web", "v1"))
        await beside.shows("web", "v1")
        await beside.wadm.delete("web")
        await beside.lacks("web", AbsenceReason.DELETED)


async def test_a_lattice_with_more_than_is_kept_takes_nothing_from_the_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trellis.lattice.domain.bucket_entries.MODELS_MOST", 3)
    async with WadmStandIn(world.url, f"l-{secrets.token_hex(4)}") as other, followed(world.address) as seen:
        beside = await joined(seen, LatticeAddress(NatsAddress(world.url), other.lattice))
        await seen.synced()
        for number in range(4):
            await beside.wadm.put(manifest(f"app-{number}", "v1"))
        await until(lambda: beside.store.synced_at is None)
        await seen.wadm.put(manifest("web", "v1"))
        await seen.shows("web", "v1")
        assert seen.store.synced_at is not None
