"""A watch whose request got lost is noticed long before it counts as deaf."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from trellis.kube.access import Access
from trellis.kube.informer import WatchTimings
from trellis.kube.transport import _OPEN_SECONDS, ConnectionFailed, HttpRequest, HttpTransport

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: c
contexts: [{{name: c, context: {{cluster: k, user: u}}}}]
clusters: [{{name: k, cluster: {{server: "{server}"}}}}]
users: [{{name: u, user: {{token: s3cret}}}}]
"""


async def test_a_watch_that_is_not_answered_fails_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trellis.kube.transport._OPEN_SECONDS", 0.2)
    forgotten = asyncio.Event()

    async def never(_: web.Request) -> web.Response:
        await forgotten.wait()
        return web.Response()

    application = web.Application()
    application.router.add_get("/{path:.*}", never)
    async with TestServer(application) as server:
        path = tmp_path / "kubeconfig"
        path.write_text(KUBECONFIG.format(server=str(server.make_url("")).rstrip("/")))
        transport = await HttpTransport.open(Access(path), "test")
        began = time.monotonic()
        with pytest.raises(ConnectionFailed, match=r"no answer from http://127\.0\.0\.1"):
            async with transport.stream(HttpRequest("GET", "/api/v1/nodes"), idle_seconds=90):
                pass
        assert time.monotonic() - began < 30
        await transport.close()
        forgotten.set()


def test_a_watch_is_opened_twice_over_before_it_counts_as_deaf() -> None:
    """After an outage the probes answer again at once; a watch whose last try began before needs one more."""
    timings = WatchTimings()
    assert 2 * (_OPEN_SECONDS + timings.backoff_most) < timings.deaf
