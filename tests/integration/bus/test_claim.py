"""Two clusters under one name on one bus: the second is kept out, and admitted when the first is deleted."""

from __future__ import annotations

import asyncio
import secrets
import shutil
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

import orjson
import pytest
import structlog
from nats.js import JetStreamContext
from nats.js.errors import NotFoundError

from support.nats.buses import DEADLINE_SECONDS, Buses, Listener, eventually, eventually_async, opted_out
from support.nats.reconnecting import left, reconnecting
from trellis.bus.accounts.claim import Claim
from trellis.bus.accounts.naming import CLAIM_STREAM, claim_subject
from trellis.bus.bus import Bus, BusTimings, BusUnavailable
from trellis.bus.publish.availability import HEALTH, SHARED
from trellis.events.node import NodeOptedOut
from trellis.events.subjects import STREAM_EVENTS
from trellis_dev.localcluster.nats import NatsServer

pytestmark = pytest.mark.nats

BRIEF = BusTimings(check=0.2, ack_wait=5.0, claim=4.0)
LASTING = BusTimings(check=0.2, ack_wait=5.0)
REFUSED = replace(LASTING, publish_budget=1.0)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with NatsServer(tmp_path_factory.mktemp("claim") / "server") as running:
        yield running


@pytest.fixture
async def buses(server: NatsServer) -> AsyncIterator[Buses]:
    made = Buses(server.url, f"c-{secrets.token_hex(4)}")
    yield made
    server.resume()
    server.start()
    await made.close()


@pytest.fixture
async def jetstream(server: NatsServer) -> AsyncIterator[JetStreamContext]:
    """JetStream without a bucket, so that each test's lifetime of a claim counts."""
    client = await reconnecting(server.url)
    stream = client.jetstream()
    for info in await stream.streams_info():
        if info.config.name == CLAIM_STREAM:
            await stream.delete_stream(CLAIM_STREAM)
    yield stream
    await left(client)


def not_ready_reason(buses: Buses, index: int) -> str:
    return " ".join(buses.healths[index].readiness().reasons)


async def entry(jetstream: JetStreamContext, cluster: str) -> tuple[str, int]:
    """Return whose claim there is and its revision."""
    message = await jetstream.get_last_msg(CLAIM_STREAM, claim_subject(cluster))
    assert message.seq is not None
    return orjson.loads(message.data or b"{}")["uid"], message.seq


async def refused(
    buses: Buses, *, timings: BusTimings = REFUSED, listener: Any = None
) -> tuple[Bus, asyncio.Task[None]]:
    """A bus of a second cluster, once it was refused."""
    bus = buses.new(cluster_uid="uid-second", timings=timings)
    if listener is not None:
        bus.subscribe("nodes", [NodeOptedOut], listener)
    connecting = asyncio.create_task(bus.connect())
    await bus.start()
    index = buses.made.index(bus)
    await eventually(lambda: "uid-second" in not_ready_reason(buses, index))
    return bus, connecting


async def test_a_second_cluster_is_refused_with_a_reason_and_does_not_affect_the_first(
    buses: Buses, jetstream: JetStreamContext
) -> None:
    listener, overheard = Listener(), Listener()
    first = await buses.consuming(listener, cluster_uid="uid-first", timings=LASTING)
    with structlog.testing.capture_logs() as logs:
        second, connecting = await refused(buses, listener=overheard)
        reason = not_ready_reason(buses, 1)
        for part in (f"{HEALTH}: ", buses.cluster, "uid-first", "uid-second", "TRELLIS_CLUSTER", "nats kv del"):
            assert part in reason
        before = (await jetstream.stream_info(STREAM_EVENTS)).state.last_seq
        with pytest.raises(BusUnavailable, match="uid-first"):
            await second.publish(opted_out("intruder"), dedup=f"{buses.cluster}/intruder")
        assert (await jetstream.stream_info(STREAM_EVENTS)).state.last_seq == before
        await first.publish(opted_out("own"), dedup=f"{buses.cluster}/own")
        await eventually(lambda: listener.names == ["own"])
    assert overheard.names == []
    assert not connecting.done()
    assert not second.connected.is_set()
    assert buses.healths[0].readiness().ok
    assert len([line for line in logs if line["log_level"] == "warning"]) == 1
    connecting.cancel()


@pytest.mark.thorough
async def test_the_name_is_kept_for_as_long_as_its_cluster_is_there_and_free_some_time_after(
    buses: Buses, jetstream: JetStreamContext
) -> None:
    listener, lists = Listener(), list[int]()
    first = await buses.consuming(Listener(), cluster_uid="uid-first", timings=BRIEF)
    second, connecting = await refused(buses, timings=BRIEF, listener=listener)
    second.on_new_stream.append(lambda: lists.append(1))
    _, began = await entry(jetstream, buses.cluster)

    async def refreshed() -> bool:
        owner, revision = await entry(jetstream, buses.cluster)
        assert owner == "uid-first"
        return revision >= began + 6  # three refreshes are one lifetime

    await eventually_async(refreshed)
    assert not connecting.done()
    await first.close()
    await connecting
    await eventually(lambda: lists)
    assert (await entry(jetstream, buses.cluster))[0] == "uid-second"
    await second.publish(opted_out("mine"), dedup=f"{buses.cluster}/mine")
    await eventually(lambda: listener.names == ["mine"])


@pytest.mark.usefixtures("jetstream")
async def test_services_and_replicas_of_one_cluster_hold_the_name_together(buses: Buses) -> None:
    listener = Listener()
    leader = await buses.consuming(listener, timings=LASTING)
    other = buses.new("node_watcher", timings=LASTING)
    await other.connect()
    await leader.close()
    follower = await buses.consuming(listener, timings=LASTING)
    await other.publish(opted_out("a"), dedup=f"{buses.cluster}/a")
    await eventually(lambda: listener.names == ["a"])
    await follower.close()


@pytest.mark.usefixtures("jetstream")
async def test_many_services_of_one_cluster_that_begin_at_once_all_hold_the_name(buses: Buses) -> None:
    made = [buses.new(cluster_uid="uid-first", timings=LASTING) for _ in range(16)]
    with structlog.testing.capture_logs() as logs:
        await asyncio.gather(*(bus.connect() for bus in made))
    assert [line for line in logs if line["log_level"] == "warning"] == []


@pytest.mark.usefixtures("jetstream")
async def test_of_many_clusters_at_once_one_gets_the_name(buses: Buses) -> None:
    made = [buses.new(cluster_uid=f"uid-{number}", timings=LASTING) for number in range(8)]
    connecting = [asyncio.create_task(bus.connect()) for bus in made]
    await eventually(lambda: sum("TRELLIS_CLUSTER" in not_ready_reason(buses, number) for number in range(8)) == 7)
    await eventually(lambda: any(task.done() for task in connecting))
    assert [task.done() for task in connecting].count(True) == 1, "none of the others was let in, not even for a moment"
    for task in connecting:
        task.cancel()


async def test_a_wiped_bus_is_claimed_again(buses: Buses, server: NatsServer, jetstream: JetStreamContext) -> None:
    lists = list[int]()
    bus = await buses.consuming(Listener(), cluster_uid="uid-first", timings=LASTING)
    bus.on_new_stream.append(lambda: lists.append(1))
    server.kill()
    shutil.rmtree(server._directory / "store")
    server.start()
    await eventually(lambda: lists)
    assert (await entry(jetstream, buses.cluster))[0] == "uid-first"


async def test_a_bucket_that_was_deleted_is_made_again_while_the_bus_is_used(
    buses: Buses, jetstream: JetStreamContext
) -> None:
    bus = await buses.consuming(Listener(), cluster_uid="uid-first", timings=LASTING)
    await jetstream.delete_stream(CLAIM_STREAM)

    async def claimed() -> bool:
        try:
            return (await entry(jetstream, buses.cluster))[0] == "uid-first"
        except NotFoundError:
            return False

    await eventually_async(claimed)
    assert bus.connected.is_set()


@pytest.mark.usefixtures("jetstream")
async def test_an_outage_while_the_name_is_claimed_is_waited_out(
    buses: Buses, server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold, tried = Claim.hold, list[int]()

    async def freeze_once(claim: Claim, stream: JetStreamContext) -> None:
        if not tried:
            tried.append(1)
            server.pause()
        await hold(claim, stream)

    monkeypatch.setattr(Claim, "hold", freeze_once)
    bus = buses.new(timings=LASTING)
    before = not_ready_reason(buses, 0)
    connecting = asyncio.create_task(bus.connect())
    await eventually(lambda: tried and not_ready_reason(buses, 0) != before, seconds=60)
    assert not bus.connected.is_set()
    server.resume()
    await connecting
    await bus.publish(opted_out("a"), dedup=f"{buses.cluster}/a")


async def test_a_cluster_that_loses_the_name_stops_and_relists_after_regaining_it(
    buses: Buses, jetstream: JetStreamContext
) -> None:
    """As after a cut longer than the claim lasts, when another cluster took the name meanwhile."""
    listener, lists = Listener(acknowledge=False), list[int]()
    bus = await buses.consuming(listener, cluster_uid="uid-first", timings=LASTING)
    bus.on_new_stream.append(lambda: lists.append(1))
    await bus.publish(opted_out("in work"), dedup=f"{buses.cluster}/1")
    await eventually(lambda: listener.names == ["in work"])
    await jetstream.publish(claim_subject(buses.cluster), b'{"uid": "uid-other"}')
    await eventually(lambda: not bus.connected.is_set())
    assert not listener.received[0].ack.open, "the message is the other cluster's now"
    assert "uid-other" in not_ready_reason(buses, 0)
    assert (await entry(jetstream, buses.cluster))[0] == "uid-other", "what another holds is not touched"
    # What `nats kv del` writes.
    await jetstream.publish(claim_subject(buses.cluster), b"", headers={"KV-Operation": "DEL"})
    await eventually(lambda: lists and bus.connected.is_set())
    assert (await entry(jetstream, buses.cluster))[0] == "uid-first"
    await bus.publish(opted_out("again"), dedup=f"{buses.cluster}/2")
    await eventually(lambda: "again" in listener.names)


async def test_a_refused_cluster_retries_soon_regardless_of_the_normal_interval(
    buses: Buses, jetstream: JetStreamContext
) -> None:
    first = await buses.consuming(Listener(), cluster_uid="uid-first", timings=LASTING)
    _, connecting = await refused(buses, timings=BusTimings(check=3600, again=0.1))
    await first.close()
    await jetstream.purge_stream(CLAIM_STREAM, subject=claim_subject(buses.cluster))
    async with asyncio.timeout(DEADLINE_SECONDS):
        await connecting


@pytest.mark.usefixtures("jetstream")
async def test_two_clusters_from_one_etcd_report_each_other_until_one_is_renamed(buses: Buses) -> None:
    """Name and uid of kube-system are equal, so the claim lets both in."""
    timings = BusTimings(check=0.2, ack_wait=1.0, publish_budget=1.0, other_reader=1.0)
    first = await buses.consuming(Listener(), cluster_uid="uid-first", timings=timings)
    second = await buses.consuming(Listener(), cluster_uid="uid-first", timings=timings)
    await eventually(
        lambda: all(
            SHARED in not_ready_reason(buses, each) and "TRELLIS_CLUSTER" in not_ready_reason(buses, each)
            for each in (0, 1)
        )
    )
    assert first.connected.is_set()
    await second.close()
    await eventually(lambda: buses.healths[0].readiness().ok)


@pytest.mark.usefixtures("jetstream")
async def test_a_change_of_leader_reports_no_other_cluster(buses: Buses) -> None:
    timings = BusTimings(check=0.2, ack_wait=1.0, publish_budget=1.0, other_reader=1.0)
    former = await buses.consuming(Listener(), cluster_uid="uid-first", timings=timings)
    await former.close()
    with structlog.testing.capture_logs() as logs:
        leader = await buses.consuming(Listener(), cluster_uid="uid-first", timings=timings)
        looks: list[int] = []
        look = leader._supervisor.settle

        async def counted() -> None:
            await look()
            looks.append(1)

        leader._supervisor.settle = counted  # type: ignore[method-assign] # seen, not replaced
        await eventually(lambda: len(looks) > 8)
    assert [line for line in logs if line["log_level"] == "warning"] == []
    assert buses.healths[1].readiness().ok
