from __future__ import annotations

from typing import Any, cast

import pytest

from trellis.bus.consume.ack import Ack
from trellis.bus.consume.in_flight import MAX_DELIVERIES, InFlight
from trellis.bus.streams.streams import Epoch


class Wire:
    """A client that notes what is published."""

    def __init__(self, *, is_connected: bool = True) -> None:
        self.is_connected = is_connected
        self.sent: list[tuple[str, bytes]] = []

    async def publish(self, subject: str, body: bytes = b"") -> None:
        self.sent.append((subject, body))


def new_ack(sequence: int = 1, wire: Wire | None = None, epoch: Epoch | None = None, reply: str = "reply") -> Ack:
    return Ack(cast("Any", wire or Wire()), reply, epoch or Epoch(7), sequence)


TOKEN = new_ack().token


@pytest.mark.parametrize("deliveries", [1, 2, 6, 1000])
def test_deliveries_without_a_local_reader_or_a_crash_never_dead_letter_a_message(deliveries: int) -> None:
    assert not InFlight().hopeless(TOKEN, deliveries)


def test_deliveries_that_were_dropped_here_count() -> None:
    holding = InFlight()
    for delivery in range(1, MAX_DELIVERIES + 1):
        assert not holding.hopeless(TOKEN, delivery)
        holding.take(new_ack())  # and nobody keeps it
    assert holding.hopeless(TOKEN, MAX_DELIVERIES + 1)
    assert not holding.hopeless(new_ack(2).token, MAX_DELIVERIES + 1)


def test_deliveries_without_a_local_reader_count_as_often_as_readers_crashed() -> None:
    holding = InFlight()
    holding.crashes = 3
    assert not holding.hopeless(TOKEN, 100)
    holding.drop(TOKEN)
    assert not holding.hopeless(TOKEN, 100)
    holding.drop(TOKEN)
    assert holding.hopeless(TOKEN, 100)
    assert not holding.hopeless(TOKEN, 4), "two were dropped here, so only one was left for those before"
    holding.crashes = 5
    assert not holding.hopeless(new_ack(2).token, 5)
    assert holding.hopeless(new_ack(2).token, 6)


def test_a_message_in_flight_is_in_progress_regardless_of_redeliveries() -> None:
    holding = InFlight()
    holding.crashes = 9
    ack = new_ack()
    holding.take(ack)
    assert not holding.hopeless(TOKEN, 1000)
    newer = new_ack()
    holding.take(newer)
    del ack
    assert list(holding) == [newer], "the former delivery was replaced, not dropped"
    assert not holding.hopeless(TOKEN, 1000)
    holding.crashes = 0
    del newer
    assert list(holding) == []
    assert not holding.hopeless(TOKEN, 1000)


async def test_an_acknowledged_message_is_forgotten() -> None:
    holding = InFlight()
    holding.drop(TOKEN)
    ack = new_ack()
    holding.take(ack)
    await ack()
    assert (holding._held, holding._dropped) == ({}, {})
    del ack
    assert holding._dropped == {}


async def test_a_released_message_is_not_dropped_and_may_still_be_acknowledged() -> None:
    holding, wire = InFlight(), Wire()
    ack = new_ack(wire=wire)
    holding.take(ack)
    holding.release()
    assert list(holding) == []
    await ack.give_back()
    await ack()
    await ack.give_back()
    assert wire.sent == [("reply", b"-NAK"), ("reply", b"")]
    del ack
    assert holding._dropped == {}


async def test_nothing_is_given_back_late_or_to_another_life_of_the_stream() -> None:
    unavailable, over = Wire(is_connected=False), Wire()
    await new_ack(wire=unavailable).give_back()
    await new_ack(wire=over, epoch=Epoch(7, over=True)).give_back()
    assert (unavailable.sent, over.sent) == ([], [])


async def test_an_acknowledgement_is_not_sent_to_a_recreated_stream() -> None:
    there, over = Wire(), Wire()
    await new_ack(wire=there)()
    ack = new_ack(wire=over, epoch=Epoch(7, over=True))
    await ack()
    await ack.in_progress()
    assert (len(there.sent), over.sent) == (1, [])
