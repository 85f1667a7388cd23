"""Discovery requests to the API server, their number, and the cache of their answers."""

from __future__ import annotations

import asyncio

import pytest

from support.suite.naming import lacking
from trellis.kube.discovery import MOST_VERSIONS, Discovery, UnknownKind
from trellis.kube.errors import Unavailable
from trellis.kube.resources import JOBS, Resource
from trellis.kube.timings import DiscoveryTimings
from trellis.kube.transport import Reply
from trellis_dev.fakes.fake import FakeKube

TIMINGS = DiscoveryTimings(again=3.0, keep=30.0)
WIDGETS = Resource("example.com", "v1", "widgets", "Widget", namespaced=True)


class World:
    def __init__(self) -> None:
        self.kube = FakeKube()
        self.now = 0.0
        self.discovery = Discovery(self.kube, clock=lambda: self.now, timings=TIMINGS)

    @property
    def requested(self) -> list[str]:
        return [request.path for request in self.kube.api.requests]


async def test_an_answer_is_cached_and_requested_again_when_outdated() -> None:
    world = World()
    for now in (0.0, TIMINGS.keep - 1, TIMINGS.keep, TIMINGS.keep + 1):
        world.now = now
        assert await world.discovery.resource("batch/v1", "Job") == JOBS
    assert world.requested == ["/apis/batch/v1"] * 2


async def test_a_kind_installed_later_is_found_without_constant_requests() -> None:
    world = World()
    for _ in range(3):
        with pytest.raises(UnknownKind):
            await world.discovery.resource("example.com/v1", "Widget")
    world.kube.define(WIDGETS)
    with pytest.raises(UnknownKind):
        await world.discovery.resource("example.com/v1", "Widget")
    world.now = TIMINGS.again
    assert await world.discovery.resource("example.com/v1", "Widget") == WIDGETS
    assert world.requested == ["/apis/example.com/v1"] * 2


async def test_concurrent_requests_share_one_even_if_the_first_is_cancelled() -> None:
    world = World()
    first, *others = [asyncio.create_task(world.discovery.resource("batch/v1", "Job")) for _ in range(5)]
    await asyncio.sleep(0)
    first.cancel()
    assert await asyncio.gather(*others) == [JOBS] * 4
    assert world.requested == ["/apis/batch/v1"]


async def test_a_kind_forgotten_during_its_request_is_still_answered() -> None:
    world = World()
    asking = asyncio.create_task(world.discovery.resource("batch/v1", "Job"))
    await asyncio.sleep(0)
    world.discovery._asking["batch/v1"].add_done_callback(lambda _: world.discovery.forget("batch/v1"))
    assert await asking == JOBS


async def test_an_outage_is_no_unknown_kind_and_is_not_kept() -> None:
    world = World()
    world.kube.fail_next(2)  # a read is tried twice
    with pytest.raises(Unavailable):
        await world.discovery.resource("batch/v1", "Job")
    assert await world.discovery.resource("batch/v1", "Job") == JOBS


async def test_a_kind_that_cannot_be_watched_is_not_the_one_that_is_wanted() -> None:
    world = World()
    with pytest.raises(UnknownKind) as refused:
        await world.discovery.resource("batch/v1", "Job", verbs=("list", "fly"))
    assert lacking(refused.value, "Job", "batch/v1", "list", "fly") == []


async def test_a_subresource_is_no_kind_of_its_own() -> None:
    world = World()
    listed = (
        '{"resources": [{"name": "pods/eviction", "kind": "Eviction", "namespaced": true},'
        ' {"name": "pods", "kind": "Pod", "namespaced": true, "verbs": ["get"]},'
        ' {"name": "pods/status", "kind": "Pod", "namespaced": true, "verbs": ["patch"]}]}'
    )
    world.kube.answer_next(1, lambda _: Reply(200, listed.encode(), {}))
    assert (await world.discovery.resource("v1", "Pod", verbs=("get",))).plural == "pods"
    with pytest.raises(UnknownKind):
        await world.discovery.resource("v1", "Eviction")


async def test_an_answer_that_is_no_json_is_an_outage() -> None:
    world = World()
    world.kube.answer_next(1, lambda _: Reply(200, b"<html>", {}))
    with pytest.raises(Unavailable, match="not JSON"):
        await world.discovery.resource("v1", "Pod")


async def test_cached_versions_are_bounded() -> None:
    world = World()
    for number in range(MOST_VERSIONS + 5):
        with pytest.raises(UnknownKind):
            await world.discovery.resource(f"g{number}.example/v1", "Thing")
    assert len(world.discovery._versions) == MOST_VERSIONS


async def test_an_invalidated_answer_is_requested_again() -> None:
    world = World()
    await world.discovery.resource("batch/v1", "Job")
    world.discovery.forget("batch/v1")
    await world.discovery.resource("batch/v1", "Job")
    assert len(world.requested) == 2
