"""Copies of lattice events on real nats-servers: whatever happens to either of them, each event is kept once."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import cast

import nats
import pytest
from nats.js import JetStreamContext
from nats.js.api import StreamConfig

from host_manager.lattice_events import EventForwarder
from host_manager.lattice_follower import CONNECTION
from host_manager.timings import Timings
from support.lattices.lattice_recordings import everything
from support.nats.buses import Buses, eventually, eventually_async
from support.nats.reconnecting import left, reconnecting
from trellis.bus.bus import Bus
from trellis.bus.streams.tail import Selection, TailedEvent, Tally, replay
from trellis.lattice.connection.address import LatticeAddress, NatsAddress
from trellis.lattice.connection.lattice_connection import LatticeConnection
from trellis.lattice.domain.subjects import STREAM_HOSTS, STREAM_WADM
from trellis.lattice.follow.forwarder import Forwarder
from trellis.lattice.follow.lattice_watches import LatticeWatches
from trellis.lattice.timings import ForwarderTimings, LatticeTimings
from trellis_dev.localcluster.nats import NatsServer

pytestmark = [pytest.mark.nats]

LIVE_SECONDS = 70.0
QUICK = Timings(lattice=LatticeTimings(forwarder=ForwarderTimings(fetch=0.5, ack_wait=1.0)))


@pytest.fixture(scope="module")
def origin_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """The NATS of lattices, which shares nothing with the bus."""
    with NatsServer(tmp_path_factory.mktemp("origin")) as server:
        yield server


@dataclass
class Origin:
    """A lattice, in the streams that wadm makes for all of them."""

    server: NatsServer
    lattice: str
    jetstream: JetStreamContext

    async def make_streams(self) -> None:
        for name, subject in ((STREAM_WADM, "wadm.evt.*.>"), (STREAM_HOSTS, "wasmbus.evt.*.>")):
            await self.jetstream.add_stream(StreamConfig(name=name, subjects=[subject], max_age=LIVE_SECONDS))

    async def publish(self, event: str, data: object, id_: str | None = None) -> str:
        """Say an event as wadm or a host does; returns its id."""
        event_body = {
            "specversion": "1.0",
            "id": id_ or secrets.token_hex(8),
            "type": f"com.test.{event}",
            "data": data,
        }
        root = "wadm.evt" if event.startswith("manifest_") else "wasmbus.evt"
        headers = {"Nats-Msg-Id": str(event_body["id"])}
        async with asyncio.timeout(30):
            while True:
                with contextlib.suppress(nats.errors.Error):  # the server is being started
                    await self.jetstream.publish(
                        f"{root}.{self.lattice}.{event}", json.dumps(event_body).encode(), timeout=1, headers=headers
                    )
                    return str(event_body["id"])

    @property
    def address(self) -> LatticeAddress:
        return LatticeAddress(NatsAddress(self.server.url), self.lattice)


@pytest.fixture
async def origin(origin_server: NatsServer) -> AsyncIterator[Origin]:
    client = await reconnecting(origin_server.url)
    made = Origin(origin_server, f"l-{secrets.token_hex(4)}", client.jetstream())
    await made.make_streams()
    yield made
    origin_server.start()
    await left(client)


@pytest.fixture
async def buses(nats_server: NatsServer) -> AsyncIterator[Buses]:
    made = Buses(nats_server.url, f"c-{secrets.token_hex(4)}")
    yield made
    nats_server.start()
    await made.close()


class DyingBus:
    """A bus whose process dies when it is about to publish an event."""

    def __init__(self) -> None:
        self.began = asyncio.Event()

    async def copy(self, *_: object, **__: object) -> None:
        self.began.set()
        await asyncio.Event().wait()


@contextlib.asynccontextmanager
async def copying(buses: Buses, bus: Bus, *origins: Origin) -> AsyncIterator[None]:
    copier = EventForwarder(bus, buses.telemetry("host_manager"), buses.cluster, QUICK)
    async with LatticeWatches[str](CONNECTION, lambda _: None, copier.run) as lattices:
        for number, origin in enumerate(origins):
            await lattices.need(f"group-{number}", origin.address)
        yield


async def connected(buses: Buses) -> Bus:
    bus = buses.new("host_manager")
    await bus.connect()
    return bus


async def copies(buses: Buses, lattice: str) -> list[TailedEvent]:
    """Return the events that `trellis events replay --lattice` shows."""
    selection = Selection(cluster=buses.cluster, lattice=lattice)
    return [event async for event in replay(buses.url, selection, Tally())]


async def copied(buses: Buses, origin: Origin, ids: list[str], seconds: float = 20.0) -> None:
    """Wait until exactly these are kept, each once, in this order."""

    async def there() -> bool:
        return [event.event.get("id") for event in await copies(buses, origin.lattice)] == ids

    try:
        await eventually_async(there, seconds)
    except TimeoutError:
        assert [event.event.get("id") for event in await copies(buses, origin.lattice)] == ids
        raise


async def test_messages_before_and_after_are_kept_unchanged(buses: Buses, origin: Origin) -> None:
    bus = await connected(buses)
    ids = [await origin.publish("manifest_published", {"metadata": {"name": "shop"}})]
    async with copying(buses, bus, origin):
        await copied(buses, origin, ids)
        ids.append(await origin.publish("manifest_unpublished", {"name": "shop"}))
        await copied(buses, origin, ids)
    published, unpublished = await copies(buses, origin.lattice)
    assert (published.cluster, published.noun, published.event_name, published.key) == (
        buses.cluster,
        "lattice",
        "manifest_published",
        (origin.lattice,),
    )
    assert published.event["data"] == {"metadata": {"name": "shop"}}
    assert unpublished.event_name == "manifest_unpublished"


async def test_every_recorded_event_is_copied_but_heartbeats_and_configurations(buses: Buses, origin: Origin) -> None:
    bus = await connected(buses)
    wanted: set[str] = set()
    for message in everything():
        root, kind, _, event = message["subject"].split(".", 3)
        if (root, kind) in {("wadm", "evt"), ("wasmbus", "evt")}:
            body = json.dumps(message["data"]).encode()
            await origin.jetstream.publish(f"{root}.{kind}.{origin.lattice}.{event}", body)
            if not event.startswith(("host_heartbeat", "config_")):
                wanted.add(message["data"]["id"])

    async def all_there() -> bool:
        return {event.event["id"] for event in await copies(buses, origin.lattice)} == wanted

    async with copying(buses, bus, origin):
        await eventually_async(all_there)
    assert len(wanted) > 10
    assert len(await copies(buses, origin.lattice)) == len(wanted)


async def test_garbage_is_left_out_and_holds_nothing_up(buses: Buses, origin: Origin) -> None:
    bus = await connected(buses)
    for subject in ("manifest_published", "manifest_published.more", "provider_started"):
        for body in (b"", b"\xff\xfe", b"[]", b"{}", b'{"id": 7}', b'{"id": ""}'):
            await origin.jetstream.publish(f"wadm.evt.{origin.lattice}.{subject}", body)
    ids = [await origin.publish("manifest_published", {"metadata": {"name": "a"}})]
    async with copying(buses, bus, origin):
        await copied(buses, origin, ids)


async def test_an_event_too_large_for_the_bus_holds_nothing_up(buses: Buses, origin: Origin) -> None:
    bus = await connected(buses)
    async with copying(buses, bus, origin):
        # The origin takes a message of 1 MiB; with the bus' own headers it is more than the bus takes.
        large = {"specversion": "1.0", "id": "i" * 200, "data": "x" * (2**20 - 300)}
        await origin.jetstream.publish(f"wadm.evt.{origin.lattice}.manifest_published", json.dumps(large).encode())
        await copied(buses, origin, [await origin.publish("manifest_published", {"metadata": {"name": "a"}})])


async def test_a_restart_of_the_lattices_nats_loses_nothing(buses: Buses, origin: Origin) -> None:
    bus = await connected(buses)
    async with copying(buses, bus, origin):
        ids = [await origin.publish("manifest_published", {"n": 0})]
        await copied(buses, origin, ids)
        origin.server.kill()
        origin.server.start()
        ids += [await origin.publish("manifest_published", {"n": n}) for n in range(1, 4)]
        await copied(buses, origin, ids, 30)


async def test_a_restart_of_the_bus_loses_nothing(buses: Buses, origin: Origin, nats_server: NatsServer) -> None:
    bus = await connected(buses)
    async with copying(buses, bus, origin):
        ids = [await origin.publish("manifest_published", {"n": 0})]
        await copied(buses, origin, ids)
        nats_server.kill()
        ids += [await origin.publish("manifest_published", {"n": n}) for n in range(1, 4)]
        nats_server.start()
        ids += [await origin.publish("manifest_published", {"n": n}) for n in range(4, 7)]
        await copied(buses, origin, ids, 60)


async def test_a_recreated_stream_is_read_from_its_beginning(buses: Buses, origin: Origin) -> None:
    bus = await connected(buses)
    async with copying(buses, bus, origin):
        ids = [await origin.publish("manifest_published", {"n": n}) for n in range(3)]
        await copied(buses, origin, ids)
        await origin.jetstream.delete_stream(STREAM_WADM)
        await origin.make_streams()
        ids += [await origin.publish("manifest_published", {"n": n}) for n in range(3, 5)]
        await copied(buses, origin, ids, 30)


async def test_a_lattice_without_wadm_is_waited_for(buses: Buses, origin: Origin) -> None:
    bus = await connected(buses)
    for stream in (STREAM_WADM, STREAM_HOSTS):
        await origin.jetstream.delete_stream(stream)
    async with copying(buses, bus, origin):
        metrics = buses.metrics.registry
        of = {"service": "host_manager", "nats": origin.server.url, "lattice": origin.lattice, "stream": STREAM_WADM}
        await eventually(lambda: metrics.get_sample_value("trellis_lattice_forwarder_lag_messages", of) == -1)
        await origin.make_streams()
        await copied(buses, origin, [await origin.publish("manifest_published", {"n": 0})], 40)
        await eventually(lambda: metrics.get_sample_value("trellis_lattice_forwarder_lag_messages", of) == 0)
    assert metrics.get_sample_value("trellis_lattice_forwarder_lag_messages", of) is None


async def test_two_forwarders_keep_each_event_once(buses: Buses, origin: Origin) -> None:
    bus = await connected(buses)
    async with copying(buses, bus, origin), copying(buses, bus, origin):
        ids = {await origin.publish("manifest_published", {"n": n}) for n in range(50)}
        ids |= {await origin.publish("provider_started", {"n": n}) for n in range(50)}

        async def all_there() -> bool:
            found = [event.event["id"] for event in await copies(buses, origin.lattice)]
            assert len(found) == len(set(found))
            return set(found) == ids

        await eventually_async(all_there)


async def test_lattices_of_one_nats_are_kept_apart(buses: Buses, origin: Origin) -> None:
    bus = await connected(buses)
    other = Origin(origin.server, f"l-{secrets.token_hex(4)}", origin.jetstream)
    async with copying(buses, bus, origin, other):
        own = [await origin.publish("manifest_published", {"n": 0})]
        theirs = [await other.publish("manifest_published", {"n": 1})]
        await copied(buses, origin, own)
        await copied(buses, other, theirs)


async def test_an_event_that_one_reader_after_another_dies_with_is_kept_before_it_is_lost(
    buses: Buses, origin: Origin
) -> None:
    bus = await connected(buses)
    ids = [await origin.publish("manifest_published", {"n": 0})]
    assert 4 * ForwarderTimings().ack_wait < LIVE_SECONDS
    for _ in range(4):
        dying = DyingBus()
        async with copying(buses, cast("Bus", dying), origin):
            await asyncio.wait_for(dying.began.wait(), LIVE_SECONDS)
    async with copying(buses, bus, origin):
        await copied(buses, origin, ids)


async def test_events_that_wait_for_long_are_warned_of(origin: Origin) -> None:
    assert ForwarderTimings().late < LIVE_SECONDS
    timings = ForwarderTimings(look=0.05, late=0.2)
    never = asyncio.Event()

    async def take(_: object) -> None:
        await never.wait()

    forwarders: list[Forwarder] = []

    async def beside(address: LatticeAddress, link: LatticeConnection) -> None:
        forwarders.append(Forwarder(link, address, f"late-{address.lattice}", take, timings))
        await forwarders[0].run()

    async with LatticeWatches[str](CONNECTION, lambda _: None, beside) as lattices:
        await lattices.need("group", origin.address)
        await origin.publish("manifest_published", {"n": 0})
        await eventually(lambda: forwarders and forwarders[0].late)
        assert forwarders[0].lags[STREAM_WADM].count() == 1
        never.set()
        await eventually(lambda: not forwarders[0].late)


async def test_a_flooding_lattice_is_forwarded_at_the_bounded_rate_and_delays_no_other(
    buses: Buses, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trellis.lattice.follow.forwarder.EVENTS_AT_ONCE", 10.0)
    monkeypatch.setattr("trellis.lattice.follow.forwarder.EVENTS_PER_SECOND", 0.001)
    bus = await connected(buses)
    other = Origin(origin.server, f"l-{secrets.token_hex(4)}", origin.jetstream)
    for number in range(300):
        await origin.publish("manifest_published", {"n": number})
    async with copying(buses, bus, origin, other):

        async def some_there() -> bool:
            return bool(await copies(buses, origin.lattice))

        await eventually_async(some_there)
        await copied(buses, other, [await other.publish("manifest_published", {"n": 0})])
        assert len(await copies(buses, origin.lattice)) <= 200, "two batches: the bound is looked at between them"
