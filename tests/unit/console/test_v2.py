"""wasmCloud v2 in the console: no watches without it, unknown if unreadable, pages with causes and Events."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from console.timings import Timings
from support.console.viewers import Page, Users, World, console, may, messages
from support.v2.explained import fill
from support.v2.host_pods import both
from support.v2.received import Received
from trellis.kube.resources import EVENTS, PODS, WASM_HOSTS, WORKLOADS
from trellis.kube.transport import HttpRequest, Reply
from trellis.kube.watch_timings import WatchTimings
from trellis.lattice.connection.address import NatsAddress
from trellis.lattice.follow.heartbeats import Heartbeats
from trellis.read_model.entities.composing_v2 import INSTALLED, PARTS
from trellis_dev.fakes.fake import status_reply

ADMIN, DEV = "t-admin", "t-dev"
KINDS = {"whost", "workload", "workloaddeployment", "wservice"}
V2 = f"/apis/{WORKLOADS.group}/"


@asynccontextmanager
async def viewed(*rules: Any, heartbeats: Heartbeats | None = None) -> AsyncIterator[World]:
    users = Users({ADMIN: ("admin", ("admins",)), DEV: ("dev", ())}, [may("admins"), *rules])
    timings = Timings(watch=WatchTimings(watch=(40, 60), absent=0.1, refused=0.1))
    async with console(users, timings=timings, heartbeats=heartbeats) as found:
        yield found


async def read_until(browser: aiohttp.ClientSession, holds: Any, query: str = "") -> Page:
    page = Page()
    async with browser.get(f"/api/stream{query}") as response:
        assert response.status == 200, await response.text()
        async for message in messages(response):
            page.take(message)
            if holds(page):
                return page
    raise AssertionError("the stream ended")


def kinds(page: Page) -> set[str]:
    return {item["kind"] for item in page.entities.values()}


def is_read(page: Page) -> bool:
    parts = [page.entities.get(f"part/{name}") for name in PARTS]
    return all(part is not None and part["synced"] for part in parts)


async def test_a_cluster_without_wasmcloud_v2_has_no_watch_and_no_row_for_it() -> None:
    async with viewed() as world, world.logged_in(ADMIN) as browser:
        page = await read_until(browser, lambda page: page.entities.get(f"part/{INSTALLED}", {}).get("synced"))
        installed = page.entities[f"part/{INSTALLED}"]
        assert (installed["defined"], installed["lacking"], installed["health"]) == (False, [], "Healthy")
        assert not {id_ for id_ in page.entities if id_.removeprefix("part/") in PARTS}
        assert not [path for _, _, path in world.users.seen if path.startswith(V2)]


async def test_its_objects_are_shown_with_their_relations_and_the_identity_of_the_viewer() -> None:
    async with viewed() as world, world.logged_in(ADMIN) as browser:
        fill(world.kube, "03", 2.2)
        page = await read_until(browser, lambda page: kinds(page) >= KINDS)
        deployment = page.entities["workloaddeployment/apps/hello"]
        assert deployment["hosts"]
        assert {*deployment["hosts"]} <= {id_ for id_ in page.entities if id_.startswith("whost/")}
        assert {user for user, _, path in world.users.seen if path.startswith(V2)} == {"admin"}


async def test_it_is_shown_once_it_is_installed_and_goes_with_it() -> None:
    async with viewed() as world, world.logged_in(ADMIN) as browser:
        page = Page()
        async with browser.get("/api/stream") as response:
            stream = messages(response)
            while not page.entities.get(f"part/{INSTALLED}", {}).get("synced"):
                page.take(await anext(stream))
            fill(world.kube, "03", 2.2)
            while not kinds(page) >= KINDS:
                page.take(await anext(stream))
            world.kube.api.fault = without_group(world.users)
            while kinds(page) & KINDS or page.entities[f"part/{INSTALLED}"]["defined"]:
                page.take(await anext(stream))
        assert not {id_ for id_ in page.entities if id_.removeprefix("part/") in PARTS}


def without_group(users: Users) -> Any:
    def answer(request: HttpRequest) -> Reply | None:
        if request.path == V2.removesuffix("/"):
            return status_reply(404, "NotFound", "the server could not find the requested resource")
        return users(request)

    return answer


async def test_a_viewer_without_permissions_sees_that_it_is_unknown() -> None:
    async with viewed(may("dev", "workloads", "apps")) as world, world.logged_in(DEV) as browser:
        fill(world.kube, "03", 2.2)
        page = await read_until(browser, is_read, "?namespaces=apps")
        lacking = {name for name in PARTS if page.entities[f"part/{name}"]["lacking"]}
        assert lacking == set(PARTS) - {"workloads"}
        assert page.entities[f"part/{INSTALLED}"]["defined"]
        workloads = [item for item in page.entities.values() if item["kind"] == "workload"]
        assert workloads
        assert {item["host"] for item in workloads} == {None}
        assert {item["reason"] for item in workloads}.isdisjoint({"HostNotFound", "ServiceNotFound", "NoHost"})


async def test_a_viewer_without_pods_sees_an_unknown_host_group_and_one_with_them_its_pods() -> None:
    async with viewed(may("dev", "hosts,workloads,workloaddeployments")) as world:
        fill(world.kube, "03", 2.2)
        for pod in both():
            world.kube.put(PODS, pod)
        found = {}
        for token in (ADMIN, DEV):
            async with world.logged_in(token) as browser:
                page = await read_until(browser, lambda page: is_read(page) and "whostgroup" in kinds(page))
            found[token] = page.entities["whostgroup/wasmcloud-system/default"]
        assert found[ADMIN]["pods"] == {"all": 2, "ready": 2}
        assert (found[DEV]["pods"], found[DEV]["health"]) == (None, "Unknown")


async def test_an_answer_of_another_version_is_unknown_and_not_absent() -> None:
    async with viewed() as world, world.logged_in(ADMIN) as browser:
        users = world.users

        def other(request: HttpRequest) -> Reply | None:
            if request.path == V2.removesuffix("/"):
                return Reply(200, b'{"versions": [{"version": "v1"}]}', {})
            return users(request)

        world.kube.api.fault = other
        page = await read_until(browser, lambda page: page.entities.get(f"part/{INSTALLED}", {}).get("synced"))
        installed = page.entities[f"part/{INSTALLED}"]
        assert installed["defined"]
        assert "v1alpha1" in installed["lacking"][0]["message"]


async def test_a_refused_request_for_the_group_is_unknown_and_not_absent() -> None:
    async with viewed() as world, world.logged_in(ADMIN) as browser:
        users = world.users

        def refused(request: HttpRequest) -> Reply | None:
            if request.path == V2.removesuffix("/"):
                return status_reply(403, "Forbidden", "not allowed")
            return users(request)

        world.kube.api.fault = refused
        page = await read_until(browser, lambda page: page.entities.get(f"part/{INSTALLED}", {}).get("synced"))
        installed = page.entities[f"part/{INSTALLED}"]
        assert installed["defined"]
        assert installed["health"] == "Degraded"
        assert len(installed["lacking"]) == 1


async def test_hosts_are_those_of_all_namespaces() -> None:
    async with viewed() as world, world.logged_in(ADMIN) as browser:
        fill(world.kube, "03", 2.2)
        page = await read_until(browser, lambda page: kinds(page) >= KINDS, "?namespaces=apps")
        hosts = [item for item in page.entities.values() if item["kind"] == "whost"]
        assert {host["namespace"] for host in hosts} == {"wasmcloud-system"}
        assert {host["placed"] for host in hosts} == {None}, "Workloads of other namespaces are not read"


@pytest.mark.parametrize(
    ("kind", "namespace", "name"),
    [
        ("workloaddeployment", "apps", "no-tag"),
        ("whost", "wasmcloud-system", "uppity-son-5573"),
        ("whostgroup", "wasmcloud-system", "default"),
        ("service", "apps", "hello"),
    ],
)
async def test_a_page_explains_an_object_as_trellis_explain_does(kind: str, namespace: str, name: str) -> None:
    async with viewed() as world, world.logged_in(ADMIN) as browser:
        fill(world.kube, "04", 30)
        async with browser.get(f"/api/explain/{kind}/{namespace}/{name}") as answer:
            assert answer.status == 200, await answer.text()
            page = await answer.json()
        assert page["subject"] == f"{kind} {namespace}/{name}"
        assert "NotReflected" not in str(page)
        assert page["health"] in {"Healthy", "Degraded", "Unknown"}


async def test_a_page_has_the_events_about_its_object_and_names_what_it_cannot_read() -> None:
    async with viewed(may("dev", "hosts")) as world:
        fill(world.kube, "04", 30)
        [host] = [item for item in world.kube.objects(WASM_HOSTS) if item["metadata"]["name"] == "uppity-son-5573"]
        about = {"kind": "Host", "name": host["metadata"]["name"], "uid": host["metadata"]["uid"]}
        event = {"type": "Warning", "reason": "Evicted", "message": "by its node", "involvedObject": about}
        world.kube.put(EVENTS, {"metadata": {"name": "e", "namespace": "wasmcloud-system"}, **event})
        path = "/api/explain/whost/wasmcloud-system/uppity-son-5573"
        async with world.logged_in(ADMIN) as browser, browser.get(path) as answer:
            lines = (await answer.json())["lines"]
        assert "Evicted: by its node" in [line["text"] for line in lines]
        async with world.logged_in(DEV) as browser, browser.get(path) as answer:
            assert answer.status == 200
            lines = (await answer.json())["lines"]
        unread = " ".join(line["text"] for line in lines if line["about"] == "permissions").split()
        assert {"Event", "Workload"} <= {*unread}


async def test_a_page_uses_the_heartbeats_of_hosts_that_the_viewer_can_read() -> None:
    rules = [may("dev", "workloaddeployments,workloads,workloadreplicasets", "apps")]
    async with viewed(*rules, heartbeats=Received("06", 21)) as world:
        fill(world.kube, "06", 21)
        path = "/api/explain/workloaddeployment/apps/old-draft"
        reasons = {}
        for token in (ADMIN, DEV):
            async with world.logged_in(token) as browser, browser.get(path) as answer:
                assert answer.status == 200, await answer.text()
                reasons[token] = (await answer.json())["reason"]
        assert reasons[ADMIN] == "PluginMissing"
        assert reasons[DEV] != "PluginMissing"


@pytest.mark.parametrize("seen", [True, False], ids=["seen before", "not seen"])
async def test_a_workload_that_was_just_deleted_is_no_unknown_one_on_the_page_of_its_host(seen: bool) -> None:
    async with viewed(heartbeats=Received("03", 2.2)) as world, world.logged_in(ADMIN) as browser:
        fill(world.kube, "03", 2.2)
        page = Page()
        async with browser.get("/api/stream") as response:
            stream = messages(response)
            while seen and not kinds(page) >= KINDS:
                page.take(await anext(stream))
            for found in world.kube.objects(WORKLOADS):
                world.kube.remove(WORKLOADS, found["metadata"]["name"], "apps")
            while "workload" in kinds(page):
                page.take(await anext(stream))
            async with browser.get("/api/explain/whost/wasmcloud-system/uppity-son-5573") as answer:
                page_of_host = await answer.json()
        assert (page_of_host["reason"] == "UnknownWorkloads") is not seen


async def test_numbers_of_hosts_come_from_heartbeats() -> None:
    async with viewed(heartbeats=Received("03", 2.2)) as world, world.logged_in(ADMIN) as browser:
        fill(world.kube, "03", 2.2)
        page = await read_until(browser, lambda page: kinds(page) >= KINDS)
        host = page.entities["whost/wasmcloud-system/uppity-son-5573"]
        assert host["heartbeat"] is True
        assert isinstance(host["cpu_percent"], int)
        assert host["memory_total"] > 2**20
        assert page.entities["part/heartbeats"]["lacking"] == []


async def test_heartbeats_that_are_not_received_are_unknown_with_the_reason() -> None:
    unreachable = Heartbeats(lambda: NatsAddress("nats://unused:4222"), "test")
    async with viewed(heartbeats=unreachable) as world, world.logged_in(ADMIN) as browser:
        fill(world.kube, "03", 2.2)
        page = await read_until(browser, lambda page: kinds(page) >= KINDS)
        host = page.entities["whost/wasmcloud-system/uppity-son-5573"]
        assert (host["heartbeat"], host["cpu_percent"], host["workloads"]) == (None, None, None)
        assert page.entities["part/heartbeats"]["lacking"]


async def test_all_tabs_share_its_watches() -> None:
    async with viewed() as world, world.logged_in(ADMIN) as browser:
        fill(world.kube, "03", 2.2)
        for _ in range(3):
            await read_until(browser, is_read)

        def lists() -> int:
            return sum(path == WORKLOADS.path() for _, _, path in world.users.seen)

        assert lists() <= 2, "one list and one watch"
