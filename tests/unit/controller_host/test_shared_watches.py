"""Changes and objects for each controller, over one list and watch a kind."""

from __future__ import annotations

import asyncio
import contextlib
import tracemalloc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import orjson

from controller_host.domain.keys import ObjectKey
from controller_host.domain.watch_specs import RefusalReason, specs_of
from controller_host.timings import CacheTimings
from controller_host.watches.cached_kind import project
from controller_host.watches.reviews import Reviews
from controller_host.watches.shared_watches import SharedWatches, WatchContext
from support.cluster import kube_world
from support.cluster.kube_world import configmap, labelled
from support.suite.naming import lacking
from trellis.crds.wasm_controllers import Watch
from trellis.kube.discovery import Discovery
from trellis.kube.resources import CONFIGMAPS, NAMESPACES, NODES, Resource
from trellis.kube.transport import HttpRequest, Reply
from trellis.kube.watch_timings import WatchTimings
from trellis_dev.fakes.fake import FakeKube, status_reply

WIDGETS = Resource("example.com", "v1", "widgets", "Widget", namespaced=True)
MAPS = {"apiVersion": "v1", "kind": "ConfigMap"}
QUICK = CacheTimings(
    linger=0.05,
    look=0.01,
    absent=0.02,
    watch=WatchTimings(absent=0.02, refused=0.02, backoff_most=0.02),
)


def key(namespace: str, name: str, kind: str = "ConfigMap", api_version: str = "v1") -> ObjectKey:
    return ObjectKey(api_version, kind, namespace, name)


async def until(condition: Callable[[], bool]) -> None:
    await kube_world.until(condition, "what the test waits for")


def watches(*found: dict[str, Any]) -> list[Watch]:
    return [Watch.model_validate(item) for item in found]


class World:
    """Shared watches over an API server in memory, and their notifications."""

    def __init__(self, *granted: str) -> None:
        self.kube = FakeKube()
        for name in ("a", "b"):
            self.kube.put(NAMESPACES, {"metadata": {"name": name}})
        self.notified: list[tuple[str, ObjectKey]] = []
        self.stated: list[str] = []
        self.reviews = Reviews(self.kube)
        context = WatchContext(self.kube, Discovery(self.kube, clock=self.clock), self.reviews)
        self.watches = SharedWatches(
            context,
            granted or ("v1/ConfigMap", "v1/Node", "example.com/v1/Widget"),
            on_state=self.stated.append,
            timings=QUICK,
        )
        self._now = 0.0

    def clock(self) -> float:
        self._now += 10.0  # whatever is asked of discovery is asked of the server
        return self._now

    def want(self, controller: str, *found: dict[str, Any]) -> None:
        self.watches.want(
            *(controller, specs_of(watches(*found), controller.partition("/")[0])),
            lambda name, changed: self.notified.append((name, changed)),
        )

    async def whole(self, *controllers: str) -> None:
        await until(lambda: all(self.watches.whole(controller) for controller in controllers))

    async def receives(self, *expected: tuple[str, ObjectKey]) -> None:
        """Wait until exactly these were notified, each once; then begin again."""
        await until(lambda: len(self.notified) >= len(expected))
        assert sorted(self.notified, key=str) == sorted(expected, key=str)
        self.notified.clear()

    def requested(self, what: Callable[[HttpRequest], bool]) -> int:
        return sum(1 for request in self.kube.api.requests if what(request))


@asynccontextmanager
async def running(world: World) -> AsyncIterator[World]:
    task = asyncio.create_task(world.watches.run())
    try:
        yield world
        assert not task.done(), task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def is_list(request: HttpRequest) -> bool:
    return request.path == "/api/v1/configmaps" and "watch" not in request.query


async def test_a_controller_watches_only_its_own_namespace_unless_others_are_named() -> None:
    async with running(World()) as world:
        world.want("a/own", MAPS)
        world.want("b/other", MAPS | {"namespaces": ["a"]})
        world.want("b/all", MAPS | {"namespaces": ["*"]})
        await world.whole("a/own", "b/other", "b/all")
        world.kube.put(CONFIGMAPS, configmap("a", "x"))
        await world.receives(("a/own", key("a", "x")), ("b/other", key("a", "x")), ("b/all", key("a", "x")))
        world.kube.put(CONFIGMAPS, configmap("b", "y"))
        await world.receives(("b/all", key("b", "y")))
        assert list(world.watches.keys("a/own")) == [key("a", "x")]
        assert set(world.watches.keys("b/all")) == {key("a", "x"), key("b", "y")}


async def test_an_object_that_leaves_a_selector_is_delivered_once_as_deleted() -> None:
    async with running(World()) as world:
        world.want("a/web", MAPS | {"labelSelector": {"matchLabels": {"tier": "web"}}})
        await world.whole("a/web")
        world.kube.put(CONFIGMAPS, labelled(configmap("a", "x"), tier="web"))
        await world.receives(("a/web", key("a", "x")))
        assert world.watches.concerns("a/web", key("a", "x"))
        world.kube.put(CONFIGMAPS, labelled(configmap("a", "x"), tier="db"))
        await world.receives(("a/web", key("a", "x")))
        assert not world.watches.concerns("a/web", key("a", "x"))
        assert list(world.watches.keys("a/web")) == []
        world.kube.put(CONFIGMAPS, labelled(configmap("a", "x", more="data"), tier="db"))
        world.kube.put(CONFIGMAPS, labelled(configmap("a", "y"), tier="web"))
        await world.receives(("a/web", key("a", "y")))


async def test_a_deleted_object_is_delivered_and_forgotten() -> None:
    async with running(World()) as world:
        world.kube.put(CONFIGMAPS, configmap("a", "x"))
        world.want("a/own", MAPS)
        await world.whole("a/own")
        assert (list(world.watches.keys("a/own")), world.notified) == ([key("a", "x")], [])
        assert world.watches.item(key("a", "x")) is not None
        world.kube.remove(CONFIGMAPS, "x", "a")
        await world.receives(("a/own", key("a", "x")))
        assert world.watches.item(key("a", "x")) is None
        assert world.watches.whole("a/own")


async def test_objects_look_the_same_whether_a_list_or_a_watch_brought_them() -> None:
    async with running(World()) as world:
        manifest = configmap("a", "x", k="v")
        manifest["metadata"]["managedFields"] = [{"manager": "somebody", "fieldsV1": {"f:data": {}}}]
        stored = world.kube.put(CONFIGMAPS, manifest)
        for name in ("kind", "apiVersion"):
            stored.pop(name)  # as the items of a real server's lists
        world.want("a/own", MAPS)
        await world.whole("a/own")
        assert (list(world.watches.keys("a/own")), world.notified) == ([key("a", "x")], [])
        listed = orjson.loads(world.watches.item(key("a", "x")) or b"")
        assert (listed["apiVersion"], listed["kind"], listed["data"]) == ("v1", "ConfigMap", {"k": "v"})
        assert "managedFields" not in listed["metadata"]
        world.kube.put(CONFIGMAPS, configmap("a", "x", k="w") | {"apiVersion": "v1", "kind": "ConfigMap"})
        await world.receives(("a/own", key("a", "x")))
        watched = orjson.loads(world.watches.item(key("a", "x")) or b"")
        assert list(watched) == list(listed)


def test_an_object_takes_the_memory_that_its_json_has() -> None:
    manifest = configmap("a", "x", k="v" * 1000) | {"metadata": {"name": "x", "uid": "u", "resourceVersion": "1"}}
    tracemalloc.start()
    try:
        held = [project(("v1", "ConfigMap"), manifest) for _ in range(100)]
        size = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert size < 1.5 * sum(len(item.body) for item in held)


async def test_a_thousand_controllers_are_one_list_and_one_watch() -> None:
    async with running(World()) as world:
        for number in range(1000):
            world.want(f"a/c{number}", MAPS)
        await world.whole(*(f"a/c{number}" for number in range(1000)))
        world.kube.put(CONFIGMAPS, configmap("a", "x"))
        await until(lambda: len(world.notified) == 1000)
        assert world.requested(is_list) == 1
        assert world.requested(lambda request: "watch" in request.query) == 1


async def test_a_cluster_scoped_kind_reaches_each_of_its_watchers() -> None:
    async with running(World()) as world:
        world.want("a/own", {"apiVersion": "v1", "kind": "Node"})
        await world.whole("a/own")
        world.kube.put(NODES, {"metadata": {"name": "n"}})
        await world.receives(("a/own", key("", "n", "Node")))
        assert list(world.watches.keys("a/own")) == [key("", "n", "Node")]
        assert world.watches.concerns("a/own", key("", "n", "Node"))


async def test_a_kind_that_the_platform_did_not_grant_is_not_watched() -> None:
    async with running(World("v1/ConfigMap", "v1/Secret")) as world:
        for kind in ("Pod", "Secret"):
            world.want("a/own", MAPS, {"apiVersion": "v1", "kind": kind})
            ((spec, refusal),) = world.watches.refused("a/own").items()
            assert (str(spec), refusal.reason) == (f"v1/{kind}", RefusalReason.WATCH_NOT_GRANTED)
            assert "TRELLIS_CONTROLLER_RESOURCES" in refusal.message
        world.want("b/other", MAPS)
        await world.whole("b/other")
        assert not world.watches.whole("a/own"), "nobody knows what there is of what is not watched"
        assert world.requested(lambda request: "secrets" in request.path or "pods" in request.path) == 0


async def test_a_kind_that_comes_later_is_found() -> None:
    async with running(World()) as world:
        world.want("a/own", {"apiVersion": "example.com/v1", "kind": "Widget"})
        await until(lambda: bool(world.watches.refused("a/own")))
        (refusal,) = world.watches.refused("a/own").values()
        assert refusal.reason is RefusalReason.UNKNOWN_KIND
        assert world.watches.whole("a/own"), "of what does not exist there is nothing"
        world.stated.clear()
        world.kube.define(WIDGETS)
        world.kube.put(WIDGETS, {"metadata": {"name": "w", "namespace": "a"}})
        await world.receives(("a/own", key("a", "w", "Widget", "example.com/v1")))
        assert world.watches.refused("a/own") == {}
        assert "a/own" in world.stated


async def test_a_kind_with_a_new_version_is_followed_and_deletions_meanwhile_are_delivered() -> None:
    async with running(World()) as world:
        world.kube.define(WIDGETS)
        for name in ("stays", "goes"):
            world.kube.put(WIDGETS, {"metadata": {"name": name, "namespace": "a"}})
        world.want("a/own", {"apiVersion": "example.com/v1", "kind": "Widget"})
        stays, goes = (key("a", name, "Widget", "example.com/v1") for name in ("stays", "goes"))
        await world.whole("a/own")
        assert set(world.watches.keys("a/own")) == {stays, goes}
        moved = Resource("example.com", "v1", "gadgets", "Widget", namespaced=True)
        del world.kube.api._resources["example.com/v1", "widgets"]
        world.kube.define(moved)
        world.kube.put(moved, {"metadata": {"name": "stays", "namespace": "a"}})
        await until(lambda: ("a/own", goes) in world.notified)
        assert world.watches.item(goes) is None
        assert world.watches.item(stays) is not None


async def test_a_kind_that_the_service_may_not_read_is_reported_and_retried() -> None:
    async with running(World()) as world:
        expected_text = 'configmaps is forbidden: User "system:serviceaccount:t:c" cannot list resource "configmaps"'
        world.kube.api.fault = lambda request: (
            status_reply(403, "Forbidden", expected_text) if is_list(request) else None
        )
        world.want("a/own", MAPS)
        await until(lambda: bool(world.watches.refused("a/own")))
        (refusal,) = world.watches.refused("a/own").values()
        assert refusal.reason is RefusalReason.WATCH_NOT_GRANTED
        assert expected_text in refusal.message
        assert not world.watches.whole("a/own")
        world.kube.api.fault = None
        await world.whole("a/own")
        assert world.watches.refused("a/own") == {}
        assert world.stated.count("a/own") == 2


async def test_objects_that_become_unreadable_are_not_deleted_and_the_watch_is_incomplete() -> None:
    async with running(World()) as world:
        world.kube.put(CONFIGMAPS, configmap("a", "x"))
        world.want("a/own", MAPS)
        await world.whole("a/own")
        world.kube.api.fault = lambda request: (
            status_reply(403, "Forbidden", "not any more") if request.path == "/api/v1/configmaps" else None
        )
        world.kube.compact()
        await until(lambda: bool(world.watches.refused("a/own")))
        assert not world.watches.whole("a/own")
        assert (world.watches.item(key("a", "x")) is not None, world.notified) == (True, [])


async def test_no_object_counts_as_deleted_while_the_server_is_unavailable() -> None:
    async with running(World()) as world:
        world.kube.put(CONFIGMAPS, configmap("a", "x"))
        world.want("a/own", MAPS)
        await world.whole("a/own")
        assert (list(world.watches.keys("a/own")), world.notified) == ([key("a", "x")], [])
        lists = world.requested(is_list)
        world.kube.api.fault = lambda _: status_reply(503, "ServiceUnavailable", "away")
        world.kube.compact()  # watches end, and the next one would be too old
        await until(lambda: world.requested(is_list) > lists + 2)
        assert world.watches.item(key("a", "x")) is not None
        assert world.notified == []
        world.kube.api.fault = None
        world.kube.remove(CONFIGMAPS, "x", "a")
        await world.receives(("a/own", key("a", "x")))


async def test_before_the_first_list_is_complete_nothing_shows() -> None:
    async with running(World()) as world:
        world.kube.put(CONFIGMAPS, configmap("a", "x"))
        world.kube.api.fault = lambda request: status_reply(503, "x", "away") if is_list(request) else None
        world.want("a/own", MAPS)
        await until(lambda: world.requested(is_list) > 2)
        assert not world.watches.whole("a/own")
        assert world.watches.refused("a/own") == {}, "an outage refuses nothing"
        world.kube.api.fault = None
        await world.whole("a/own")
        assert list(world.watches.keys("a/own")) == [key("a", "x")]
        assert world.stated == ["a/own"]


async def test_an_unneeded_watch_ends_and_restarts_when_needed() -> None:
    async with running(World()) as world:
        world.want("a/own", MAPS)
        await world.whole("a/own")
        world.watches.drop("a/own")
        assert not world.watches.whole("a/own")
        await until(lambda: not world.kube.api.store.watchers)
        assert world.watches._kinds == {}
        world.want("a/own", MAPS)
        await world.whole("a/own")
        world.kube.put(CONFIGMAPS, configmap("a", "x"))
        await world.receives(("a/own", key("a", "x")))


async def test_a_watch_that_is_wanted_again_in_time_goes_on() -> None:
    async with running(World()) as world:
        world.want("a/own", MAPS)
        world.want("a/other", {"apiVersion": "v1", "kind": "Node"})
        await world.whole("a/own", "a/other")
        world.watches.drop("a/own")
        world.watches.drop("a/other")
        await until(lambda: all(kind.unwanted_since for kind in world.watches._kinds.values()))
        world.want("a/next", MAPS)
        assert world.watches.whole("a/next")
        await until(lambda: len(world.watches._kinds) == 1)  # the one that nobody wants has ended
        assert world.watches.whole("a/next")
        assert world.requested(is_list) == 1


async def test_a_new_watch_spec_replaces_the_former() -> None:
    async with running(World()) as world:
        world.want("a/own", MAPS)
        await world.whole("a/own")
        world.want("a/own", MAPS | {"namespaces": ["b"]})
        world.kube.put(CONFIGMAPS, configmap("a", "x"))
        world.kube.put(CONFIGMAPS, configmap("b", "y"))
        await world.receives(("a/own", key("b", "y")))


async def test_a_kind_that_an_account_may_not_see_is_among_its_refusals() -> None:
    async with running(World()) as world:
        world.want("a/own", MAPS)
        await world.whole("a/own")
        allowed = False

        def answer(request: HttpRequest) -> Reply | None:
            if "subjectaccessreviews" not in request.path:
                return None
            return Reply(201, orjson.dumps({"status": {"allowed": allowed}}), {})

        world.kube.api.fault = answer
        user = "system:serviceaccount:a:own"
        world.stated.clear()
        world.kube.api.fault = lambda _: status_reply(403, "Forbidden", "cannot create subjectaccessreviews")
        assert await world.watches.allowed("a/own", user, key("a", "x")) is None
        (refusal,) = world.watches.refused("a/own", user).values()
        assert refusal.reason is RefusalReason.ACCESS_NOT_CHECKED
        assert "cannot create subjectaccessreviews" in refusal.message
        world.kube.api.fault = answer
        world.reviews._not_before = 0.0
        assert await world.watches.allowed("a/own", user, key("a", "x")) is False
        (refusal,) = world.watches.refused("a/own", user).values()
        assert refusal.reason is RefusalReason.ACCOUNT_FORBIDDEN
        assert lacking(refusal.message, user, "configmaps", "namespace a") == []
        assert world.stated == ["a/own"]
        assert await world.watches.allowed("a/own", user, key("a", "x", "Pod")) is None


def denying(world: World, *denied: str) -> None:
    """Have reviews deny these resources, as ``<plural>`` or ``<plural> in <namespace>``; "" is all namespaces."""

    def answer(request: HttpRequest) -> Reply | None:
        if "subjectaccessreviews" not in request.path:
            return None
        requested = orjson.loads(request.body or b"")["spec"]["resourceAttributes"]
        named = {requested["resource"], f"{requested['resource']} in {requested.get('namespace', '')}"}
        return Reply(201, orjson.dumps({"status": {"allowed": not named & set(denied)}}), {})

    world.kube.api.fault = answer


async def test_a_watch_of_all_namespaces_needs_cluster_wide_permission_and_reports_it() -> None:
    async with running(World()) as world:
        world.want("a/all", MAPS | {"namespaces": ["*"]})
        await world.whole("a/all")
        user = "system:serviceaccount:a:all"
        denying(world, "configmaps in ")
        assert await world.watches.allowed("a/all", user, key("a", "x")) is False
        (refusal,) = world.watches.refused("a/all", user).values()
        assert refusal.reason is RefusalReason.ACCOUNT_FORBIDDEN
        assert lacking(refusal.message, "configmaps", "ClusterRole") == []
        world.reviews.forget(user)
        denying(world)
        assert await world.watches.allowed("a/all", user, key("b", "y")) is True
        assert world.watches.refused("a/all", user) == {}


async def test_one_watch_that_the_account_may_not_see_stops_all_until_it_may() -> None:
    async with running(World()) as world:
        nodes = {"apiVersion": "v1", "kind": "Node"}
        world.want("a/both", MAPS | {"namespaces": ["a", "b"]}, nodes)
        await world.whole("a/both")
        user = "system:serviceaccount:a:both"
        for denied in ((), ("nodes",), (), ("configmaps in b",), ()):
            denying(world, *denied)
            world.reviews._users.clear()
            for item in (key("a", "x"), key("b", "y"), key("", "n", "Node")):
                assert await world.watches.allowed("a/both", user, item) is not bool(denied)
            assert bool(world.watches.refused("a/both", user)) is bool(denied)


async def test_a_watch_that_cannot_be_read_any_more_stops_all() -> None:
    async with running(World()) as world:
        world.want("a/both", MAPS, {"apiVersion": "v1", "kind": "Node"})
        await world.whole("a/both")
        user = "system:serviceaccount:a:both"
        denying(world)
        assert await world.watches.allowed("a/both", user, key("a", "x")) is True
        world.kube.api.fault = lambda request: (
            status_reply(403, "Forbidden", "not any more") if request.path == "/api/v1/nodes" else None
        )
        world.kube.compact()
        await until(lambda: bool(world.watches.refused("a/both")))
        assert await world.watches.allowed("a/both", user, key("a", "x")) is None


async def test_objects_of_a_deleted_kind_may_be_delivered_as_deleted() -> None:
    async with running(World()) as world:
        world.want("a/own", {"apiVersion": "example.com/v1", "kind": "Widget"})
        await until(lambda: bool(world.watches.refused("a/own")))
        deleted = key("a", "w", "Widget", "example.com/v1")
        assert await world.watches.allowed("a/own", "system:serviceaccount:a:own", deleted) is True
        assert world.watches.watched("a/own", deleted)
        assert not world.watches.watched("a/own", key("a", "x"))


async def test_all_that_one_controller_may_watch_is_asked_about_once() -> None:
    kinds = [f"Kind{number}" for number in range(16)]
    world = World(*(f"example.com/v1/{kind}" for kind in kinds))
    for kind in kinds:
        world.kube.define(Resource("example.com", "v1", f"{kind.lower()}s", kind, namespaced=True))
    denying(world)
    namespaces = [f"namespace-{number}" for number in range(64)]
    async with running(world):
        world.want("a/own", *(_widgets(kind, namespaces) for kind in kinds))
        await world.whole("a/own")
        requested = []
        for name in ("x", "y", "x"):
            changed = key("namespace-1", name, kinds[0], "example.com/v1")
            assert await world.watches.allowed("a/own", "system:serviceaccount:a:own", changed) is True
            requested.append(world.requested(lambda request: "subjectaccessreviews" in request.path))
        assert requested == [2 * 16 * 64] * 3


def _widgets(kind: str, namespaces: list[str]) -> dict[str, Any]:
    return {"apiVersion": "example.com/v1", "kind": kind, "namespaces": namespaces}
