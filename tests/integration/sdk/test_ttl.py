"""The example `ttl`, the same in every language: it deletes finished Jobs when they are due, and no others."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from support.guests.guest_api import FakeApi, Json, key_of
from support.guests.sdk_worlds import NANOSECONDS, Boot, Start

pytestmark = pytest.mark.timeout(900)

TTL = "examples.trellis.dev/ttl-seconds"


def job(name: str = "once", *, ended: float | None = None, condition: str = "Complete", **more: Any) -> Json:
    """A Job that ended so many seconds before the clock of the tests; None: it runs."""
    status: Json = {}
    if ended is not None:
        at = datetime.fromtimestamp(1_800_000_000 - ended, UTC).isoformat().replace("+00:00", "Z")
        held = {"type": "Suspended", "status": "False", "lastTransitionTime": "2020-01-01T00:00:00Z"}
        status = {"conditions": [held, {"type": condition, "status": "True", "lastTransitionTime": at}]}
    metadata = {"name": name, "namespace": "team-a", **more.pop("metadata", {})}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": more, "status": status}


@pytest.mark.parametrize("condition", ["Complete", "Failed"])
def test_deletes_an_expired_finished_job_and_publishes_an_event(start: Start, condition: str) -> None:
    world = start("ttl", seconds=60)
    assert world.changed(job(ended=61, condition=condition)) == {}
    assert world.api.find("Job", "team-a", "once") is None
    [deletion], [event] = world.api.requested("delete"), world.api.events
    assert deletion["uid"]
    assert deletion["propagationPolicy"] == "Background"
    assert (event["type"], event["reason"]) == ("Normal", "TimeToLiveExpired")
    assert " 61 s " in event["message"]
    assert event["regarding"] == {**key_of(job()), "uid": deletion["uid"]}


def test_comes_back_when_it_is_due(start: Start) -> None:
    world = start("ttl", seconds=60)
    assert world.changed(job(ended=20)) == {"requeueAfter": 40}
    world.clock.now += 39 * NANOSECONDS
    assert world.changed(job(ended=20)) == {"requeueAfter": 1}
    assert not world.api.requests
    world.clock.now += NANOSECONDS
    assert world.changed(job(ended=20)) == {}
    assert len(world.api.requested("delete")) == 1


def test_comes_back_when_it_is_due_if_that_is_less_than_a_second(start: Start) -> None:
    world = start("ttl", seconds=60)
    world.clock.now += NANOSECONDS // 2
    assert world.changed(job(ended=59)) == {"requeueAfter": 1}


def test_the_annotation_counts_more_than_the_configuration(start: Start) -> None:
    world = start("ttl", seconds=60)
    assert world.changed(job(ended=61, metadata={"annotations": {TTL: "100"}})) == {"requeueAfter": 39}
    assert start("ttl").changed(job(ended=1, metadata={"annotations": {TTL: "0"}})) == {}


@pytest.mark.parametrize(
    "kept",
    [
        pytest.param(job(), id="it runs"),
        pytest.param(job(ended=1000, condition="Suspended"), id="it is suspended"),
        pytest.param(job(ended=1000, ttlSecondsAfterFinished=5000), id="Kubernetes deletes it"),
        pytest.param(job(ended=1000, metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}), id="it is being deleted"),
    ],
)
def test_leaves_a_job_alone_if(start: Start, kept: Json) -> None:
    world = start("ttl", seconds=60)
    assert world.changed(kept) == {}
    assert world.deleted(kept) == {}
    assert not world.api.requests


def test_leaves_all_without_an_annotation_alone_if_nothing_is_configured(start: Start) -> None:
    world = start("ttl")
    assert world.changed(job(ended=10**6)) == {}
    assert not world.api.requests


@pytest.mark.parametrize("value", ["", "x", "-1", "1.5", " 1", "1 ", "+1", "1000000001", "99999999999999999999"])
def test_reports_an_invalid_time_to_live(start: Start, value: str) -> None:
    world = start("ttl", seconds=0)
    error = world.changed(job(ended=100, metadata={"annotations": {TTL: value}}))["error"]
    assert TTL in error
    assert error.endswith(f": {value}")
    assert not world.api.requests


@pytest.mark.parametrize("value", [-1, "60", 1.5, 10**9 + 1, None])
def test_does_not_start_with_what_is_no_time_to_live(boot: Callable[[str], Boot], value: Any) -> None:
    host = boot("ttl")(FakeApi())
    answer = host.init({"seconds": value})
    assert list(answer) == ["error"]
    for named in ("config.seconds", " 0 ", " 1000000000"):
        assert named in answer["error"]


@pytest.mark.parametrize("reason", ["NotFound", "Conflict"])
def test_is_done_if_the_job_was_deleted_or_replaced(start: Start, reason: str) -> None:
    world = start("ttl", seconds=60)
    world.api.refusals["delete"] = {"code": 404 if reason == "NotFound" else 409, "reason": reason, "message": "x"}
    assert world.changed(job(ended=61)) == {}
    assert not world.api.events


def test_is_tried_again_if_it_may_not_delete(start: Start) -> None:
    world = start("ttl", seconds=60)
    world.api.refusals["delete"] = {"code": 403, "reason": "Forbidden", "message": "may not"}
    assert world.changed(job(ended=61)) == {"error": "delete Job team-a/once: Forbidden: may not"}
    assert not world.api.events


def test_is_done_although_the_event_could_not_be_published(start: Start) -> None:
    world = start("ttl", seconds=60)
    world.api.refusals["event"] = {"code": 403, "reason": "Forbidden", "message": "may not"}
    assert world.changed(job(ended=61)) == {}
    assert world.host.logged == [(2, "event about Job team-a/once: Forbidden: may not")]
