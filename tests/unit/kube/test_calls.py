"""Budgets, waits and retries of one call; spans, metrics and messages."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from support.cluster.kube_world import MANAGER, configmap, reference
from support.suite.naming import lacking
from trellis.kube.calls import Contact
from trellis.kube.errors import (
    LONGEST_WAIT,
    Call,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    KubeError,
    NotFound,
    NotLeading,
    PatchTestFailed,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    error_from,
    error_from_event,
)
from trellis.kube.preconditions import only_if
from trellis.kube.resources import CONFIGMAPS, NODES, PODS, SECRETS
from trellis.kube.transport import HttpRequest, Reply
from trellis.telemetry import setup
from trellis.telemetry.metrics import Metrics
from trellis_dev.fakes.fake import FakeKube, status_reply


@pytest.fixture
def kube() -> FakeKube:
    return FakeKube(telemetry=setup("test", metrics=Metrics()))


def busy(_: HttpRequest) -> Reply:
    return Reply(429, b'{"kind":"Status","reason":"TooManyRequests","message":"slow down"}', {"Retry-After": "1"})


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Every sleep of the client, which then takes no time."""
    slept: list[float] = []
    real = asyncio.sleep

    async def note(seconds: float) -> None:
        if seconds:
            slept.append(seconds)
        await real(0)

    monkeypatch.setattr("trellis.kube.calls.asyncio.sleep", note)
    return slept


@pytest.mark.parametrize(
    ("status", "reason", "error"),
    [
        (400, "BadRequest", Invalid),
        (401, "Unauthorized", Unauthorized),
        (403, "Forbidden", Forbidden),
        (404, "NotFound", NotFound),
        (409, "Conflict", Conflict),
        (410, "Expired", Gone),
        (413, "RequestEntityTooLarge", Invalid),
        (422, "Invalid", Invalid),
        (500, "InternalError", Unavailable),
        (503, "ServiceUnavailable", Unavailable),
    ],
)
async def test_each_refusal_has_its_exception(
    kube: FakeKube, waits: list[float], status: int, reason: str, error: type[KubeError]
) -> None:
    kube.answer_next(9, lambda _: status_reply(status, reason, "because"))
    with pytest.raises(KubeError) as caught:
        await kube.create(CONFIGMAPS, configmap("default", "a"))
    assert type(caught.value) is error
    assert str(caught.value) == f"cannot CREATE ConfigMap default/a: {status} {reason}: because"
    assert waits == []


async def test_an_answer_that_is_no_status_is_quoted(kube: FakeKube) -> None:
    kube.answer_next(9, lambda _: Reply(502, b"<html>Bad Gateway</html>", {}))
    with pytest.raises(Unavailable, match=r"502 ServerError: <html>Bad Gateway"):
        await kube.create(CONFIGMAPS, configmap("default", "a"))


async def test_a_read_is_repeated_once_after_no_answer(kube: FakeKube, waits: list[float]) -> None:
    kube.put(CONFIGMAPS, configmap("default", "a"))
    kube.fail_next(1)
    await kube.get(CONFIGMAPS, "a", "default")
    kube.fail_next(2)
    with pytest.raises(Unavailable, match=r"cannot GET ConfigMap default/a: Unavailable: https://fake"):
        await kube.get(CONFIGMAPS, "a", "default")
    assert len(waits) == 2


@pytest.mark.parametrize("status", [0, 500, 503])
async def test_a_write_without_a_clear_answer_is_never_repeated(kube: FakeKube, status: int) -> None:
    if status:
        kube.answer_next(1, lambda _: status_reply(status, "InternalError", "perhaps it was written"))
    else:
        kube.fail_next(1)
    with pytest.raises(Unavailable):
        await kube.create(CONFIGMAPS, configmap("default", "a"))
    assert len(kube.writes) == 1


async def test_a_busy_server_is_waited_for_as_long_as_it_asks(kube: FakeKube, waits: list[float]) -> None:
    kube.answer_next(3, busy)
    await kube.create(CONFIGMAPS, configmap("default", "a"))
    assert len(waits) == 3
    assert all(1.0 <= wait <= 1.5 for wait in waits), "no sooner than asked, and not all at the same moment"
    assert len(set(waits)) == 3


async def test_a_wait_beyond_the_budget_is_not_started(kube: FakeKube, waits: list[float]) -> None:
    kube.answer_next(1, busy)
    with pytest.raises(TooManyRequests) as caught:
        await kube.create(CONFIGMAPS, configmap("default", "a"), timeout=0.5)
    assert caught.value.retry_after == 1.0
    assert waits == []


async def test_an_unresponsive_server_costs_at_most_the_budget(kube: FakeKube, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kube.api, "send", lambda _: asyncio.Event().wait())
    began = time.monotonic()
    with pytest.raises(Unavailable, match=r"https://fake\.invalid:6443 .*\b0\.1 s"):
        await kube.get(NODES, "node-1", timeout=0.1)
    assert time.monotonic() - began < 2


async def test_refused_credentials_are_read_again_once(kube: FakeKube, monkeypatch: pytest.MonkeyPatch) -> None:
    renewals: list[int] = []

    async def renew() -> None:
        renewals.append(1)

    monkeypatch.setattr(kube.api, "renew_credentials", renew)
    kube.answer_next(1, lambda _: status_reply(401, "Unauthorized", "who are you"))
    await kube.create(CONFIGMAPS, configmap("default", "a"))
    assert len(renewals) == 1
    kube.answer_next(9, lambda _: status_reply(401, "Unauthorized", "who are you"))
    with pytest.raises(Unauthorized):
        await kube.create(CONFIGMAPS, configmap("default", "b"))
    assert len(renewals) == 2


async def test_the_guard_is_asked_again_before_a_repeated_write(kube: FakeKube, waits: list[float]) -> None:
    kube.answer_next(1, busy)

    def lost_meanwhile() -> None:
        if waits:
            raise NotLeading

    with pytest.raises(NotLeading):
        await kube.guarded(lost_meanwhile).create(CONFIGMAPS, configmap("default", "a"))
    assert len(kube.writes) == 1


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_each_other_call_is_guarded_before_a_retry_reads_too(
    kube: FakeKube, waits: list[float], method: str
) -> None:
    kube.put(CONFIGMAPS, configmap("default", "a"))
    kube.answer_next(1, busy)

    def lost_meanwhile() -> None:
        if waits:
            raise NotLeading

    request = HttpRequest(method, CONFIGMAPS.path("default", "a"))
    with pytest.raises(NotLeading):
        await kube.guarded(lost_meanwhile).ask(Call(method, "ConfigMap", "configmaps", "default", "a"), request)
    assert len(kube.api.requests) == 1
    assert kube.api.requests[0].method == method


async def test_a_patch_refused_for_another_reason_is_no_failed_test(kube: FakeKube) -> None:
    kube.put(CONFIGMAPS, configmap("default", "a"))
    kube.answer_next(1, lambda _: status_reply(422, "Invalid", "data: too long"))
    ops = [{"op": "test", "path": "/kind", "value": "ConfigMap"}]
    with pytest.raises(Invalid) as caught:
        await kube.json_patch(CONFIGMAPS, "a", ops, "default", field_manager=MANAGER)
    assert not isinstance(caught.value, PatchTestFailed)


async def test_a_list_whose_page_token_expires_starts_again(kube: FakeKube) -> None:
    for number in range(4):
        kube.put(CONFIGMAPS, configmap("default", f"c{number}"))
    expired = lambda _: status_reply(410, "Expired", "token is too old")  # noqa: E731
    kube.answer_next(1, expired, when=lambda request: "continue" in request.query)
    found = await kube.list(CONFIGMAPS, "default", limit=2)
    assert [item["metadata"]["name"] for item in found.items] == ["c0", "c1", "c2", "c3"]
    kube.answer_next(99, expired, when=lambda request: "continue" in request.query)
    with pytest.raises(Gone):
        await kube.list(CONFIGMAPS, "default", limit=2)


async def test_pod_logs_are_cut_to_lines(kube: FakeKube) -> None:
    kube.put(PODS, {"metadata": {"name": "p", "namespace": "default"}})
    kube.put_log("default", "p", "c", "one\ntwo\nthree\n")
    assert await kube.pod_log("default", "p", "c", tail_lines=2) == "two\nthree\n"
    with pytest.raises(NotFound):
        await kube.pod_log("default", "other", "c")


async def test_calls_are_counted(kube: FakeKube) -> None:
    await kube.create(CONFIGMAPS, configmap("default", "a"))
    with pytest.raises(NotFound):
        await kube.get(CONFIGMAPS, "b", "default")
    counts = {
        tuple(sample.labels[name] for name in ("service", "verb", "resource", "code")): sample.value
        for family in kube.telemetry.metrics.kube_requests_total.collect()
        for sample in family.samples
        if sample.name.endswith("_total")
    }
    assert counts == {("test", "CREATE", "configmaps", "201"): 1, ("test", "GET", "configmaps", "404"): 1}


async def test_spans_exist_only_inside_a_recorded_one() -> None:
    exporter = InMemorySpanExporter()
    telemetry = setup("test", span_exporters=[exporter], metrics=Metrics())
    kube = FakeKube(telemetry=telemetry)
    await kube.create(CONFIGMAPS, configmap("default", "a"))
    assert exporter.get_finished_spans() == ()
    with telemetry.tracer.start_as_current_span("handle"):
        patch = {"data": {"x": "1"}}
        await kube.merge_patch(CONFIGMAPS, "a", patch, "default", field_manager=MANAGER)
        with pytest.raises(NotFound):
            await kube.get(NODES, "node-1")
    patched, missed, parent = exporter.get_finished_spans()
    assert (patched.name, patched.kind) == ("kubernetes PATCH configmaps", SpanKind.CLIENT)
    assert patched.parent is not None
    assert patched.parent.span_id == parent.context.span_id
    attributes = dict(patched.attributes or {})
    assert attributes["k8s.namespace.name"] == "default"
    assert attributes["k8s.object.name"] == "a"
    assert attributes["http.response.status_code"] == 200
    assert not missed.status.is_ok
    assert (missed.attributes or {})["error.type"] == "NotFound"


async def test_a_span_has_no_words_of_a_server_about_a_secret() -> None:
    """Of what is invalid in an object the server shows the value."""
    exporter = InMemorySpanExporter()
    telemetry = setup("test", span_exporters=[exporter], metrics=Metrics())
    kube = FakeKube(telemetry=telemetry)
    with telemetry.tracer.start_as_current_span("handle"):
        for resource in (SECRETS, CONFIGMAPS):
            with pytest.raises(NotFound):
                await kube.get(resource, "a", "default")
    secret, other, _ = exporter.get_finished_spans()
    assert secret.status.description == "NotFound"
    assert "default/a" in str(other.status.description), "of other kinds it says what was asked"


async def test_a_leader_s_write_must_name_what_was_read(kube: FakeKube) -> None:
    made = kube.put(CONFIGMAPS, configmap("default", "a"))
    metadata = made["metadata"]
    uid, version = metadata["uid"], metadata["resourceVersion"]
    only_the_uid, only_the_version = only_if(uid, version)[:1], only_if(uid, version)[1:]
    leader = kube.guarded(lambda: None)
    op = {"op": "add", "path": "/data", "value": {}}
    vague: list[tuple[list[str], Callable[[], Awaitable[object]]]] = [
        (["ConfigMap", "uid", "resourceVersion"],
         lambda: leader.merge_patch(CONFIGMAPS, "a", {"data": {}}, "default", field_manager=MANAGER)),
        (["ConfigMap", "resourceVersion"],
         lambda: leader.merge_patch(CONFIGMAPS, "a", {"metadata": {"uid": uid}}, "default", field_manager=MANAGER)),
        (["ConfigMap", "/metadata/resourceVersion"],
         lambda: leader.json_patch(CONFIGMAPS, "a", [*only_the_uid, op], "default", field_manager=MANAGER)),
        (["ConfigMap", "/metadata/uid"],
         lambda: leader.json_patch(CONFIGMAPS, "a", [*only_the_version, op], "default", field_manager=MANAGER)),
        (["ConfigMap", "resourceVersion"],
         lambda: leader.apply(CONFIGMAPS, reference(made), field_manager=MANAGER)),
        (["ConfigMap", "resourceVersion"], lambda: leader.delete(CONFIGMAPS, "a", "default", uid=uid)),
    ]  # fmt: skip
    for needed, write in vague:
        with pytest.raises(ValueError) as refused:  # noqa: PT011 (its message is asserted)
            await write()
        assert lacking(refused.value, *needed) == []
        assert [name for name in ("uid", "resourceVersion") if name in str(refused.value)] == [
            name for name in ("uid", "resourceVersion") if any(name in item for item in needed)
        ]
    assert kube.writes == []
    ops = [*only_if(uid, version), op]
    await leader.json_patch(CONFIGMAPS, "a", ops, "default", field_manager=MANAGER)
    await kube.delete(CONFIGMAPS, "a", "default", uid=uid)


def test_contact_is_lost_by_a_failure_and_by_age() -> None:
    now = 0.0
    contact = Contact(clock=lambda: now)
    assert contact.answering_for(30) == 0
    contact.answered()
    now = 20.0
    contact.answered()
    assert contact.answering_for(30) == 20
    now = 25.0  # asked again and silent since, perhaps: nobody knows yet
    assert contact.answering_for(30) == 20
    contact.failed()
    assert contact.answering_for(30) == 0
    contact.answered()
    now = 60.0
    assert contact.answering_for(30) == 0


def test_a_server_counts_as_asked_whether_or_not_it_answers() -> None:
    now = 5.0
    contact = Contact(clock=lambda: now)
    for happened in (contact.answered, contact.failed):
        now += 7
        assert contact.since_last_call() >= 7
        happened()
        assert contact.since_last_call() == 0


ODD = ["999999999999999999999999", "-5", "nan", "inf", "1e9", "0x10", "²", "", "Wed, 21 Oct 2099 07:28:00 GMT"]


@pytest.mark.parametrize("requested", ["3600", "86400", "18446744073709551615", *ODD])
def test_a_wait_that_a_header_asks_for_is_a_minute_at_most(requested: str) -> None:
    error = error_from(Call("GET", "Node", "nodes"), 503, b"{}", {"Retry-After": requested})
    assert error.retry_after == (None if requested in ODD else LONGEST_WAIT)


@pytest.mark.parametrize("requested", [3600, 2**64 - 1, -5, 1e300, float("1e9"), True, "soon", [3600], {"a": 1}])
def test_a_wait_that_a_status_asks_for_is_a_minute_at_most(requested: object) -> None:
    status = {"kind": "Status", "details": {"retryAfterSeconds": requested}}
    error = error_from(Call("GET", "Node", "nodes"), 429, json.dumps(status).encode(), {})
    assert error.retry_after == (LONGEST_WAIT if requested in (3600, 2**64 - 1) else None)
    assert error_from_event(Call("WATCH", "Node", "nodes"), status | {"code": 429}).retry_after == error.retry_after


@pytest.mark.parametrize("code", ["x", None, [], 1e300])
def test_an_error_of_a_watch_without_a_status_code_is_an_error_all_the_same(code: object) -> None:
    assert isinstance(error_from_event(Call("WATCH", "Node", "nodes"), {"code": code}), Unavailable)


async def test_a_write_is_not_kept_waiting_beyond_its_budget_by_a_server_that_asks_for_an_hour(
    kube: FakeKube, waits: list[float]
) -> None:
    kube.answer_next(9, lambda _: Reply(429, b"{}", {"Retry-After": "3600"}))
    with pytest.raises(TooManyRequests):
        await kube.create(CONFIGMAPS, configmap("default", "a"))
    assert waits == []
    assert len(kube.writes) == 1


def test_characters_that_a_path_cannot_have_are_escaped() -> None:
    assert CONFIGMAPS.path("team-a", "a.b_c~d") == "/api/v1/namespaces/team-a/configmaps/a.b_c~d"
    assert CONFIGMAPS.path("team-a", "a/b c%é") == "/api/v1/namespaces/team-a/configmaps/a%2Fb%20c%25%C3%A9"
