"""The frequency of reports about an outage."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from trellis.bus.connection.connection import REFUSED
from trellis.lattice.connection.address import NatsAddress
from trellis.lattice.connection.lattice_connection import LatticeConnection
from trellis.lattice.domain.outage import Outage
from trellis.lattice.timings import OutageTimings

REFUSES = "connection refused"
SILENT = "no answer in time"
HOUR = 3600.0
PAUSE = OutageTimings().pause


def test_the_first_reason_is_reported_and_the_same_again_is_not() -> None:
    outage = Outage("not asked yet")
    assert outage.unavailable(REFUSES, 0.0)
    assert [outage.unavailable(REFUSES, float(at)) for at in (1, 100, 10_000)] == [False] * 3
    assert outage.reason == REFUSES


def test_another_reason_is_reported_after_a_while() -> None:
    outage = Outage("")
    outage.unavailable(REFUSES, 0.0)
    assert not outage.unavailable(SILENT, PAUSE - 1)
    assert outage.reason == REFUSES
    assert outage.unavailable(SILENT, PAUSE)
    assert outage.reason == SILENT


def test_a_vague_reason_gives_way_to_the_next_at_once_and_only_that() -> None:
    outage = Outage("")
    assert outage.unavailable("connection lost", 0.0, vague=True)
    assert outage.unavailable(REFUSES, 0.1)
    assert not outage.unavailable(SILENT, 0.2)


def test_an_urgent_reason_is_reported_at_once_but_not_alternately() -> None:
    outage = Outage("")
    outage.unavailable(REFUSES, 0.0)
    assert outage.unavailable(REFUSED, 1.0, urgent=True)
    assert outage.unavailable(REFUSES, 1.0 + PAUSE)
    assert not outage.unavailable(REFUSED, 2.0 + PAUSE, urgent=True)


@pytest.mark.parametrize(
    "reasons", [(REFUSES, SILENT), (REFUSES, SILENT, REFUSED), tuple(map(str, range(100)))], ids=["two", "three", "100"]
)
def test_reasons_by_turns_are_reported_ever_more_seldom(reasons: tuple[str, ...]) -> None:
    outage, turns = Outage(""), itertools.cycle(reasons)
    news = [at for at in range(0, int(24 * HOUR), 15) if outage.unavailable(next(turns), float(at), urgent=True)]
    assert len([at for at in news if at < HOUR]) <= 20
    assert len([at for at in news if at >= 12 * HOUR]) <= 12, "once an hour"
    assert news[-1] > 22 * HOUR, "and no reason is for ever"


def test_an_outage_that_is_over_counts_no_more() -> None:
    outage = Outage("")
    outage.unavailable(REFUSES, 0.0)
    outage.over()
    assert outage.reason == ""
    assert outage.unavailable(REFUSES, 1.0)


def test_an_unstable_connection_notifies_its_users_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, received_at = [0.0], []
    monkeypatch.setattr("trellis.lattice.connection.lattice_connection.time.monotonic", lambda: clock[0])
    link = LatticeConnection(NatsAddress("nats://a:1,nats://b:1"), "test", lambda: received_at.append(link.reason))
    for reason in itertools.islice(itertools.cycle((REFUSES, SILENT)), 240):
        link._lost(reason)
        clock[0] += 15.0
    assert received_at[:2] == [f"{reason} (nats://a:1,nats://b:1)" for reason in (REFUSES, SILENT)]
    assert len(received_at) <= 8, "of an hour; each is a write for every group"


async def test_an_address_with_a_second_port_names_the_field_of_the_port() -> None:
    changed = asyncio.Event()
    link = LatticeConnection(NatsAddress("nats://a.example:4222:4222"), "test", changed.set)
    running = asyncio.create_task(link.run())
    async with asyncio.timeout(20):
        await changed.wait()
    running.cancel()
    await asyncio.wait([running])
    assert "natsClientPort" in link.reason
