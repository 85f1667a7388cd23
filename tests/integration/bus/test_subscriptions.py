"""Consumers stalled on purpose: first they restart, then the liveness probe fails; an outage causes neither."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable, MutableMapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import nats.errors
import pytest
import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext

from support.nats.buses import Buses, Listener, eventually, eventually_async, opted_out
from support.suite.tiers import first_of
from trellis.bus.bus import Bus, BusTimings
from trellis.bus.timings import ConnectionTimings
from trellis.events.subjects import STREAM_EVENTS
from trellis_dev.localcluster.nats import NatsServer

pytestmark = [pytest.mark.nats]

STALLED_AFTER = 3.0
TIMING = BusTimings(
    check=0.1,
    again=0.1,
    ack_wait=30.0,
    stalled_after=STALLED_AFTER,
    connection=ConnectionTimings(ping=1, attempt_most=0.5),
)
LABELS = {"service": "provisioner", "subscription": "nodes"}


def staleness(buses: Buses) -> float:
    value = buses.metrics.registry.get_sample_value("trellis_subscription_staleness_seconds", LABELS)
    assert value is not None
    return value


def re_created(logs: Iterable[MutableMapping[str, Any]]) -> list[MutableMapping[str, Any]]:
    """Return the warnings of a subscription that was restarted: how long it was stalled, and what waited."""
    return [line for line in logs if {"name", "seconds", "waiting"} <= line.keys()]


async def hang(*_: object) -> list[Msg]:
    return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]


async def swallow(*_: object) -> list[Msg]:
    await asyncio.sleep(0.3)
    raise nats.errors.TimeoutError


async def test_a_consume_loop_that_ended_is_restarted_and_receives_the_events_of_the_gap(buses: Buses) -> None:
    listener, lists = Listener(), list[bool]()
    # It is restarted after a third of the time: by then the event is stored.
    bus = await buses.consuming(listener, timings=replace(TIMING, stalled_after=3 * STALLED_AFTER))
    bus.on_new_stream.append(lambda: lists.append(True))
    (subscription,) = bus._supervisor.subscriptions
    subscriber = subscription._subscriber
    assert subscriber is not None
    with structlog.testing.capture_logs() as logs:
        subscriber.tasks[0].cancel()
        await bus.publish(opted_out("unheard"), dedup=f"{buses.cluster}/1")
        await eventually(lambda: listener.names == ["unheard"])
    (warning,) = re_created(logs)
    assert (warning["log_level"], warning["name"], warning["waiting"]) == ("warning", "nodes", 1)
    assert lists == [], "the consumer kept its place: there is no need to list"
    assert buses.healths[0].liveness().ok


@pytest.mark.parametrize("fetch", first_of([hang, swallow]), ids=["hangs", "hears nothing"])
async def test_a_stall_that_recreation_does_not_resolve_requests_a_restart_and_silence_does_not(
    buses: Buses, jetstream: JetStreamContext, monkeypatch: pytest.MonkeyPatch, fetch: object
) -> None:
    listener, quiet = Listener(), Listener()
    bus = await buses.consuming(listener, timings=TIMING)
    await buses.consuming(quiet, service="service_reflector", timings=TIMING)
    stalled, bystander = buses.healths
    stall(bus, monkeypatch, fetch)

    async def requested_no_more() -> bool:
        return not (await jetstream.consumer_info(STREAM_EVENTS, f"provisioner-nodes-{buses.cluster}")).num_waiting

    await eventually_async(requested_no_more)
    with structlog.testing.capture_logs() as logs:
        await bus.publish(opted_out("unheard"), dedup=f"{buses.cluster}/1")
        await eventually(lambda: quiet.names == ["unheard"])
        await eventually(lambda: not stalled.liveness().ok)
    assert len(re_created(logs)) >= 2
    (reason,) = stalled.liveness().reasons
    assert reason.startswith("subscription nodes: ")
    assert stalled.readiness().ok, "NATS answers"
    assert staleness(buses) >= STALLED_AFTER
    assert bystander.liveness().ok, "there was nothing to hear, and its loop goes round"
    monkeypatch.undo()
    await eventually(lambda: listener.names == ["unheard"])
    await eventually(lambda: stalled.liveness().ok)


def stall(bus: Bus, monkeypatch: pytest.MonkeyPatch, fetch: object) -> None:
    """Let this bus' fetches, those under way too, bring nothing."""
    fetch = JetStreamContext.PullSubscription.fetch

    async def fetch_or_not(self: JetStreamContext.PullSubscription, *args: float) -> list[Msg]:
        if bus._connection.broker is not None and self._nc is bus._connection.broker.connection:
            return await fetch(self)  # type: ignore[no-any-return,operator]
        return await fetch(self, *args)

    monkeypatch.setattr(JetStreamContext.PullSubscription, "fetch", fetch_or_not)
    (subscription,) = bus._supervisor.subscriptions
    assert subscription._fetching is not None
    assert subscription._fetching._under_way is not None
    subscription._fetching._under_way.cancel()


@pytest.mark.parametrize("way", ["pause", "stop"])
async def test_in_an_outage_a_consumer_is_not_ready_alive_and_receives_again_when_it_is_over(
    buses: Buses, nats_server: NatsServer, way: str
) -> None:
    listener = Listener()
    bus = await buses.consuming(listener, timings=TIMING)
    (health,) = buses.healths
    (nats_server.pause if way == "pause" else nats_server.stop)()
    await eventually(lambda: not health.readiness().ok)
    await eventually(lambda: staleness(buses) > 1.5 * STALLED_AFTER, seconds=60)
    assert health.liveness().ok
    assert not health.readiness().ok
    nats_server.resume()
    nats_server.start()
    await bus.connected.wait()
    await bus.publish(opted_out("after"), dedup=f"{buses.cluster}/1")
    await eventually(lambda: listener.names == ["after"])
    assert health.liveness().ok
    await eventually(lambda: staleness(buses) < STALLED_AFTER / 3)
    await bus.stop()
    assert buses.metrics.registry.get_sample_value("trellis_subscription_staleness_seconds", LABELS) is None


async def test_a_bus_whose_closing_is_cancelled_requests_no_restart(
    buses: Buses, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus = await buses.consuming(Listener(), timings=TIMING)
    (subscription,), (health,) = bus._supervisor.subscriptions, buses.healths
    hangs, over = asyncio.Event(), asyncio.Event()

    async def hang_at_the_end() -> None:
        hangs.set()
        await over.wait()

    with monkeypatch.context() as patched:
        patched.setattr(subscription, "stop", hang_at_the_end)
        closing = asyncio.create_task(bus.close())
        await hangs.wait()
        closing.cancel()
        await asyncio.gather(closing, return_exceptions=True)
    over.set()
    assert health._probes == {}, "nobody is there any more who could hear"
    assert health.parts() == {}
    assert buses.metrics.registry.get_sample_value("trellis_subscription_staleness_seconds", LABELS) is None


async def test_a_consumer_that_a_user_pauses_is_named_asks_for_no_restart_and_goes_on_when_it_is_resumed(
    buses: Buses, client: Client, jetstream: JetStreamContext
) -> None:
    listener, stalled_after = Listener(), 2.0
    bus = await buses.consuming(
        listener, timings=BusTimings(check=0.2, ack_wait=5.0, publish_budget=10.0, stalled_after=stalled_after)
    )
    [name] = [item.name for item in await jetstream.consumers_info(STREAM_EVENTS) if buses.cluster in item.name]
    [health] = buses.healths

    async def pause(until: datetime) -> None:
        body = json.dumps({"pause_until": until.isoformat().replace("+00:00", "Z")}).encode()
        answer = await client.request(f"$JS.API.CONSUMER.PAUSE.{STREAM_EVENTS}.{name}", body, timeout=20)
        assert "error" not in json.loads(answer.data), answer.data

    await pause(datetime.now(UTC) + timedelta(hours=1))
    await bus.publish(opted_out("late"), dedup="late")
    await eventually(lambda: any(name in reason for reason in health.readiness().reasons))
    until = time.monotonic() + 3 * stalled_after
    await eventually(lambda: not health.liveness().ok or time.monotonic() > until)
    assert health.liveness().ok
    assert not listener.names
    await pause(datetime.now(UTC) - timedelta(hours=1))
    await eventually(lambda: listener.names == ["late"])
    await eventually(lambda: health.readiness().ok)
