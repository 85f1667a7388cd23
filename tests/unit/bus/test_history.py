"""The last events of a stream are parsed one by one."""

from __future__ import annotations

from datetime import UTC, datetime

from trellis.bus.consume.message import Origin, compose
from trellis.bus.streams.history import events_in
from trellis.events.node import NodeOptedIn, NodeOptedOut


def message(name: str) -> bytes:
    event = NodeOptedOut(name=name, uid="u", resource_version="1")
    return compose(event, origin=Origin("c", "s"), dedup=name, time=datetime.now(UTC), trace=None)[0]


def test_events_come_in_order_without_invalid_messages() -> None:
    messages = [message("a"), b"", message("b"), b"{}"]
    assert [event.name for event in events_in(messages, [NodeOptedOut])] == ["a", "b"]


def test_events_of_other_models_are_skipped() -> None:
    assert list(events_in([message("a")], [NodeOptedIn])) == []


def test_a_message_is_parsed_when_its_event_is_needed_and_dropped_then() -> None:
    messages = [message("a"), message("b"), message("c")]
    events = events_in(messages, [NodeOptedOut])
    assert [(event.name, len(messages)) for event in events] == [("a", 2), ("b", 1), ("c", 0)]
