"""Concurrent fetches and their order: no namespace waits for another, no file for a name."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from controller_host.module.sources import ModuleRequest, Sources
from controller_host.timings import SourceTimings
from support.guests.module_sources import SHA, USER, WASM, files, world
from trellis.crds.wasm_controllers import Module
from trellis.registries import transfers, web
from trellis.registries.web import Web
from trellis_dev.fakes.fake import FakeKube


class Busy(Web):
    """Counts requests that are under way; what ends with ``held`` waits until it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.busy: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.let = asyncio.Event()

    async def get(self, url: str, *_: Any, **__: Any) -> web.Answer:
        whose = url.rpartition("/")[2]
        for item in (whose, ""):
            self.busy[item] += 1
            self.most[item] = max(self.most[item], self.busy[item])
        try:
            await (self.let.wait() if whose.endswith("held") else asyncio.sleep(0.005))
        finally:
            self.busy.subtract((whose, ""))
        return web.Answer(200, {}, WASM)


async def test_a_namespace_fetches_no_more_at_a_time_than_its_share_and_all_no_more_than_there_is() -> None:
    web_ = Busy()
    here = Sources(FakeKube().acting_as, web_, None)

    async def fetch(namespace: str) -> bytes:
        module = Module.model_validate({"url": f"https://example.com/{namespace}", "sha256": SHA})
        async with here.turn(ModuleRequest(namespace, module, USER)) as item:
            return await item.module()

    held = [asyncio.create_task(fetch("held")) for _ in range(20)]
    async with asyncio.timeout(10):
        await asyncio.gather(*(fetch(f"team-{number % 8}") for number in range(80)))
    assert web_.most["held"] == web_.busy["held"] == transfers.EACH
    assert web_.most["team-1"] <= transfers.EACH
    assert web_.most[""] == transfers.AT_ONCE
    web_.let.set()
    assert await asyncio.gather(*held) == [WASM] * 20
    await here.close()


async def test_a_cancelled_waiter_leaves_the_share_to_the_others() -> None:
    web_ = Busy()
    here = Sources(FakeKube().acting_as, web_, None)

    async def fetch(name: str) -> bytes:
        module = Module.model_validate({"url": f"https://example.com/{name}", "sha256": SHA})
        async with here.turn(ModuleRequest("team", module, USER)) as item:
            return await item.module()

    held = [asyncio.create_task(fetch("held")) for _ in range(2 * transfers.EACH)]
    async with asyncio.timeout(5):
        while here._transfers._at_once.waiting < transfers.EACH:  # noqa: ASYNC110 - has no event
            await asyncio.sleep(0)
    for task in held:
        task.cancel()
    await asyncio.gather(*held, return_exceptions=True)
    async with asyncio.timeout(5):
        assert await fetch("good") == WASM
    await here.close()


async def test_unresolvable_names_delay_no_other_name_and_no_file(
    tls: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve, let, requested = socket.getaddrinfo, threading.Event(), threading.Semaphore(0)

    def slow(host: str, *arguments: Any, **more: Any) -> Any:
        if host == "tarpit.example":
            requested.release()
            let.wait()
        return resolve("127.0.0.1", *arguments, **more)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    async with world(tls, tmp_path, files(x=WASM), timings=SourceTimings(patience=5.0)) as here:
        module = Module.model_validate({"url": "https://tarpit.example/x.wasm", "sha256": SHA})

        async def fetch(namespace: str) -> None:
            async with here.sources.turn(ModuleRequest(namespace, module, USER)) as item:
                await item.module()

        names = [f"team-{number}" for number in range(transfers.AT_ONCE // transfers.EACH - 1)]
        held = [asyncio.create_task(fetch(name)) for name in names * transfers.EACH]
        try:
            async with asyncio.timeout(10):
                for _ in held:
                    while not requested.acquire(blocking=False):  # noqa: ASYNC110 - of a thread
                        await asyncio.sleep(0.005)
                port = here.server.host.rpartition(":")[2]
                refusal = await here.refusal(url=f"https://good.example:{port}/x.wasm", sha256=SHA)
                assert "certificate verify failed" in refusal.message, (
                    "it got as far as the server, whose certificate is for another"
                )
                (here.folder / "x.wasm").write_bytes(WASM)
                assert await here.fetch(path="x.wasm", sha256=SHA) == WASM
        finally:
            let.set()
            for task in held:
                task.cancel()
            await asyncio.gather(*held, return_exceptions=True)


async def test_few_large_files_are_in_memory_and_waiting_for_memory_does_not_count_as_time(
    tls: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfers, "LARGE_BYTES", len(WASM) - 1)
    async with world(tls, tmp_path, files(x=WASM), timings=SourceTimings(patience=0.3)) as here:
        requested = ModuleRequest("team", Module.model_validate({"url": here.url(), "sha256": SHA}), USER)
        async with here.sources.turn(requested) as first:
            assert await first.module() == WASM
            second = asyncio.create_task(here.fetch(url=here.url(), sha256=SHA))
            done, _ = await asyncio.wait({second}, timeout=0.6)
            assert not done, "another of its namespace has much in memory"
            other = ModuleRequest("other", requested.module, USER)
            async with here.sources.turn(other) as third:
                assert await third.module() == WASM
        assert await second == WASM
