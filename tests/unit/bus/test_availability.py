"""The health of a bus that is available but does not do everything."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from support.suite.naming import lacking
from trellis.bus.publish.availability import Availability
from trellis.telemetry.health import Health

STREAM = "TRELLIS_EVENTS"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the seconds that the bus' clock says, as the only item of a list."""
    now = [1000.0]
    monkeypatch.setattr("trellis.bus.publish.availability.time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


@pytest.fixture
def health() -> Health:
    return Health("test")


@pytest.fixture
def availability(health: Health, clock: list[float]) -> Availability:
    made = Availability("nats://127.0.0.1:4222", health)
    made.back()
    assert clock
    assert health.readiness().reasons == ()
    return made


def test_a_stream_that_stores_nothing_is_reported_until_it_stores(availability: Availability, health: Health) -> None:
    availability.unstored(STREAM, "no answer in time")
    [reason] = health.readiness().reasons
    assert lacking(reason, STREAM, "no answer in time") == []
    availability.stored(STREAM)
    assert health.readiness().reasons == ()


def test_an_unneeded_stream_does_not_prevent_readiness(
    availability: Availability, health: Health, clock: list[float]
) -> None:
    """The unpublished event was superseded meanwhile, so no later publish would show that publishing works."""
    availability.unstored(STREAM, "no answer in time")
    clock[0] += 30
    availability.back()
    assert len(health.readiness().reasons) == 1
    clock[0] += 31
    availability.back()
    assert health.readiness().reasons == ()


def test_a_stream_that_continues_to_store_nothing_stays_reported(
    availability: Availability, health: Health, clock: list[float]
) -> None:
    for _ in range(60):  # what failed is tried again after five seconds
        availability.unstored(STREAM, "no answer in time")
        clock[0] += 5
        availability.back()
        assert len(health.readiness().reasons) == 1
