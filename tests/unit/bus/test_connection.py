"""The health of a connection."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import nats.errors
import pytest
import structlog

from trellis.bus.connection.connection import Address, Connection
from trellis.bus.publish.availability import Availability
from trellis.telemetry.health import Health


@pytest.mark.parametrize(
    ("error", "warnings"),
    [
        pytest.param(ConnectionResetError("Connection lost"), 0, id="a write that found it lost"),
        pytest.param(nats.errors.UnexpectedEOF(), 0, id="a read that found it lost"),
        pytest.param(nats.errors.SlowConsumerError(subject="s", reply="", sid=1, sub=None), 1, id="anything else"),
        pytest.param(nats.errors.FlushTimeoutError(), 1, id="an answer that took too long"),
    ],
)
async def test_an_outage_is_reported_once_and_not_by_each_write(error: Exception, warnings: int) -> None:
    url = "nats://127.0.0.1:4222"
    availability = Availability(url, Health("provisioner"))
    connection: Any = Connection(Address(url, "provisioner", "c"), availability, lambda: None)
    connection._broker = SimpleNamespace(connection=SimpleNamespace(is_connected=True, is_closed=False))
    with structlog.testing.capture_logs() as logs:
        await connection._failed(error)
    assert len(logs) == warnings
