"""Readers and writers of different age on one stream: no reader is woken in vain, and no alert fires."""

from __future__ import annotations

import json
from typing import Any, ClassVar

import pytest
from nats.js import JetStreamContext

from support.nats.buses import Buses, Listener, eventually, eventually_async, opted_out
from trellis.events import subjects
from trellis.events.node import NodeOptedOut
from trellis.events.subjects import NODE_WATCHER, STREAM_DEAD, STREAM_EVENTS, EventSpec, event_subject

pytestmark = [pytest.mark.nats]

TYPE = "dev.trellis.node.opted_out"


class OptedOutV2(NodeOptedOut):
    """The same in another form."""

    version: ClassVar[int] = 2


@pytest.fixture(autouse=True)
def second_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(subjects._BY_MODEL, OptedOutV2, EventSpec(OptedOutV2, NODE_WATCHER))


def envelope(ce_type: str, name: str, **changes: Any) -> bytes:
    event = {"specversion": "1.0", "id": name, "source": "/x", "type": ce_type, "time": "2026-01-01T00:00:00Z"}
    event |= {"data": {"name": name, "uid": "u", "resource_version": "1", "since": 5}, "partitionkey": "p"} | changes
    return json.dumps(event).encode()


async def dead_letters(jetstream: JetStreamContext, cluster: str) -> list[str]:
    """The subjects under which messages were given up on."""
    info = await jetstream.stream_info(STREAM_DEAD, subjects_filter=f"trellis.dead.{cluster}.>")
    return list(info.state.subjects or {})


async def test_fields_and_attributes_of_a_newer_writer_are_ignored(buses: Buses, jetstream: JetStreamContext) -> None:
    listener = Listener()
    await buses.consuming(listener)
    await jetstream.publish(event_subject(buses.cluster, opted_out("n")), envelope(f"{TYPE}.v1", "n"))
    await eventually(lambda: listener.names == ["n"])
    assert await dead_letters(jetstream, buses.cluster) == []


async def test_two_versions_published_side_by_side_reach_each_reader_in_its_own(buses: Buses) -> None:
    old, new = Listener(), Listener()
    await buses.consuming(old)
    await buses.consuming(new, OptedOutV2, service="service_reflector")
    writer = buses.new("node_watcher")
    await writer.connect()
    for name in ("a", "b"):
        dedup = f"{buses.cluster}/{name}"
        await writer.publish(opted_out(name), dedup=dedup)
        await writer.publish(OptedOutV2(name=name, uid="uid-1", resource_version="1"), dedup=dedup)
    await eventually(lambda: (old.names, new.names) == (["a", "b"], ["a", "b"]))
    assert {received.event.type for received in old.received} == {f"{TYPE}.v1"}
    assert {received.event.type for received in new.received} == {f"{TYPE}.v2"}
    # Each version remembers for itself what was said last.
    assert [event.name async for event in writer.last_events([NodeOptedOut])] == ["a", "b"]


async def test_a_newer_version_on_the_subject_of_a_known_one_is_counted_and_left_alone(
    buses: Buses, jetstream: JetStreamContext
) -> None:
    listener = Listener()
    bus = await buses.consuming(listener)
    await jetstream.publish(
        event_subject(buses.cluster, opted_out("n")), envelope(f"{TYPE}.v2", "n", data={"other": 1})
    )
    await bus.publish(opted_out("after"), dedup=f"{buses.cluster}/after")
    await eventually(lambda: listener.names == ["after"])

    async def all_acknowledged() -> bool:
        infos = await jetstream.consumers_info(STREAM_EVENTS)
        (info,) = [info for info in infos if info.name.endswith(f"-{buses.cluster}")]
        return not info.num_ack_pending

    await eventually_async(all_acknowledged)
    assert await dead_letters(jetstream, buses.cluster) == []
    labels = {"service": "provisioner", "type": f"{TYPE}.v1"}
    assert buses.metrics.registry.get_sample_value("trellis_events_unsupported_version_total", labels) == 1


async def test_a_version_that_is_read_no_more_is_a_dead_letter(buses: Buses, jetstream: JetStreamContext) -> None:
    listener = Listener()
    await buses.consuming(listener, OptedOutV2)
    subject = f"trellis.evt.{buses.cluster}.node.opted_out-v2.n"
    await jetstream.publish(subject, envelope(f"{TYPE}.v1", "n"))
    await eventually_async(lambda: dead_letters(jetstream, buses.cluster))
    (subject,) = await dead_letters(jetstream, buses.cluster)
    letter = await jetstream.get_last_msg(STREAM_DEAD, subject)
    assert letter.headers is not None
    assert letter.headers["Trellis-Reason"] == "UnknownType"
    for named in (f"{TYPE}.v1", f"{TYPE}.v2"):
        assert named in letter.headers["Trellis-Error"]
    assert listener.names == []
