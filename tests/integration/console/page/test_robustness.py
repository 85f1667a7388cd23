"""The page with many dead letters, a failed logout, a dead connection, and a missing trace."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest
from playwright.async_api import Request, Route, expect

from console.live.feed import Item, dead_letter_item
from support.console import seen_objects as objects
from support.console.page_browser import Chrome
from support.console.viewers import Users, World, console, may
from trellis.bus.dead_letters.read import read_dead_letter
from trellis.bus.streams.stream_reader import Stored
from trellis.kube.resources import NODES

TOKEN = "t-jane"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """A console in front of a fake API server: what is tried here is the page."""
    async with console(Users({TOKEN: ("jane", ())}, [may("jane")])) as found:
        found.kube.put(NODES, objects.opted_in("n1"))
        yield found


def dead_letter(index: int) -> Item:
    return dead_letter_item(
        read_dead_letter(Stored(index, NOW, f"trellis.dead.c.node_watcher.node.n{index}", {}, b"", 0), "e"), index
    )


@pytest.mark.thorough
async def test_hundreds_of_new_dead_letters_neither_clear_a_field_nor_reload_all_of_them(
    world: World, chrome: Chrome
) -> None:
    async with chrome.window(world.url, TOKEN) as window:
        requested: list[str] = []

        def count(request: Request) -> None:
            if "/api/dead-letters" in request.url:
                requested.append(request.url)

        await window.open("/dead-letters")
        await window.sees(".problem")
        window.page.on("request", count)
        field = window.page.get_by_role("textbox", name="Reason")
        await field.press_sequentially("Unpar")
        for index in range(1, 41):
            async with window.page.expect_response("**/api/session"):  # one frame of the page is over by then
                world.feed.add(dead_letter(index))
                await window.page.evaluate("fetch('/api/session')")
        await field.press_sequentially("seable")
        await expect(field).to_have_value("Unparseable")
        await field.press("Enter")
        await expect(window.page).to_have_url(f"{world.url}/dead-letters?reason=Unparseable")
        await expect(field).to_be_focused()
        assert len(requested) < 12, len(requested)
        await window.page.go_back()
        await expect(field).to_have_value("")


@pytest.mark.thorough
async def test_a_failed_logout_is_reported(world: World, chrome: Chrome) -> None:
    async def unavailable(route: Route) -> None:
        await route.abort()

    async with chrome.window(world.url, TOKEN) as window:
        await window.page.route("**/api/session/end", unavailable)
        await window.page.get_by_label("Account and settings").click()
        leave = window.page.get_by_role("button", name="Log out")
        await leave.click()
        await window.sees(".menu .problem")
        assert await window.faults() == []
        await window.page.unroute("**/api/session/end")
        await leave.click()
        await window.sees("form", "Token")


@pytest.mark.thorough
@pytest.mark.parametrize("sign", ["slept", "other network"])
async def test_a_line_that_is_dead_after_a_sleep_is_reopened_at_once(world: World, chrome: Chrome, sign: str) -> None:
    async with chrome.window(world.url, TOKEN) as window:
        await window.sees(".live", "live")
        async with window.page.expect_request("**/api/stream?last=*", timeout=5_000):
            if sign == "slept":
                await window.page.evaluate(
                    "const now = Date.now; Date.now = () => now() + 3600e3; "
                    "document.dispatchEvent(new Event('visibilitychange'))"
                )
            else:
                await window.page.evaluate("dispatchEvent(new Event('online'))")
        await window.sees(".live", "live")
        await expect(window.page.locator(".banner p")).to_have_count(0)


@pytest.mark.thorough
async def test_a_missing_trace_is_reported_as_missing(world: World, chrome: Chrome) -> None:
    nothing = {"trace": "a" * 32, "whole": True, "cut": False, "link": None, "spans": []}

    async def answer(route: Route) -> None:
        await route.fulfill(json=nothing)

    async with chrome.window(world.url, TOKEN) as window:
        await window.page.route("**/api/traces/*", answer)
        await window.open(f"/traces?trace={'a' * 32}")
        await window.sees(".traces .empty", "Jaeger")
