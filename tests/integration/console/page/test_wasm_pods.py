"""Wasm pods on the map, in a real browser: a Shim leads to nodes and owners, a node to the owners with pods there."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.async_api import expect

from support.console.page_browser import Chrome, Window
from support.console.page_visits import Visit
from support.wasm_pods.served import ServedWasmPods

pytestmark = [pytest.mark.cluster, pytest.mark.nats, pytest.mark.thorough]


@pytest.fixture
def served(visit: Visit) -> Iterator[ServedWasmPods]:
    found = ServedWasmPods(visit.world.api, visit.world.namespace)
    yield found
    found.leave()


async def related(window: Window, id_: str) -> None:
    await expect(window.page.locator(f'[data-id="{id_}"]')).to_have_class(re.compile("is-related"))


async def test_a_shim_leads_to_its_owners_and_a_node_to_those_with_pods_there(
    visit: Visit, chrome: Chrome, served: ServedWasmPods
) -> None:
    node = visit.world.node(1)
    placed = served.place(node)
    hello, lost = served.ids().values()
    async with visit.console() as console, chrome.window(console.url, visit.token) as window:
        await window.open("/")
        await window.page.get_by_role("searchbox").fill(f"{visit.world.namespace} spin-")
        await window.sees(f'[data-id="{lost}"] .glyph.is-degraded')
        await window.sees(f'[data-id="{hello}"]', "0/2 pods ready")
        await window.sees(f'[data-id="{placed}"]', "on 1 node")
        await (
            window.page.get_by_role("list", name="Shims")
            .get_by_role("button", name=re.compile(f"{served.shim} "))
            .click()
        )
        await related(window, hello)
        await related(window, placed)
        await expect(window.page.locator(f'[data-id="{lost}"]')).not_to_have_class(re.compile("is-related"))
        await window.in_both("map-wasm-pods")
        await window.open(f"/?select=node/{node}&q={visit.world.namespace} spin-")
        await related(window, placed)
        await expect(window.page.locator(f'[data-id="{hello}"]')).not_to_have_class(re.compile("is-related"))
        await window.open(f"/?select={lost}&q=spin-")
        await window.sees("aside.panel .headline", "RuntimeClass")
