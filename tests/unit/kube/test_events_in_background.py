"""A Normal Event is written in the background."""

from __future__ import annotations

import asyncio

from trellis.kube.recorder import EventRecorder, ObjectRef
from trellis.kube.resources import EVENTS
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


async def test_a_refused_event_fails_nothing() -> None:
    kube = FakeKube()
    kube.answer_next(1, lambda _: status_reply(403, "Forbidden", "no"), when=lambda item: EVENTS.plural in item.path)
    recorder = EventRecorder(kube, component="c")
    await recorder.record(regarding=NODE, type="Normal", reason="ProvisionSucceeded", message="done")
    await settled()
    assert kube.objects(EVENTS) == []
