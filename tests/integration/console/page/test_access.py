"""The page: login, missing permissions, keyboard navigation, and addresses."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.async_api import expect

from support.console.page_browser import Chrome
from support.console.page_visits import Visit
from support.console.viewing import READ_ALL

pytestmark = [pytest.mark.cluster, pytest.mark.nats]


async def test_a_token_opens_the_page_and_is_kept_nowhere_in_it(visit: Visit, chrome: Chrome) -> None:
    async with visit.console() as console, chrome.window(console.url) as window:
        await window.page.goto("/?select=node/" + visit.world.node(1))
        await window.sees("form", "Token")
        await window.in_both("login")
        await window.page.get_by_label("Token").fill("no.such.token")
        await window.page.keyboard.press("Enter")
        await window.sees(".problem")
        await window.page.get_by_label("Token").fill(visit.token)
        await window.page.keyboard.press("Enter")
        await window.sees("aside.panel h2", visit.world.node(1))
        kept = await window.page.evaluate(
            "JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie, document.body.outerHTML])"
        )
        assert visit.token not in kept
        await window.page.get_by_label("Account and settings").click()
        await window.sees(".menu", "jane")
        await window.page.get_by_role("button", name="Log out").click()
        await window.sees("form", "Token")
        await window.page.reload()
        await window.sees("form", "Token")


@pytest.mark.thorough
async def test_behind_a_proxy_no_token_is_requested(visit: Visit, chrome: Chrome, tmp_path: Path) -> None:
    secret, jane = tmp_path / "secret", f"jane-of-{visit.own}"
    secret.write_text("s" * 40)
    visit.accounts.allow_user(jane, READ_ALL)
    settings = {"console_auth": "proxy", "console_proxy_secret_file": secret}
    named = {"X-Forwarded-User": jane, "X-Trellis-Proxy-Secret": "s" * 40}
    async with visit.console(**settings) as console:
        async with chrome.window(console.url) as window:
            await window.page.goto("/")
            await window.sees(".problem")
            await expect(window.page.locator("form")).to_have_count(0)
            await window.in_both("no-proxy")
        # A proxy adds to each request what the browser adds here.
        async with chrome.window(console.url, extra_http_headers=named) as window:
            await window.open(f"/?q={visit.own}")
            await window.sees(f'[data-id="node/{visit.world.node(1)}"]', "Ready")
            await window.page.get_by_label("Account and settings").click()
            await window.sees(".menu", jane)
            await expect(window.page.get_by_role("button", name="Log out")).to_have_count(0)
            # His log-in at the proxy ends: it answers instead of the console.
            await window.page.route("**/api/**", lambda route: route.fulfill(status=401, body="log in"))
            await window.page.locator("input[name=namespaces]").fill(visit.world.namespace)
            await window.page.keyboard.press("Enter")
            await window.sees(".problem")
            await expect(window.page.locator("form")).to_have_count(0)
            await window.page.unroute("**/api/**")
            await window.page.get_by_role("button", name="Retry").click()
            await window.sees(f'[data-id="node/{visit.world.node(1)}"]', "Ready")


@pytest.mark.thorough
async def test_a_forbidden_part_is_named_and_its_content_is_hidden(visit: Visit, chrome: Chrome) -> None:
    token = visit.accounts.create("tenant")
    visit.accounts.allow("tenant", READ_ALL, namespace=visit.accounts.namespace)
    async with visit.console() as console, chrome.window(console.url, token) as window:
        await window.sees(".lane-nodes .lane-body .lacking", "list nodes")
        await window.sees(".lane-apps .lacking")
        assert visit.own not in await window.page.locator("main").inner_text()
        assert await window.page.locator(".lane-nodes h2").inner_text() == "Nodes", "none is not known"
        await window.in_both("not-allowed")
        await window.page.locator("input[name=namespaces]").fill(visit.world.namespace)
        await window.page.keyboard.press("Enter")
        await window.sees(f'[data-id="application/{visit.world.namespace}/shop"]')
        await expect(window.page.locator(".lane-apps .lacking")).to_have_count(0)
        await window.sees(".lane-nodes .lane-body .lacking", "list nodes")
        await window.page.get_by_role("link", name="Events").click()
        assert f"namespaces={visit.world.namespace}" in window.page.url


@pytest.mark.thorough
async def test_everything_can_be_reached_by_keys(visit: Visit, chrome: Chrome) -> None:
    async with visit.console() as console, chrome.window(console.url, visit.token) as window:
        page = window.page
        await page.keyboard.press("Tab")
        await expect(page.locator(".skip")).to_be_focused()
        await page.keyboard.press("Enter")
        await expect(page.locator("main")).to_be_focused()
        await page.keyboard.press("/")
        await expect(page.get_by_role("searchbox")).to_be_focused()
        await page.keyboard.type(f"{visit.own}-")
        await expect(page.locator(".cell.kind-node")).to_have_count(9)
        await page.locator(".cell.kind-node").first.focus()
        await page.keyboard.press("End")
        last = page.locator(f'[data-id="node/{visit.world.node(8)}"]')
        await expect(last).to_be_focused()
        await page.keyboard.press("Enter")
        await window.sees("aside.panel h2", visit.world.node(8))
        await page.keyboard.press("Escape")
        await expect(page.locator("aside.panel")).to_have_count(0)
        await expect(last).to_be_focused()
        await page.keyboard.press("?")
        await window.sees("dialog[open]")
        await window.in_both("keys")
        await page.keyboard.press("Escape")
        await expect(page.locator("dialog")).to_have_count(0)
        await page.keyboard.press("2")
        await expect(page).to_have_url(re.compile("/rollouts"))


@pytest.mark.thorough
async def test_single_keys_can_be_turned_off(visit: Visit, chrome: Chrome) -> None:
    async with visit.console() as console, chrome.window(console.url, visit.token) as window:
        await window.page.keyboard.press("?")
        await window.page.get_by_label("enable single-key shortcuts").uncheck()
        await window.page.keyboard.press("Escape")
        await window.page.keyboard.press("2")
        await window.page.get_by_role("link", name="Controllers").click()
        await expect(window.page).to_have_url(re.compile("/controllers"))


@pytest.mark.thorough
async def test_an_address_leads_back_to_what_was_seen(visit: Visit, chrome: Chrome) -> None:
    async with visit.console() as console, chrome.window(console.url, visit.token) as window:
        page, failed = window.page, visit.world.node(9)
        await window.open(f"/?q={visit.own}&health=Degraded&select=node/{failed}")
        await expect(page.locator(".cell.kind-node")).to_have_count(1)
        await window.sees("aside.panel h2", failed)
        await page.locator("aside.panel").get_by_role("link", name="Events").click()
        await expect(page.get_by_label("Object")).to_have_value(f"node/{failed}")
        await page.go_back()
        await window.sees("aside.panel h2", failed)
        await page.reload()
        await window.sees("aside.panel h2", failed)
        await expect(page.get_by_role("searchbox")).to_have_value(visit.own)


@pytest.mark.thorough
async def test_light_and_dark_can_be_chosen_and_stay(visit: Visit, chrome: Chrome) -> None:
    async with visit.console() as console, chrome.window(console.url, visit.token) as window:
        ground = "getComputedStyle(document.body).backgroundColor"
        light = await window.page.evaluate(ground)
        await window.page.get_by_label("Account and settings").click()
        await window.page.get_by_label("Theme").select_option("dark")
        assert await window.page.evaluate(ground) != light
        await window.page.reload()
        await window.sees("main")
        assert await window.page.evaluate(ground) != light
