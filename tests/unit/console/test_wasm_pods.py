"""Wasm pods in the console: read as the viewer, only while a Shim exists, with the pages of ``trellis explain``."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from console.timings import Timings
from support.console.viewers import Page, Users, World, console, may, messages
from support.suite.naming import lacking
from support.wasm_pods.objects import SPACE, node, pod, runtime_class, shim, unscheduled, workload
from trellis.kube.resources import (
    DEPLOYMENTS,
    NAMESPACES,
    NODES,
    PODS,
    RUNTIME_CLASSES,
    SHIMS,
    SPIN_APP_EXECUTORS,
    SPIN_APPS,
)
from trellis.kube.watch_timings import WatchTimings
from trellis.read_model.entities.composing_wasm import PARTS
from trellis.read_model.entities.composing_wasm import PODS as WASM_PODS
from trellis.read_model.wasm_pods.reasons import Reason

ADMIN, DEV = "t-admin", "t-dev"
HELLO = "deployment/shop/hello"


@asynccontextmanager
async def viewed(*rules: Any) -> AsyncIterator[World]:
    users = Users({ADMIN: ("admin", ("admins",)), DEV: ("dev", ())}, [may("admins"), *rules])
    timings = Timings(watch=WatchTimings(watch=(40, 60), absent=0.1, refused=0.1))
    async with console(users, timings=timings) as found:
        found.kube.put(NAMESPACES, {"metadata": {"name": SPACE}})
        yield found


def fill(world: World, *, shims: bool = True) -> None:
    """Create a Deployment with one pod that has a node, and one that finds none."""
    world.kube.put(NODES, clean(node()))
    world.kube.put(RUNTIME_CLASSES, clean(runtime_class()))
    uid = world.kube.put(DEPLOYMENTS, clean(workload(replicas=2)))["metadata"]["uid"]
    of_set = ("ReplicaSet", "hello-5d8f", uid)
    world.kube.put(PODS, clean(pod("hello-5d8f-a", owner=of_set)))
    world.kube.put(PODS, clean(unscheduled("hello-5d8f-b", owner=of_set, selector={"zone": "x"})))
    if shims:
        world.kube.put(SHIMS, clean(shim()))


def clean(manifest: dict[str, Any]) -> dict[str, Any]:
    dropped = ("uid", "resourceVersion")
    return manifest | {"metadata": {key: value for key, value in manifest["metadata"].items() if key not in dropped}}


async def read_until(browser: aiohttp.ClientSession, holds: Any, query: str = "") -> Page:
    page = Page()
    async with browser.get(f"/api/stream{query}") as response:
        assert response.status == 200, await response.text()
        async for message in messages(response):
            page.take(message)
            if holds(page):
                return page
    raise AssertionError("the stream ended")


def is_read(page: Page) -> bool:
    parts = [page.entities.get(f"part/{name}") for name in PARTS]
    return all(part is not None and (part["synced"] or part["lacking"]) for part in parts)


async def test_an_owner_of_wasm_pods_is_shown_with_its_shim_and_its_nodes_and_the_identity_of_the_viewer() -> None:
    async with viewed() as world, world.logged_in(ADMIN) as browser:
        fill(world)
        page = await read_until(browser, lambda page: HELLO in page.entities)
        hello = page.entities[HELLO]
        assert (hello["shim"], hello["nodes"], hello["pods"]) == ("shim/spin", ["node/n1"], {"all": 2, "ready": 1})
        assert {"shim/spin", "node/n1"} <= {*page.entities}
        assert hello["reason"] == Reason.NO_NODE_WITH_LABEL
        assert not [id_ for id_ in page.entities if id_.startswith("pod/")], "an owner is one entity"
        asked = {user for user, _, path in world.users.seen if "/deployments" in path}
        assert asked == {"admin"}


async def test_a_page_has_the_health_and_the_reason_of_the_entity() -> None:
    async with viewed() as world, world.logged_in(ADMIN) as browser:
        fill(world)
        page = await read_until(browser, lambda page: HELLO in page.entities)
        async with browser.get(f"/api/explain/{HELLO}") as answer:
            assert answer.status == 200, await answer.text()
            explained = await answer.json()
        hello = page.entities[HELLO]
        assert (explained["health"], explained["reason"]) == (hello["health"], hello["reason"])


async def test_without_a_shim_nothing_is_watched_and_the_first_shim_starts_the_watches() -> None:
    async with viewed() as world, world.logged_in(ADMIN) as browser:
        fill(world, shims=False)
        page = Page()
        async with browser.get("/api/stream") as response:
            stream = messages(response)
            while not page.entities.get(f"part/{WASM_PODS}", {}).get("synced"):
                page.take(await anext(stream))
            assert {id_ for id_ in page.entities if id_.removeprefix("part/") in PARTS} == {f"part/{WASM_PODS}"}
            assert not [path for _, _, path in world.users.seen if path.endswith("/deployments")]
            world.kube.put(SHIMS, clean(shim()))
            while HELLO not in page.entities:
                page.take(await anext(stream))
            world.kube.remove(SHIMS, "spin")
            while HELLO in page.entities or "part/deployments" in page.entities:
                page.take(await anext(stream))


async def test_a_cluster_without_spinkube_shows_no_error_and_one_with_it_its_apps() -> None:
    async with viewed() as world, world.logged_in(ADMIN) as browser:
        fill(world)
        page = await read_until(browser, is_read)
        for part in ("spinapps", "spinappexecutors"):
            found = page.entities[f"part/{part}"]
            assert (found["defined"], found["lacking"], found["synced"]) == (False, [], True)
        for res in (SPIN_APPS, SPIN_APP_EXECUTORS):
            world.kube.define(res)
        page = await read_until(browser, lambda page: page.entities.get("part/spinapps", {}).get("defined"))
        assert page.entities["part/spinapps"]["lacking"] == []


@pytest.mark.parametrize("kind", ["deployments", "pods", "events", "runtimeclasses"])
async def test_a_kind_that_the_viewer_may_not_list_is_named_and_the_rest_is_shown(kind: str) -> None:
    every = {"pods", "deployments", "statefulsets", "daemonsets", "jobs", "cronjobs", "events"}
    wide = {"nodes", "shims", "runtimeclasses"}
    rules = [
        may("dev", ",".join(sorted(every - {kind})), SPACE),
        may("dev", ",".join(sorted(wide - {kind}))),
    ]
    async with viewed(*rules) as world, world.logged_in(DEV) as browser:
        fill(world)
        page = await read_until(browser, lambda page: is_read(page) and HELLO in page.entities, f"?namespaces={SPACE}")
        unread = [item["lacking"][0]["message"] for item in page.entities.values() if item.get("lacking")]
        assert not lacking(" ".join(unread), kind)
        hello = page.entities[HELLO]
        assert hello["health"] in ({"Unknown"} if kind == "pods" else {"Degraded"})
        assert (hello["pods"] is None) is (kind == "pods")
