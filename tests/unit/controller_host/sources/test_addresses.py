"""Modules from an address: what is asked, where redirects lead, and how long anybody waits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from yarl import URL

from controller_host.module.sources import Sources
from controller_host.timings import SourceTimings
from support.guests.module_sources import LOOPBACK, SHA, WASM, files, world
from support.suite.naming import lacking
from trellis.registries import transfers
from trellis.registries.domain.errors import SourceReason
from trellis.registries.web import Web
from unit.node_installer.servers import Answer


async def test_a_module_from_a_url_matches_its_checksum(tls: Path, tmp_path: Path) -> None:
    async with world(tls, tmp_path, files(x=WASM)) as here:
        assert await here.fetch(url=here.url(), sha256=SHA) == WASM
        refused = await here.refusal(url=here.url("/x.wasm?signature=secret"), sha256="0" * 64)
        assert refused.reason is SourceReason.CHECKSUM_MISMATCH
        assert lacking(refused.message, "0" * 64, SHA) == []
        assert "secret" not in refused.message


async def test_the_machine_itself_is_not_asked_unless_that_is_allowed(tls: Path, tmp_path: Path) -> None:
    async with world(tls, tmp_path, files(x=WASM), allowed=[]) as here:
        port = here.server.host.partition(":")[2]
        for host in ("127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "169.254.169.254"):
            refused = await here.refusal(url=f"https://{host}:{port}/x.wasm", sha256=SHA)
            assert refused.reason is SourceReason.NOT_ALLOWED, host
            assert "TRELLIS_CONTROLLER_SOURCE_NETWORKS" in refused.message
        refused = await here.refusal(oci={"image": here.image(f"sha256:{SHA}")})
        assert refused.reason is SourceReason.NOT_ALLOWED
        assert here.server.requests == []


@pytest.mark.parametrize(
    "target", ["https://169.254.169.254/latest/meta-data", "https://10.96.0.1/", "https://[fe80::1]/"]
)
async def test_a_redirect_leads_nowhere_else(tls: Path, tmp_path: Path, target: str) -> None:
    async with world(tls, tmp_path, files(x=target)) as here:
        assert (await here.refusal(url=here.url(), sha256=SHA)).reason is SourceReason.NOT_ALLOWED


@pytest.mark.parametrize("target", ["http://127.0.0.1/x", "file:///etc/passwd", "gopher://127.0.0.1/"])
async def test_a_redirect_does_not_leave_https(tls: Path, tmp_path: Path, target: str) -> None:
    async with world(tls, tmp_path, files(x=target)) as here:
        refused = await here.refusal(url=here.url(), sha256=SHA)
        assert (refused.reason, "https" in refused.message) == (SourceReason.NOT_ALLOWED, True)


async def test_redirects_are_followed_and_come_to_an_end(tls: Path, tmp_path: Path) -> None:
    async with world(tls, tmp_path, files(a="/b.wasm", b="c.wasm", c=WASM, round="/round.wasm")) as here:
        assert await here.fetch(url=here.url("/a.wasm"), sha256=SHA) == WASM
        refused = await here.refusal(url=here.url("/round.wasm"), sha256=SHA)
        assert lacking(refused.message, "5") == []
        assert len(here.server.requests) == 3 + 6


async def test_too_much_is_not_read_whether_it_is_announced_or_not(
    tls: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = transfers.Transfer.ask
    monkeypatch.setattr(ask, "__kwdefaults__", {"most": len(WASM) - 1})
    async with world(tls, tmp_path, files(x=WASM)) as here:
        assert (await here.refusal(url=here.url(), sha256=SHA)).reason is SourceReason.TOO_LARGE


async def test_an_untrusted_server_is_refused(tls: Path, tmp_path: Path) -> None:
    async with world(tls, tmp_path, files(x=WASM)) as here:
        believing = here.web
        here.web = Web(LOOPBACK)
        await believing.close()
        here.sources = Sources(here.kube.acting_as, here.web, here.folder)
        refused = await here.refusal(url=here.url(), sha256=SHA)
        assert refused.reason is SourceReason.UNAVAILABLE
        assert "certificate verify failed" in refused.message


async def test_a_truncated_or_unreachable_download_is_unavailable(tls: Path, tmp_path: Path) -> None:
    async with world(tls, tmp_path, lambda _: Answer(body=WASM, cut=10)) as here:
        assert (await here.refusal(url=here.url(), sha256=SHA)).reason is SourceReason.UNAVAILABLE
        deleted = here.url()
    (tmp_path / "again").mkdir()
    async with world(tls, tmp_path / "again", files()) as here:
        assert (await here.refusal(url=deleted, sha256=SHA)).reason is SourceReason.UNAVAILABLE
        assert (await here.refusal(url=here.url("/no"), sha256=SHA)).reason is SourceReason.NOT_FOUND


@pytest.mark.parametrize(
    "tarpit",
    [
        lambda held: held.wait() and Answer(404),
        lambda held: Answer(body=WASM, cut=10, held=held),
        lambda held: held.wait(0.15) or Answer(302, headers={"Location": "/next"}),
    ],
    ids=["says nothing", "begins and goes on very slowly", "sends from one slow address to the next"],
)
async def test_a_fetch_ends_in_time_for_any_behaviour_of_the_server(
    tls: Path, tmp_path: Path, tarpit: Callable[[threading.Event], Answer]
) -> None:
    held = threading.Event()
    async with world(tls, tmp_path, lambda _: tarpit(held), timings=SourceTimings(patience=0.4)) as here:
        try:
            async with asyncio.timeout(10):
                refusal = await here.refusal(url=here.url(), sha256=SHA)
            assert refusal.reason is SourceReason.UNAVAILABLE
            assert here.url() in refusal.message
        finally:
            held.set()


async def test_a_server_that_does_not_end_tls_keeps_no_connection(tls: Path, tmp_path: Path) -> None:
    held = threading.Event()

    def connected() -> list[Any]:
        own = psutil.Process().net_connections(kind="tcp")
        return [item for item in own if item.raddr and item.raddr.port == URL(here.url()).port]

    async with world(tls, tmp_path, lambda _: held.wait() and Answer(404), timings=SourceTimings(patience=0.3)) as here:
        try:
            await here.refusal(url=here.url(), sha256=SHA)
            await here.web.close()
            async with asyncio.timeout(10):
                while connected():  # noqa: ASYNC110 - of the kernel
                    await asyncio.sleep(0.01)
        finally:
            held.set()


async def test_a_fast_transfer_has_more_time(tls: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfers, "LEAST_SPEED", 10)
    held = threading.Event()
    asyncio.get_running_loop().call_later(1.5, held.set)
    timings = SourceTimings(patience=0.8)  # enough for TLS on a loaded machine
    async with world(tls, tmp_path, lambda _: Answer(body=WASM, cut=100, held=held), timings=timings) as here:
        assert await here.fetch(url=here.url(), sha256=SHA) == WASM
