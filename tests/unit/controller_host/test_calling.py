"""Requests of guests to Kubernetes: carried out as their account, within limits, and answered as the ABI defines."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from structlog.testing import capture_logs

from controller_host.domain.accounts import Account
from controller_host.domain.calls import MOST_BYTES
from controller_host.host_calls.calling import MOST_REFUSALS, CallFlood, Calling, Calls
from controller_host.timings import CallTimings
from trellis.kube.errors import Call, NotFound
from trellis.kube.resources import CONFIGMAPS, EVENTS, NAMESPACES, SECRETS, Resource
from trellis.telemetry import setup
from trellis.telemetry.metrics import Metrics
from trellis_dev.fakes.fake import FakeKube, status_reply

ACCOUNT = Account("team-a/mirror", "system:serviceaccount:team-a:mirror", "trellis.dev/controller/mirror")
PLACE = {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "team-a"}


class SomeKinds:
    async def resource(self, api_version: str, kind: str) -> Resource:
        for item in (CONFIGMAPS, SECRETS, NAMESPACES):
            if (item.api_version, item.kind) == (api_version, kind):
                return item
        raise NotFound(Call("GET", kind, kind), status=404, reason="NotFound", message=f"no kind {api_version} {kind}")


class World:
    def __init__(self, rate: float = 1000, **timings: float) -> None:
        self.spans = InMemorySpanExporter()
        self.telemetry = setup("test", span_exporters=[self.spans], metrics=Metrics())
        self.kube = FakeKube(telemetry=self.telemetry)
        self.kube.put(NAMESPACES, {"metadata": {"name": "team-a"}})
        self.users: list[str] = []
        self.forbidden: list[str] = []
        self.calling = Calling(
            self.acting_as, SomeKinds(), self.telemetry, self.forbidden.append, timings=CallTimings(**timings)
        )
        self.calls = Calls(self.calling, ACCOUNT, rate)

    def acting_as(self, user: str) -> FakeKube:
        self.users.append(user)
        return self.kube

    async def call(self, **fields: Any) -> Any:
        return orjson.loads(await asyncio.to_thread(self.calls.call, orjson.dumps(fields)))


@pytest.fixture
async def world() -> World:
    return World()


def a_config_map(name: str = "a", **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "team-a", "name": name}, "data": data}


async def test_a_written_object_is_read_back_as_the_account(world: World) -> None:
    created = await world.call(op="create", object=a_config_map(x="1"))
    assert created["object"]["data"] == {"x": "1"}
    assert await world.call(op="get", **PLACE, name="a") == {"object": created["object"]}
    listed = await world.call(op="list", **PLACE)
    assert [item["metadata"]["name"] for item in listed["items"]] == ["a"]
    applied = await world.call(op="apply", object=a_config_map("b", y="1"))
    assert applied["object"]["data"] == {"y": "1"}
    patched = await world.call(op="patch", **PLACE, name="b", type="merge", patch={"data": {"y": "2"}})
    assert patched["object"]["data"] == {"y": "2"}
    assert await world.call(op="delete", **PLACE, name="b", uid=patched["object"]["metadata"]["uid"]) == {}
    assert set(world.users) == {ACCOUNT.user}


async def test_a_refusal_is_reported_in_the_servers_words(world: World) -> None:
    found = await world.call(op="get", **PLACE, name="nobody")
    assert found == {"error": {"code": 404, "reason": "NotFound", "message": 'configmaps "nobody" not found'}}


async def test_a_missing_kind_is_reported(world: World) -> None:
    found = await world.call(op="get", **PLACE | {"kind": "Nothing"}, name="x")
    assert (found["error"]["code"], found["error"]["reason"]) == (404, "NotFound")


async def test_a_namespaced_kind_needs_a_namespace(world: World) -> None:
    found = await world.call(op="get", apiVersion="v1", kind="ConfigMap", name="x")
    assert found["error"]["reason"] == "InvalidRequest"
    assert found["error"]["message"].startswith("namespace: ")
    assert not [request for request in world.kube.api.requests if "configmaps" in request.path]


async def test_a_403_is_passed_on_and_the_answer_of_the_review_forgotten(world: World) -> None:
    world.kube.answer_next(
        1, lambda _: status_reply(403, "Forbidden", "you may not"), when=lambda item: "a" in item.path
    )
    found = await world.call(op="get", **PLACE, name="a")
    assert found == {"error": {"code": 403, "reason": "Forbidden", "message": "you may not"}}
    assert world.forbidden == [ACCOUNT.user]


async def test_a_flood_of_requests_is_refused_locally_and_reported() -> None:
    world = World(rate=2)
    answers = [await world.call(op="get", **PLACE, name="a") for _ in range(4)]
    assert [answer["error"]["reason"] for answer in answers] == ["NotFound", "NotFound", "TooManyCalls", "TooManyCalls"]
    assert len(world.users) == 2


async def test_a_guest_that_repeats_refused_requests_is_ended() -> None:
    world = World(rate=1)
    world.calls.begin(None)
    for _ in range(MOST_REFUSALS):
        assert b"error" in world.calls.call(b"{}")
    with pytest.raises(CallFlood):
        world.calls.call(b"{}")
    world.calls.begin(None)
    assert b"error" in world.calls.call(b"{}")


async def test_an_answer_beyond_the_limit_is_too_large(world: World) -> None:
    huge = {"metadata": {"namespace": "team-a"}, "data": {"x": "y" * (MOST_BYTES // 4)}}
    for number in range(5):
        world.kube.put(CONFIGMAPS, huge | {"metadata": {"namespace": "team-a", "name": f"c{number}"}})
    found = await world.call(op="list", **PLACE)
    assert (found["error"]["code"], found["error"]["reason"]) == (0, "TooLarge")
    assert len((await world.call(op="list", **PLACE, limit=2))["items"]) == 2


async def test_a_server_that_does_not_answer_is_a_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    world, ended = World(request=0.05, late=0.05), asyncio.Event()

    async def never(*_: object, **__: object) -> bytes:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError

    monkeypatch.setattr(world.kube, "ask", never)
    found = await world.call(op="get", **PLACE, name="a")
    assert (found["error"]["code"], found["error"]["reason"]) == (0, "Timeout")
    async with asyncio.timeout(5):
        await ended.wait()  # nothing of it goes on


async def test_a_request_that_ends_with_the_host_is_answered(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def cancelled(*_: object, **__: object) -> bytes:
        raise asyncio.CancelledError

    monkeypatch.setattr(world.kube, "ask", cancelled)
    found = await world.call(op="get", **PLACE, name="a")
    assert (found["error"]["code"], found["error"]["reason"]) == (0, "Unavailable")


async def test_a_call_that_waited_long_enough_is_not_kept_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    world, ask = World(call=0.05), FakeKube.ask

    async def slow(*arguments: Any, **more: Any) -> bytes:
        await asyncio.sleep(0.05)
        return await ask(*arguments, **more)

    monkeypatch.setattr(FakeKube, "ask", slow)
    for _ in range(2):  # each call of the guest has its own time
        world.calls.begin(None)
        assert (await world.call(op="get", **PLACE, name="a"))["error"]["reason"] == "NotFound"
        assert (await world.call(op="get", **PLACE, name="a"))["error"]["reason"] == "Timeout"


async def test_a_host_that_stops_asks_nothing_more(world: World) -> None:
    world.calling.stop()
    found = await world.call(op="get", **PLACE, name="a")
    assert found["error"]["reason"] == "Unavailable"
    assert world.users == []


async def test_an_event_that_repeats_is_counted_up(world: World) -> None:
    world.kube.put(CONFIGMAPS, a_config_map())
    fields = {"op": "event", "regarding": PLACE | {"name": "a", "uid": "u"}, "reason": "Mirrored", "message": "done"}
    for _ in range(3):
        assert await world.call(**fields) == {}
    [event] = world.kube.objects(EVENTS)
    assert (event["count"], event["reason"], event["type"]) == (3, "Mirrored", "Normal")
    assert event["involvedObject"]["name"] == "a"
    assert event["source"]["component"] == "team-a.mirror"


async def test_the_contents_of_a_secret_are_in_no_log_and_no_span(
    world: World, capfd: pytest.CaptureFixture[str]
) -> None:
    planted = "cGxhbnRlZA=="
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "team-a", "name": "s"}}
    world.kube.answer_next(
        1, lambda _: status_reply(422, "Invalid", f'data: Invalid value: "{planted}"'), when=lambda _: True
    )
    refused = await world.call(op="create", object=secret | {"data": {"p": planted}})
    assert planted in refused["error"]["message"]
    await world.call(op="create", object=secret | {"data": {"p": planted}})
    await world.call(op="get", apiVersion="v1", kind="Secret", namespace="team-a", name="s")
    text = "".join(span.to_json() for span in world.spans.get_finished_spans())
    assert "call create Secret" in text
    assert planted not in text
    out = capfd.readouterr()
    assert planted not in out.out + out.err


async def test_a_request_is_a_span_of_the_guests_trace(world: World) -> None:
    with world.telemetry.tracer.start_as_current_span("guest") as span:
        world.calls.begin(trace.set_span_in_context(span))
        await world.call(op="get", **PLACE, name="nobody")
    spans = {item.name: item for item in world.spans.get_finished_spans()}
    assert {"guest", "call get ConfigMap", "kubernetes GET configmaps"} <= set(spans)
    called, kube = spans["call get ConfigMap"], spans["kubernetes GET configmaps"]
    assert called.parent is not None
    assert kube.parent is not None
    assert called.parent.span_id == span.get_span_context().span_id
    assert kube.parent.span_id == called.context.span_id


async def test_words_that_a_guest_makes_up_are_in_no_metric(world: World) -> None:
    world.kube.put(CONFIGMAPS, a_config_map())
    for number in range(300):
        made_up = "".join("abcdefghij"[int(digit)] for digit in str(number))
        await world.call(op="patch", **PLACE, name="a", type="merge", patch={}, subresource=made_up)
        await world.call(op=made_up, **PLACE, name=made_up)
    await world.call(op="patch", **PLACE, name="a", type="merge", patch={}, subresource="status")
    samples = [sample for metric in world.telemetry.metrics.registry.collect() for sample in metric.samples]
    resources = {sample.labels["resource"] for sample in samples if sample.name == "trellis_kube_requests_total"}
    assert resources == {"configmaps/other", "configmaps/status"}
    assert len(samples) < 200


async def test_log_lines_of_a_guest_are_bounded_and_omitted_lines_are_counted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.calling.log_lines = 10.0
    calls, now = Calls(world.calling, ACCOUNT, 0), 1000.0
    monkeypatch.setattr("controller_host.host_calls.calling.time.monotonic", lambda: now)
    with capture_logs() as logs:
        for number in range(1000):
            calls.log(1, f"line {number}")
        assert [line["text"] for line in logs] == [f"line {number}" for number in range(20)]
        logs.clear()
        now += 1
        calls.log(1, "x" * 2000)
        assert [line.get("lines") for line in logs] == [980, None]
        assert "text" in logs[1]
        logs.clear()
        calls.log(1, "x" * 2000)
        assert logs == [], "a long line counts as several"
    left_out = world.telemetry.metrics.registry.get_sample_value(
        "trellis_controller_log_lines_left_out_total", {"service": "test"}
    )
    assert left_out == 981


async def test_events_of_a_guest_are_bounded(world: World) -> None:
    regarding = {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "team-a", "name": "a", "uid": "u"}
    answers = [
        await world.call(op="event", regarding=regarding, type="Normal", reason="Said", message=f"m {number}")
        for number in range(40)
    ]
    refused = [answer["error"]["reason"] for answer in answers if "error" in answer]
    assert set(refused) == {"TooManyCalls"}
    assert 25 <= len(world.kube.objects(EVENTS)) == 40 - len(refused) < 40


@pytest.mark.parametrize(
    ("status", "reason", "expected_text", "refused"),
    [
        (403, "Forbidden", "denied by a policy", True),
        (422, "Invalid", "ValidatingAdmissionPolicy denied it", True),
        (500, "InternalError", "failed calling webhook: no answer", True),
        (409, "Conflict", "another version", False),
        (404, "NotFound", "no such object", False),
    ],
)
async def test_a_call_of_the_guest_knows_whether_something_was_refused(
    world: World, status: int, reason: str, expected_text: str, *, refused: bool
) -> None:
    world.kube.answer_next(
        9, lambda _: status_reply(status, reason, expected_text), when=lambda item: item.method == "POST"
    )
    world.calls.begin(None)
    await world.call(op="create", object=a_config_map())
    assert world.calls.refused is refused
    world.calls.begin(None)
    assert not world.calls.refused
