"""The delay of a change of a node on the console's page, and the frames of a page of 1,000 nodes.

In: a real API server with simulated nodes, the console, Debian's Chromium. Out: figures, and the machine. A change is
timed from before the PATCH is sent to the frame after its words stand in the page; frames are those of the browser
while the list of nodes is scrolled from end to end, and while nodes change.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import statistics
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final

from playwright.async_api import CDPSession, Page, async_playwright

from machine import describe

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))

from support.console.page_world import PageWorld
from support.console.viewing import READ_ALL, Accounts, run_console
from support.wadm.applications_kind import ApplicationsKind
from trellis_dev.definitions import define_kinds
from trellis_dev.localcluster import ClusterInfo, owned_cluster
from trellis_dev.localcluster.api import Api
from trellis_dev.localcluster.building import How
from trellis_dev.localcluster.chromium import chromium
from trellis_dev.localcluster.page import build_page
from trellis_dev.localcluster.progress import Quiet

ROOT: Final = Path(__file__).parents[1]
_MS: Final = 60_000
_COSTS: Final = {"script": "ScriptDuration", "style": "RecalcStyleDuration", "layout": "LayoutDuration"}
_SEEN: Final = """
([selector, text]) => new Promise((resolve) => {
  const stands = () => document.querySelector(selector)?.textContent.includes(text);
  const ended = performance.now() + 30000;
  const look = () => {
    if (stands() || performance.now() > ended) {
      requestAnimationFrame(() => resolve(stands()));
    } else {
      requestAnimationFrame(look);
    }
  };
  look();
})
"""
_FRAMES: Final = """
(seconds) => new Promise((resolve) => {
  const body = document.querySelector(".lane-nodes .lane-body");
  const [frames, began] = [[], performance.now()];
  let last = began;
  const step = (now) => {
    frames.push(now - last);
    last = now;
    const share = (now - began) / (seconds * 1000);
    if (share >= 1) {
      resolve(frames.slice(1));
      return;
    }
    body.scrollTop = (1 - Math.abs(1 - 2 * share)) * (body.scrollHeight - body.clientHeight);
    requestAnimationFrame(step);
  };
  requestAnimationFrame(step);
})
"""


async def measure(cluster: ClusterInfo, world: PageWorld, token: str, changes: int) -> None:
    """Open the page and print what it takes."""
    how = How(Quiet(), threading.Event())
    build_page(ROOT, how)
    program = chromium(how)
    async with run_console(cluster, cluster=world.own) as console, async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program.program, env=dict(program.environment))
        context = await browser.new_context(base_url=console.url, viewport={"width": 1440, "height": 900})
        page = await context.new_page()
        page.set_default_timeout(_MS)
        await context.request.post("/api/session", data={"token": token}, headers={"Origin": console.url})
        began = time.monotonic()
        await page.goto("/")
        await page.wait_for_selector(".cell.kind-node", timeout=_MS)
        print(f"first nodes on the page         {time.monotonic() - began:6.2f} s")
        await page.wait_for_function("document.querySelector('.lane-nodes .tally')?.textContent.length > 0")
        print(f"cells in the document           {await page.locator('.cell.kind-node').count():6d}")
        await frames(page, "scrolling from end to end")
        await frames(page, "the same while nodes change", world)
        await page.evaluate("document.querySelector('.lane-nodes .lane-body').scrollTop = 0")
        await latencies(page, world, changes)
        await browser.close()


async def latencies(page: Page, world: PageWorld, changes: int) -> None:
    """Change one visible node repeatedly."""
    node = world.node(world.count // 2)
    cell = f'[data-id="node/{node}"]'
    await page.get_by_role("searchbox").fill(node)
    await page.wait_for_selector(cell)
    took: list[float] = []
    for number in range(changes):
        value, label = (("false", "Not opted in"), ("true", "Waiting"))[number % 2]
        seen = asyncio.ensure_future(page.evaluate(_SEEN, [cell, label]))
        await asyncio.sleep(0.2)
        began = time.monotonic()
        patch = {"metadata": {"annotations": {"kwasm.sh/kwasm-node": value}}}
        await asyncio.to_thread(_patch, world, node, patch)
        if not await seen:
            raise SystemExit(f"{node} was not seen to be {label} within 30 s")
        took.append(time.monotonic() - began)
    ordered = sorted(took)
    print(
        f"a change is on the page after   {statistics.median(took):6.3f} s, "
        f"p90 {ordered[int(0.9 * len(took))]:.3f} s, at most {ordered[-1]:.3f} s ({changes} changes)"
    )


def _patch(world: PageWorld, node: str, patch: dict[str, Any]) -> None:
    api = Api.of_kubeconfig(world.kubeconfig)
    api.call("PATCH", f"/api/v1/nodes/{node}", patch)
    api.close()


async def frames(page: Page, what: str, changing: PageWorld | None = None) -> None:
    """Print how long frames are while the list is scrolled, and while nodes change if a world is given."""
    stop = threading.Event()
    writer = asyncio.to_thread(_change_on, changing, stop) if changing is not None else None
    writing = asyncio.ensure_future(writer) if writer is not None else None
    session = await page.context.new_cdp_session(page)
    await session.send("Performance.enable", {"timeDomain": "threadTicks"})  # not what others take
    before = await costs(session)
    found: list[float] = await page.evaluate(_FRAMES, 5)
    after = await costs(session)
    stop.set()
    changed = f", {await writing} changes" if writing is not None else ""
    ordered = sorted(found)
    late = sum(item > 50 for item in found)
    print(
        f"{what:<31} {statistics.median(found):6.1f} ms a frame, p99 {ordered[int(0.99 * len(found))]:.1f} ms, "
        f"at most {ordered[-1]:.1f} ms, {late} of {len(found)} over 50 ms{changed}; "
        + ", ".join(f"{name} {1000 * (after[name] - before[name]) / len(found):.1f} ms" for name in _COSTS)
        + " of a frame"
    )


async def costs(session: CDPSession) -> dict[str, float]:
    """Return what the page's thread spent so far, in seconds: the rest of a frame is the browser's drawing."""
    metrics = {item["name"]: item["value"] for item in (await session.send("Performance.getMetrics"))["metrics"]}
    return {name: metrics[metric] for name, metric in _COSTS.items()}


def _change_on(world: PageWorld, stop: threading.Event) -> int:
    api, number = Api.of_kubeconfig(world.kubeconfig), 0
    while not stop.is_set():
        number += 1
        patch = {"metadata": {"annotations": {"kwasm.sh/kwasm-node": "false" if number % 2 else "true"}}}
        api.call("PATCH", f"/api/v1/nodes/{world.node(10 + number // 2 % 50)}", patch)
    api.close()
    return number


def main() -> None:
    """Make the world and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--changes", type=int, default=20)
    options = parser.parse_args()
    print(describe())
    with owned_cluster() as cluster:
        define_kinds(cluster, Quiet())
        api = Api.of_kubeconfig(Path(cluster.kubeconfig))
        ApplicationsKind(api).ensure()
        namespace = f"bench-{secrets.token_hex(3)}"
        place = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        api.call("POST", "/api/v1/namespaces", place)
        world, accounts = PageWorld(Path(cluster.kubeconfig), "n", namespace, api), Accounts(api, namespace)
        world.fill(options.nodes)
        token = accounts.create("jane")
        accounts.allow("jane", READ_ALL)
        print(f"nodes                           {options.nodes:6d}")
        asyncio.run(measure(cluster, world, token, options.changes))
        api.close()


if __name__ == "__main__":
    main()
