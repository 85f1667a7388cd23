"""Slow, closed and expired pages: each costs one message at most, and gets the reason of its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from console.access.identity import Viewer
from console.access.permissions import ReviewedPermissions
from console.live.streaming import Outlet, StreamEndedError, counted, send_model
from console.live.viewer_registry import Visit
from console.timings import Timings
from support.console.viewers import Page, messages
from support.nats.buses import eventually
from trellis.read_model.entities.journal import Journal
from trellis.read_model.live.live_model import ChangeSignal
from trellis.telemetry import Metrics, setup
from trellis_dev.fakes.fake import FakeKube

TIMINGS = Timings(slow=0.3)


class Source:
    """A live model that has what a test writes."""

    def __init__(self) -> None:
        self.epoch = "ab"
        self.journal = Journal(50)
        self.changes = ChangeSignal()
        self.over = False

    def write(self, **entities: Any) -> None:
        if self.journal.write(entities):
            self.changes.notify()


class Stage:
    """A server whose every request is a stream of the source."""

    def __init__(self) -> None:
        kube = FakeKube()
        self.visit = Visit(Viewer("k", "u"), kube, ReviewedPermissions(kube))
        self.source, self.stopping = Source(), asyncio.Event()
        self.telemetry = setup("console", metrics=Metrics())
        self.cut: list[str] = []
        self.seconds = 60.0
        application = web.Application()
        application.router.add_get("/", self.serve)
        self.server = TestServer(application)

    async def serve(self, request: web.Request) -> web.StreamResponse:
        outlet = Outlet(request, self.visit, self.stopping, seconds=self.seconds, timings=TIMINGS)
        await outlet.open()
        async with counted(self.telemetry, "model"):
            try:
                await send_model(outlet, self.source, request.headers.get("Last-Event-ID", ""))  # type: ignore[arg-type]
            except StreamEndedError as cut:
                self.cut.append(str(cut))
                raise
        return outlet.response


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    found = Stage()
    await found.server.start_server()
    yield found
    found.stopping.set()
    await found.server.close()


async def test_a_page_that_takes_nothing_is_cut_off(stage: Stage) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", stage.server.port, limit=1024)
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    await writer.drain()
    number = 0
    async with asyncio.timeout(20):
        while not stage.cut:
            number += 1
            stage.source.write(a={"text": str(number) + "x" * 500_000})
            await asyncio.sleep(0)
            await asyncio.sleep(0.001)
    assert stage.cut == ["slow"]
    writer.close()
    assert reader is not None


async def test_a_page_that_is_slow_for_a_while_gets_one_difference_of_all(stage: Stage) -> None:
    async with aiohttp.ClientSession() as session, session.get(stage.server.make_url("/")) as response:
        page = Page()
        for number in range(200):
            stage.source.write(a={"n": number})
        async with asyncio.timeout(10):
            async for message in messages(response):
                page.take(message)
                if page.entities.get("a") == {"n": 199}:
                    break
        assert len(page.messages) <= 4


async def test_a_page_with_too_large_a_gap_starts_over(stage: Stage) -> None:
    stage.source.write(a={"n": 0})
    stage.source.write(b={"n": 0})
    for number in range(100):
        stage.source.write(a={"n": number + 1})
    stage.source.write(b=None)
    headers = {"Last-Event-ID": "ab.2"}
    async with (
        aiohttp.ClientSession() as session,
        session.get(stage.server.make_url("/"), headers=headers) as response,
    ):
        page = Page()
        page.entities = {"a": {"n": 0}, "b": {"n": 0}}
        async with asyncio.timeout(10):
            async for message in messages(response):
                page.take(message)
                if message.event == "delta":
                    break
        assert page.messages[0].data["full"] is True
        assert page.entities == {"a": {"n": 100}}


@pytest.mark.parametrize(
    ("end", "reason"), [("over", "login"), ("stopping", "stopping"), ("live_model", "again"), ("late", "again")]
)
async def test_a_stream_states_why_it_ends(stage: Stage, end: str, reason: str) -> None:
    stage.seconds = 0.2 if end == "late" else 60.0
    async with aiohttp.ClientSession() as session, session.get(stage.server.make_url("/")) as response:
        received = []
        async with asyncio.timeout(10):
            async for message in messages(response):
                received.append(message)
                match end:
                    case "over":
                        stage.visit.over.set()
                    case "stopping":
                        stage.stopping.set()
                    case "live_model":
                        stage.source.over = True
                        stage.source.changes.notify()
                    case _:
                        pass
        assert received[-1].event == "bye"
        assert received[-1].data == {"reason": reason}
    await eventually(lambda: stage.cut == [reason])


async def test_a_page_that_left_is_noticed(stage: Stage) -> None:
    async with aiohttp.ClientSession() as session:
        response = await session.get(stage.server.make_url("/"))
        response.close()
    gauge = stage.telemetry.metrics.console_streams.labels("console", "model")

    def has_left() -> bool:
        stage.source.write(a={"n": stage.source.journal.revision})
        return gauge._value.get() == 0

    await eventually(has_left)
