"""Each view of the page with a kept demo, in which all services run."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from playwright.async_api import expect

from controller_host.timings import ReportTimings
from support.console.page_browser import ROOT, Chrome, Window
from support.nats.buses import opted_out
from support.nats.raw_nats import raw_publish
from support.suite.demos import Machine
from trellis.events.subjects import event_subject
from trellis.names import ANNOTATION_OPT_IN

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.cluster,
    pytest.mark.nats,
    pytest.mark.jaeger,
    pytest.mark.timeout(300),
]
SLOW = 60_000
"""Milliseconds for what services have to do first: a rollout, a controller that is compiled."""


@dataclass(frozen=True)
class Demo:
    """A kept demo: ten nodes, all of which have its Shim. ``next``: the manifest of another version of it."""

    url: str
    token: str = field(repr=False)
    nats: int
    jaeger: str
    program: Path
    kubeconfig: Path
    next: Path

    def kubectl(self, *arguments: str) -> str:
        done = subprocess.run(
            [self.program, "--kubeconfig", self.kubeconfig, *arguments],
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def example(self, name: str) -> None:
        self.kubectl("apply", "-k", str(ROOT / "deploy" / "examples" / name))


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory, built_page: Path) -> Iterator[Demo]:
    del built_page  # without node the demo has no page: skipped
    machine = Machine(tmp_path_factory.mktemp("demo"))
    status, out, err = machine.run("demo", "--nodes", "10", "--keep", "--jaeger", "-o", "json")
    try:
        assert status == 0, err
        report = json.loads(out)
        kept, console = report["kept"], report["console"]
        token = subprocess.run(console["log_in"], capture_output=True, text=True, check=True, timeout=30).stdout
        yield Demo(
            console["url"],
            token.strip(),
            int(kept["nats_url"].rpartition(":")[2]),
            kept["jaeger_url"],
            Path(kept["bin_dir"]) / "kubectl",
            Path(kept["kubeconfig"]),
            Path(kept["kubeconfig"]).parent / "spin-2.yaml",
        )
    finally:
        machine.run("dev", "down", "--name", "demo")


@pytest.fixture
async def window(demo: Demo, chrome: Chrome) -> AsyncIterator[Window]:
    async with chrome.window(demo.url, demo.token) as window:
        yield window


async def test_a_node_that_is_selected_is_ready_on_the_map_and_states_the_reason(demo: Demo, window: Window) -> None:
    await expect(window.page.locator(".cell.kind-node")).to_have_count(10)
    await window.sees('[data-id="node/node-0000"]', "Ready")
    demo.kubectl("label", "node", "node-0009", "wasm-")
    await window.sees('[data-id="node/node-0009"]', "Not opted in", ms=SLOW)
    demo.kubectl("label", "node", "node-0009", "wasm=true")
    await window.sees('[data-id="node/node-0009"]', "Ready", ms=SLOW)
    await window.page.locator('[data-id="node/node-0009"]').click()
    await window.sees("aside.panel .headline", "node-0009")
    await window.in_both("demo-node")


async def test_a_shim_is_rolled_out_before_ones_eyes(demo: Demo, window: Window) -> None:
    await window.open("/rollouts?shim=spin")
    bar = window.page.get_by_role("progressbar", name="Rollout of spin")
    await expect(bar).to_have_attribute("aria-valuetext", re.compile("^10 of 10 "), timeout=SLOW)
    demo.kubectl("apply", "-f", str(demo.next))
    await expect(bar).not_to_have_attribute("aria-valuetext", re.compile("^10 of 10 "), timeout=SLOW)
    shown = set()
    while not any(item.startswith("10 of 10 ") for item in shown):
        await expect(bar).not_to_have_attribute("aria-valuetext", max(shown, default="", key=len), timeout=SLOW)
        shown.add(await bar.get_attribute("aria-valuetext") or "")
    assert len(shown) > 2, shown
    await window.in_both("demo-rollout")


async def test_an_unreachable_lattice_is_reported_beside_its_hosts(demo: Demo, window: Window) -> None:
    demo.example("host-group")
    demo.example("hello")
    group = window.page.locator('[data-id="hostgroup/hello/hosts"]')
    await group.click(timeout=SLOW)
    await window.sees("aside.panel .headline", re.compile("LatticeUnreachable|LatticeNotConnected"), ms=SLOW)
    await window.sees('[data-id="application/hello/hello"] .glyph.is-unknown', ms=SLOW)
    await window.in_both("demo-map")


async def test_events_of_the_services_are_shown_live_and_later(demo: Demo, window: Window) -> None:
    await window.open("/events?types=node.*")
    for value in ("false", "true"):
        demo.kubectl("annotate", "--overwrite", "node", "node-0001", f"{ANNOTATION_OPT_IN}={value}")
        event_name = "node.opted_in" if value == "true" else "node.opted_out"
        await window.sees(f".event:has-text('{event_name}'):has-text('node/node-0001')")
    await window.in_both("demo-events")
    await window.open("/events?mode=past&object=node/node-0000")
    await window.sees(".event:has-text('node.ready')")


async def test_a_change_is_followed_through_all_services(demo: Demo, window: Window) -> None:
    await window.open("/traces")
    await window.page.locator(".change", has_text="node.opted_in").filter(has_text="node/node-0000").click()
    for name in ("reconcile node node-0000", "create installer job", "publish node.ready"):
        await window.sees(f".span:has-text('{name}')")
    trace = await window.page.get_by_role("textbox", name="Trace").input_value()
    await window.in_both("demo-trace")
    # This Jaeger was built from its Go module: it answers queries, and has no page that a link could open.
    assert await window.page.get_by_role("link", name="Open in Jaeger").count() == 0
    async with aiohttp.ClientSession() as session, session.get(f"{demo.jaeger}/api/traces/{trace}") as answer:
        services = {process["serviceName"] for process in (await answer.json())["data"][0]["processes"].values()}
    assert {"trellis-node-watcher", "trellis-provisioner"} <= services


async def test_a_controller_is_woken(demo: Demo, window: Window) -> None:
    demo.example("controllers")
    demo.kubectl(
        *("patch", "wasmcontroller", "mirror", "--namespace", "team-a", "--type=merge"),
        *("-p", json.dumps({"spec": {"idle": {"suspendAfter": "0s"}}})),
    )
    # A controller that still runs takes the object without being woken.
    demo.kubectl(
        *("wait", "wasmcontroller/mirror", "--namespace", "team-a"),
        *("--for", "jsonpath={.status.state}=Suspended", "--timeout", "55s"),
    )
    await window.open("/controllers?q=team-a/mirror")
    row = window.page.locator(".controller", has_text="team-a/mirror")
    await expect(row.locator(".number-wakes")).to_have_text(re.compile(r"\d"), timeout=SLOW)
    before = await row.locator(".number-wakes").inner_text()
    demo.kubectl("create", "configmap", "seen", "--namespace", "team-a", "--from-literal", "a=b")
    demo.kubectl("label", "configmap", "seen", "--namespace", "team-a", "examples.trellis.dev/mirror=yes")
    # Figures alone are written so long after the status before them: a limit of the same length is a race.
    await expect(row.locator(".number-wakes")).not_to_have_text(before, timeout=ReportTimings().counters * 1000 + SLOW)
    await window.open("/controllers")
    await window.in_both("demo-controllers")


async def test_a_message_that_is_none_is_a_dead_letter(demo: Demo, window: Window) -> None:
    await window.open("/dead-letters")
    await window.sees(".empty", "No dead letters")
    answer = await window.page.request.get("/api/session")
    state: dict[str, Any] = await answer.json()
    raw_publish(demo.nats, event_subject(state["cluster"], opted_out("lost")).encode(), b"garbage")
    await window.page.locator(".dead-letter", has_text="node/lost").first.click()
    await window.sees("aside.panel .data", "garbage")
    await window.in_both("demo-dead-letters")
