"""Lines on the map from the selected object to its related resources in view, in a real browser."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest
from playwright.async_api import expect

from support.console import seen_objects as objects
from support.console.page_browser import DESKTOP, PHONE, Chrome, Window
from support.console.viewers import Users, World, console, may
from support.v2.explained import fill as fill_v2
from support.v2.host_pods import both
from support.wasm_pods.objects import SPACE, pod, runtime_class, workload
from trellis.kube.resources import (
    APPLICATIONS,
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    HOST_CONFIGS,
    NAMESPACES,
    NODES,
    PODS,
    RUNTIME_CLASSES,
    SERVICES,
    SHIMS,
)

pytestmark = pytest.mark.thorough
TOKEN: Final = "t-jane"
COUNT: Final = 200
HELLO: Final = f"deployment/{SPACE}/hello"
_ASTRAY: Final = """
() => {
  const layer = document.querySelector("svg.edges");
  const origin = layer.getBoundingClientRect();
  return [...layer.querySelectorAll("path")].filter((path) => {
    const cell = document.querySelector(`[data-id="${path.dataset.to}"]`)?.getBoundingClientRect();
    const touches = ({ x, y }) =>
      x + origin.left > cell.left - 2 && x + origin.left < cell.right + 2 &&
      y + origin.top > cell.top - 2 && y + origin.top < cell.bottom + 2;
    return !cell || ![0, path.getTotalLength()].some((at) => touches(path.getPointAtLength(at)));
  }).map((path) => path.dataset.to);
}
"""
"""Returns the ids of lines that do not begin or end at their cell."""


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """A console in front of a fake API server with a Shim on many nodes, Wasm pods, a host group, and wasmCloud v2."""
    async with console(Users({TOKEN: ("jane", ())}, [may("jane")])) as found:
        kube = found.kube
        for name in ("team", SPACE, "trellis-system", "trellis-installers"):
            kube.put(NAMESPACES, {"metadata": {"name": name}})
        for number in range(1, COUNT + 1):
            kube.put(NODES, objects.opted_in(f"n{number}"))
        kube.put(SHIMS, objects.shim())
        kube.put(RUNTIME_CLASSES, clean(runtime_class("spin")))
        uid = kube.put(DEPLOYMENTS, clean(workload(runtime_class="spin")))["metadata"]["uid"]
        kube.put(PODS, clean(pod("hello-a", runtime_class="spin", owner=("ReplicaSet", "hello-5d8f", uid))))
        kube.put(HOST_CONFIGS, objects.group(pods=("hosts-1",)))
        kube.put(PODS, objects.host_pod())
        kube.put(APPLICATIONS, objects.application())
        kube.put(SERVICES, objects.service())
        kube.put(ENDPOINT_SLICES, objects.slice_of())
        fill_v2(kube, "03", 2.2)
        for item in both():
            kube.put(PODS, item)
        yield found


def clean(manifest: dict[str, Any]) -> dict[str, Any]:
    dropped = {"uid", "resourceVersion"}
    return manifest | {"metadata": {key: value for key, value in manifest["metadata"].items() if key not in dropped}}


async def lines(window: Window, *ids: str) -> None:
    """Expect one line to each of these cells, which ends there."""
    for id_ in ids:
        await expect(window.page.locator(f'svg.edges path[data-to="{id_}"]')).to_have_count(1)
    assert await window.page.evaluate(_ASTRAY) == []


async def test_a_shim_is_connected_to_the_nodes_in_view_and_by_them_to_wasm_pods(world: World, chrome: Chrome) -> None:
    async with chrome.window(world.url, TOKEN) as window:
        page = window.page
        await window.sees(f'[data-id="{HELLO}"]')
        await expect(page.locator("svg.edges")).to_have_count(0)
        await page.locator('[data-id="shim/spin"]').click()
        await lines(window, "node/n1", "node/n2", HELLO)
        edge = page.locator(f'svg.edges path[data-to="{HELLO}"]')
        await expect(edge).to_have_class("edge")
        await expect(page.locator("svg.edges")).to_have_attribute("aria-hidden", "true")
        await window.sees(".lane-nodes .out-of-view", re.compile(rf"\b{COUNT}\b.* \d+ below"))
        await window.sees(".lane-apps .out-of-view", "in view")
        await window.in_both("map-edges")
        body = page.locator(".lane-nodes .lane-body")
        await body.evaluate("(list) => list.scrollTo(0, list.scrollHeight)")
        await lines(window, f"node/n{COUNT}")
        await expect(page.locator('svg.edges path[data-to="node/n1"]')).to_have_count(0)
        await expect(edge).to_have_class("edge indirect")
        await window.sees(".lane-nodes .out-of-view", re.compile(r" \d+ above$"))
        world.kube.remove(NODES, f"n{COUNT}")
        await expect(page.locator(f'svg.edges path[data-to="node/n{COUNT}"]')).to_have_count(0)
        await lines(window, f"node/n{COUNT - 1}")
        await page.keyboard.press("Escape")
        await expect(page.locator("svg.edges")).to_have_count(0)
        await expect(page.locator(".out-of-view")).to_have_count(0)


async def test_host_groups_are_connected_step_by_step_to_services(world: World, chrome: Chrome) -> None:
    async with chrome.window(world.url, TOKEN) as window:
        page = window.page
        await page.locator('[data-id="hostgroup/team/hosts"]').click()
        await lines(window, "host/team/hosts-1", "application/team/shop", "service/team/shop")
        await window.in_both("map-edges-v1")
        await page.locator(".cell.kind-whostgroup").first.click()
        await expect(page.locator('svg.edges path[data-to^="whost/"]')).not_to_have_count(0)
        await expect(page.locator('svg.edges path[data-to="workloaddeployment/apps/hello"]')).to_have_count(1)
        await window.in_both("map-edges-v2")


async def test_lines_follow_the_size_of_the_window_and_a_phone_has_none(world: World, chrome: Chrome) -> None:
    async with chrome.window(world.url, TOKEN) as window:
        page = window.page
        await page.locator('[data-id="node/n1"]').click()
        await lines(window, "host/team/hosts-1", HELLO)
        await page.set_viewport_size({"width": 1000, "height": 700})
        await page.wait_for_function(f"({_ASTRAY})().length === 0")
        await page.set_viewport_size(PHONE)
        await expect(page.locator("svg.edges")).to_have_count(0)
        await expect(page.locator(".out-of-view")).to_have_count(0)
        await page.set_viewport_size(DESKTOP)
        await lines(window, "host/team/hosts-1", HELLO)


async def test_the_selection_of_an_address_is_scrolled_into_view(world: World, chrome: Chrome) -> None:
    async with chrome.window(world.url, TOKEN) as window:
        await window.open(f"/?select=node/n{COUNT - 10}")
        await expect(window.page.locator(f'[data-id="node/n{COUNT - 10}"]')).to_be_in_viewport()
        await lines(window, "shim/spin")
