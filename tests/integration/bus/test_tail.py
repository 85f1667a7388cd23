"""Following the facts: old ones, new ones, over outages."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from nats.js import JetStreamContext

from support.buses import Buses, eventually, opted_out
from trellis.bus.bus import Bus
from trellis.bus.errors import BusUnavailable
from trellis.bus.tail import TailedEvent, tail
from trellis.events.rollout import RolloutResumed
from trellis.events.subjects import STREAM_EVENTS
from trellis.localcluster.nats import NatsServer

pytestmark = [pytest.mark.nats]


async def said(buses: Buses, *names: str) -> Bus:
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


async def test_it_shows_the_last_facts_of_a_cluster_and_ends_if_not_told_to_follow(buses: Buses) -> None:
    bus = await said(buses, "a.x", "b", "c")
    await bus.publish(RolloutResumed(digest="d", failing=0), dedup=f"{buses.cluster}/r")
    url = buses.url
    events = [event async for event in tail(url, cluster=buses.cluster, last=10, follow=False)]
    assert [(event.noun, event.fact, event.key) for event in events] == [
        ("node", "opted_out", ("a.x",)),
        ("node", "opted_out", ("b",)),
        ("node", "opted_out", ("c",)),
        ("rollout", "resumed", ("d",)),
    ]
    assert {event.cluster for event in events} == {buses.cluster}
    assert events[0].event["data"]["name"] == "a.x"
    assert [event.key for event in [e async for e in tail(url, cluster=buses.cluster, last=2, follow=False)]] == [
        ("c",),
        ("d",),
    ]
    nodes = [e async for e in tail(url, cluster=buses.cluster, noun="node", last=2, follow=False)]
    assert [event.key for event in nodes] == [("b",), ("c",)]
    hour = [e async for e in tail(url, cluster=buses.cluster, since=timedelta(hours=1), follow=False)]
    assert len(hour) == 4
    assert [e async for e in tail(url, cluster=buses.cluster, follow=False)] == []


async def test_it_follows_over_a_restart_of_the_server_without_gap_or_repetition(
    buses: Buses, nats_server: NatsServer
) -> None:
    bus = await said(buses, "a")
    async with following(tail(buses.url, cluster=buses.cluster, last=1)) as seen:
        await eventually(lambda: len(seen) == 1)
        nats_server.kill()
        nats_server.start()
        for name in "bc":
            await bus.publish(opted_out(name), dedup=f"{buses.cluster}/{name}")
        await eventually(lambda: len(seen) == 3)
        assert [event.key for event in seen] == [("a",), ("b",), ("c",)]


async def test_it_goes_on_with_the_first_fact_of_a_stream_made_anew(buses: Buses, jetstream: JetStreamContext) -> None:
    bus = await said(buses, "a")
    async with following(tail(buses.url, cluster=buses.cluster, last=1)) as seen:
        await eventually(lambda: len(seen) == 1)
        await jetstream.delete_stream(STREAM_EVENTS)
        await bus.publish(opted_out("b"), dedup=f"{buses.cluster}/b")
        await eventually(lambda: len(seen) == 2)
        assert seen[1].key == ("b",)


async def test_without_a_server_it_says_where_it_looked(nats_server: NatsServer, buses: Buses) -> None:
    nats_server.stop()
    with pytest.raises(BusUnavailable, match=f"no NATS at {nats_server.url}: connection refused"):
        await anext(tail(buses.url))
