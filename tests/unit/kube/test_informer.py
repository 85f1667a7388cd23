"""The informer over the API server in memory: what only time or faults bring about."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import cast

import pytest

from support.cluster.kube_world import Seen, Watched, configmap, labelled, project, until
from support.suite.naming import lacking
from trellis.kube.errors import LONGEST_WAIT
from trellis.kube.informer import ChangeKind, Informer
from trellis.kube.informers import Informers
from trellis.kube.pages import Page
from trellis.kube.reader import PAGE, Selection
from trellis.kube.resources import CONFIGMAPS, Manifest
from trellis.kube.transport import HttpRequest, Reply
from trellis.kube.watch_timings import WatchTimings
from trellis.telemetry import setup
from trellis.telemetry.metrics import Metrics
from trellis_dev.fakes.fake import FakeKube, status_reply

QUICK = WatchTimings(backoff_first=0.01, backoff_most=0.05)


def is_watch(request: HttpRequest) -> bool:
    return "watch" in request.query


def is_list(request: HttpRequest) -> bool:
    return "limit" in request.query


@pytest.fixture
def kube() -> FakeKube:
    return FakeKube(telemetry=setup("test", metrics=Metrics()))


def requests(kube: FakeKube) -> str:
    """L for each list, W for each watch."""
    return "".join("W" if is_watch(request) else "L" for request in kube.api.requests)


async def test_a_full_list_repairs_missed_watch_events(kube: FakeKube) -> None:
    kube.put(CONFIGMAPS, configmap("default", "a"))
    timings = WatchTimings(relist=0.3, backoff_first=0.01)
    async with Watched(kube, "default", timings=timings) as watched:
        await until(lambda: len(kube.api.store.watchers) == 1, "the watch is open")
        kube.api.store.watchers.clear()  # changes are not told any more
        kube.remove(CONFIGMAPS, "a", "default")
        kube.put(CONFIGMAPS, configmap("default", "b"))
        kube.api.store.tables[CONFIGMAPS].history.clear()
        await until(lambda: set(watched.informer.objects) == {"default/b"}, "the list")
        assert watched.kinds_of("default/a") == [ChangeKind.ADDED, ChangeKind.DELETED]


async def test_an_object_replaced_in_the_dark_is_modified_with_a_new_uid(kube: FakeKube) -> None:
    first = kube.put(CONFIGMAPS, configmap("default", "a"))
    async with Watched(kube, "default", timings=QUICK) as watched:
        kube.remove(CONFIGMAPS, "a", "default")
        second = kube.put(CONFIGMAPS, configmap("default", "a"))
        kube.compact()
        await until(lambda: len(watched.changes) > 1, "the change")
        (change,) = watched.changes[1:]
        assert change.kind is ChangeKind.MODIFIED
        assert change.old is not None
        assert change.new is not None
        assert (change.old.uid, change.new.uid) == (first["metadata"]["uid"], second["metadata"]["uid"])


async def test_an_object_deleted_before_its_write_is_answered_is_not_cached(kube: FakeKube) -> None:
    async with Watched(kube, "default", timings=QUICK) as watched:
        await until(lambda: len(kube.api.store.watchers) == 1, "the watch is open")
        made = kube.put(CONFIGMAPS, configmap("default", "a"))
        kube.remove(CONFIGMAPS, "a", "default")
        await until(lambda: watched.kinds_of("default/a") == [ChangeKind.ADDED, ChangeKind.DELETED], "its end")
        watched.informer.wrote(made, None)
        assert watched.informer.objects == {}


class WhileListing(FakeKube):
    """Calls ``then`` once, after the server has answered a list and before its objects are evaluated."""

    then: Callable[[], None] | None = None

    async def pages(self, selection: Selection, *, limit: int = PAGE) -> AsyncGenerator[Page, None]:
        async for page in super().pages(selection, limit=limit):
            if self.then is not None:
                then, self.then = self.then, None
                then()
            yield page


async def test_a_list_that_is_older_than_the_result_of_a_write_removes_and_reverts_nothing() -> None:
    kube = WhileListing(telemetry=setup("test", metrics=Metrics()))
    kube.put(CONFIGMAPS, configmap("default", "old", x="1"))
    async with Watched(kube, "default", timings=WatchTimings(relist=0.1, backoff_first=0.01)) as watched:
        informer = watched.informer

        def write() -> None:
            kube.api.store.watchers.clear()  # only the next watch reports what follows
            informer.wrote(kube.put(CONFIGMAPS, configmap("default", "new")), None)
            changed = kube.put(CONFIGMAPS, configmap("default", "old", x="2"))
            informer.wrote(changed, informer.objects["default/old"])
            gone = kube.put(CONFIGMAPS, configmap("default", "gone"))
            kube.remove(CONFIGMAPS, "gone", "default")
            informer.wrote(gone, None)

        kube.then = write
        await until(lambda: ChangeKind.DELETED in watched.kinds_of("default/gone"), "the watch after the list")
        assert watched.kinds_of("default/gone") == [ChangeKind.ADDED, ChangeKind.DELETED]
        assert watched.kinds_of("default/new") == [ChangeKind.ADDED]
        assert watched.kinds_of("default/old") == [ChangeKind.ADDED, ChangeKind.MODIFIED]
        assert informer.objects["default/old"].data == (("x", "2"),)


async def test_delayed_events_revert_no_result_of_a_write(kube: FakeKube) -> None:
    kube.put(CONFIGMAPS, configmap("default", "a", x="1"))
    async with Watched(kube, "default", timings=QUICK) as watched:
        informer = watched.informer
        await until(lambda: len(kube.api.store.watchers) == 1, "the watch is open")
        for value in ("2", "3"):
            former = informer.objects["default/a"]
            informer.wrote(kube.put(CONFIGMAPS, configmap("default", "a", x=value)), former)
        informer.wrote(kube.put(CONFIGMAPS, configmap("default", "b")), None)
        kube.put(CONFIGMAPS, configmap("default", "a", x="4"))
        kube.remove(CONFIGMAPS, "b", "default")
        await until(lambda: "default/b" not in informer.objects, "the delayed events")
        values = [change.new.data[0][1] for change in watched.changes if change.key == "default/a" and change.new]
        assert values == ["1", "2", "3", "4"]
        assert watched.kinds_of("default/b") == [ChangeKind.ADDED, ChangeKind.DELETED]


async def test_a_cut_watch_goes_on_from_its_version_without_a_list(kube: FakeKube) -> None:
    async with Watched(kube, "default", timings=QUICK) as watched:
        kube.cut_watches()
        kube.put(CONFIGMAPS, configmap("default", "a"))
        await until(lambda: "default/a" in watched.informer.objects, "a")
        assert requests(kube).count("L") == 1


@pytest.mark.parametrize("last", ["upsert", "deletion"])
async def test_a_cut_watch_goes_on_only_if_the_newest_change_is_still_there(kube: FakeKube, last: str) -> None:
    kube.put(CONFIGMAPS, configmap("default", "a"))
    async with Watched(kube, "default", timings=QUICK) as watched:
        kube.put(CONFIGMAPS, configmap("default", "b"))
        await until(lambda: "default/b" in watched.informer.objects, "b")
        if last == "deletion":
            kube.remove(CONFIGMAPS, "b", "default")
            await until(lambda: "default/b" not in watched.informer.objects, "its deletion")
        kube.api.requests.clear()
        kube.cut_watches()
        await until(lambda: "W" in requests(kube), "another watch")
        fields = [request.query.get("fieldSelector") for request in kube.api.requests if is_list(request)]
        assert fields == (["metadata.name=b,metadata.namespace=default"] if last == "upsert" else [None])


@pytest.mark.parametrize("field", ["uid", "creationTimestamp"])
async def test_a_restored_store_that_gave_the_version_to_another_object_is_listed(kube: FakeKube, field: str) -> None:
    """Another object of that name, or another change of it, that by chance has the version which was seen last."""
    async with Watched(kube, "default", timings=QUICK) as watched:
        kube.put(CONFIGMAPS, configmap("default", "b"))
        await until(lambda: "default/b" in watched.informer.objects, "b")
        kept = kube.api.store.tables[CONFIGMAPS].objects["default", "b"]
        kube.api.store.tables[CONFIGMAPS].objects["default", "b"] = kept | {
            "metadata": kept["metadata"] | {field: "another"},
            "data": {"x": "another"},
        }
        kube.cut_watches()
        await until(lambda: watched.informer.objects["default/b"].data == (("x", "another"),), "what is stored")


@pytest.mark.parametrize("seconds", [1, 3600])
async def test_a_server_that_asks_to_wait_for_an_hour_is_asked_again_within_a_minute(
    kube: FakeKube, monkeypatch: pytest.MonkeyPatch, seconds: int
) -> None:
    waits: list[float] = []
    sleep = asyncio.sleep

    async def note(delay: float) -> None:
        waits.append(delay)
        await sleep(0.01)

    busy = Reply(503, b'{"kind":"Status","reason":"ServiceUnavailable","message":"x"}', {"Retry-After": str(seconds)})
    async with Watched(kube, "default", timings=QUICK) as watched:
        monkeypatch.setattr("trellis.kube.informer.asyncio.sleep", note)
        kube.answer_next(6, lambda _: busy)
        kube.put(CONFIGMAPS, configmap("default", "a"))
        kube.cut_watches()
        await until(lambda: any(wait >= 1 for wait in waits), "a wait that was asked for")
        await until(lambda: "default/a" in watched.informer.objects, "a")
    assert max(waits) <= LONGEST_WAIT + QUICK.backoff_most


@pytest.mark.parametrize(
    ("status", "reason"), [(410, "Expired"), (504, "Timeout"), (403, "Forbidden"), (500, "InternalError")]
)
async def test_a_watch_the_server_refuses_leads_to_a_list(kube: FakeKube, status: int, reason: str) -> None:
    kube.answer_next(1, lambda _: status_reply(status, reason, "too large resource version"), when=is_watch)
    async with Watched(kube, "default", timings=QUICK):
        await until(lambda: requests(kube) == "LWLW", "list after the refusal")


@pytest.mark.parametrize("status", [410, 500])
async def test_a_watch_that_is_always_refused_does_not_run_hot(kube: FakeKube, status: int) -> None:
    kube.answer_next(10**6, lambda _: status_reply(status, "Expired", "never"), when=is_watch)
    async with Watched(kube, "default", timings=WatchTimings(backoff_first=0.05, backoff_most=0.2)) as watched:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(watched.task), 0.8)
        assert 3 <= requests(kube).count("W") <= 40


async def test_a_server_that_ends_each_watch_at_once_does_not_run_it_hot(kube: FakeKube) -> None:
    async with Watched(kube, "default", timings=WatchTimings(watch=(0, 0), backoff_first=0.05)) as watched:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(watched.task), 0.8)
        assert requests(kube).count("W") <= 40


ANSWERS_OF_OTHERS = {
    "nothing": b"{}",
    "null": b"null",
    "text": b'"ok"',
    "page": b"<html>log in</html>",
    "status": b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success"}',
    "any-list": b'{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[]}',
    "no-kind": b'{"metadata":{"resourceVersion":"9"},"items":[]}',
    "no-version": b'{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":""},"items":[]}',
    "other-api": b'{"kind":"ConfigMapList","apiVersion":"v2","metadata":{"resourceVersion":"9"},"items":[]}',
    "no-objects": b'{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[{"a":1}]}',
    "no-array": b'{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":{"a":1}}',
    "event-without-object": b'{"type":"ADDED"}',
    "bookmark-without-version": b'{"type":"BOOKMARK","object":{"kind":"ConfigMap"}}',
}
"""What proxies, log-in pages and stand-ins say with status 200."""


@pytest.mark.parametrize("body", ANSWERS_OF_OTHERS.values(), ids=ANSWERS_OF_OTHERS)
async def test_an_unexpected_answer_to_a_list_deletes_nothing_and_is_survived(kube: FakeKube, body: bytes) -> None:
    kube.put(CONFIGMAPS, configmap("default", "a"))
    timings = WatchTimings(relist=0.2, backoff_first=0.01, backoff_most=0.05)
    async with Watched(kube, "default", timings=timings) as watched:
        kube.answer_next(10**6, lambda _: Reply(200, body, {}), when=is_list)
        await until(lambda: not kube.health.readiness().ok, "not ready")
        assert not watched.task.done()
        kube.answer_next(0, lambda _: Reply(200, body, {}))
        kube.put(CONFIGMAPS, configmap("default", "b"))
        await until(lambda: "default/b" in watched.informer.objects, "b")
        assert watched.kinds_of("default/a") == [ChangeKind.ADDED]


@pytest.mark.parametrize("body", [*ANSWERS_OF_OTHERS.values(), b""], ids=[*ANSWERS_OF_OTHERS, "empty"])
async def test_a_server_that_answers_each_watch_differently_does_not_stall_the_informer(
    kube: FakeKube, body: bytes
) -> None:
    async with Watched(kube, "default", timings=QUICK) as watched:
        kube.answer_next(10**6, lambda _: Reply(200, body, {}), when=is_watch)
        kube.cut_watches()
        kube.put(CONFIGMAPS, configmap("default", "a"))
        await until(lambda: "default/a" in watched.informer.objects, "a, by a list")
        kube.put(CONFIGMAPS, configmap("default", "b"))
        await until(lambda: "default/b" in watched.informer.objects, "b, by a list")
        assert not watched.task.done()


async def test_an_outage_is_visible_and_deletes_nothing(kube: FakeKube) -> None:
    kube.put(CONFIGMAPS, configmap("default", "a"))
    async with Watched(kube, "default", timings=QUICK) as watched:
        assert kube.health.readiness().ok
        kube.fail_next(10**6)
        kube.cut_watches()
        await until(lambda: not kube.health.readiness().ok, "not ready")
        (reason,) = kube.health.readiness().reasons
        assert re.search(r"\b(WATCH|LIST) ConfigMap default: Unavailable", reason)
        assert set(watched.informer.objects) == {"default/a"}
        kube.fail_next(0)
        await until(lambda: kube.health.readiness().ok, "ready again")


async def test_it_is_not_ready_before_the_first_list_and_forgotten_after_its_end(kube: FakeKube) -> None:
    kube.fail_next(10**6)
    informer = Watched(kube, "default", timings=QUICK).informer
    task = asyncio.create_task(informer.run())
    await until(lambda: not kube.health.readiness().ok, "not ready")
    assert not informer.synced.is_set()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert kube.health.readiness().ok


async def test_a_stalled_watch_is_fatal_only_while_the_server_answers_others(
    kube: FakeKube, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Watched(kube, "default", timings=QUICK) as watched:
        watched.informer._progressed -= 1000
        monkeypatch.setattr(FakeKube, "answering_for", lambda _: 0.0)
        assert kube.health.liveness().ok, "an outage"
        monkeypatch.setattr(FakeKube, "answering_for", lambda _: 61.0)
        assert lacking(kube.health.liveness().reasons[0], "1000 s", "https://fake") == []


async def test_a_refused_watch_is_not_a_stalled_one(kube: FakeKube, monkeypatch: pytest.MonkeyPatch) -> None:
    """Missing permissions make it not ready; a restart would not help."""
    monkeypatch.setattr(FakeKube, "answering_for", lambda _: 61.0)
    async with Watched(kube, "default", timings=QUICK) as watched:
        kube.answer_next(10**6, lambda _: status_reply(403, "Forbidden", "no"))
        kube.cut_watches()
        await until(lambda: not kube.health.readiness().ok, "not ready")
        watched.informer._progressed -= 1000
        await until(lambda: kube.health.liveness().ok, "alive")


async def test_staleness_is_a_gauge_while_it_runs(kube: FakeKube) -> None:
    gauge = kube.telemetry.metrics.watch_staleness_seconds

    def series() -> list[str]:
        return sorted(sample.labels["watch"] for family in gauge.collect() for sample in family.samples)

    async with Watched(kube, "default", timings=QUICK) as watched:
        watched.informer._received_at -= 50
        assert watched.informer.staleness() >= 50
        (label,) = series()
        assert lacking(label, "configmaps", "default") == []
    assert series() == []


async def test_objects_are_counted_by_the_state_of_their_conditions(kube: FakeKube) -> None:
    def counts() -> dict[str, float]:
        samples = [sample for family in kube.telemetry.metrics.objects.collect() for sample in family.samples]
        return {sample.labels["state"]: sample.value for sample in samples if sample.value}

    def put(name: str, *conditions: tuple[str, str]) -> None:
        found = [{"type": kind, "status": status} for kind, status in conditions]
        kube.put(CONFIGMAPS, {"metadata": {"name": name, "namespace": "default"}, "status": {"conditions": found}})

    put("a", ("Ready", "True"))
    put("b", ("Ready", "False"), ("Stalled", "True"))
    async with Watched(kube, "default", timings=QUICK, states=True):
        await until(lambda: counts() == {"Ready": 1, "Stalled": 1}, "both are counted")
        put("b", ("Ready", "False"), ("Reconciling", "True"))
        await until(lambda: counts() == {"Ready": 1, "Reconciling": 1}, "the changed state is counted")
        kube.remove(CONFIGMAPS, "a", "default")
        await until(lambda: counts() == {"Reconciling": 1}, "a deleted object is not counted")
    assert counts() == {}


async def test_two_watches_of_a_kind_are_distinguished(kube: FakeKube) -> None:
    gauge = kube.telemetry.metrics.watch_staleness_seconds
    async with (
        Watched(kube, "default", timings=QUICK),
        Watched(kube, "default", timings=QUICK, label_selector="app=x") as chosen,
    ):
        labels = {sample.labels["watch"] for family in gauge.collect() for sample in family.samples}
        assert sorted(lacking(label, "configmaps", "default", "app=x") for label in labels) == [[], ["app=x"]]
        kube.answer_next(10**6, lambda _: status_reply(403, "Forbidden", "no"), when=is_chosen)
        kube.cut_watches()
        await until(lambda: not kube.health.readiness().ok, "one of them is refused")
        (reason,) = kube.health.readiness().reasons
        assert lacking(reason, "configmaps", "default", "app=x") == []
        assert chosen.informer.staleness() < 15


def is_chosen(request: HttpRequest) -> bool:
    return "labelSelector" in request.query


async def test_the_newest_version_is_cached_even_if_no_relevant_field_changed(kube: FakeKube) -> None:
    """The next write has to name it, or it is refused for ever."""
    kube.put(CONFIGMAPS, configmap("default", "a", x="1"))
    refreshed: list[Versioned] = []
    options = {"project": Versioned.of, "on_refresh": refreshed.append, "timings": QUICK}
    async with Watched(kube, "default", **options) as watched:
        noisy = kube.put(CONFIGMAPS, labelled(configmap("default", "a", x="1"), noise="1"))
        await until(lambda: len(refreshed) == 1, "the refresh")
        held = cast("Versioned", watched.informer.objects["default/a"])
        assert held.version == refreshed[0].version == noisy["metadata"]["resourceVersion"]
        assert watched.kinds_of("default/a") == [ChangeKind.ADDED]


async def test_the_result_of_a_write_is_cached_before_the_watch_reports_it(kube: FakeKube) -> None:
    kube.put(CONFIGMAPS, configmap("default", "a", x="1"))
    async with Watched(kube, "default", timings=QUICK) as watched:
        first = watched.informer.objects["default/a"]
        kube.api.store.watchers.clear()  # changes are not told any more
        newer = kube.put(CONFIGMAPS, configmap("default", "a", x="2"))
        watched.informer.wrote(newer, first)
        second = watched.informer.objects["default/a"]
        assert second.data == (("x", "2"),)
        assert watched.kinds_of("default/a") == [ChangeKind.ADDED, ChangeKind.MODIFIED]
        watched.informer.wrote(kube.put(CONFIGMAPS, configmap("default", "a", x="3")), first)
        assert watched.informer.objects["default/a"] is second, "the watch has told something newer meanwhile"


@dataclass(frozen=True)
class Versioned:
    uid: str
    version: str = field(compare=False)

    @classmethod
    def of(cls, manifest: Manifest) -> Versioned:
        return cls(manifest["metadata"]["uid"], manifest["metadata"]["resourceVersion"])


async def test_a_busy_server_is_not_asked_again_before_its_time(kube: FakeKube) -> None:
    busy = Reply(429, b'{"kind":"Status","reason":"TooManyRequests","message":"slow down"}', {"Retry-After": "1"})
    async with Watched(kube, "default", timings=QUICK) as watched:
        kube.answer_next(10**6, lambda _: busy)
        kube.cut_watches()
        await until(lambda: not kube.health.readiness().ok, "refused")
        before = len(kube.api.requests)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(watched.task), 0.8)
        assert len(kube.api.requests) == before


async def test_an_idle_informer_queries_the_server_itself(kube: FakeKube) -> None:
    """A service that only watches: without a request it is unknown whether a silent watch has a silent server."""

    def probes() -> int:
        return sum(request.path == "/readyz" for request in kube.api.requests)

    timings = WatchTimings(probe=0.1)
    async with Watched(kube, "default", timings=timings), Watched(kube, "kube-system", timings=timings):
        await until(lambda: probes() >= 5, "probes")
        assert kube.answering_for() > 0
        began, before = time.monotonic(), probes()
        await until(lambda: probes() >= before + 5, "more probes")
        # One question counts for both watches; half an interval for a wait that ends early.
        assert time.monotonic() - began >= 0.05 * 5


async def test_a_list_that_the_account_may_not_read_is_skipped_and_retried(kube: FakeKube) -> None:
    kube.put(CONFIGMAPS, configmap("default", "a"))
    kube.answer_next(2, lambda _: status_reply(403, "Forbidden", "no"), when=is_list)
    timings = WatchTimings(refused=0.05, backoff_first=0.01)
    async with Watched(kube, "default", refusable=True, timings=timings) as watched:
        assert watched.informer.objects == {}
        assert kube.health.readiness().ok
        await until(lambda: any("Forbidden" in note for note in kube.health.notes()), "readiness has a note")
        await until(lambda: "default/a" in watched.informer.objects, "the right was given")
        await until(lambda: kube.health.notes() == (), "the note is gone")


async def test_objects_stay_when_read_permission_is_revoked(kube: FakeKube) -> None:
    kube.put(CONFIGMAPS, configmap("default", "a"))
    async with Watched(kube, "default", refusable=True, timings=WatchTimings(refused=0.05, relist=0.1)) as watched:
        kube.answer_next(10**6, lambda _: status_reply(403, "Forbidden", "no"))
        kube.cut_watches()
        before = len(kube.api.requests)
        await until(lambda: len(kube.api.requests) > before + 3, "it was tried again")
        assert set(watched.informer.objects) == {"default/a"}
        assert kube.health.readiness().ok


@pytest.mark.parametrize("status", [403, 404])
async def test_objects_that_may_not_be_listed_any_more_stay_and_are_unknown(kube: FakeKube, status: int) -> None:
    kube.put(CONFIGMAPS, configmap("default", "a"))
    known: list[bool] = []
    timings = WatchTimings(backoff_first=0.01, backoff_most=0.02)
    async with Watched(
        kube, "default", optional=True, timings=timings, on_known=lambda: known.append(watched.informer.known)
    ) as watched:
        assert watched.informer.known
        kube.answer_next(10**6, lambda _: status_reply(status, "Refused", "no"))
        kube.cut_watches()
        await until(lambda: not watched.informer.known, "unknown")
        assert set(watched.informer.objects) == {"default/a"}
        assert not kube.health.readiness().ok
        kube.answer_next(0, lambda _: status_reply(status, "Refused", "never"))
        await until(lambda: known == [True], "known again")


async def test_a_kind_that_is_not_served_is_unknown_and_a_need_for_it_is_not_ready(kube: FakeKube) -> None:
    kube.answer_next(10**6, lambda _: status_reply(404, "NotFound", "page not found"), when=is_list)
    need: list[str] = []
    known: list[bool] = []
    timings = WatchTimings(absent=0.02, backoff_first=0.01)
    async with Watched(
        kube,
        "default",
        optional=True,
        timings=timings,
        needed=lambda: need[0] if need else None,
        on_known=lambda: known.append(watched.informer.known),
    ) as watched:
        assert not watched.informer.known
        assert kube.health.readiness().ok
        need.append("2 nodes have a label of it")
        await until(lambda: not kube.health.readiness().ok, "not ready once something needs the kind")
        assert "2 nodes have a label of it" in str(kube.health.readiness().reasons)
        assert not known
        kube.answer_next(0, lambda _: status_reply(404, "NotFound", "never"))
        await until(lambda: known == [True], "an empty list makes the kind known")
        assert kube.health.readiness().ok


async def test_a_required_list_that_is_forbidden_is_not_ready(kube: FakeKube) -> None:
    kube.answer_next(10**6, lambda _: status_reply(403, "Forbidden", "no"), when=is_list)
    informer = Watched(kube, "default", timings=QUICK).informer
    task = asyncio.create_task(informer.run())
    await until(lambda: not kube.health.readiness().ok, "not ready")
    assert not informer.synced.is_set()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_refusal_is_an_answer_but_no_list(kube: FakeKube) -> None:
    kube.answer_next(1, lambda _: status_reply(403, "Forbidden", "no"), when=is_list)
    informer = Watched(kube, "default", timings=WatchTimings(backoff_first=0.5, backoff_most=0.5)).informer
    task = asyncio.create_task(informer.run())
    await until(informer.answered.is_set, "the refusal")
    await until(informer.synced.is_set, "the list")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_informers_of_several_namespaces_are_one_to_their_reader(kube: FakeKube) -> None:
    objects: dict[str, Seen] = {}
    informers = Informers(
        ("default", "kube-system"),
        lambda namespace: Informer(
            kube, CONFIGMAPS, project, lambda _: None, namespace, timings=QUICK, objects=objects
        ),
    )
    assert not informers.synced("default")
    tasks = [asyncio.create_task(informer.run()) for informer in informers]
    await until(lambda: informers.synced("default") and informers.synced("kube-system"), "both")
    for namespace in ("default", "kube-system"):
        kube.put(CONFIGMAPS, configmap(namespace, "a", of=namespace))
    await until(lambda: len(objects) == 2, "both objects")
    assert objects["kube-system/a"].data == (("of", "kube-system"),)
    assert not informers.synced(None), "nobody saw all namespaces"
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_an_object_without_a_projection_is_not_kept(kube: FakeKube) -> None:
    for name in ("kept", "dropped"):
        kube.put(CONFIGMAPS, configmap("default", name, keep=name))
    changes: list[ChangeKind] = []

    def project_kept(manifest: Manifest) -> Seen | None:
        return project(manifest) if manifest["data"]["keep"] == "kept" else None

    informer = Informer(kube, CONFIGMAPS, project_kept, lambda change: changes.append(change.kind), timings=QUICK)
    running = asyncio.create_task(informer.run())
    try:
        await until(informer.synced.is_set, "listed")
        assert set(informer.objects) == {"default/kept"}
        kube.put(CONFIGMAPS, configmap("default", "kept", keep="no more"))
        await until(lambda: not informer.objects, "it is dropped when it changes")
        assert changes == [ChangeKind.ADDED, ChangeKind.DELETED]
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
