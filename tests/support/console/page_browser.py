"""The console's page in a real browser: Debian's Chromium, driven by playwright, in front of a real API server.

In: a running console. Out: windows, with a login. Invariant: a message of the browser, such as a violated policy or an
uncaught error, and a finding of axe fail the test.
"""

from __future__ import annotations

import re
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.async_api import Browser, ConsoleMessage, Page, async_playwright, expect

from trellis_dev.localcluster.building import How
from trellis_dev.localcluster.chromium import Browser as Program
from trellis_dev.localcluster.chromium import chromium, missing
from trellis_dev.localcluster.page import build_page, packages
from trellis_dev.localcluster.page import missing as missing_node
from trellis_dev.localcluster.progress import Quiet

ROOT: Final = Path(__file__).parents[3]
SHOTS: Final = ROOT / "build" / "console"
MS: Final = 40_000
DESKTOP: Final = {"width": 1440, "height": 900}
PHONE: Final = {"width": 390, "height": 844}
_RULES: Final = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
_EXPECTED: Final = re.compile(r"Failed to load resource|net::ERR_")
"""Messages of Chromium about failed responses and an unreachable server, which the page shows itself."""


@pytest.fixture(scope="session")
def built_page() -> Path:
    """The page, built from this checkout; skips without node."""
    if (reason := missing_node()) is not None:
        pytest.skip(reason)
    return build_page(ROOT, How(Quiet(), threading.Event()))


@pytest.fixture(scope="session")
def program() -> Program:
    """A Chromium; skips if none is available."""
    if (reason := missing()) is not None:
        pytest.skip(reason)
    return chromium(How(Quiet(), threading.Event()))


@pytest.fixture
async def chrome(built_page: Path, program: Program) -> AsyncIterator[Chrome]:
    """A browser; an error in one of its windows fails the test."""
    del built_page  # it is there, and that is all
    axe = packages(ROOT, How(Quiet(), threading.Event())) / "axe-core" / "axe.min.js"
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=program.program, env=dict(program.environment), args=["--disable-dev-shm-usage"]
        )
        found = Chrome(browser, axe.read_text(encoding="utf-8"))
        yield found
        await browser.close()
    assert found.complaints == []


@dataclass
class Chrome:
    """One browser process."""

    browser: Browser
    axe: str
    complaints: list[str] = field(default_factory=list)

    @asynccontextmanager
    async def window(
        self, url: str, token: str = "", *, size: dict[str, int] = DESKTOP, scheme: str = "light", **options: Any
    ) -> AsyncIterator[Window]:
        """Open a window; with a token it is logged in and shows the map."""
        context = await self.browser.new_context(
            base_url=url,
            viewport=size,  # type: ignore[arg-type]
            color_scheme=scheme,  # type: ignore[arg-type]
            reduced_motion="reduce",
            **options,
        )
        context.set_default_timeout(MS)
        page = await context.new_page()
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        window = Window(page, self.axe)
        if token:
            answer = await context.request.post("/api/session", data={"token": token}, headers={"Origin": url})
            assert answer.status == 204, await answer.text()
            await window.open("/")
        try:
            yield window
        finally:
            await context.close()

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"} and not _EXPECTED.search(message.text):
            self.complaints.append(message.text)


@dataclass
class Window:
    """One page of a browser."""

    page: Page
    axe: str

    async def open(self, address: str) -> None:
        """Open an address, and wait until the model is loaded."""
        await self.page.goto(address)
        await expect(self.page.locator("main[data-loaded=true]")).to_be_visible(timeout=MS)

    async def sees(self, selector: str, text: str | re.Pattern[str] = "", *, ms: int = MS) -> None:
        found = self.page.locator(selector).first
        await expect(found).to_be_visible(timeout=ms)
        if text:
            await expect(found).to_contain_text(text, timeout=ms)

    async def shot(self, name: str) -> Path:
        """Write a screenshot into the build directory."""
        SHOTS.mkdir(parents=True, exist_ok=True)
        path = SHOTS / f"{name}.png"
        await self.page.screenshot(path=path)
        return path

    async def faults(self) -> list[str]:
        """Return the findings of axe, one line each."""
        # As a browser's own tools would: not by a script of the page, which its policy would refuse.
        await self.page.evaluate(self.axe)
        found = await self.page.evaluate(
            "async (rules) => (await axe.run(document, {runOnly: rules})).violations", _RULES
        )
        return [
            f"{item['id']} ({item['help']}): {node['target']} {node['failureSummary']}"
            for item in found
            for node in item["nodes"][:3]
        ]

    async def in_both(self, name: str) -> None:
        """Check the accessibility and write a screenshot, light and dark."""
        for scheme in ("light", "dark"):
            await self.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            await self.shot(f"{name}-{scheme}")
            assert await self.faults() == [], scheme
