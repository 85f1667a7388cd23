"""Of an answer the keys that a shape names are decoded; one that does not fit it is decoded whole."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any, TypedDict

import orjson
import pytest

from support.cluster.kube_world import configmap, until
from trellis.kube.errors import Gone
from trellis.kube.informer import Change, Informer
from trellis.kube.nesting import parse
from trellis.kube.pages import Items, decode_page
from trellis.kube.reader import Selection
from trellis.kube.resources import CONFIGMAPS, Manifest
from trellis.kube.shapes import Shape
from trellis.kube.transport import HttpRequest, Reply
from trellis.kube.watch_timings import WatchTimings
from trellis.telemetry import setup
from trellis.telemetry.metrics import Metrics
from trellis_dev.fakes.fake import FakeKube, status_reply


class Metadata(TypedDict, total=False):
    name: str
    namespace: str
    uid: str
    resourceVersion: str


class Item(TypedDict, total=False):
    metadata: Metadata
    status: dict[str, str]


SHAPE = Shape(Item)
DEEP = b"[" * 3000 + b"]" * 3000
WHOLE = {
    "metadata": {"name": "a", "resourceVersion": "1", "labels": {"x": "y"}},
    "spec": {"z": 1},
    "status": {"k": "v"},
}
READ = {"metadata": {"name": "a", "resourceVersion": "1"}, "status": {"k": "v"}}


@pytest.fixture
def kube() -> FakeKube:
    return FakeKube(telemetry=setup("test", metrics=Metrics()))


def objects(items: bytes, shape: Shape | None = SHAPE) -> list[Any]:
    """Return the objects of a page."""
    body = b'{"apiVersion":"v1","kind":"XList","metadata":{"resourceVersion":"1"},"items":%b}' % items
    return list(Items(decode_page(body)["items"], shape, ZeroDivisionError))


async def test_only_named_fields_are_decoded() -> None:
    assert objects(orjson.dumps([WHOLE])) == [READ]
    assert objects(orjson.dumps([WHOLE]), None) == [WHOLE]
    event = orjson.dumps({"type": "ADDED", "object": WHOLE})
    assert await parse(event, SHAPE.event) == {"type": "ADDED", "object": READ}


@pytest.mark.parametrize(
    "whole",
    [
        {"type": "ERROR", "object": {"kind": "Status", "code": 410, "status": "Failure", "metadata": {}}},
        {"type": "ADDED", "object": {"metadata": {"name": 5}, "spec": 1}},
        {"type": "ADDED", "object": ["x"]},
        ["no object"],
        None,
    ],
    ids=["a status", "another type", "no object in it", "a list", "null"],
)
async def test_data_that_does_not_match_the_shape_is_decoded_completely(whole: Any) -> None:
    assert await parse(orjson.dumps(whole), SHAPE.event) == whole


async def test_an_object_nested_too_deeply_does_not_hide_others() -> None:
    body = b'{"metadata":{},"items":[{"metadata":{"name":"a"},"spec":%b},{"metadata":{"name":"b"}}]}' % DEEP
    assert [item["metadata"]["name"] for item in (await parse(body, decode_page))["items"]] == ["a", "b"]


def test_an_object_of_a_page_that_does_not_match_the_shape_is_decoded_completely() -> None:
    other = WHOLE | {"status": "a text"}
    assert objects(orjson.dumps([WHOLE, other, WHOLE])) == [READ, other, READ]


@pytest.mark.parametrize("item", [b"null", b"5", b'"x"', b"[]", b"{}", b'{"metadata":{"name":"a"}}', b'{"x":"\xff"}'])
@pytest.mark.parametrize("shape", [SHAPE, None], ids=["shape", "whole"])
def test_a_page_with_an_item_that_is_not_an_object_is_invalid(item: bytes, shape: Shape | None) -> None:
    with pytest.raises(ZeroDivisionError):
        objects(b"[%b]" % item, shape)


def test_a_page_keeps_no_decoded_object() -> None:
    page = Items(decode_page(orjson.dumps({"items": [WHOLE]}))["items"], None, ZeroDivisionError)
    (first,), (second,) = page, page
    assert first == second
    assert first is not second


@pytest.mark.parametrize("body", [b"", b"{", b'{"type":"ADDED"} x', b'{"type":"\xff"}'])
async def test_invalid_json_is_refused(body: bytes) -> None:
    with pytest.raises(orjson.JSONDecodeError):
        await parse(body, SHAPE.event)


@pytest.fixture
async def informer(kube: FakeKube) -> AsyncIterator[Informer[str]]:
    quick = WatchTimings(backoff_first=0.01, backoff_most=0.05)

    def project(manifest: Manifest) -> str:
        assert "data" not in manifest
        return str(manifest["metadata"]["resourceVersion"])

    def ignore(change: Change[str]) -> None:
        del change

    made = Informer(kube, CONFIGMAPS, project, ignore, "default", shape=SHAPE, timings=quick)
    task = asyncio.create_task(made.run())
    yield made
    task.cancel()
    await asyncio.wait({task})


async def test_an_informer_has_lists_and_events_in_that_shape(kube: FakeKube, informer: Informer[str]) -> None:
    kube.put(CONFIGMAPS, configmap("default", "a") | {"data": {"x": "y"}})
    await until(lambda: len(kube.api.store.watchers) == 1, "the watch is open")
    kube.put(CONFIGMAPS, configmap("default", "b") | {"data": {"x": "y"}})
    await until(lambda: set(informer.objects) == {"default/a", "default/b"}, "both")


async def test_after_a_cut_the_newest_change_is_recognized_in_that_shape(
    kube: FakeKube, informer: Informer[str]
) -> None:
    kube.put(CONFIGMAPS, configmap("default", "a") | {"data": {"x": "y"}})
    await until(lambda: len(kube.api.store.watchers) == 1 and bool(informer.objects), "the watch is open")
    kube.api.requests.clear()
    kube.cut_watches()
    await until(lambda: any("watch" in request.query for request in kube.api.requests), "another watch")
    lists = [request.query for request in kube.api.requests if "limit" in request.query]
    assert [item.get("fieldSelector") for item in lists] == ["metadata.name=a,metadata.namespace=default"]


async def test_the_next_page_is_requested_before_a_page_is_evaluated(
    kube: FakeKube, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its evaluation may not await anything, as in an informer: a task would start only after it."""
    for name in "abc":
        kube.put(CONFIGMAPS, configmap("default", name))
    requested: list[str] = []
    send = kube.api.send

    async def note(request: HttpRequest) -> Reply:
        requested.append(request.query.get("continue", ""))
        return await send(request)

    monkeypatch.setattr(kube.api, "send", note)
    found = [
        (page.first, [item["metadata"]["name"] for item in page.items], len(requested))
        async for page in kube.pages(Selection(CONFIGMAPS, "default"), limit=1)
    ]
    assert found == [(True, ["a"], 2), (False, ["b"], 3), (False, ["c"], 3)]


async def test_a_token_that_expires_begins_the_list_again_while_a_page_is_looked_at(kube: FakeKube) -> None:
    for name in "ab":
        kube.put(CONFIGMAPS, configmap("default", name))

    def later(request: HttpRequest) -> bool:
        return "continue" in request.query

    kube.answer_next(1, lambda _: status_reply(410, "Expired", "too old"), when=later)
    found = [
        (page.first, next(iter(page.items))["metadata"]["name"])
        async for page in kube.pages(Selection(CONFIGMAPS, "default"), limit=1)
    ]
    assert found == [(True, "a"), (True, "a"), (False, "b")]
    kube.answer_next(3, lambda _: status_reply(410, "Expired", "too old"), when=later)
    with pytest.raises(Gone):
        await kube.list(CONFIGMAPS, "default", limit=1)


async def test_an_abandoned_list_leaves_no_request_behind(kube: FakeKube) -> None:
    for name in "ab":
        kube.put(CONFIGMAPS, configmap("default", name))
    before = asyncio.all_tasks()
    async with aclosing(kube.pages(Selection(CONFIGMAPS, "default"), limit=1)) as pages:
        await anext(pages)
    assert asyncio.all_tasks() <= before


async def test_the_last_page_ends_the_list_in_the_same_turn_of_the_event_loop(kube: FakeKube) -> None:
    """Objects that a list recovers are processed when they are seen."""
    kube.put(CONFIGMAPS, configmap("default", "a"))
    turns: list[int] = []
    loop = asyncio.get_running_loop()
    async for page in kube.pages(Selection(CONFIGMAPS, "default")):
        assert page.items
        loop.call_soon(turns.append, 1)
    assert turns == []
