"""Events get through: once, traced, acknowledged late, or given up on in the open."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace
from typing import Any

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import ConsumerConfig, ConsumerInfo, DeliverPolicy

from support.nats.buses import DEADLINE_SECONDS, QUICK, Buses, Listener, eventually, eventually_async, opted_out
from trellis.bus.bus import BusTimings, EventRefused, Received
from trellis.events.node import NodeOptedIn, NodeOptedOut
from trellis.events.subjects import STREAM_DEAD, STREAM_EVENTS, event_subject
from trellis.telemetry import context_from

pytestmark = [pytest.mark.nats]

TYPE = "dev.trellis.node.opted_out.v1"


async def consumer_of(jetstream: JetStreamContext, cluster: str) -> ConsumerInfo:
    (info,) = [info for info in await jetstream.consumers_info(STREAM_EVENTS) if info.name.endswith(f"-{cluster}")]
    return info


async def nothing_pending(jetstream: JetStreamContext, cluster: str) -> bool:
    return not (await consumer_of(jetstream, cluster)).num_ack_pending


async def dead_letters(jetstream: JetStreamContext, cluster: str, count: int) -> list[Msg]:
    subscription = await jetstream.pull_subscribe(
        f"trellis.dead.{cluster}.>", stream=STREAM_DEAD, config=ConsumerConfig(deliver_policy=DeliverPolicy.ALL)
    )
    messages: list[Msg] = []
    while len(messages) < count:
        messages += await subscription.fetch(count - len(messages), timeout=DEADLINE_SECONDS)
    await subscription.unsubscribe()
    return messages


async def test_an_event_arrives_unchanged_in_the_trace_of_its_publisher(buses: Buses) -> None:
    listener = Listener()
    bus = await buses.consuming(listener, NodeOptedIn, NodeOptedOut)
    watcher = buses.new("node_watcher")
    await watcher.connect()
    event = NodeOptedIn(
        name="ip-10-0-0-1.ec2.internal",
        uid="uid-1",
        resource_version="7",
        architecture="amd64",
        operating_system="linux",
        runtime_version="containerd://2.0.0",
        labels={"zone": "a"},
        by="Annotation",
    )
    await watcher.publish(event, dedup="uid-1/7/opted_in")
    await eventually(lambda: listener.received)
    (received,) = listener.received
    assert received.data == event
    assert received.deliveries == 1
    assert received.event.id == "uid-1/7/opted_in"
    assert received.event.source == f"/trellis/{buses.cluster}/node_watcher"
    assert received.event.subject == "ip-10-0-0-1.ec2.internal"
    spans = {span.name: span for span in buses.spans.get_finished_spans()}
    published, received_span = spans["publish node.opted_in"], spans["receive node.opted_in"]
    assert (published.kind.name, received_span.kind.name) == ("PRODUCER", "CONSUMER")
    assert received_span.parent is not None
    assert received_span.context.trace_id == published.context.trace_id
    assert received_span.parent.span_id == published.context.span_id
    assert received.trace is not None
    assert f"{received_span.context.span_id:016x}" in received.trace.traceparent
    assert received.event.traceparent is not None
    assert f"{published.context.span_id:016x}" in received.event.traceparent
    await bus.stop()


async def test_headers_carry_dedup_id_trace_and_content_type(buses: Buses, jetstream: JetStreamContext) -> None:
    bus = buses.new()
    await bus.connect()
    await bus.publish(opted_out("a.b"), dedup="id-1")
    message = await jetstream.get_last_msg(STREAM_EVENTS, event_subject(buses.cluster, opted_out("a.b")))
    assert message.headers is not None
    assert message.headers["Nats-Msg-Id"] == "id-1"
    assert message.headers["Content-Type"] == "application/cloudevents+json"
    body = json.loads(message.data or b"")
    assert message.headers["traceparent"] == body["traceparent"]
    assert "tracestate" not in body
    assert body["type"] == TYPE


async def test_the_same_id_twice_is_one_event(buses: Buses) -> None:
    listener = Listener()
    bus = await buses.consuming(listener)
    for _ in range(2):
        await bus.publish(opted_out("once"), dedup=f"{buses.cluster}/1")
    await bus.publish(opted_out("after"), dedup=f"{buses.cluster}/2")
    await eventually(lambda: "after" in listener.names)
    assert listener.names == ["once", "after"]


@pytest.mark.thorough
async def test_many_events_published_at_once_all_arrive(buses: Buses) -> None:
    listener = Listener()
    bus = await buses.consuming(listener)
    names = [f"node-{number}" for number in range(1000)]
    await asyncio.gather(*(bus.publish(opted_out(name), dedup=f"{buses.cluster}/{name}") for name in names))
    await eventually(lambda: len(listener.received) >= len(names))
    assert sorted(listener.names) == sorted(names)


async def test_a_lone_event_does_not_wait_for_a_batch(buses: Buses) -> None:
    listener = Listener()
    bus = await buses.consuming(listener)
    delays: list[float] = []
    for number in range(20):
        began = time.perf_counter()
        await bus.publish(opted_out(f"n{number}"), dedup=f"{buses.cluster}/{number}")
        await eventually(lambda: len(listener.received) > len(delays))
        delays.append(time.perf_counter() - began)
    # Typically 3 ms; a batch that waits to be filled would take the five seconds of a fetch.
    assert sorted(delays)[len(delays) // 2] < 2.0


async def test_events_of_other_models_and_clusters_are_not_received(buses: Buses, nats_server: Any) -> None:
    listener = Listener()
    bus = await buses.consuming(listener)
    other = Buses(nats_server.url, f"{buses.cluster}x")
    elsewhere = other.new()
    await elsewhere.connect()
    await elsewhere.publish(opted_out("elsewhere"), dedup="1")
    await bus.publish(opted_out("here"), dedup=f"{buses.cluster}/2")
    await eventually(lambda: listener.received)
    assert listener.names == ["here"]
    await other.close()


async def test_a_late_acknowledgement_by_another_task_counts(buses: Buses, jetstream: JetStreamContext) -> None:
    listener = Listener(acknowledge=False)
    bus = await buses.consuming(listener, timings=BusTimings())
    await bus.publish(opted_out("late"), dedup=f"{buses.cluster}/1")
    await eventually(lambda: listener.received)
    assert (await consumer_of(jetstream, buses.cluster)).num_ack_pending == 1
    ack = listener.received[0].ack
    await asyncio.create_task(ack())
    await ack()
    await eventually_async(lambda: nothing_pending(jetstream, buses.cluster))


async def test_work_that_takes_long_is_not_delivered_again_but_dropped_work_is(buses: Buses) -> None:
    held: list[Received[NodeOptedOut]] = []
    deliveries: list[str] = []

    def handler(received: Received[NodeOptedOut]) -> None:
        deliveries.append(received.data.name)
        if received.data.name == "held":
            held.append(received)

    bus = buses.new(timings=replace(QUICK, ack_wait=3.0))
    bus.subscribe("nodes", [NodeOptedOut], handler)
    await bus.connect()
    await bus.start()
    for name in ("held", "dropped"):
        await bus.publish(opted_out(name), dedup=f"{buses.cluster}/{name}")
    await eventually(lambda: deliveries.count("dropped") >= 3)
    assert deliveries.count("held") == 1


async def test_an_event_without_a_result_after_five_deliveries_is_a_dead_letter(
    buses: Buses, jetstream: JetStreamContext
) -> None:
    numbers: list[int] = []
    bus = buses.new(timings=BusTimings(check=0.5, ack_wait=0.2))
    bus.subscribe("nodes", [NodeOptedOut], lambda received: numbers.append(received.deliveries))
    await bus.connect()
    await bus.start()
    await bus.publish(opted_out("hopeless"), dedup=f"{buses.cluster}/1")
    (letter,) = await dead_letters(jetstream, buses.cluster, 1)
    assert numbers == [1, 2, 3, 4, 5]
    assert letter.headers is not None
    assert letter.headers["Trellis-Reason"] == "NoResult"
    assert " 5 " in letter.headers["Trellis-Error"]
    assert letter.headers["Trellis-Deliveries"] == "6"


def envelope(**changes: Any) -> bytes:
    event = {"specversion": "1.0", "id": "1", "source": "/x", "type": TYPE, "time": "2026-01-01T00:00:00Z"}
    event |= {"data": {"name": "n", "uid": "u", "resource_version": "1"}} | changes
    return json.dumps(event).encode()


@pytest.mark.parametrize(
    ("body", "reason", "error"),
    [
        pytest.param(b"\xff\x00garbage", "Unparseable", "body", id="garbage"),
        pytest.param(b"", "Unparseable", "body", id="nothing"),
        pytest.param(b"[]", "Unparseable", "CloudEvent", id="no object"),
        pytest.param(
            envelope(type="dev.trellis.node.exploded.v1"),
            "UnknownType",
            "dev.trellis.node.exploded.v1",
            id="unknown type",
        ),
        pytest.param(envelope(data={"name": 5}), "WrongData", f"{TYPE}: name: ", id="wrong data"),
    ],
)
async def test_a_poison_message_is_a_dead_letter_and_the_healthy_one_behind_it_is_handled(
    buses: Buses, jetstream: JetStreamContext, body: bytes, reason: str, error: str
) -> None:
    listener = Listener()
    bus = await buses.consuming(listener)
    subject = event_subject(buses.cluster, opted_out("poisoned.node"))
    await jetstream.publish(subject, body, headers={"X-From": "attacker"})
    await bus.publish(opted_out("healthy"), dedup=f"{buses.cluster}/healthy")
    await eventually(lambda: "healthy" in listener.names)
    (letter,) = await dead_letters(jetstream, buses.cluster, 1)
    assert letter.subject == f"trellis.dead.{buses.cluster}.provisioner.node.poisoned=2Enode"
    assert letter.data == body
    assert letter.headers is not None
    assert letter.headers["Trellis-Reason"] == reason
    assert error in letter.headers["Trellis-Error"]
    assert letter.headers["Trellis-Subject"] == subject
    assert json.loads(letter.headers["Trellis-Headers"]) == {"X-From": "attacker"}
    assert int(letter.headers["Trellis-Sequence"]) > 0
    await eventually_async(lambda: nothing_pending(jetstream, buses.cluster))
    counted = buses.metrics.registry.get_sample_value(
        "trellis_dead_letters_total", {"service": "provisioner", "reason": reason}
    )
    assert counted == 1


async def test_a_handler_that_raises_loses_no_message_and_delays_no_other_handler(buses: Buses) -> None:
    handled: list[str] = []

    def handler(received: Received[NodeOptedOut]) -> None:
        if received.data.name == "tricky" and received.deliveries == 1:
            raise KeyError("a bug")
        handled.append(received.data.name)

    bus = buses.new()
    bus.subscribe("nodes", [NodeOptedOut], handler)
    await bus.connect()
    await bus.start()
    for name in ("tricky", "plain"):
        await bus.publish(opted_out(name), dedup=f"{buses.cluster}/{name}")
    await eventually(lambda: {"tricky", "plain"} <= set(handled))
    assert handled[0] == "plain"


async def test_an_event_that_is_too_large_is_refused_and_the_connection_stays(buses: Buses) -> None:
    listener = Listener()
    bus = await buses.consuming(listener)
    huge = opted_out("huge", uid="u" * 1_100_000)
    with pytest.raises(EventRefused, match="max_payload"):
        await bus.publish(huge, dedup="1")
    await bus.publish(opted_out("next"), dedup=f"{buses.cluster}/2")
    await eventually(lambda: listener.names == ["next"])


async def test_a_poison_message_of_the_largest_size_becomes_a_dead_letter_cut_to_fit(
    buses: Buses, client: Client, jetstream: JetStreamContext
) -> None:
    listener = Listener()
    bus = await buses.consuming(listener)
    body = b"x" * client.max_payload
    await jetstream.publish(event_subject(buses.cluster, opted_out("big")), body)
    (letter,) = await dead_letters(jetstream, buses.cluster, 1)
    assert letter.headers is not None
    assert letter.headers["Trellis-Truncated"] == str(len(body))
    assert body.startswith(letter.data)
    await bus.publish(opted_out("next"), dedup=f"{buses.cluster}/2")
    await eventually(lambda: listener.names == ["next"])


async def test_work_started_by_an_event_continues_its_trace(buses: Buses) -> None:
    listener = Listener()
    bus = await buses.consuming(listener)
    await bus.publish(opted_out("a"), dedup=f"{buses.cluster}/1")
    await eventually(lambda: listener.received)
    tracer = buses.made[0]._telemetry.tracer
    with tracer.start_as_current_span("reconcile", context=context_from(listener.received[0].trace)):
        pass
    spans = {span.name: span for span in buses.spans.get_finished_spans()}
    chain = [spans[name].context.trace_id for name in ("publish node.opted_out", "receive node.opted_out", "reconcile")]
    assert len(set(chain)) == 1


async def test_the_last_event_of_each_subject_is_remembered_in_order(buses: Buses) -> None:
    bus = buses.new()
    await bus.connect()
    for number, name in enumerate("abab"):
        await bus.publish(opted_out(name, uid=f"uid-{number}"), dedup=f"{buses.cluster}/{number}")
    assert [(event.name, event.uid) async for event in bus.last_events([NodeOptedOut])] == [
        ("a", "uid-2"),
        ("b", "uid-3"),
    ]
    assert [event async for event in bus.last_events([NodeOptedIn])] == []
