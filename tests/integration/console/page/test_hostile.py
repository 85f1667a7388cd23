"""Invalid addresses and responses affect only their own part of the page."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Route, expect

from support.console import seen_objects as objects
from support.console.page_browser import Chrome
from support.console.viewers import Users, World, console, may
from trellis.kube.resources import (
    APPLICATIONS,
    HOST_CONFIGS,
    NAMESPACES,
    NODES,
    PODS,
    SHIMS,
    WASM_CONTROLLERS,
)
from trellis_dev.fakes.fake import FakeKube

TOKEN = "t-jane"


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """A console in front of a fake API server: what is tried here is the page."""
    async with console(Users({TOKEN: ("jane", ())}, [may("jane")])) as found:
        fill(found.kube)
        yield found


def fill(kube: FakeKube) -> None:
    for name in ("team", "trellis-system", "trellis-installers"):
        kube.put(NAMESPACES, {"metadata": {"name": name}})
    for name in ("n1", "n2"):
        kube.put(NODES, objects.opted_in(name))
    kube.put(SHIMS, objects.shim())
    kube.put(HOST_CONFIGS, objects.group(pods=("hosts-1",)))
    kube.put(PODS, objects.host_pod())
    kube.put(APPLICATIONS, objects.application())
    for name in ("ring", "rung"):
        kube.put(WASM_CONTROLLERS, objects.controller(name))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("address", "shows"),
    [
        ("/controllers?sort=__proto__", '[data-id="controller/team/rung"]'),
        ("/?select=hostgroup/../../session", "aside.panel .empty"),
        pytest.param("/?select=nodes", "aside.panel .empty", marks=pytest.mark.thorough),
        pytest.param("/?select=node/..", "aside.panel .empty", marks=pytest.mark.thorough),
        pytest.param("/?select=__proto__/x", "aside.panel .empty", marks=pytest.mark.thorough),
        pytest.param("/rollouts?shim=constructor", ".empty", marks=pytest.mark.thorough),
        pytest.param("/traces?trace=../x", ".problem", marks=pytest.mark.thorough),
        ("/events?types=[[[", '.missing:has-text("node.ready")'),
        pytest.param("/%ff%ed?q=%00%ff", ".empty", marks=pytest.mark.thorough),
    ],
)
async def test_an_address_that_a_user_typed_breaks_nothing(
    world: World, chrome: Chrome, address: str, shows: str
) -> None:
    async with chrome.window(world.url, TOKEN) as window:
        await window.open(address)
        await window.sees(shows)
        await expect(window.page.locator("aside.panel .problem")).to_have_count(0)
        await window.page.get_by_role("link", name="Map").click()
        await window.page.get_by_role("searchbox").fill("")
        await window.sees('[data-id="node/n1"]', "Waiting")
    assert chrome.complaints == []


@pytest.mark.thorough
async def test_an_answer_that_cannot_be_drawn_costs_its_panel_and_nothing_else(world: World, chrome: Chrome) -> None:
    async with chrome.window(world.url, TOKEN) as window:

        async def nonsense(route: Route) -> None:
            await route.fulfill(json={"headline": "no lines"})

        await window.page.route("**/api/explain/**", nonsense)
        await window.page.locator('[data-id="node/n1"]').click()
        await window.sees(".problem")
        problem = await window.page.locator(".problem").first.inner_text()
        assert await window.faults() == []
        world.kube.put(NODES, objects.opted_in("n3"))
        await window.sees('[data-id="node/n3"]', "Waiting")
        await window.page.unroute("**/api/explain/**")
        await window.page.locator('[data-id="shim/spin"], .shims button').first.click()
        await window.sees("aside.panel .headline, aside.panel .problem", re.compile("."))
        await expect(window.page.get_by_text(problem)).to_have_count(0)
    chrome.complaints.clear()  # the error is also in the console of the browser
