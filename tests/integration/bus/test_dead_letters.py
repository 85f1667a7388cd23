"""Dead letters: listed, shown, replayed, and deleted only when their message is stored again."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import StreamConfig

from support.nats.buses import Buses, Listener, eventually, eventually_async, opted_out
from support.nats.raw_nats import ODD_BODIES, ODD_HEADERS, ODD_TOKENS, raw_publish
from support.suite.tiers import first_of
from trellis.bus.bus import Bus, BusTimings, Received
from trellis.bus.dead_letters.read import DeadLetter, Wanted
from trellis.bus.dead_letters.store import DeadLetters, ReplayRefused, dead_letters
from trellis.bus.errors import BusUnavailable, StreamError
from trellis.bus.streams.tail import Selection, TailedEvent, Tally, replay
from trellis.bus.timings import ReplayTimings
from trellis.events.node import NodeOptedOut
from trellis.events.subjects import STREAM_DEAD, STREAM_EVENTS, event_subject
from trellis_dev.localcluster.nats import NatsServer

pytestmark = [pytest.mark.nats]

HASTY = BusTimings(check=0.5, ack_wait=0.2)
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def stored_dead_letters(buses: Buses, **wanted: Any) -> list[DeadLetter]:
    async with dead_letters(buses.url) as box:
        return [letter async for letter in box.find(Wanted(cluster=buses.cluster, **wanted))]


async def stored_dead_letter(buses: Buses) -> DeadLetter:
    """Return the dead letter of this test, with its body, once there is one."""
    await eventually_async(lambda: stored_dead_letters(buses))
    (listed,) = await stored_dead_letters(buses)
    async with dead_letters(buses.url) as box:
        letter = await box.get(listed.sequence)
    assert letter is not None
    return letter


async def published_events(buses: Buses) -> list[TailedEvent]:
    return [event async for event in replay(buses.url, Selection(cluster=buses.cluster), Tally())]


async def a_poison(buses: Buses, jetstream: JetStreamContext, body: bytes = b"poison", **headers: str) -> DeadLetter:
    """Return the dead letter of a message that the reader cannot decode."""
    await buses.consuming(Listener())
    await jetstream.publish(event_subject(buses.cluster, opted_out("poisoned.node")), body, headers=headers or None)
    return await stored_dead_letter(buses)


async def test_a_dead_letter_has_the_message_the_consumer_and_the_reason(
    buses: Buses, jetstream: JetStreamContext
) -> None:
    before = datetime.now(UTC)
    found = await a_poison(buses, jetstream, **{"X-From": "somebody", "traceparent": TRACEPARENT})
    assert (found.cluster, found.service, found.subscription) == (buses.cluster, "provisioner", "nodes")
    assert (found.noun, found.key) == ("node", ("poisoned.node",))
    assert found.subject == f"trellis.evt.{buses.cluster}.node.opted_out.poisoned=2Enode"
    assert (found.stream, found.deliveries, found.reason) == (STREAM_EVENTS, 1, "Unparseable")
    assert found.error.startswith("not a CloudEvent")
    assert found.original_sequence
    assert found.original_headers == {"X-From": "somebody", "traceparent": TRACEPARENT}
    assert found.trace_id == "0af7651916cd43dd8448eb211c80319c"
    assert (found.body, found.size, found.truncated, found.obstacle) == (b"poison", 6, None, "")
    assert before - timedelta(seconds=2) < found.stored


async def test_lists_carry_no_bodies_and_can_be_narrowed(buses: Buses, jetstream: JetStreamContext) -> None:
    found = await a_poison(buses, jetstream)
    (listed,) = await stored_dead_letters(buses)
    assert (listed.body, listed.size) == (b"", 6)
    for meant in (
        {"service": "provisioner"},
        {"noun": "node"},
        {"reason": "unparseable"},
        {"since": found.stored, "until": found.stored},
    ):
        assert len(await stored_dead_letters(buses, **meant)) == 1, meant
    for other in (
        {"service": "node_watcher"},
        {"noun": "rollout"},
        {"reason": "NoResult"},
        {"since": found.stored + timedelta(milliseconds=1)},
        {"until": found.stored - timedelta(milliseconds=1)},
    ):
        assert await stored_dead_letters(buses, **other) == [], other


async def test_a_message_whose_handler_was_repaired_is_handled_once_by_replaying_its_letter(buses: Buses) -> None:
    broken, handled, listener = True, list[Received[NodeOptedOut]](), Listener()

    def handler(received: Received[NodeOptedOut]) -> None:
        if broken:
            raise KeyError("a bug")
        handled.append(received)
        listener(received)

    async def consuming(timings: BusTimings) -> Bus:
        bus = buses.new(timings=timings)
        bus.subscribe("nodes", [NodeOptedOut], handler)
        await bus.connect()
        await bus.start()
        return bus

    bus = await consuming(HASTY)
    await bus.publish(opted_out("hapless"), dedup=f"{buses.cluster}/1")
    letter = await stored_dead_letter(buses)
    assert (letter.reason, letter.deliveries) == ("NoResult", 6)
    broken = False
    await bus.close()
    bus = await consuming(BusTimings())  # by which what is acknowledged a little late is not delivered again
    async with dead_letters(buses.url) as box:
        done = await box.replay(letter)
    assert (done.stream, done.again) == (STREAM_EVENTS, False)
    await eventually(lambda: handled)
    await bus.publish(opted_out("next"), dedup=f"{buses.cluster}/2")
    await eventually(lambda: len(handled) >= 2)
    assert [(received.data.name, received.deliveries) for received in handled] == [("hapless", 1), ("next", 1)]
    first, again = (await published_events(buses))[:2]
    assert first.event == again.event
    assert handled[0].trace is not None
    assert first.trace_id
    assert first.trace_id in handled[0].trace.traceparent
    assert await stored_dead_letters(buses) == []


async def test_a_message_an_old_reader_did_not_know_is_handled_by_its_successor(buses: Buses) -> None:
    old, listener = buses.new(), Listener()
    old.subscribe("nodes", [NodeOptedOut], Listener())
    (subscription,) = old._supervisor.subscriptions
    subscription._models = {"dev.trellis.node.opted_out.v0": NodeOptedOut}
    await old.connect()
    await old.start()
    await old.publish(opted_out("n"), dedup=f"{buses.cluster}/1")
    letter = await stored_dead_letter(buses)
    assert letter.reason == "UnknownType"
    await old.close()
    new = await buses.consuming(listener)
    async with dead_letters(buses.url) as box:
        await box.replay(letter)
    await new.publish(opted_out("next"), dedup=f"{buses.cluster}/2")
    await eventually(lambda: "next" in listener.names)
    assert listener.names == ["n", "next"]
    assert await stored_dead_letters(buses) == []


async def test_a_replay_has_the_originals_body_and_headers_and_an_id_of_its_own(
    buses: Buses, jetstream: JetStreamContext
) -> None:
    headers = {
        "Nats-Msg-Id": f"{buses.cluster}/1",
        "Nats-Expected-Last-Msg-Id": "",
        "X-From": "jemand, größer",
        "traceparent": TRACEPARENT,
        "tracestate": "a=b",
    }
    letter = await a_poison(buses, jetstream, b"\x00\xffpoison", **headers)
    for bus in buses.made:
        await bus.close()
    async with dead_letters(buses.url) as box:
        done = await box.replay(letter)
    message = await jetstream.get_msg(STREAM_EVENTS, done.sequence, direct=True)
    assert message.headers is not None
    kept = {name: value for name, value in message.headers.items() if not name.startswith("Nats-")}
    assert kept == {"X-From": "jemand, größer", "traceparent": TRACEPARENT, "tracestate": "a=b"}
    assert message.headers["Nats-Msg-Id"] == f"replay/{letter.epoch}/{letter.sequence}"
    assert (message.subject, message.data) == (letter.subject, letter.body)


async def test_a_crash_between_publishing_and_removal_repeats_harmlessly(
    buses: Buses, jetstream: JetStreamContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    letter = await a_poison(buses, jetstream)
    for bus in buses.made:
        await bus.close()

    async def crash(*_: object) -> None:
        raise asyncio.CancelledError

    async with dead_letters(buses.url) as box:
        with monkeypatch.context() as patch:
            patch.setattr(DeadLetters, "_remove", crash)
            with pytest.raises(asyncio.CancelledError):
                await box.replay(letter)
        assert len(await stored_dead_letters(buses)) == 1
        assert len(await published_events(buses)) == 2
        done = await box.replay(letter)
    assert done.again
    assert await stored_dead_letters(buses) == []
    assert len(await published_events(buses)) == 2


async def test_a_dead_letter_is_kept_until_its_message_is_stored(buses: Buses, jetstream: JetStreamContext) -> None:
    letter = await a_poison(buses, jetstream)
    for bus in buses.made:
        await bus.close()
    await jetstream.delete_stream(STREAM_EVENTS)
    async with dead_letters(buses.url, timings=ReplayTimings(budget=0.5)) as box:
        with pytest.raises(BusUnavailable, match=rf"letter {letter.sequence}\b.*{re.escape(letter.subject)}"):
            await box.replay(letter)
    assert len(await stored_dead_letters(buses)) == 1


async def test_a_message_is_never_stored_in_a_stream_of_another_owner(
    buses: Buses, jetstream: JetStreamContext
) -> None:
    letter = await a_poison(buses, jetstream)
    for bus in buses.made:
        await bus.close()
    await jetstream.delete_stream(STREAM_EVENTS)
    await jetstream.add_stream(StreamConfig(name="FOREIGN", subjects=["trellis.evt.>"]))
    try:
        async with dead_letters(buses.url) as box:
            with pytest.raises(ReplayRefused, match=rf"letter {letter.sequence}\b"):
                await box.replay(letter)
        assert len(await stored_dead_letters(buses)) == 1
    finally:
        await jetstream.delete_stream("FOREIGN")


async def test_the_dead_letter_of_a_recreated_stream_does_not_remove_another_one(
    buses: Buses, jetstream: JetStreamContext
) -> None:
    letter = await a_poison(buses, jetstream)
    config = (await jetstream.stream_info(STREAM_DEAD)).config
    await jetstream.delete_stream(STREAM_DEAD)
    await jetstream.add_stream(config)
    for _ in range(letter.sequence):
        await jetstream.publish(f"trellis.dead.{buses.cluster}.s.node.other", b"another letter")
    async with dead_letters(buses.url) as box:
        await box.replay(letter)
        other = await box.get(letter.sequence)
    assert other is not None
    assert other.body == b"another letter"


async def test_a_dead_letter_that_another_user_has_removed_is_no_error(
    buses: Buses, jetstream: JetStreamContext
) -> None:
    letter = await a_poison(buses, jetstream)
    await jetstream.delete_msg(STREAM_DEAD, letter.sequence)
    async with dead_letters(buses.url) as box:
        await box.replay(letter)
        assert await box.get(letter.sequence) is None


async def test_a_stream_that_keeps_its_dead_letters_is_reported_with_the_outcome(
    buses: Buses, jetstream: JetStreamContext
) -> None:
    letter = await a_poison(buses, jetstream)
    await jetstream.delete_stream(STREAM_DEAD)
    await jetstream.add_stream(StreamConfig(name=STREAM_DEAD, subjects=["trellis.dead.>"], deny_delete=True))
    try:
        bus = buses.new("node_watcher")
        await bus.connect()
        await jetstream.publish(
            f"trellis.dead.{buses.cluster}.s.node.x", b"x", headers={"Trellis-Subject": letter.subject}
        )
        kept = await stored_dead_letter(buses)
        async with dead_letters(buses.url) as box:
            with pytest.raises(BusUnavailable, match=rf"letter {kept.sequence}\b"):
                await box.replay(kept)
        assert letter.subject in [event.subject for event in await published_events(buses)][-1:], "it was stored"
        assert kept.sequence in [item.sequence for item in await stored_dead_letters(buses)], "and was not removed"
    finally:
        await jetstream.delete_stream(STREAM_DEAD)


async def test_dead_letters_that_cannot_be_replayed_are_refused_by_name(
    buses: Buses, jetstream: JetStreamContext
) -> None:
    bus = buses.new()
    await bus.connect()
    subject = f"trellis.dead.{buses.cluster}.s.node.x"
    good = event_subject(buses.cluster, opted_out("x"))
    cases = {
        " 99 to 4 bytes": {"Trellis-Subject": good, "Trellis-Truncated": "99"},
        "orders.new": {"Trellis-Subject": "orders.new"},
        "trellis.dead.a.b.c.d": {"Trellis-Subject": "trellis.dead.a.b.c.d"},
        "trellis.evt.*.node.gone.x": {"Trellis-Subject": "trellis.evt.*.node.gone.x"},
        "": {"X": "y"},
        "Trellis-Headers": {"Trellis-Subject": good, "Trellis-Headers": "{"},
        good: {"Trellis-Subject": good, "Trellis-Headers": '{"a b": "c"}'},
    }
    for named, headers in cases.items():
        ack = await jetstream.publish(subject, b"body", headers=headers)
        async with dead_letters(buses.url) as box:
            letter = await box.get(ack.seq)
            assert letter is not None
            with pytest.raises(ReplayRefused, match=rf"letter {ack.seq}\b.*{re.escape(named)}"):
                await box.replay(letter)
    assert len(await stored_dead_letters(buses)) == len(cases)
    assert await published_events(buses) == []


async def test_the_largest_dead_letter_comes_back_whole(
    buses: Buses, client: Client, jetstream: JetStreamContext
) -> None:
    body = b"x" * (client.max_payload - 2000)
    letter = await a_poison(buses, jetstream, body)
    assert letter.body == body
    for bus in buses.made:
        await bus.close()
    async with dead_letters(buses.url) as box:
        await box.replay(letter)
    assert [event.size for event in await published_events(buses)] == [len(body), len(body)]


async def test_without_its_stream_or_a_server_it_states_what_is_missing(
    buses: Buses, jetstream: JetStreamContext, nats_server: NatsServer
) -> None:
    bus = buses.new()
    await bus.connect()
    await bus.close()
    await jetstream.delete_stream(STREAM_DEAD)
    with pytest.raises(StreamError, match=STREAM_DEAD):
        await stored_dead_letters(buses)
    nats_server.stop()
    with pytest.raises(BusUnavailable, match="connection refused"):
        await stored_dead_letters(buses)


async def test_reading_waits_out_a_restart(buses: Buses, jetstream: JetStreamContext, nats_server: NatsServer) -> None:
    bus = buses.new()
    await bus.connect()
    await bus.close()
    count = 150
    for number in range(count):
        await jetstream.publish(f"trellis.dead.{buses.cluster}.s.node.n{number}", b"x")
    seen = 0
    async with dead_letters(buses.url) as box:
        async for _ in box.find(Wanted(cluster=buses.cluster)):
            seen += 1
            if seen == 1:
                nats_server.kill()
                nats_server.start()
    assert seen == count


@pytest.mark.thorough
async def test_dead_letters_that_are_created_meanwhile_are_left_for_the_next_time(
    buses: Buses, jetstream: JetStreamContext
) -> None:
    bus = buses.new()
    await bus.connect()
    await bus.close()
    count = 150  # more than are read at a time

    async def bury() -> None:
        headers = {"Trellis-Subject": event_subject(buses.cluster, opted_out("n"))}
        await jetstream.publish(f"trellis.dead.{buses.cluster}.s.node.n", b"poison", headers=headers)

    for _ in range(count):
        await bury()
    replayed = 0
    async with dead_letters(buses.url) as box:
        async for letter in box.find(Wanted(cluster=buses.cluster), bodies=True):
            await box.replay(letter)
            await bury()  # its reader still does not understand it
            replayed += 1
            assert replayed <= count
    assert replayed == count
    assert len(await stored_dead_letters(buses)) == count


# --- garbage ---


@pytest.mark.parametrize("odd", first_of(ODD_TOKENS.values(), 3), ids=list(ODD_TOKENS))
async def test_an_odd_subject_is_listed_and_tailed_and_stalls_no_service(
    buses: Buses, nats_server: NatsServer, odd: bytes
) -> None:
    listener = Listener()
    bus = await buses.consuming(listener)
    cluster = buses.cluster.encode()
    raw_publish(nats_server.port, b"trellis.dead." + cluster + b".s.node." + odd, b"by hand")
    for root in (b".node.opted_out.", b"."):
        raw_publish(nats_server.port, b"trellis.evt." + cluster + root + odd, b"{}")
    await bus.publish(opted_out("healthy"), dedup=f"{buses.cluster}/1")
    await eventually(lambda: listener.names == ["healthy"])
    await eventually_async(lambda: has(buses, 2))
    by_hand = [letter for letter in await stored_dead_letters(buses) if letter.service == "s"]
    assert [letter.size for letter in by_hand] == [7]
    assert [event.event_name == "opted_out" for event in await published_events(buses)][-1]
    assert len(await published_events(buses)) == 3


async def has(buses: Buses, count: int) -> bool:
    return len(await stored_dead_letters(buses)) >= count


@pytest.mark.parametrize("odd", first_of(ODD_HEADERS.values(), 3), ids=list(ODD_HEADERS))
async def test_an_odd_header_is_listed_and_tailed_and_stalls_no_service(
    buses: Buses, nats_server: NatsServer, odd: bytes
) -> None:
    listener = Listener()
    bus = await buses.consuming(listener)
    cluster = buses.cluster.encode()
    raw_publish(nats_server.port, b"trellis.dead." + cluster + b".s.node.x", b"", odd)
    for body in (b"", b"{}"):
        raw_publish(nats_server.port, b"trellis.evt." + cluster + b".node.opted_out.x", body, odd)
    await bus.publish(opted_out("healthy"), dedup=f"{buses.cluster}/1")
    await eventually(lambda: listener.names == ["healthy"])
    await eventually_async(lambda: has(buses, 3))
    assert len(await stored_dead_letters(buses)) == 3
    assert len(await published_events(buses)) == 3


async def test_odd_bodies_are_tailed(buses: Buses, jetstream: JetStreamContext) -> None:
    bus = buses.new()
    await bus.connect()
    for body in ODD_BODIES.values():
        await jetstream.publish(f"trellis.evt.{buses.cluster}.node.gone.x", body)
    assert [event.size for event in await published_events(buses)] == [len(body) for body in ODD_BODIES.values()]


async def test_subjects_that_are_too_short_are_tailed_and_listed(buses: Buses, jetstream: JetStreamContext) -> None:
    bus = buses.new()
    await bus.connect()
    for rest in ("x", "x.y", "x.y.z"):
        await jetstream.publish(f"trellis.evt.{buses.cluster}.{rest}", b"")
        await jetstream.publish(f"trellis.dead.{buses.cluster}.{rest}", b"")
    await jetstream.publish("trellis.dead.short", b"")
    assert [event.noun for event in await published_events(buses)] == ["x", "x", "x"]
    assert [letter.service for letter in await stored_dead_letters(buses)] == ["x", "x", "x"]
    async with dead_letters(buses.url) as box:
        assert [letter async for letter in box.find(Wanted()) if letter.cluster == "short"]
