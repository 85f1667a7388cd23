"""A client that floods a lattice costs its own connection, and no host counts as deleted for it."""

from __future__ import annotations

import asyncio
import time
import tracemalloc

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from support.suite.naming import lacking
from trellis.lattice.connection.flood import Flood
from trellis.lattice.connection.subscriptions import (
    ANSWERS_BYTES,
    BYTES_AT_ONCE,
    MESSAGES_AT_ONCE,
    MESSAGES_PER_SECOND,
    Answers,
)
from trellis.lattice.domain.hosts import Host, Hosts, Presence
from trellis.lattice.timings import ConnectionTimings, FloodTimings
from unit.lattice.test_lying_servers import LyingServer, met, until

SMALL = b"MSG loud 1 1\r\nx\r\n"
LARGE = b"MSG loud 1 %d\r\n" % 2**20 + b"x" * 2**20 + b"\r\n"


class Subscriber:
    """A subscriber that records the messages and how often the loop had its turn meanwhile."""

    def __init__(self) -> None:
        self.messages = self.bytes = 0

    def on_message(self, _subject: str, payload: bytes) -> None:
        self.messages += 1
        self.bytes += len(payload)


@pytest.mark.parametrize(("sent", "times"), [(SMALL * 1000, 40), (LARGE, 100)], ids=["many messages", "large messages"])
async def test_a_flood_ends_its_connection_with_the_reason_and_no_more_than_the_bound_is_read(
    sent: bytes, times: int
) -> None:
    subscriber, lying, began = Subscriber(), LyingServer(sent, times), time.monotonic()
    async with met(lying) as link:
        await link.listen("loud", subscriber.on_message)
        await until(lambda: lacking(link.reason, "loud") == [])
        took = time.monotonic() - began
        assert link.since is None
        assert subscriber.messages <= MESSAGES_AT_ONCE + took * MESSAGES_PER_SECOND
        assert subscriber.bytes <= BYTES_AT_ONCE + took * 4 * 2**20
        await asyncio.wait_for(lying.disconnected.wait(), 15)


async def test_messages_within_the_bound_are_all_received() -> None:
    subscriber = Subscriber()
    async with met(LyingServer(SMALL * 100, 100)) as link:
        await link.listen("loud", subscriber.on_message)
        await until(lambda: subscriber.messages == 10_000)
        assert link.since is not None


async def test_a_link_that_was_flooded_is_there_again_later() -> None:
    lying = LyingServer(SMALL * 1000, 40)
    async with met(lying, ConnectionTimings(flood=FloodTimings(unavailable=0.05))) as link:
        await link.listen("loud", lambda *_: None)
        await until(lambda: lacking(link.reason, "loud") == [])
        lying.sent = b""
        await until(lambda: link.since is not None and not link.reason)


async def test_too_many_unread_messages_end_the_connection_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the loop has something else to do: the library keeps what it cannot hand over."""
    monkeypatch.setattr("trellis.lattice.connection.subscriptions.PENDING_MESSAGES", 50)
    async with met(LyingServer(SMALL * 1000, 1)) as link:
        await link.listen("loud", lambda *_: None)
        await until(lambda: lacking(link.reason, "loud") == [])


def test_a_host_dropped_in_a_flood_is_unknown_and_its_heartbeat_not_missing() -> None:
    hosts = Hosts()
    hosts.process(Host("N"), now=0.0)
    assert hosts.presence("N", 1000.0, connected_since=0.0) is Presence.HEARTBEAT_MISSING
    assert hosts.presence("N", 1000.0, connected_since=None) is Presence.UNKNOWN, "while the link is away for a flood"
    assert hosts.presence("N", 1000.0, connected_since=990.0) is Presence.UNKNOWN, "and when it is there again"


def test_each_flood_is_followed_by_a_longer_pause_up_to_a_bound_and_a_calm_one_by_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    monkeypatch.setattr("trellis.lattice.connection.flood.time.monotonic", lambda: now[0])
    flood, pauses = Flood(), []
    for _ in range(6):
        flood.watch()
        flood.came("too much")
        pauses.append(flood.pause())
        now[0] += pauses[-1]
    assert pauses == [30, 60, 120, 240, 300, 300]
    flood.watch()
    assert flood.pause() == 0, "nothing was left out of this one"
    now[0] += 3600
    flood.watch()
    flood.came("too much")
    assert flood.pause() == 30, "it is long ago"


async def test_answers_to_one_question_are_bounded_in_number_and_bytes() -> None:
    few, large = Answers(3), Answers(1000)
    payload = bytes(2**20)
    for _ in range(50):
        await few.take(Msg(Client(), data=b"x"))
        await large.take(Msg(Client(), data=payload))
    assert len(few.taken) == 3
    assert sum(map(len, large.taken)) == ANSWERS_BYTES


async def test_messages_without_a_payload_take_no_memory_beyond_the_bound() -> None:
    """The library counts payloads alone: of empty messages half a million waited, some 500 bytes each."""
    tracemalloc.start()
    try:
        async with met(LyingServer(b"MSG loud 1 0\r\n\r\n" * 10_000, 30)) as link:
            await link.listen("loud", lambda *_: None)
            await until(lambda: link.reason)
            assert tracemalloc.get_traced_memory()[1] < 64 * 2**20
    finally:
        tracemalloc.stop()
