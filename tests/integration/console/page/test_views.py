"""Each view of the console's page, in a real browser, of a real cluster: what it shows, and that all can use it."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import expect

from support.console.page_browser import PHONE, Chrome, Window
from support.console.page_visits import Visit
from support.suite.jaeger import Jaeger

pytestmark = [pytest.mark.cluster, pytest.mark.nats, pytest.mark.thorough]


async def test_the_map_leads_from_a_node_to_what_runs_on_it_and_states_the_reason(visit: Visit, chrome: Chrome) -> None:
    async with visit.console() as console, chrome.window(console.url, visit.token) as window:
        await window.page.get_by_role("searchbox").fill(visit.own)
        await expect(window.page).to_have_url(re.compile(f"q={visit.own}"))
        first = visit.world.node(1)
        await window.sees(f'[data-id="node/{first}"]', "Ready")
        await window.sees(f'[data-id="node/{visit.world.node(9)}"] .glyph.is-degraded')
        await window.page.locator(f'[data-id="node/{first}"]').click()
        await window.sees("aside.panel .headline", first)
        await expect(window.page.locator(f'[data-id="host/{visit.world.namespace}/hosts-1"]')).to_have_class(
            re.compile("is-related")
        )
        await window.sees(f'[data-id="service/{visit.world.namespace}/shop"]', "endpoints")
        await expect(window.page.get_by_text("Services without a visible application")).to_have_count(0)
        await window.in_both("map")
        await window.page.get_by_role("link", name=re.compile("host group")).first.click()
        await window.sees("aside.panel h2", "hosts")


async def test_a_rollout_is_followed_node_by_node(visit: Visit, chrome: Chrome) -> None:
    async with visit.console() as console, chrome.window(console.url, visit.token) as window:
        await window.open(f"/rollouts?shim={visit.own}")
        bar = window.page.get_by_role("progressbar", name=f"Rollout of {visit.own}")
        await expect(bar).to_have_attribute("aria-valuetext", re.compile("^3 of 9 "))
        await window.sees(f'[data-id="node/{visit.world.node(9)}"]', "checksum")
        visit.world.update(4)
        await expect(bar).to_have_attribute("aria-valuetext", re.compile("^4 of 9 "))
        await window.in_both("rollouts")
        await window.page.get_by_role("button", name="1 failed").click()
        await expect(window.page.locator(".rollout-nodes button.rollout-node")).to_have_count(1)


async def test_events_are_shown_live_and_as_history(visit: Visit, chrome: Chrome) -> None:
    async with visit.console() as console, chrome.window(console.url, visit.token) as window:
        bus = await visit.bus()
        await visit.publish(bus, "early", "other")
        await window.open("/events?types=node.*")
        await window.sees(".event .about", "node/other")
        await visit.publish(bus, "late")
        await window.sees(".event .about", "node/late")
        await window.page.locator(".event").first.click()
        await window.sees("aside.panel pre", '"name": "late"')
        await window.in_both("events")
        await window.page.get_by_role("textbox", name="Object").fill("node/early")
        await window.page.get_by_role("textbox", name="Object").press("Enter")
        await expect(window.page.locator(".event")).to_have_count(1)
        await expect(window.page).to_have_url(re.compile("object=node/early"))
        await window.page.get_by_role("button", name="Stored").click()
        await window.sees(".status", re.compile("^1 event"))
        await window.in_both("events-past")


async def test_the_scroll_position_stays_while_events_arrive(visit: Visit, chrome: Chrome) -> None:
    async with visit.console() as console, chrome.window(console.url, visit.token) as window:
        bus = await visit.bus()
        await visit.publish(bus, "one")
        await window.open("/events")
        await window.sees(".event .about", "node/one")
        await window.page.get_by_role("button", name="Pause").click()
        await visit.publish(bus, "two")
        await window.sees(".status button", "Paused, 1 new event")
        await expect(window.page.locator(".event")).to_have_count(1)
        await window.page.get_by_role("button", name="Paused").click()
        await window.sees(".event .about", "node/two")


@pytest.mark.jaeger
async def test_one_change_is_seen_as_a_waterfall(visit: Visit, chrome: Chrome, jaeger: Jaeger) -> None:
    links = {"jaeger_url": jaeger.url, "jaeger_link": "http://jaeger.example/"}
    async with visit.console(**links) as console, chrome.window(console.url, visit.token) as window:
        trace = await visit.change(jaeger, "traced")
        await jaeger.until("trellis-node-watcher", lambda spans: spans[0].trace_id == trace, trace)
        await window.open("/traces")
        await window.sees(".change .about", "node/traced")
        await window.in_both("changes")
        await window.page.locator(".change", has_text="node/traced").click()
        await window.sees(".span", "reconcile node traced")
        await window.sees(".span:has-text('create installer job') .span-bar")
        await expect(window.page.get_by_role("link", name="Open in Jaeger")).to_have_attribute(
            "href", f"http://jaeger.example/trace/{trace}"
        )
        await window.page.locator(".span", has_text="plan rollout").click()
        await window.sees("aside.panel", "trellis.nodes")
        await window.in_both("trace")


async def test_controllers_show_their_memory_and_wakes(visit: Visit, chrome: Chrome) -> None:
    async with visit.console() as console, chrome.window(console.url, visit.token) as window:
        await window.open(f"/controllers?q={visit.world.namespace}")
        await window.sees(".controller .number-resident", "37.0 MiB")
        assert await window.page.locator(".controller .name").all_inner_texts() == [
            f"{visit.world.namespace}/{name}" for name in ("quota", "ring")
        ]
        await window.page.get_by_role("button", name="by wakes").click()
        await window.sees(".controller .number-wakes", "9,042")
        await window.in_both("controllers")


async def test_a_dead_letter_is_shown_with_its_cause_and_its_body(visit: Visit, chrome: Chrome) -> None:
    async with visit.console() as console, chrome.window(console.url, visit.token) as window:
        await visit.bus()  # services make the stream of dead letters before there is any
        await window.open("/dead-letters")
        await window.sees(".empty", "No dead letters")
        await visit.dead_letter("lost")
        await window.page.locator(".dead-letter", has_text="node/lost").click()
        await window.sees("aside.panel .data", "garbage")
        await window.sees("aside.panel .headline")
        await window.in_both("dead-letters")


@pytest.mark.parametrize(
    "view",
    [
        pytest.param(view, marks=pytest.mark.thorough if view else ())
        for view in ("", "rollouts", "events", "traces", "controllers", "dead-letters")
    ],
)
async def test_every_view_fits_a_phone(visit: Visit, chrome: Chrome, view: str) -> None:
    phone = {"size": PHONE, "has_touch": True}
    async with visit.console() as console, chrome.window(console.url, visit.token, **phone) as window:
        await visit.publish(await visit.bus(), "one", "two")
        await window.open(f"/{view}?q=" if view else f"/?q={visit.own}")
        await expect(window.page.locator("main h2").first).to_be_visible()
        assert await wide(window) <= PHONE["width"]
        await window.in_both(f"phone-{view or 'map'}")


async def test_on_a_phone_the_page_of_a_thing_lies_over_the_map(visit: Visit, chrome: Chrome) -> None:
    async with visit.console() as console, chrome.window(console.url, visit.token, size=PHONE) as window:
        await window.open(f"/?q={visit.own}&lane=apps")
        await window.page.locator(f'[data-id="application/{visit.world.namespace}/shop"]').click()
        await window.sees("aside.panel .headline")
        await window.in_both("phone-why")
        await window.page.get_by_role("button", name="Close").click()
        await expect(window.page.locator("aside.panel")).to_have_count(0)


async def wide(window: Window) -> int:
    return int(await window.page.evaluate("document.documentElement.scrollWidth"))
