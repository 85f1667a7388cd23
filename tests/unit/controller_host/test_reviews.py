"""Access reviews of an account: their content, their number, and the lifetime of an answer."""

from __future__ import annotations

import asyncio

import orjson
import pytest

from controller_host.timings import ReviewTimings
from controller_host.watches import reviews as module
from controller_host.watches.reviews import Reviews
from support.cluster.kube_world import until
from trellis.kube.errors import Call
from trellis.kube.resources import CONFIGMAPS, JOBS, NODES
from trellis.kube.transport import ConnectionFailed, HttpRequest, Reply
from trellis_dev.fakes.fake import FakeKube, status_reply

USER = "system:serviceaccount:shop:ttl"


class World:
    """An API server that answers reviews; ``granted``: verb, resource and namespace."""

    def __init__(self) -> None:
        self.kube = FakeKube()
        self.kube.api.fault = self.answer
        self.granted = {("list", "jobs", "shop"), ("watch", "jobs", "shop")}
        self.requested: list[dict[str, object]] = []
        self.unavailable = False
        self.now = 0.0
        self.reviews = Reviews(self.kube, clock=lambda: self.now)

    def answer(self, request: HttpRequest) -> Reply:
        assert request.path == "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        if self.unavailable:
            raise ConnectionFailed("away")
        spec = orjson.loads(request.body or b"")["spec"]
        self.requested.append(spec)
        item = spec["resourceAttributes"]
        allowed = (item["verb"], item["resource"], item.get("namespace", "")) in self.granted
        return Reply(201, orjson.dumps({"status": {"allowed": allowed}}), {})

    async def review(self, namespace: str = "shop") -> bool | None:
        return await self.reviews.allowed(USER, JOBS, namespace)


async def test_an_account_is_asked_about_with_its_groups() -> None:
    world = World()
    assert await world.review() is True
    assert world.requested[0] == {
        "user": USER,
        "groups": ["system:serviceaccounts", "system:serviceaccounts:shop", "system:authenticated"],
        "resourceAttributes": {
            "group": "batch", "version": "v1", "resource": "jobs", "verb": "list", "namespace": "shop",
        },
    }  # fmt: skip


async def test_a_subject_with_only_list_permission_may_not_watch() -> None:
    world = World()
    world.granted = {("list", "jobs", "shop")}
    assert await world.review() is False


async def test_a_review_is_cached_for_its_ttl_and_then_repeated() -> None:
    world = World()
    assert await world.review() is True
    world.granted.clear()
    world.now = ReviewTimings().keep - 0.001
    assert await world.review() is True
    world.now = ReviewTimings().keep
    assert await world.review() is False
    assert len(world.requested) == 3


async def test_places_and_resources_are_asked_about_apart() -> None:
    world = World()
    assert await world.review() is True
    assert await world.review("other") is False
    assert await world.reviews.allowed(USER, CONFIGMAPS, "shop") is False
    world.granted |= {("list", "nodes", ""), ("watch", "nodes", "")}
    assert await world.reviews.allowed(USER, NODES, "") is True


async def test_a_refused_subject_is_reviewed_again() -> None:
    world = World()
    assert await world.review() is True
    world.granted.clear()
    world.reviews.forget(USER)
    assert world.reviews.last(USER, JOBS, "shop") is None
    assert await world.review() is False


async def test_a_repeatedly_refused_subject_is_reviewed_once_a_second() -> None:
    world = World()
    for _ in range(10):
        assert await world.review() is True
        world.reviews.forget(USER)
    assert len(world.requested) == 2 * 2
    world.granted.clear()
    world.now = ReviewTimings().forget - 0.001
    assert await world.review() is True
    world.now = ReviewTimings().forget
    assert world.reviews.last(USER, JOBS, "shop") is None, "what was refused in between is not passed over"
    assert await world.review() is False


async def test_a_review_requested_before_a_refusal_is_not_cached() -> None:
    world = World()
    asking = asyncio.create_task(world.review())
    await until(lambda: bool(world.requested), "the first question")
    world.reviews.forget(USER)
    world.granted.clear()
    assert await world.review() is False
    await asking
    assert await world.review() is False


async def test_concurrent_requests_share_one_even_if_the_first_is_cancelled() -> None:
    world = World()
    first, *others = [asyncio.create_task(world.review()) for _ in range(50)]
    await asyncio.sleep(0)
    first.cancel()
    assert await asyncio.gather(*others) == [True] * 49
    assert len(world.requested) == 2


async def test_an_outage_refuses_nothing_and_causes_one_request() -> None:
    world = World()
    world.unavailable = True
    assert await world.review() is None
    requests = len(world.kube.api.requests)
    world.reviews._not_before = world.now + 1
    assert [await world.review() for _ in range(10)] == [None] * 10
    assert len(world.kube.api.requests) == requests
    world.unavailable, world.now = False, 2.0
    assert await world.review() is True


async def test_an_earlier_review_expires_during_an_outage() -> None:
    world = World()
    assert await world.review() is True
    world.unavailable, world.now = True, ReviewTimings().keep
    assert await world.review() is None


async def test_an_answer_of_a_proxy_is_an_outage() -> None:
    world = World()
    world.kube.api.fault = lambda _: Reply(200, b"<html>", {})
    assert await world.review() is None
    world.kube.api.fault = lambda _: status_reply(403, "Forbidden", "no")
    world.now = 100.0
    assert await world.review() is None


async def test_cached_reviews_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_USERS", 3)
    monkeypatch.setattr(module, "MOST_PLACES", 2)
    world = World()
    for number in range(5):
        await world.reviews.allowed(f"system:serviceaccount:n{number}:a", JOBS, "x")
        await world.review(f"n{number}")
    assert len(world.reviews._users) == 3
    assert len(world.reviews._users[USER].known) == 2


async def test_a_namespace_that_asks_for_much_leaves_others_their_questions() -> None:
    world, gate = World(), asyncio.Event()
    ask = world.kube.ask

    async def slow(call: Call, request: HttpRequest, *, timeout: float) -> bytes:  # noqa: ASYNC109 - as what it replaces
        if b":greedy:" in (request.body or b""):
            await gate.wait()
        return await ask(call, request, timeout=timeout)

    world.kube.ask = slow  # type: ignore[method-assign]
    users = [f"system:serviceaccount:greedy:a{number}" for number in range(100)]
    greedy = [asyncio.create_task(world.reviews.allowed(user, JOBS, "shop")) for user in users]
    await asyncio.sleep(0)
    async with asyncio.timeout(5):
        assert await world.review() is True
    gate.set()
    assert await asyncio.gather(*greedy) == [True] * 100
