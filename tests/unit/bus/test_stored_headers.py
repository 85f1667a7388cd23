"""A stored message with any headers can be dead-lettered: its dead letter can be written and read back."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from trellis.bus.connection.client import RobustNatsClient
from trellis.bus.consume.message import Reason
from trellis.bus.dead_letters.read import read_dead_letter
from trellis.bus.dead_letters.write import Delivered, make_dead_letter
from trellis.bus.streams.stream_reader import Stored

NOW = datetime(2026, 1, 31, tzinfo=UTC)
ACKNOWLEDGED = b"$JS.ACK.TRELLIS_EVENTS.c.1.7.7.0.0"


@pytest.mark.parametrize(
    ("raw", "headers"),
    [
        (b"NATS/1.0\r\nX: y\r\n\r\n", {"X": "y"}),
        (b"NATS/1.0 0\r\nX: y\r\n\r\n", {"Original-Status": "0", "X": "y"}),
        (b"NATS/1.0 404 No Message\r\nX: y\r\n\r\n", {"Original-Status": "404", "Description": "No Message", "X": "y"}),
    ],
    ids=["plain", "a number behind the version", "words behind the version"],
)
async def test_a_dead_letter_has_the_headers_of_its_message(raw: bytes, headers: dict[str, str]) -> None:
    client = RobustNatsClient()
    message = client._build_message(1, b"trellis.evt.c", ACKNOWLEDGED, b"", await client._process_headers(raw))
    delivered = Delivered("trellis.evt.c", "TRELLIS_EVENTS", "e", 7, 6, b"", message.headers or {})
    made = make_dead_letter(
        delivered, cluster="c", reader=("s", "n"), reason=Reason.UNPARSEABLE, error="", max_bytes=10_000
    )
    found = read_dead_letter(Stored(1, NOW, made.subject, made.headers, made.body, 0), "e")
    assert {name: (found.original_headers or {}).get(name) for name in headers} == headers
