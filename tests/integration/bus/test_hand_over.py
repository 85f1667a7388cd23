"""From one reader to the next: in order, in mid-flow, by a crash. No replica waits, nothing is lost, no delivery counts
as a failure.
"""

from __future__ import annotations

import asyncio
import random

import nats
import pytest
from nats.js import JetStreamContext
from nats.js.api import ConsumerInfo

from support.nats.buses import DEADLINE_SECONDS, Buses, Listener, eventually, eventually_async, opted_out
from trellis.bus.bus import Bus, BusTimings
from trellis.bus.consume.queue import KeyedQueue
from trellis.events.node import NodeOptedOut
from trellis.events.subjects import STREAM_DEAD, STREAM_EVENTS
from trellis.telemetry import Metrics, TraceContext, setup
from trellis_dev.localcluster.nats import NatsServer

pytestmark = [pytest.mark.nats]

PATIENT = BusTimings(check=0.5)
"""Messages of a silent reader come again after 60 s: later than any test waits."""


async def consumer(jetstream: JetStreamContext, cluster: str) -> ConsumerInfo:
    return await jetstream.consumer_info(STREAM_EVENTS, f"provisioner-nodes-{cluster}")


async def all_done(jetstream: JetStreamContext, cluster: str) -> bool:
    info = await consumer(jetstream, cluster)
    return not info.num_ack_pending and not info.num_pending


async def dead_letters(jetstream: JetStreamContext, cluster: str) -> int:
    info = await jetstream.stream_info(STREAM_DEAD, subjects_filter=f"trellis.dead.{cluster}.>")
    return sum((info.state.subjects or {}).values())


async def publish_all(bus: Bus, cluster: str, names: list[str]) -> None:
    await asyncio.gather(*(bus.publish(opted_out(name), dedup=f"{cluster}/{name}") for name in names))


async def crash(bus: Bus) -> None:
    """End a bus as SIGKILL does: the clients are not notified."""
    assert bus._supervising is not None
    bus._supervisor.end()
    bus._supervising.cancel()
    await asyncio.gather(bus._supervising, return_exceptions=True)
    bus._supervising = None
    await bus._connection.close()
    await bus.close()


async def test_messages_in_flight_go_to_the_next_reader_at_once(buses: Buses, jetstream: JetStreamContext) -> None:
    first, second = Listener(acknowledge=False), Listener()
    leader = await buses.consuming(first, timings=PATIENT)
    names = [f"n{number}" for number in range(500)]
    await publish_all(leader, buses.cluster, names)
    await eventually(lambda: len(first.names) == len(names))
    done = {received.data.name for received in first.received[:100]}
    for received in first.received[:100]:
        await received.ack()
    async with asyncio.timeout(DEADLINE_SECONDS):
        await leader.stop()
    await buses.consuming(second, timings=PATIENT)
    await eventually(lambda: len(second.names) == 400)
    assert set(second.names) == set(names) - done
    await eventually_async(lambda: all_done(jetstream, buses.cluster))


async def test_a_message_acknowledged_after_it_was_given_back_is_not_redelivered(
    buses: Buses, jetstream: JetStreamContext
) -> None:
    first, second = Listener(acknowledge=False), Listener()
    leader = await buses.consuming(first, timings=PATIENT)
    await publish_all(leader, buses.cluster, ["drained", "left"])
    await eventually(lambda: len(first.names) == 2)
    await leader.stop()
    (drained,) = [received for received in first.received if received.data.name == "drained"]
    await drained.ack()
    await leader.close()
    await buses.consuming(second, timings=PATIENT)
    await eventually(lambda: second.names)
    await eventually_async(lambda: all_done(jetstream, buses.cluster))
    assert second.names == ["left"]


@pytest.mark.thorough
async def test_readers_that_follow_each_other_in_mid_flow_leave_nothing_waiting(
    buses: Buses, jetstream: JetStreamContext
) -> None:
    """A reader keeps what it got for itself until it stops; the last one does all of it."""
    names = [f"n{number}" for number in range(2200)]
    writer = buses.new("node_watcher")
    await writer.connect()
    publishing: asyncio.Task[None] | None = None
    for _ in range(8):
        given_back = (await consumer(jetstream, buses.cluster)).num_ack_pending if publishing else 0
        listener = Listener(acknowledge=False)
        reader = await buses.consuming(listener, timings=PATIENT)
        publishing = publishing or asyncio.create_task(publish_all(writer, buses.cluster, names))
        enough = given_back + random.randint(5, 60)
        await eventually(lambda: len(listener.names) >= enough)  # noqa: B023 (waited for in this round)
        await reader.close()
    assert publishing is not None
    await publishing
    last = Listener()
    await buses.consuming(last, timings=PATIENT)
    await eventually_async(lambda: all_done(jetstream, buses.cluster))
    assert set(last.names) == set(names)
    assert max(received.deliveries for received in last.received) > 5, "else this proves less"
    assert await dead_letters(jetstream, buses.cluster) == 0


async def test_a_queue_that_stops_in_mid_work_hands_over_what_is_not_done(
    buses: Buses, jetstream: JetStreamContext
) -> None:
    done: list[list[str]] = [[], []]
    names = [f"n{number}" for number in range(300)]
    for turn, own in enumerate(done):

        async def run(key: str, _: TraceContext | None, mine: list[str] = own) -> None:
            await asyncio.sleep(0.005)
            mine.append(key)

        queue = KeyedQueue(workers=4, name="nodes", telemetry=setup("provisioner", metrics=Metrics()))
        bus = buses.new(timings=PATIENT)
        bus.subscribe("nodes", [NodeOptedOut], lambda got, queue=queue: queue.add(got.data.name, got.ack, got.trace))
        await bus.connect()
        await bus.start()
        working = asyncio.create_task(queue.work(run))
        if turn == 0:
            await publish_all(bus, buses.cluster, names)
            await eventually(lambda own=own: len(own) > 50)
            await bus.stop()
            await queue.drain(10)
        else:
            await eventually_async(lambda: all_done(jetstream, buses.cluster))
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        await bus.close()
    assert sorted(done[0] + done[1]) == sorted(names), "each once: what was drained was acknowledged"


async def test_a_message_that_five_readers_crashed_on_is_a_dead_letter_and_its_neighbours_are_not(
    buses: Buses, jetstream: JetStreamContext
) -> None:
    quick = BusTimings(check=0.5, ack_wait=0.3)
    for reader in range(1, 6):
        listener = Listener(acknowledge=False)
        bus = await buses.consuming(listener, timings=quick)
        if reader == 1:
            await bus.publish(opted_out("deadly"), dedup=f"{buses.cluster}/deadly")
        if reader == 5:
            await bus.publish(opted_out("bystander"), dedup=f"{buses.cluster}/bystander")
        await eventually(lambda: "deadly" in listener.names)  # noqa: B023 (waited for in this round)
        await crash(bus)
    last = Listener()
    bus = await buses.consuming(last, timings=quick)
    await eventually_async(lambda: dead_letters(jetstream, buses.cluster))
    await eventually(lambda: "bystander" in last.names)
    await eventually_async(lambda: all_done(jetstream, buses.cluster))
    assert "deadly" not in last.names
    assert await dead_letters(jetstream, buses.cluster) == 1
    await bus.close()
    assert (await consumer(jetstream, buses.cluster)).config.metadata["trellis-readers-crashed"] == "0"  # type: ignore[index]


async def test_deliveries_without_a_reader_count_as_no_failure(
    buses: Buses, jetstream: JetStreamContext, nats_server: NatsServer
) -> None:
    """As a network does that drops connections in mid-fetch: the server counts deliveries without a reader."""
    silent, listener = Listener(acknowledge=False), Listener()
    bus = await buses.consuming(silent, timings=PATIENT)
    await bus.stop()
    await bus.publish(opted_out("unlucky"), dedup=f"{buses.cluster}/1")
    lost = await nats.connect(nats_server.url)
    pull = await lost.jetstream().pull_subscribe("", durable=f"provisioner-nodes-{buses.cluster}", stream=STREAM_EVENTS)
    for _ in range(9):
        (message,) = await pull.fetch(1, timeout=10)
        await message.nak()
    await lost.close()
    await buses.consuming(listener, timings=PATIENT)
    await eventually(lambda: listener.names == ["unlucky"])
    assert listener.received[0].deliveries == 10
    assert await dead_letters(jetstream, buses.cluster) == 0


async def test_a_message_in_flight_over_many_deliveries_is_not_dead_lettered(
    buses: Buses, jetstream: JetStreamContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reports that the work goes on do not get through, so the server delivers again and again."""
    listener = Listener(acknowledge=False)
    bus = await buses.consuming(listener, timings=BusTimings(check=0.5, ack_wait=0.2))
    (subscription,) = bus._supervisor.subscriptions
    monkeypatch.setattr(type(subscription), "keep_alive", lambda _: asyncio.sleep(0))
    subscription._holding.crashes = 9
    await bus.publish(opted_out("held"), dedup=f"{buses.cluster}/1")
    await eventually(lambda: len(listener.received) > 8)
    assert await dead_letters(jetstream, buses.cluster) == 0
    await listener.received[-1].ack()
    await eventually_async(lambda: all_done(jetstream, buses.cluster))


async def test_stopping_while_the_server_is_frozen_does_not_hang(buses: Buses, nats_server: NatsServer) -> None:
    listener = Listener(acknowledge=False)
    bus = await buses.consuming(listener, timings=PATIENT)
    await publish_all(bus, buses.cluster, ["a", "b"])
    await eventually(lambda: len(listener.names) == 2)
    nats_server.pause()
    async with asyncio.timeout(DEADLINE_SECONDS):
        await bus.stop()
