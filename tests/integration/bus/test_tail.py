"""Following the events: old ones, new ones, over outages."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from nats.js import JetStreamContext
from nats.js.api import ConsumerInfo

from support.nats.buses import Buses, eventually, eventually_async, opted_out
from support.suite.tcp_proxy import TcpProxy
from support.suite.tiers import first_of
from trellis.bus.bus import Bus
from trellis.bus.errors import BusUnavailable, StreamError
from trellis.bus.streams.tail import Selection, TailedEvent, Tally, replay, tail
from trellis.events.rollout import RolloutResumed
from trellis.events.subjects import STREAM_EVENTS, pattern_filter
from trellis_dev.localcluster.nats import NatsServer

pytestmark = [pytest.mark.nats]


async def with_events(buses: Buses, *names: str) -> Bus:
    bus = buses.new("node_watcher")
    await bus.connect()
    for name in names:
        await bus.publish(opted_out(name), dedup=f"{buses.cluster}/{name}")
    return bus


@contextlib.asynccontextmanager
async def following(events: AsyncIterator[TailedEvent]) -> AsyncIterator[list[TailedEvent]]:
    seen: list[TailedEvent] = []

    async def read() -> None:
        async for event in events:
            seen.append(event)  # noqa: PERF401 (the list is looked at while it grows)

    task = asyncio.create_task(read())
    try:
        yield seen
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def past(buses: Buses, tally: Tally | None = None, **selection: Any) -> list[TailedEvent]:
    """Return the events of this test's cluster that `replay` yields."""
    wanted = Selection(cluster=buses.cluster, **selection)
    return [event async for event in replay(buses.url, wanted, tally or Tally())]


def keys(events: list[TailedEvent]) -> list[str]:
    return ["/".join(event.key) for event in events]


async def test_the_past_is_shown_in_order_and_ends(buses: Buses) -> None:
    bus = await with_events(buses, "a.x", "b", "c")
    await bus.publish(RolloutResumed(digest="d", failing=0), dedup=f"{buses.cluster}/r")
    tally = Tally()
    events = await past(buses, tally)
    assert [(event.noun, event.event_name, event.key) for event in events] == [
        ("node", "opted_out", ("a.x",)),
        ("node", "opted_out", ("b",)),
        ("node", "opted_out", ("c",)),
        ("rollout", "resumed", ("d",)),
    ]
    assert {event.cluster for event in events} == {buses.cluster}
    assert events[0].event["data"]["name"] == "a.x"
    assert (tally.looked_at, tally.shown) == (4, 4)
    assert keys(await past(buses, last=10)) == ["a.x", "b", "c", "d"]
    assert keys(await past(buses, last=2)) == ["c", "d"]
    assert keys(await past(buses, noun="node", last=2)) == ["b", "c"]
    for first, event in enumerate(events):
        assert keys(await past(buses, since=event.stored)) == ["a.x", "b", "c", "d"][first:]
    assert keys(await past(buses, until=events[1].stored)) == ["a.x", "b"]
    assert keys(await past(buses, since=events[1].stored, until=events[2].stored)) == ["b", "c"]
    assert await past(buses, since=datetime.now(UTC)) == []
    assert await past(Buses(buses.url, "c-nobody")) == []


async def test_a_reader_leaves_no_consumer_behind(buses: Buses, jetstream: JetStreamContext) -> None:
    await with_events(buses, "a", "b")
    assert len(await past(buses)) == 2
    async with following(tail(buses.url, Selection(cluster=buses.cluster))) as seen:
        await with_events(buses, "c")
        await eventually(lambda: len(seen) == 1)
        assert await readers(buses, jetstream) == 1

    async def none_is_left() -> bool:
        return await readers(buses, jetstream) == 0

    await eventually_async(none_is_left)


async def readers(buses: Buses, jetstream: JetStreamContext) -> int:
    """Return the number of consumers that read the events of this cluster without a service's name."""
    return sum(info.config.durable_name is None for info in await consumers_of(jetstream, buses.cluster))


async def test_a_pattern_selects_subjects_and_a_trace_its_events(buses: Buses) -> None:
    bus = await with_events(buses, "a", "b.x")
    await bus.publish(RolloutResumed(digest="d", failing=0), dedup=f"{buses.cluster}/r")
    events = await past(buses)
    assert keys(await past(buses, pattern=pattern_filter("*.*.b=2Ex", buses.cluster))) == ["b.x"]
    assert keys(await past(buses, pattern=pattern_filter("node.>", buses.cluster))) == ["a", "b.x"]
    assert keys(await past(buses, pattern=f"trellis.evt.{buses.cluster}.rollout.>")) == ["d"]
    traces = [event.trace_id for event in events]
    assert len(set(traces)) == 3
    tally = Tally()
    assert keys(await past(buses, tally, trace=traces[1])) == ["b.x"]
    assert (tally.looked_at, tally.shown) == (3, 1)
    assert keys(await past(buses, trace=traces[2][:8])) == ["d"]


async def test_at_the_original_pace_it_takes_as_long_as_it_took(buses: Buses) -> None:
    bus = await with_events(buses, "a")
    first = (await past(buses))[0].stored
    await eventually(lambda: datetime.now(UTC) - first > timedelta(seconds=0.5))
    await bus.publish(opted_out("b"), dedup=f"{buses.cluster}/b")
    loop = asyncio.get_running_loop()
    selection = Selection(cluster=buses.cluster)
    moments = [loop.time() async for _ in replay(buses.url, selection, Tally(), original_pace=True)]
    assert moments[1] - moments[0] >= 0.4


async def test_the_past_survives_a_consumer_that_vanished_in_a_pause(buses: Buses, jetstream: JetStreamContext) -> None:
    await with_events(buses, *[f"n{number}" for number in range(150)])
    seen = []
    async for event in replay(buses.url, Selection(cluster=buses.cluster), Tally()):
        seen.append("/".join(event.key))
        if len(seen) == 1:
            for info in await jetstream.consumers_info(STREAM_EVENTS):
                if info.config.filter_subject and buses.cluster in info.config.filter_subject:
                    await jetstream.delete_consumer(STREAM_EVENTS, info.name)
    assert seen == [f"n{number}" for number in range(150)]


async def test_reading_a_missing_stream_is_an_error_that_names_the_cause(
    buses: Buses, jetstream: JetStreamContext
) -> None:
    await with_events(buses, "a")
    await buses.close()
    await jetstream.delete_stream(STREAM_EVENTS)
    with pytest.raises(StreamError, match=STREAM_EVENTS):
        await past(buses)


async def test_it_follows_over_a_restart_of_the_server_without_gap_or_repetition(
    buses: Buses, nats_server: NatsServer
) -> None:
    bus = await with_events(buses, "a")
    async with following(tail(buses.url, Selection(cluster=buses.cluster, last=1))) as seen:
        await eventually(lambda: len(seen) == 1)
        nats_server.kill()
        nats_server.start()
        for name in "bc":
            await bus.publish(opted_out(name), dedup=f"{buses.cluster}/{name}")
        await eventually(lambda: len(seen) == 3)
        assert [event.key for event in seen] == [("a",), ("b",), ("c",)]


async def test_tailing_continues_with_the_first_event_of_a_recreated_stream(
    buses: Buses, jetstream: JetStreamContext
) -> None:
    bus = await with_events(buses, "a")
    async with following(tail(buses.url, Selection(cluster=buses.cluster, last=1))) as seen:
        await eventually(lambda: len(seen) == 1)
        await jetstream.delete_stream(STREAM_EVENTS)
        await bus.publish(opted_out("b"), dedup=f"{buses.cluster}/b")
        await eventually(lambda: len(seen) == 2)
        assert seen[1].key == ("b",)


async def test_without_a_server_the_error_names_the_address(nats_server: NatsServer, buses: Buses) -> None:
    nats_server.stop()
    with pytest.raises(BusUnavailable, match=f"no NATS at {nats_server.url}: connection refused"):
        await anext(tail(buses.url, Selection()))


async def test_a_tail_ends_when_its_end_has_come(buses: Buses) -> None:
    await with_events(buses, "a")
    selection = Selection(cluster=buses.cluster, last=1, until=datetime.now(UTC) + timedelta(seconds=5))
    assert [event.key async for event in tail(buses.url, selection)] == [("a",)]


async def consumers_of(jetstream: JetStreamContext, cluster: str) -> list[ConsumerInfo]:
    """Return the consumers that read the events of a cluster."""
    found = await jetstream.consumers_info(STREAM_EVENTS)
    return [info for info in found if cluster in (info.config.filter_subject or "")]


async def swallowed(jetstream: JetStreamContext, cluster: str) -> bool:
    """Return whether the server sends the newest event of this cluster to a reader of it within two seconds.

    By the event's sequence in the stream: a reader that creates its consumer again counts messages from one.
    """
    newest = (await jetstream.get_last_msg(STREAM_EVENTS, f"trellis.evt.{cluster}.>")).seq
    assert newest is not None

    async def sent() -> bool:
        own = await consumers_of(jetstream, cluster)
        return any(info.delivered.stream_seq >= newest for info in own if info.delivered)

    with contextlib.suppress(TimeoutError):
        await eventually_async(sent, 2.0)
        return True
    return False


@pytest.mark.parametrize("goes_on", first_of([True, False]), ids=["and another follows", "and nothing follows"])
async def test_an_event_that_a_cut_connection_swallowed_is_requested_again(
    buses: Buses, nats_server: NatsServer, jetstream: JetStreamContext, goes_on: bool
) -> None:
    bus = await with_events(buses, "a")

    async def is_asked() -> bool:
        return any(info.num_waiting for info in await consumers_of(jetstream, buses.cluster))

    async with TcpProxy("127.0.0.1", nats_server.port) as proxy:
        url = f"nats://127.0.0.1:{proxy.port}"
        async with following(tail(url, Selection(cluster=buses.cluster, last=1))) as seen:
            await eventually(lambda: keys(seen) == ["a"])
            wanted = ["a"]
            while True:  # until one is sent into the silence: a request of the reader can expire just before
                await eventually_async(is_asked)
                wanted.append(f"b{len(wanted)}")
                proxy.silence()
                await bus.publish(opted_out(wanted[-1]), dedup=f"{buses.cluster}/{wanted[-1]}")
                if await swallowed(jetstream, buses.cluster):
                    break
                proxy.resume()
                await eventually(lambda: keys(seen) == wanted)
            proxy.cut()
            proxy.resume()
            if goes_on:
                wanted.append("c")
                await bus.publish(opted_out("c"), dedup=f"{buses.cluster}/c")
            await eventually(lambda: len(seen) >= len(wanted), 60)
            assert keys(seen) == wanted
