"""A bus that takes long to close is closed all the same: nothing of it comes back, and it says nothing any more."""

from __future__ import annotations

import asyncio

import pytest
import structlog

from support.nats.buses import Buses, Listener, eventually, opted_out
from trellis.bus.publish.availability import HEALTH
from trellis.runtime.shutdown import ends_within
from trellis_dev.localcluster.nats import NatsServer

pytestmark = [pytest.mark.nats]


async def test_one_that_is_not_waited_for_ends_by_itself(buses: Buses, nats_server: NatsServer) -> None:
    bus = await buses.consuming(Listener())
    client = bus._connection._broker.connection
    health = buses.healths[0]
    nats_server.pause()
    try:
        assert not await ends_within(0.01, bus.close(), "bus")
        assert health.readiness().ok, "it is no part of the service any more"
        await eventually(lambda: client.is_closed)
    finally:
        nats_server.resume()
    with structlog.testing.capture_logs() as logs:
        nats_server.kill()
        nats_server.start()
        successor = await buses.consuming(Listener())
        await successor.publish(opted_out("a"), dedup=f"{buses.cluster}/1")
    assert health.readiness().ok
    assert not [line for line in logs if line["log_level"] == "warning"]
    await eventually(lambda: not [task for task in asyncio.all_tasks() if task.get_name().endswith("-closes")])


async def test_a_closed_connection_does_not_change_the_readiness_of_its_successor(buses: Buses) -> None:
    bus = await buses.consuming(Listener())
    health, former = buses.healths[0], bus._availability
    await bus.close()
    former.lost("connection lost")
    former.refused("no permission")
    former.unstored("TRELLIS_EVENTS", "the disk is full")
    assert health.readiness().reasons == ()
    health.not_ready(HEALTH, "next")
    former.back()
    former.forget()
    assert health.readiness().reasons == (f"{HEALTH}: next",)
