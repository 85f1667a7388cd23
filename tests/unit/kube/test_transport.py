"""A watch whose request got lost is noticed long before it counts as stalled; a late write asks once more."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from trellis.kube.access import Access
from trellis.kube.errors import NotLeading
from trellis.kube.timings import ConnectionTimings
from trellis.kube.transport import ConnectionFailed, HttpRequest, HttpTransport
from trellis.kube.watch_timings import WatchTimings

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: c
contexts: [{{name: c, context: {{cluster: k, user: u}}}}]
clusters: [{{name: k, cluster: {{server: "{server}"}}}}]
users: [{{name: u, user: {{token: s3cret}}}}]
"""


async def test_a_watch_that_is_not_answered_fails_in_time(tmp_path: Path) -> None:
    forgotten = asyncio.Event()

    async def never(_: web.Request) -> web.Response:
        await forgotten.wait()
        return web.Response()

    application = web.Application()
    application.router.add_get("/{path:.*}", never)
    async with TestServer(application) as server:
        path = tmp_path / "kubeconfig"
        path.write_text(KUBECONFIG.format(server=str(server.make_url("")).rstrip("/")))
        transport = await HttpTransport.open(Access(path), "test", ConnectionTimings(open=0.2))
        began = time.monotonic()
        with pytest.raises(ConnectionFailed, match=r"http://127\.0\.0\.1"):
            async with transport.stream(HttpRequest("GET", "/api/v1/nodes"), idle_seconds=90):
                pass
        assert time.monotonic() - began < 30
        await transport.close()
        forgotten.set()


def test_a_watch_is_reopened_twice_before_it_counts_as_stalled() -> None:
    """After an outage the probes answer again at once; a watch whose last try began before needs one more."""
    timings = WatchTimings()
    assert 2 * (ConnectionTimings().open + timings.backoff_most) < timings.stalled_after


@asynccontextmanager
async def listening(tmp_path: Path) -> AsyncIterator[tuple[HttpTransport, list[bytes]]]:
    """A transport, and the bodies that its server got."""
    got: list[bytes] = []

    async def take(request: web.Request) -> web.Response:
        got.append(await request.read())
        assert request.content_type == "application/merge-patch+json"
        return web.json_response({})

    application = web.Application(client_max_size=2**24)
    application.router.add_route("*", "/{path:.*}", take)
    async with TestServer(application) as server:
        path = tmp_path / "kubeconfig"
        path.write_text(KUBECONFIG.format(server=str(server.make_url("")).rstrip("/")))
        transport = await HttpTransport.open(Access(path), "test")
        yield transport, got
        await transport.close()


def patch(body: bytes, check: Callable[[], None] | None = None) -> HttpRequest:
    return HttpRequest("PATCH", "/api/v1/nodes/a", body=body, content_type="application/merge-patch+json", check=check)


async def test_a_write_is_asked_about_when_it_has_a_connection_and_not_a_byte_of_it_has_left(tmp_path: Path) -> None:
    leading = True

    def check() -> None:
        if not leading:
            raise NotLeading("the lease is gone")

    async with listening(tmp_path) as (transport, got):
        await transport.send(patch(b"{}", check))
        waiting = asyncio.create_task(transport.send(patch(b"{}", check)))
        await asyncio.sleep(0)  # it is under way
        leading = False
        with pytest.raises(NotLeading, match="the lease is gone"):
            await waiting
        leading = True
        await transport.send(patch(b'{"last":1}', check))
        assert got == [b"{}", b'{"last":1}']


async def test_a_large_body_leaves_whole(tmp_path: Path) -> None:
    body = bytes(range(256)) * 2**13 + b"end"
    async with listening(tmp_path) as (transport, got):
        await transport.send(patch(body))
        assert got == [body]


async def test_path_and_query_arrive_as_they_are_given(tmp_path: Path) -> None:
    async def echo(request: web.Request) -> web.Response:
        return web.json_response([request.rel_url.raw_path, dict(request.query)])

    application = web.Application()
    application.router.add_get("/{path:.*}", echo)
    async with TestServer(application) as server:
        path = tmp_path / "kubeconfig"
        path.write_text(KUBECONFIG.format(server=str(server.make_url("")).rstrip("/")))
        transport = await HttpTransport.open(Access(path), "test")
        query = {"labelSelector": "a in (b,c),d!=e", "continue": "x+/=;&%2F#?", "resourceVersion": ""}
        reply = await transport.send(HttpRequest("GET", "/api/v1/a%2Fb%25", query))
        assert json.loads(reply.body) == ["/api/v1/a%2Fb%25", query]
        await transport.close()
