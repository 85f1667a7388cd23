"""Events about answers: no request waits, nothing grows, no loss is silent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from secrets_backend import audit as auditing
from secrets_backend.audit import Audit
from secrets_backend.timings import AuditTimings
from trellis.bus.bus import Bus, BusUnavailable, EventRefused
from trellis.events.envelope import EventData
from trellis.events.secrets import SecretDenied, SecretGranted
from trellis.telemetry import Metrics, setup


class RecordingBus:
    """A bus that keeps its events once it is available."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.marks: list[str] = []
        self.trouble: Exception | None = None
        self.tries = 0

    async def publish(self, event: EventData, *, dedup: str) -> None:
        self.tries += 1
        if self.trouble is not None:
            raise self.trouble
        self.events.append(event)
        self.marks.append(dedup)


ABOUT: dict[str, Any] = {
    "namespace": "shop",
    "field": "f",
    "entity": "M",
    "issuer": "A",
    "host": "N",
    "backend": "kube",
}


def granted(name: str = "db") -> SecretGranted:
    return SecretGranted(**ABOUT, name=name, uid="u", resource_version="1", rule="r")


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.001)


@pytest.fixture
def bus() -> RecordingBus:
    return RecordingBus()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def audit(bus: RecordingBus, metrics: Metrics) -> Audit:
    return Audit(cast("Bus", bus), setup("secrets_backend", metrics=metrics), AuditTimings(bus_retry=0.01))


@asynccontextmanager
async def running(audit: Audit) -> AsyncIterator[None]:
    task = asyncio.create_task(audit.run())
    yield
    task.cancel()
    await asyncio.wait({task})


async def test_each_answer_is_published_under_its_own_number(audit: Audit, bus: RecordingBus) -> None:
    async with running(audit):
        audit.record(granted())
        await until(lambda: len(bus.events) == 1)
        audit.record(granted())
        audit.record(SecretDenied(**ABOUT, name="db", error="PolicyError", message="no"))
        await audit.close(5)
    assert [type(event).__name__ for event in bus.events] == ["SecretGranted", "SecretGranted", "SecretDenied"]
    assert len(set(bus.marks)) == 3


async def test_equal_answers_that_wait_become_one_event_with_their_count(audit: Audit, bus: RecordingBus) -> None:
    for _ in range(1000):
        audit.record(granted())
    audit.record(granted("other"))
    async with running(audit):
        await audit.close(5)
    assert [(event.name, event.count) for event in bus.events] == [("db", 1000), ("other", 1)]


async def test_unpublished_events_are_published_in_order_once_the_bus_is_back(audit: Audit, bus: RecordingBus) -> None:
    bus.trouble = BusUnavailable("away")
    async with running(audit):
        for number in range(3):
            audit.record(granted(f"s{number}"))
        await until(lambda: bus.tries > 1)
        audit.record(granted("s0"))
        bus.trouble = None
        await audit.close(5)
    assert [(event.name, event.count) for event in bus.events] == [("s0", 2), ("s1", 1), ("s2", 1)]


@pytest.mark.parametrize("trouble", [EventRefused("too large"), ValueError("no JSON")])
async def test_a_refused_event_is_counted_and_delays_no_other(
    audit: Audit, bus: RecordingBus, metrics: Metrics, trouble: Exception
) -> None:
    bus.trouble = trouble
    async with running(audit):
        audit.record(granted())
        await until(lambda: not len(audit))
        bus.trouble = None
        audit.record(granted("other"))
        await until(lambda: bus.events)
    assert dropped(metrics) == 1


async def test_events_beyond_the_queue_limit_are_dropped_and_counted(
    audit: Audit, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auditing, "MOST", 10)
    for number in range(15):
        audit.record(granted(f"s{number}"))
    audit.record(granted("s3"))  # of one that waits already there is room for more
    assert len(audit) == 10
    assert dropped(metrics) == 5


async def test_a_flood_of_one_source_drops_no_event_of_another_and_delays_it_by_one(
    audit: Audit, bus: RecordingBus, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auditing, "MOST", 10)
    for number in range(30):
        audit.record(granted(f"flood{number}"), "one")
    for number in range(3):
        audit.record(granted(f"s{number}"), "other")
    assert (len(audit), dropped(metrics)) == (10, 23)
    async with running(audit):
        await audit.close(5)
    names = [event.name for event in bus.events]
    assert [name for name in names if name.startswith("s")] == ["s0", "s1", "s2"]
    assert names.index("s2") == 5


async def test_a_source_with_ever_different_events_is_slowed_down_and_another_is_not(
    audit: Audit, bus: RecordingBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auditing, "EVENTS_AT_ONCE", 5.0)
    monkeypatch.setattr(auditing, "EVENTS_PER_SECOND", 0.001)
    for number in range(50):
        audit.record(granted(f"flood{number}"), "one")
    async with running(audit):
        await until(lambda: len(bus.events) == 5)
        audit.record(granted("s0"), "other")
        await until(lambda: len(bus.events) == 6)
        audit.record(granted("flood49"), "one")
    assert bus.events[-1].name == "s0"
    assert len(audit) == 45, "they wait, and equal ones are one"


def dropped(metrics: Metrics) -> float:
    found = metrics.registry.get_sample_value("trellis_secrets_audit_dropped_total", {"service": "secrets_backend"})
    return found or 0.0
