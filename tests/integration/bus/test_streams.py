"""Streams are created as declared, changed only by users, and problems are reported in full."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from nats.js import JetStreamContext
from nats.js.api import DiscardPolicy, StreamConfig

from support.nats.buses import Buses, Listener, eventually, eventually_async, opted_out
from trellis.bus.bus import BusTimings
from trellis.bus.errors import BusUnavailable, StreamError
from trellis.bus.publish.availability import STORAGE
from trellis.bus.streams.streams import DEFAULT_LIMITS, StreamLimits, ensure_streams
from trellis.events.subjects import STREAM_DEAD, STREAM_EVENTS, STREAM_LATTICE, STREAM_SUBJECTS, event_subject

pytestmark = [pytest.mark.nats]

DAY = 86_400
MIB = 1024 * 1024


@pytest.fixture
async def empty(jetstream: JetStreamContext) -> AsyncIterator[JetStreamContext]:
    """JetStream without streams, before and after."""
    await delete_all(jetstream)
    yield jetstream
    await delete_all(jetstream)


async def delete_all(jetstream: JetStreamContext) -> None:
    for info in await jetstream.streams_info():
        assert info.config.name is not None
        await jetstream.delete_stream(info.config.name)


async def test_streams_have_the_documented_limits(empty: JetStreamContext) -> None:
    await ensure_streams(empty)
    limits = {}
    for name, subject in STREAM_SUBJECTS.items():
        config = (await empty.stream_info(name)).config
        assert config.subjects == [subject]
        assert (config.retention, config.storage, config.discard) == ("limits", "file", "old")
        assert config.duplicate_window == 120
        assert config.allow_direct
        limits[name] = (config.max_age, config.max_bytes)
    assert limits == {
        STREAM_EVENTS: (7 * DAY, 1024 * MIB),
        STREAM_LATTICE: (7 * DAY, 1024 * MIB),
        STREAM_DEAD: (30 * DAY, 256 * MIB),
    }


async def test_creating_them_twice_changes_nothing_and_returns_the_same_creation_time(empty: JetStreamContext) -> None:
    first = await ensure_streams(empty)
    assert (await ensure_streams(empty)).created == first.created
    await empty.delete_stream(STREAM_EVENTS)
    assert (await ensure_streams(empty)).created > first.created


async def test_no_sequence_of_one_life_of_a_stream_is_one_of_the_next(empty: JetStreamContext) -> None:
    assert (await ensure_streams(empty)).distinct
    subject = event_subject("c", opted_out("a"))
    former = [(await empty.publish(subject, b"x")).seq for _ in range(100)]
    await empty.delete_stream(STREAM_EVENTS)
    await ensure_streams(empty)
    assert (await empty.publish(subject, b"x")).seq > max(former)
    assert (await empty.publish("trellis.dead.c.provisioner.node.a", b"x")).seq == 1, "people type this number"


async def test_a_stream_made_by_hand_is_known_by_its_creation_time(buses: Buses, empty: JetStreamContext) -> None:
    """Its sequences begin at 1 in each life, so the durable of one life must not be that of another."""
    await empty.add_stream(StreamConfig(name=STREAM_EVENTS, subjects=["trellis.evt.>"]))
    epoch = await ensure_streams(empty)
    assert not epoch.distinct
    await buses.consuming(Listener())
    (info,) = await empty.consumers_info(STREAM_EVENTS)
    assert info.name == f"provisioner-nodes-{buses.cluster}-{epoch.token}"


async def test_limits_that_a_person_changed_are_left_alone(empty: JetStreamContext) -> None:
    await ensure_streams(empty)
    changed = (await empty.stream_info(STREAM_EVENTS)).config
    changed.max_bytes = 5 * MIB
    await empty.update_stream(changed)
    await ensure_streams(empty)
    assert (await empty.stream_info(STREAM_EVENTS)).config.max_bytes == 5 * MIB


async def test_a_stream_that_takes_other_subjects_is_refused(empty: JetStreamContext) -> None:
    await empty.add_stream(StreamConfig(name=STREAM_EVENTS, subjects=["other.>"]))
    with pytest.raises(StreamError, match=r"TRELLIS_EVENTS .*other\.>.*trellis\.evt\.>"):
        await ensure_streams(empty)


async def test_a_stream_under_another_name_with_the_subjects_of_trellis_is_named(empty: JetStreamContext) -> None:
    await empty.add_stream(StreamConfig(name="FOREIGN", subjects=["trellis.>"]))
    with pytest.raises(StreamError, match=r"trellis\.evt\.>.*nats stream ls --subjects"):
        await ensure_streams(empty)


async def test_too_little_room_names_the_stream_the_limit_and_the_setting(empty: JetStreamContext) -> None:
    limits = {**DEFAULT_LIMITS, STREAM_DEAD: StreamLimits(DAY, 10**9 * MIB)}
    with pytest.raises(StreamError, match=r"TRELLIS_DEAD .* 1000000000 MiB: .*max_file_store"):
        await ensure_streams(empty, limits)


async def test_a_bus_with_a_wrong_stream_is_not_ready_states_the_reason_and_recovers(
    buses: Buses, empty: JetStreamContext
) -> None:
    await empty.add_stream(StreamConfig(name="FOREIGN", subjects=["trellis.>"]))
    bus = buses.new()
    connecting = asyncio.create_task(bus.connect())
    await eventually(
        lambda: any("nats stream ls --subjects" in reason for reason in buses.healths[0].readiness().reasons)
    )
    await empty.delete_stream("FOREIGN")
    await connecting
    await bus.publish(opted_out("a"), dedup="1")


async def test_a_stream_that_stores_nothing_is_reported_and_its_recovery_too(
    buses: Buses, empty: JetStreamContext
) -> None:
    bus = buses.new(timings=BusTimings(check=0.5, publish_budget=4.0))
    await bus.connect()
    config = (await empty.stream_info(STREAM_EVENTS)).config
    await empty.update_stream(replace(config, discard=DiscardPolicy.NEW, max_msgs=1))
    await bus.publish(opted_out("a"), dedup="a")

    async def is_reported() -> bool:
        with contextlib.suppress(BusUnavailable):
            await bus.publish(opted_out("b"), dedup="b")
        return any(
            reason.startswith(STORAGE) and STREAM_EVENTS in reason for reason in buses.healths[0].readiness().reasons
        )

    await eventually_async(is_reported)
    await empty.update_stream(config)  # a purge would leave room for one message, and the last "b" can be on its way
    await bus.publish(opted_out("c"), dedup="c")
    await eventually(lambda: buses.healths[0].readiness().ok)


@pytest.mark.parametrize(
    ("change", "mended"),
    [({"sealed": True}, None), ({"no_ack": True}, {"no_ack": False}), ({"max_msg_size": 10}, {"max_msg_size": -1})],
    ids=["sealed", "no-ack", "max-msg-size"],
)
async def test_a_stream_that_a_person_made_take_nothing_is_named_and_no_event_is_dropped_for_it(
    buses: Buses, empty: JetStreamContext, change: dict[str, Any], mended: dict[str, Any] | None
) -> None:
    bus = buses.new(timings=BusTimings(check=0.5, publish_budget=4.0))
    await bus.connect()
    await bus.publish(opted_out("a"), dedup="a")
    config = (await empty.stream_info(STREAM_EVENTS)).config
    await empty.update_stream(replace(config, **change))
    with pytest.raises(BusUnavailable):
        await bus.publish(opted_out("b"), dedup="b")
    [name] = change
    expected_text = name if mended else "is sealed"
    await eventually(lambda: any(expected_text in reason for reason in buses.healths[0].readiness().reasons))
    if mended is None:
        await empty.delete_stream(STREAM_EVENTS)
    else:
        await empty.update_stream(replace(config, **mended))
    await eventually(lambda: buses.healths[0].readiness().ok)
    await bus.publish(opted_out("b"), dedup="b")
