"""Outages of NATS: unavailable, back, frozen, killed, wiped. Nothing is lost and no subscription stalls."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import time
from collections.abc import MutableMapping
from typing import Any

import pytest
import structlog
from nats.aio.client import Client
from nats.js import JetStreamContext

from support.nats.buses import DEADLINE_SECONDS, QUICK, Buses, Listener, eventually, eventually_async, opted_out
from support.suite.settling import settle
from trellis.bus.accounts.naming import consumer_name
from trellis.bus.bus import BusTimings, BusUnavailable
from trellis.bus.publish.availability import HEALTH
from trellis.events.subjects import STREAM_DEAD, STREAM_EVENTS, event_subject
from trellis_dev.localcluster.nats import NatsServer

pytestmark = [pytest.mark.nats]

IMPATIENT = BusTimings(check=0.5, ack_wait=1.0, publish_budget=1.0)


def of_level(logs: list[MutableMapping[str, Any]], level: str) -> list[str]:
    return [str(line["event"]) for line in logs if line["log_level"] == level]


async def test_a_server_that_is_unavailable_at_the_start_costs_one_warning_and_is_found_when_it_comes(
    buses: Buses, nats_server: NatsServer
) -> None:
    nats_server.stop()
    with structlog.testing.capture_logs() as logs:
        bus = buses.new()
        health = buses.healths[0]
        connecting = asyncio.create_task(bus.connect())
        await eventually(lambda: bus._connection._failures >= 3)
        assert not connecting.done()
        assert not bus.connected.is_set()
        assert health.readiness().reasons == (f"{HEALTH}: connection refused ({nats_server.url})",)
        nats_server.start()
        await connecting
    assert health.readiness().ok
    assert len(of_level(logs, "warning")) == 1
    assert [line["url"] for line in logs if line["log_level"] == "info" and "url" in line] == [nats_server.url]
    await bus.publish(opted_out("a"), dedup=f"{buses.cluster}/1")


async def test_consuming_goes_on_after_a_restart_of_the_server(buses: Buses, nats_server: NatsServer) -> None:
    listener, lists = Listener(), list[int]()
    bus = await buses.consuming(listener)
    bus.on_new_stream.append(lambda: lists.append(1))
    await bus.publish(opted_out("before"), dedup=f"{buses.cluster}/1")
    await eventually(lambda: "before" in listener.names)
    with structlog.testing.capture_logs() as logs:
        nats_server.kill()
        await eventually(lambda: not bus.connected.is_set())
        publishing = asyncio.create_task(bus.publish(opted_out("meanwhile"), dedup=f"{buses.cluster}/2"))
        nats_server.start()
        await publishing
        await eventually(lambda: "meanwhile" in listener.names)
    assert len(of_level(logs, "warning")) == 1
    assert lists == [], "the stream and the consumer are still there: there is no need to list"


@pytest.mark.parametrize("way", ["kill", "stop"])
async def test_unacknowledged_messages_are_redelivered_when_the_server_is_back(
    buses: Buses, jetstream: JetStreamContext, nats_server: NatsServer, way: str
) -> None:
    listener = Listener(acknowledge=False)
    bus = await buses.consuming(listener)
    names = [f"n{number}" for number in range(40)]
    await asyncio.gather(*(bus.publish(opted_out(name), dedup=f"{buses.cluster}/{name}") for name in names))
    await eventually(lambda: len(listener.received) == len(names))
    done, open_ = listener.received[::2], listener.received[1::2]
    for received in done:
        await received.ack()
    durable = consumer_name("provisioner", "nodes", buses.cluster)

    async def acknowledged() -> bool:
        info = await jetstream.consumer_info(STREAM_EVENTS, durable)
        return bool(info.num_ack_pending == len(open_))

    await eventually_async(acknowledged)
    await bus.stop()
    listener.received.clear()
    (nats_server.kill if way == "kill" else nats_server.stop)()
    nats_server.start()
    listener.acknowledge = True
    again = await buses.consuming(listener)
    await again.publish(opted_out("last"), dedup=f"{buses.cluster}/last")
    expected = {received.data.name for received in open_} | {"last"}
    await eventually(lambda: set(listener.names) >= expected)
    if way == "stop":  # a killed server may have forgotten the last acknowledgements: then work is repeated
        assert set(listener.names) == expected
    await eventually_async(lambda: nothing_owed(jetstream, durable))


async def nothing_owed(jetstream: JetStreamContext, durable: str) -> bool:
    return not (await jetstream.consumer_info(STREAM_EVENTS, durable)).num_ack_pending


async def test_publishing_without_a_server_fails_within_its_budget_and_at_once_in_an_old_outage(
    buses: Buses, nats_server: NatsServer
) -> None:
    bus = buses.new(timings=IMPATIENT)
    await bus.connect()
    nats_server.stop()
    await eventually(lambda: not bus.connected.is_set())
    with pytest.raises(BusUnavailable, match=r"node\.opted_out\.a .* 1 s: "):
        await bus.publish(opted_out("a"), dedup="1")
    began = time.perf_counter()
    for _ in range(100):
        with pytest.raises(BusUnavailable):
            await bus.publish(opted_out("a"), dedup="1")
    assert time.perf_counter() - began < 25.0, "a hundred budgets are not waited out: callers have other work"


async def test_a_frozen_server_is_waited_out(buses: Buses, nats_server: NatsServer) -> None:
    listener = Listener()
    bus = await buses.consuming(listener, timings=BusTimings(check=0.5, ack_wait=2.0, publish_budget=1.0))
    nats_server.pause()
    with pytest.raises(BusUnavailable):
        await bus.publish(opted_out("frozen"), dedup=f"{buses.cluster}/1")
    nats_server.resume()

    async def published() -> bool:
        with contextlib.suppress(BusUnavailable):  # the outage may be noticed only now
            await bus.publish(opted_out("thawed"), dedup=f"{buses.cluster}/2")
            return True
        return False

    await eventually_async(published)
    await eventually(lambda: "thawed" in listener.names)


async def test_a_deleted_stream_is_recreated_everything_is_listed_and_events_flow(
    buses: Buses, jetstream: JetStreamContext
) -> None:
    listener, lists = Listener(), list[bool]()
    bus = await buses.consuming(listener, timings=BusTimings(check=60))
    bus.on_new_stream.append(lambda: lists.append(True))
    await bus.publish(opted_out("before"), dedup=f"{buses.cluster}/1")
    await eventually(lambda: "before" in listener.names)
    await jetstream.delete_stream(STREAM_EVENTS)
    # The next look is a minute away: the server's advisory, or the publisher, has it look at once.
    await eventually(lambda: lists)
    await bus.publish(opted_out("after"), dedup=f"{buses.cluster}/1")
    await eventually(lambda: "after" in listener.names)
    assert lists == [True]


async def test_publishing_makes_a_missing_stream_come_back(buses: Buses, jetstream: JetStreamContext) -> None:
    bus = buses.new(timings=BusTimings(check=60))
    await bus.connect()
    await jetstream.delete_stream(STREAM_EVENTS)
    await bus.publish(opted_out("a"), dedup="1")
    await jetstream.delete_stream(STREAM_DEAD)
    await bus.publish(opted_out("b"), dedup="2")
    bus._supervisor.wake()
    await eventually_async(lambda: exists(jetstream, STREAM_DEAD))


async def exists(jetstream: JetStreamContext, stream: str) -> bool:
    return any(info.config.name == stream for info in await jetstream.streams_info())


async def test_an_acknowledgement_of_a_stream_that_was_deleted_takes_nothing_from_its_successor(
    buses: Buses, client: Client, jetstream: JetStreamContext
) -> None:
    listener, lists = Listener(acknowledge=False), list[bool]()
    await jetstream.delete_stream(STREAM_EVENTS)
    bus = await buses.consuming(listener, timings=BusTimings(check=0.5))
    bus.on_new_stream.append(lambda: lists.append(True))
    await bus.publish(opted_out("old"), dedup=f"{buses.cluster}/1")
    await eventually(lambda: listener.names == ["old"])
    await jetstream.delete_stream(STREAM_EVENTS)
    await eventually(lambda: lists)
    await bus.publish(opted_out("new"), dedup=f"{buses.cluster}/2")
    await eventually(lambda: listener.names == ["old", "new"])
    old, new = listener.received
    assert not old.ack.open
    await old.ack()
    # A process that was frozen meanwhile knows nothing of the new stream, and sends it all the same.
    await client.publish(old.ack._reply)
    await settle(client)
    (info,) = [info for info in await jetstream.consumers_info(STREAM_EVENTS) if buses.cluster in info.name]
    assert old.ack._reply.split(".")[3] == new.ack._reply.split(".")[3] == info.name, "else this proves nothing"
    assert info.num_ack_pending == 1
    assert old.ack.token != new.ack.token


async def test_a_store_that_was_wiped_is_noticed(buses: Buses, nats_server: NatsServer) -> None:
    listener, lists = Listener(), list[bool]()
    bus = await buses.consuming(listener)
    bus.on_new_stream.append(lambda: lists.append(True))
    nats_server.kill()
    wipe(nats_server)
    nats_server.start()
    await eventually(lambda: lists)
    await bus.publish(opted_out("after"), dedup=f"{buses.cluster}/1")
    await eventually(lambda: "after" in listener.names)


def wipe(nats_server: NatsServer) -> None:
    shutil.rmtree(nats_server._directory / "store")


async def test_a_deleted_consumer_is_made_again_and_everything_is_listed(
    buses: Buses, jetstream: JetStreamContext
) -> None:
    listener, lists = Listener(), list[bool]()
    bus = await buses.consuming(listener, timings=BusTimings(check=60))
    bus.on_new_stream.append(lambda: lists.append(True))
    (info,) = [info for info in await jetstream.consumers_info(STREAM_EVENTS) if buses.cluster in info.name]
    await jetstream.delete_consumer(STREAM_EVENTS, info.name)
    await eventually(lambda: lists)
    await bus.publish(opted_out("after"), dedup=f"{buses.cluster}/1")
    await eventually(lambda: "after" in listener.names)


async def test_a_stopped_consumer_receives_nothing_and_its_successor_receives_everything(buses: Buses) -> None:
    first, second = Listener(), Listener()
    leader = await buses.consuming(first)
    follower = buses.new()
    await follower.connect()
    await leader.publish(opted_out("a"), dedup=f"{buses.cluster}/a")
    await eventually(lambda: first.names == ["a"])
    await leader.stop()
    for name in "bcd":
        await leader.publish(opted_out(name), dedup=f"{buses.cluster}/{name}")
    follower.subscribe("nodes", [type(opted_out("x"))], second)
    await follower.start()
    await eventually(lambda: second.names == ["b", "c", "d"])
    assert first.names == ["a"]
    await follower.stop()
    await leader.start()
    await leader.publish(opted_out("e"), dedup=f"{buses.cluster}/e")
    await eventually(lambda: first.names == ["a", "e"])
    assert second.names == ["b", "c", "d"]


async def test_a_stopped_consumer_retains_no_message_of_its_successor(buses: Buses) -> None:
    first, second = Listener(acknowledge=False), Listener()
    leader = await buses.consuming(first)
    await leader.publish(opted_out("in work"), dedup=f"{buses.cluster}/1")
    await eventually(lambda: first.names == ["in work"])
    await leader.stop()
    await buses.consuming(second)
    await eventually(lambda: second.names == ["in work"])


async def test_started_while_the_bus_is_unavailable_it_consumes_later_and_has_everything_listed(
    buses: Buses, nats_server: NatsServer
) -> None:
    listener, lists = Listener(), list[bool]()
    nats_server.stop()
    bus = buses.new()
    bus.subscribe("nodes", [type(opted_out("x"))], listener)
    bus.on_new_stream.append(lambda: lists.append(True))
    connecting = asyncio.create_task(bus.connect())
    await bus.start()
    assert lists == []
    nats_server.start()
    await connecting
    await eventually(lambda: lists)
    await bus.publish(opted_out("a"), dedup=f"{buses.cluster}/a")
    await eventually(lambda: listener.names == ["a"])


async def test_closing_while_the_server_is_unavailable_does_not_hang(buses: Buses, nats_server: NatsServer) -> None:
    never, once = buses.new(), buses.new("node_watcher")
    await once.connect()
    nats_server.stop()
    connecting = asyncio.create_task(never.connect())
    await eventually(lambda: never._connection._failures and not once.connected.is_set())
    async with asyncio.timeout(DEADLINE_SECONDS):
        await never.close()
        await once.close()
    connecting.cancel()
    assert all(health.readiness().ok for health in buses.healths), "a closed bus is no part of the service"


async def test_a_consumer_keeps_its_position_without_readers(buses: Buses, jetstream: JetStreamContext) -> None:
    listener = Listener()
    bus = await buses.consuming(listener)
    await bus.close()
    await jetstream.publish(event_subject(buses.cluster, opted_out("x")), b"poison")
    other = buses.new("node_watcher")
    await other.connect()
    await other.publish(opted_out("unread"), dedup=f"{buses.cluster}/1")
    again = await buses.consuming(listener, timings=QUICK)
    await eventually(lambda: listener.names == ["unread"])
    await again.stop()
