"""Normal Events are written in the background, one after another."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest
import structlog

from trellis.kube.errors import NotLeading
from trellis.kube.recorder import EventRecorder, ObjectRef
from trellis.kube.resources import EVENTS
from trellis.kube.timings import EventTimings
from trellis_dev.fakes.fake import FakeKube, status_reply

NODE = ObjectRef("v1", "Node", "a", "uid-a")


async def settled() -> None:
    """Let the tasks of this loop come to rest."""
    while others := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.gather(*others)


async def test_the_caller_goes_on_before_the_write() -> None:
    kube = FakeKube()
    recorder = EventRecorder(kube, component="c")
    await recorder.record(regarding=NODE, type="Normal", reason="ProvisionSucceeded", message="done")
    assert kube.objects(EVENTS) == []
    await settled()
    [event] = kube.objects(EVENTS)
    assert (event["type"], event["reason"], event["involvedObject"]["name"]) == ("Normal", "ProvisionSucceeded", "a")


async def test_an_event_has_the_time_of_the_api_server(monkeypatch: pytest.MonkeyPatch) -> None:
    kube = FakeKube()
    monkeypatch.setattr(kube, "now", lambda: 86_400.0)
    recorder = EventRecorder(kube, component="c")
    await recorder.record(regarding=NODE, type="Warning", reason="ProvisionFailed", message="failed")
    [event] = kube.objects(EVENTS)
    assert event["firstTimestamp"] == event["lastTimestamp"] == "1970-01-02T00:00:00Z"


async def test_a_refused_event_fails_nothing() -> None:
    kube = FakeKube()
    kube.answer_next(1, lambda _: status_reply(403, "Forbidden", "no"), when=lambda item: EVENTS.plural in item.path)
    recorder = EventRecorder(kube, component="c")
    await recorder.record(regarding=NODE, type="Normal", reason="ProvisionSucceeded", message="done")
    await settled()
    assert kube.objects(EVENTS) == []


async def test_normal_events_of_many_objects_wait_for_each_other_and_a_warning_does_not() -> None:
    kube = FakeKube()
    recorder = EventRecorder(kube, component="c", timings=EventTimings(pause=3600.0))
    for name in ("a", "b", "c"):
        node = ObjectRef("v1", "Node", name, f"uid-{name}")
        await recorder.record(regarding=node, type="Normal", reason="ProvisionSucceeded", message="done")
    for _ in range(20):
        await asyncio.sleep(0)
    assert [event["involvedObject"]["name"] for event in kube.objects(EVENTS)] == ["a"]
    await recorder.record(regarding=NODE, type="Warning", reason="ProvisionFailed", message="failed")
    assert {event["type"] for event in kube.objects(EVENTS)} == {"Normal", "Warning"}


async def test_events_that_wait_at_the_end_of_a_leadership_term_are_dropped_with_one_report() -> None:
    kube, ended = FakeKube(), False

    def check() -> None:
        if ended:
            raise NotLeading("the leadership term is over")

    recorder = EventRecorder(kube.guarded(check), component="c", timings=EventTimings(pause=0.05))
    for name in ("a", "b", "c", "d"):
        node = ObjectRef("v1", "Node", name, f"uid-{name}")
        await recorder.record(regarding=node, type="Normal", reason="ProvisionSucceeded", message="done")
    await asyncio.sleep(0)
    ended = True
    with structlog.testing.capture_logs() as logs:
        await settled()
    assert len([line for line in logs if line["log_level"] == "warning"]) == 1
    assert len(kube.objects(EVENTS)) <= 1


async def test_an_event_that_waited_has_the_time_of_its_occurrence() -> None:
    kube = FakeKube()
    recorder = EventRecorder(kube, component="c", timings=EventTimings(pause=1.1))
    for name in ("a", "b"):
        node = ObjectRef("v1", "Node", name, f"uid-{name}")
        await recorder.record(regarding=node, type="Normal", reason="ProvisionSucceeded", message="done")
    recorded_by = datetime.now(UTC)
    await settled()
    [_, second] = kube.objects(EVENTS)
    assert datetime.fromisoformat(second["firstTimestamp"]) <= recorded_by
