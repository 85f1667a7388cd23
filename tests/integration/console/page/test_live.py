"""The page shows changes live, reports a lost connection, and reconnects."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import pytest
from playwright.async_api import expect

from support.console.page_browser import Chrome
from support.console.page_visits import Visit
from support.suite.tcp_proxy import TcpProxy

pytestmark = [pytest.mark.cluster, pytest.mark.nats]


async def test_a_change_by_kubectl_is_on_the_page(visit: Visit, chrome: Chrome) -> None:
    """`bench/console_page.py` measures it; here the deadline is one that a busy machine keeps, too."""
    async with visit.console() as console, chrome.window(console.url, visit.token) as window:
        await window.page.get_by_role("searchbox").fill(visit.own)
        node = visit.world.node(5)
        cell = f'[data-id="node/{node}"]'
        await window.sees(cell, "Waiting")
        for value, shown in (("false", "Not opted in"), ("maybe", "Invalid annotation"), ("true", "Waiting")):
            patch = {"metadata": {"annotations": {"kwasm.sh/kwasm-node": value}}}
            visit.world.call("PATCH", f"/api/v1/nodes/{node}", patch)
            await window.sees(cell, shown)


@pytest.mark.thorough
async def test_a_deleted_object_disappears_from_the_page(visit: Visit, chrome: Chrome) -> None:
    async with visit.console() as console, chrome.window(console.url, visit.token) as window:
        await window.page.get_by_role("searchbox").fill(visit.own)
        cell = f'[data-id="service/{visit.world.namespace}/shop"]'
        await window.page.locator(cell).click()
        await window.sees("aside.panel .headline")
        visit.world.call("DELETE", f"/api/v1/namespaces/{visit.world.namespace}/services/shop")
        await expect(window.page.locator(cell)).to_have_count(0)
        await window.sees("aside.panel .empty")
        await expect(window.page.locator("aside.panel .health-line")).to_have_count(0)


@pytest.mark.thorough
async def test_a_lost_connection_is_reported_and_later_changes_are_there_when_it_is_back(
    visit: Visit, chrome: Chrome
) -> None:
    async with (
        visit.console() as console,
        TcpProxy("127.0.0.1", int(urlsplit(console.url).port or 0)) as proxy,
        chrome.window(f"http://127.0.0.1:{proxy.port}", visit.token) as window,
    ):
        await window.page.get_by_role("searchbox").fill(visit.own)
        cell = f'[data-id="node/{visit.world.node(5)}"]'
        await window.sees(cell, "Waiting")
        await window.sees(".live", "live")
        await proxy.refuse()
        await window.sees(".banner", re.compile(r"Disconnected since \d\d:\d\d:\d\d"))
        await window.sees(cell, "Waiting")
        await window.in_both("disconnected")
        visit.world.update(5)
        await proxy.open()
        await window.sees(cell, "Ready")
        await expect(window.page.locator(".banner p")).to_have_count(0)
        await window.sees(".live", "live")


@pytest.mark.thorough
async def test_a_restarted_console_requires_a_login_and_shows_everything_after(visit: Visit, chrome: Chrome) -> None:
    async with visit.console() as console:
        port = console.console.port
        async with chrome.window(console.url, visit.token) as window:
            await window.open(f"/?q={visit.own}")
            await window.sees(f'[data-id="node/{visit.world.node(1)}"]')
            await console.stop()
            await window.sees(".banner", "Disconnected since")
            async with visit.console(console_port=port):
                await window.sees("form", "Token")
                await window.page.get_by_label("Token").fill(visit.token)
                await window.page.get_by_role("button", name="Log in").click()
                await window.sees(f'[data-id="node/{visit.world.node(1)}"]', "Ready")


@pytest.mark.timeout(180)
@pytest.mark.thorough
async def test_a_hidden_tab_holds_no_connection_and_is_complete_when_shown(visit: Visit, chrome: Chrome) -> None:
    """Browsers have six connections to a host: streams of tabs in the background would leave none for the next."""
    seen = "(hidden) => { Object.defineProperty(document, 'hidden', { value: hidden, configurable: true }); document"
    seen += ".dispatchEvent(new Event('visibilitychange')); }"
    async with visit.console() as console, chrome.window(console.url, visit.token) as window:
        await window.page.clock.install()
        await window.open(f"/?q={visit.own}")
        cell = f'[data-id="node/{visit.world.node(5)}"]'
        await window.sees(cell, "Waiting")
        async with window.page.expect_event("requestfailed", lambda request: "/api/stream" in request.url):
            await window.page.evaluate(seen, True)
            await window.page.clock.fast_forward(11_000)
        visit.world.update(5)
        await window.sees(cell, "Waiting")
        await window.page.evaluate(seen, False)
        await window.sees(cell, "Ready")
        await window.sees(".live", "live")


@pytest.mark.timeout(180)
@pytest.mark.thorough
async def test_a_silence_is_not_taken_for_quiet(visit: Visit, chrome: Chrome) -> None:
    async with (
        visit.console() as console,
        TcpProxy("127.0.0.1", int(urlsplit(console.url).port or 0)) as proxy,
        chrome.window(f"http://127.0.0.1:{proxy.port}", visit.token) as window,
    ):
        await window.page.clock.install()
        await window.open("/")
        await window.sees(".live", "live")
        proxy.silence()
        await window.page.clock.fast_forward(31_000)
        await window.sees(".banner", "30 s")
        proxy.resume()
        await window.page.get_by_role("button", name="Reconnect").click()
        await window.sees(".live", "live")
