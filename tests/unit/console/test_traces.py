"""Traces: errors of Jaeger and invalid spans."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from console.settings import Settings
from support.console.viewers import Users, console, may

TOKEN, TRACE = "t-jane", "a" * 32


@asynccontextmanager
async def looking(jaeger: str) -> AsyncIterator[aiohttp.ClientSession]:
    settings = Settings(cluster="c", jaeger_url=jaeger)
    async with (
        console(Users({TOKEN: ("jane", ())}, [may("jane")]), settings=settings) as world,
        world.logged_in(TOKEN) as page,
    ):
        yield page


@asynccontextmanager
async def jaeger(answer: web.Response) -> AsyncIterator[str]:
    async def serve(_: web.Request) -> web.StreamResponse:
        return answer

    application = web.Application()
    application.router.add_get("/{path:.*}", serve)
    server = TestServer(application)
    await server.start_server()
    try:
        yield str(server.make_url(""))
    finally:
        await server.close()


async def problem(page: aiohttp.ClientSession) -> tuple[int, str]:
    async with page.get(f"/api/traces/{TRACE}") as answer:
        error = (await answer.json())["error"]
        return answer.status, f"{error['what']}, {error['do']}"


def span(**more: Any) -> dict[str, Any]:
    own = {"traceID": TRACE, "spanID": "1", "operationName": "a", "processID": "p", "startTime": 1, "duration": 1}
    return own | more


async def test_an_unreachable_jaeger_is_no_error_of_the_viewer(unused_tcp_port: int) -> None:
    async with looking(f"http://127.0.0.1:{unused_tcp_port}") as page:
        status, message = await problem(page)
    assert status == 502
    assert "TRELLIS_JAEGER_URL" in message
    assert "--jaeger" not in message  # a flag of the command line, and of no use to who looks at a page


@pytest.mark.parametrize(
    "garbage",
    [web.Response(text="<h1>hello</h1>"), web.json_response({"data": 7}), web.Response(status=500)],
    ids=["a page", "another document", "a failure"],
)
async def test_a_server_other_than_jaeger_is_reported(garbage: web.Response) -> None:
    async with jaeger(garbage) as url, looking(url) as page:
        status, message = await problem(page)
    assert (status, "Jaeger at http://127.0.0.1" in message) == (502, True)


@pytest.mark.parametrize("wrong", [{"startTime": 2**63}, {"duration": 2**63}, {"startTime": -5, "duration": -(2**62)}])
async def test_one_span_with_a_time_that_is_none_removes_no_trace(wrong: dict[str, int]) -> None:
    spans = [span(), span(spanID="2", **wrong)]
    document = {"data": [{"spans": spans, "processes": {"p": {"serviceName": "s"}}}]}
    async with (
        jaeger(web.json_response(document)) as url,
        looking(url) as page,
        page.get(f"/api/traces/{TRACE}") as got,
    ):
        assert got.status == 200, await got.text()
        assert len((await got.json())["spans"]) == 2
