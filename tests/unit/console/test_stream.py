"""The model stream: all objects that the viewer can read, and each change of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from console.timings import Timings
from support.cluster.not_served import define
from support.console import seen_objects as objects
from support.console.viewers import Message, Page, Users, World, console, may, messages
from support.nats.buses import eventually
from support.suite.naming import lacking
from trellis.kube.resources import (
    APPLICATIONS,
    ENDPOINT_SLICES,
    HOST_CONFIGS,
    NAMESPACES,
    NODES,
    PODS,
    SERVICES,
    SHIMS,
    WASM_CONTROLLERS,
)
from trellis.kube.transport import HttpRequest, Reply
from trellis_dev.fakes.fake import FakeKube, status_reply

SECONDS = 10.0
ADMIN, DEV, STRANGER = "t-admin", "t-dev", "t-stranger"


@pytest.fixture
async def world() -> AsyncIterator[World]:
    users = Users(
        {ADMIN: ("admin", ("admins",)), DEV: ("dev", ()), STRANGER: ("stranger", ())},
        [may("admins"), may("dev", namespace="team")],
    )
    async with console(users) as found:
        fill(found.kube)
        yield found


def fill(kube: FakeKube) -> None:
    for name in ("team", "other", "trellis-system", "trellis-installers"):
        kube.put(NAMESPACES, {"metadata": {"name": name}})
    kube.put(NODES, objects.opted_in("n1"))
    kube.put(SHIMS, objects.shim())
    for namespace in ("team", "other"):
        kube.put(HOST_CONFIGS, objects.group(namespace=namespace, pods=("hosts-1",)))
        kube.put(PODS, objects.host_pod(namespace=namespace))
        kube.put(APPLICATIONS, objects.application(namespace=namespace))
        kube.put(SERVICES, objects.service(namespace=namespace))
        kube.put(ENDPOINT_SLICES, objects.slice_of(namespace=namespace))
        kube.put(WASM_CONTROLLERS, objects.controller(namespace=namespace))


EVERYTHING = {
    "node/n1",
    "shim/spin",
    *(
        f"{kind}/{namespace}/{name}"
        for namespace in ("team", "other")
        for kind, name in (
            ("hostgroup", "hosts"),
            ("host", "hosts-1"),
            ("application", "shop"),
            ("service", "shop"),
            ("controller", "ring"),
        )
    ),
}


class Tab:
    """One open stream and the page that reads it."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response
        self.page = Page()
        self._messages = messages(response)

    async def until(self, holds: Callable[[Page], object]) -> Page:
        async with asyncio.timeout(SECONDS):
            while not holds(self.page):
                self.page.take(await anext(self._messages))
        return self.page

    async def next(self, event: str) -> Message:
        async with asyncio.timeout(SECONDS):
            while True:
                message = await anext(self._messages)
                self.page.take(message)
                if message.event == event:
                    return message

    async def read(self) -> Page:
        """Return the page once all that may be read was."""
        return await self.until(lambda page: parts(page) and all(part["synced"] for part in parts(page)))


def parts(page: Page) -> list[dict[str, Any]]:
    return [entity for entity in page.entities.values() if entity["kind"] == "part"]


def things(page: Page) -> set[str]:
    return {id_ for id_, item in page.entities.items() if item["kind"] != "part"}


@asynccontextmanager
async def tab(browser: aiohttp.ClientSession, query: str = "", last: str = "") -> AsyncIterator[Tab]:
    headers = {"Last-Event-ID": last} if last else {}
    async with browser.get(f"/api/stream{query}", headers=headers) as response:
        assert response.status == 200, await response.text()
        yield Tab(response)


async def test_a_viewer_with_all_permissions_sees_everything(world: World) -> None:
    async with world.logged_in(ADMIN) as browser, tab(browser) as open_tab:
        page = await open_tab.until(lambda page: things(page) == EVERYTHING)
    host = page.entities["host/team/hosts-1"]
    assert host["group"] == "hostgroup/team/hosts"
    assert host["node"] == "node/n1"
    assert host["applications"] == ["shop"]
    assert page.entities["service/team/shop"]["hosts"] == ["host/team/hosts-1"]
    assert page.entities["service/team/shop"]["endpoints"] == {"ready": 1, "all": 1}
    assert page.entities["node/n1"]["shims"]["spin"]["stage"] in {"Waiting", "Blocked"}
    assert page.entities["controller/team/ring"]["wakes"] == 3
    assert "hunter2" not in str(page.entities)


async def test_a_change_reaches_the_page_in_less_than_a_second(world: World) -> None:
    async with world.logged_in(ADMIN) as browser, tab(browser) as open_tab:
        await open_tab.until(lambda page: things(page) == EVERYTHING)
        began = time.monotonic()
        world.kube.put(APPLICATIONS, objects.application(namespace="team", phase="Failed"))
        page = await open_tab.until(lambda page: page.entities["application/team/shop"]["health"] == "Degraded")
        assert time.monotonic() - began < 1.0
        world.kube.remove(NODES, "n1")
        await open_tab.until(lambda page: "node/n1" not in page.entities)
        assert page.entities["shim/spin"]["desired"] == 0


async def test_changes_at_the_same_time_are_one_difference(world: World) -> None:
    async with world.logged_in(ADMIN) as browser, tab(browser) as open_tab:
        await open_tab.until(lambda page: things(page) == EVERYTHING)
        before, began = len(open_tab.page.messages), time.monotonic()
        for number in range(50):
            world.kube.put(NODES, objects.node(f"many-{number}"))
            for _ in range(10):  # each is heard by itself
                await asyncio.sleep(0)
        await open_tab.until(lambda page: "node/many-49" in page.entities)
        # On a busy machine the changes take longer than one interval: then each interval has a difference.
        intervals = (time.monotonic() - began) / Timings().coalesce
        assert len(open_tab.page.messages) - before <= 3 + intervals


async def test_a_forbidden_list_is_reported_in_its_place(world: World) -> None:
    async with world.logged_in(DEV) as browser, tab(browser, "?namespaces=team") as open_tab:
        page = await open_tab.read()
    assert things(page) == {id_ for id_ in EVERYTHING if "/team/" in id_}
    nodes = page.entities["part/nodes"]
    assert nodes["health"] == "Degraded"
    assert lacking(nodes["lacking"][0]["message"], "list nodes") == []
    assert page.entities["part/applications"]["lacking"] == []


def let_answer(world: World, plural: str, status: int) -> None:
    """Let every list of a kind be answered so."""
    others = world.kube.api.fault

    def fault(request: HttpRequest) -> Reply | None:
        if request.path.endswith(f"/{plural}"):
            return status_reply(status, "Refused", "refused")
        return None if others is None else others(request)

    world.kube.api.fault = fault


@pytest.mark.parametrize(("plural", "status"), [("shims", 404), ("shims", 500), ("services", 404), ("services", 500)])
@pytest.mark.parametrize("served", [False, True])
async def test_a_kind_that_cannot_be_listed_is_unknown_with_the_reason(
    world: World, plural: str, status: int, *, served: bool
) -> None:
    define(world.kube, served=served)
    let_answer(world, plural, status)
    async with world.logged_in(ADMIN) as browser, tab(browser) as open_tab:
        part = f"part/{plural}"
        page = await open_tab.until(lambda page: part in page.entities and page.entities[part]["lacking"])
    assert page.entities[part]["health"] == "Degraded"
    assert page.entities[part]["defined"] is True
    assert str(status) in page.entities[part]["lacking"][0]["message"]


async def test_a_kind_whose_crd_is_not_there_is_not_defined(world: World) -> None:
    let_answer(world, "shims", 404)
    async with world.logged_in(ADMIN) as browser, tab(browser) as open_tab:
        page = await open_tab.read()
    assert page.entities["part/shims"]["defined"] is False
    assert page.entities["part/shims"]["lacking"] == []


async def test_a_viewer_without_permission_for_crds_does_not_learn_that_a_kind_is_undefined(world: World) -> None:
    let_answer(world, "applications", 404)
    async with world.logged_in(DEV) as browser, tab(browser, "?namespaces=team") as open_tab:
        page = await open_tab.read()
    assert page.entities["part/applications"]["defined"] is True
    assert page.entities["part/applications"]["lacking"][0]["message"] != ""


async def test_a_kind_that_fails_while_it_is_watched_is_reported_and_shown_again(world: World) -> None:
    async with world.logged_in(ADMIN) as browser, tab(browser) as open_tab:
        await open_tab.until(lambda page: things(page) == EVERYTHING)
        before = world.kube.api.fault
        let_answer(world, "shims", 404)
        world.kube.cut_watches()
        page = await open_tab.until(lambda page: page.entities["part/shims"]["lacking"])
        assert "shim/spin" in page.entities
        world.kube.api.fault = before
        await open_tab.until(lambda page: not page.entities["part/shims"]["lacking"])


async def test_a_viewer_of_one_namespace_sees_nothing_of_others(world: World) -> None:
    async with world.logged_in(DEV) as browser:
        async with tab(browser) as open_tab:
            page = await open_tab.read()
            assert things(page) == set()
            assert "namespaces" in page.entities["part/applications"]["lacking"][0]["do"]
        async with tab(browser, "?namespaces=other,team") as open_tab:
            page = await open_tab.read()
            assert not [id_ for id_ in page.entities if "/other/" in id_]
            [pods] = page.entities["part/pods"]["lacking"]
            assert pods["namespace"] == "other"
            assert lacking(pods["message"], "list pods", "namespace other") == []
            assert pods["do"] != ""


async def test_every_request_is_made_as_the_viewer(world: World) -> None:
    world.users.seen.clear()
    async with world.logged_in(DEV) as browser, tab(browser, "?namespaces=team") as open_tab:
        await open_tab.read()
    assert {who for who, *_ in world.users.seen} == {"dev"}


async def test_a_revoked_permission_hides_its_objects(world: World) -> None:
    async with world.logged_in(ADMIN) as browser, tab(browser) as open_tab:
        await open_tab.until(lambda page: things(page) == EVERYTHING)
        world.users.rules.clear()
        world.kube.cut_watches()  # as the API server ends each after a minute
        await open_tab.until(lambda page: not things(page))
        assert all(part["lacking"] for part in parts(open_tab.page) if part["defined"])


async def test_a_page_that_comes_back_gets_the_rest_alone(world: World) -> None:
    async with world.logged_in(ADMIN) as browser:
        async with tab(browser) as first:
            page = await first.until(lambda page: things(page) == EVERYTHING)
            page = await first.read()
        world.kube.put(NODES, objects.node("later"))
        async with tab(browser, last=page.last) as second:
            second.page.entities = dict(page.entities)
            found = await second.until(lambda page: "node/later" in page.entities)
        hello, *rest = found.messages
        assert hello.data["full"] is False
        changed = {id_ for message in rest for id_ in message.data["set"]}
        assert "node/later" in changed
        assert "controller/team/ring" not in changed


@pytest.mark.parametrize("last", ["", "nonsense", "00ff.3", "x" * 500])
async def test_a_page_with_an_unknown_revision_gets_everything(world: World, last: str) -> None:
    async with world.logged_in(ADMIN) as browser, tab(browser, last=last) as open_tab:
        assert (await open_tab.next("hello")).data["full"] is True
        await open_tab.until(lambda page: things(page) == EVERYTHING)


async def test_two_tabs_of_a_viewer_share_their_watches(world: World) -> None:
    async with world.logged_in(ADMIN) as browser, tab(browser) as first, tab(browser) as second:
        await first.read()
        await second.read()
        lists = [path for _, method, path in world.users.seen if method == "GET" and path.endswith("/nodes")]
        assert len(lists) == 2  # one list and one watch


async def test_logout_ends_the_users_streams(world: World) -> None:
    async with world.logged_in(ADMIN) as browser, tab(browser) as open_tab:
        await open_tab.read()
        async with browser.post("/api/session/end", headers={"Origin": world.url}) as answer:
            assert answer.status == 204
        assert (await open_tab.next("bye")).data == {"reason": "login"}
        async with browser.get("/api/session") as answer:
            assert answer.status == 401


async def test_a_token_that_is_known_no_more_ends_what_it_opened(world: World) -> None:
    async with world.logged_in(ADMIN) as browser, tab(browser) as open_tab:
        await open_tab.read()
        del world.users.tokens[ADMIN]
        world.kube.cut_watches()
        assert (await open_tab.next("bye")).data == {"reason": "login"}
        await eventually(lambda: not len(world.authentication.sessions))


async def test_the_end_of_the_process_is_reported(world: World) -> None:
    async with world.logged_in(ADMIN) as browser, tab(browser) as open_tab:
        await open_tab.read()
        world.registry.stopping.set()
        assert (await open_tab.next("bye")).data == {"reason": "stopping"}


@pytest.mark.parametrize("query", ["?namespaces=Team", "?namespaces=../x", "?namespaces=" + ",".join("abcdefghijklm")])
async def test_namespaces_that_are_none_are_refused(world: World, query: str) -> None:
    async with world.logged_in(ADMIN) as browser, browser.get(f"/api/stream{query}") as answer:
        assert answer.status == 400
        assert set((await answer.json())["error"]) == {"what", "do"}
