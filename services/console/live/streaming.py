"""Streams of server-sent events: written as fast as a page takes them, and ended when it takes nothing.

In: a request, messages. Out: ``text/event-stream``. Called by routes. Invariants: no more than one message waits for a
page, however slow it is; a stream ends after a while, when its viewer is nobody any more, and when the process ends,
and says why; a page that is gone is noticed at the next heartbeat.
Why no library: what there is adds a ping and knows no reader who is slow; the rest of it is these lines.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from typing import Final, NoReturn

from aiohttp import web

from console.domain.limits import PIECE_BYTES
from console.domain.pieces import HEARTBEAT, delta_messages, message, read_mark
from console.live.viewer_registry import Visit
from console.timings import Timings
from trellis.read_model.entities.journal import Delta
from trellis.read_model.live.audience import Audience
from trellis.telemetry import Telemetry

_RETRY: Final = b"retry: 1000\n\n"
_HEADERS: Final = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",  # nginx would wait for more
}


class CutError(Exception):
    """The page takes nothing more; the text is the reason, one word."""


class Outlet:
    """One open stream."""

    def __init__(
        self, request: web.Request, visit: Visit, stopping: asyncio.Event, *, seconds: float, timings: Timings
    ) -> None:
        """Make one that ends after so many ``seconds`` at most."""
        self._request = request
        self._visit = visit
        self._stopping = stopping
        self._timings: Final = timings
        self._response = web.StreamResponse(headers=_HEADERS)
        self._said = asyncio.get_running_loop().time()
        self._until = self._said + min(seconds, timings.stream)

    @property
    def response(self) -> web.StreamResponse:
        """What the handler returns."""
        return self._response

    async def open(self) -> None:
        """Send the head."""
        await self._response.prepare(self._request)
        await self.write([_RETRY])

    async def write(self, pieces: Iterable[bytes]) -> None:
        """Send messages, one after another; raises CutError if the page is gone, or takes nothing for too long."""
        for piece in pieces:
            try:
                async with asyncio.timeout(self._timings.slow):
                    await self._response.write(piece)
            except TimeoutError:
                self.abort()
                raise CutError("slow") from None
            except (ConnectionError, OSError):
                raise CutError("gone") from None
            self._said = asyncio.get_running_loop().time()

    def abort(self) -> None:
        """Let go of the connection at once, with what it has not taken."""
        if self._request.transport is not None:
            self._request.transport.abort()

    async def wait(self, news: asyncio.Event) -> None:
        """Wait for news, as :meth:`check` meanwhile; raises CutError once the stream is to end, having said so."""
        waiting = {
            asyncio.create_task(news.wait()),
            asyncio.create_task(self._visit.over.wait()),
            asyncio.create_task(self._stopping.wait()),
        }
        try:
            while not news.is_set():
                await self.check()
                due = min(self._until, self._said + self._timings.heartbeat)
                seconds = max(0.0, due - asyncio.get_running_loop().time())
                await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            await self.check()
        finally:
            for task in waiting:
                task.cancel()

    async def check(self) -> None:
        """End the stream if it is time to; send a heartbeat if nothing was sent for a while.

        To be asked with every news, too: where these come all the time and none of them is for this page, nothing else
        tells it that somebody is there.
        """
        for over, reason in (
            (self._visit.over.is_set(), self._visit.why),
            (self._stopping.is_set(), "stopping"),
            (asyncio.get_running_loop().time() >= self._until, "again"),
        ):
            if over:
                await self.end(reason)
        if asyncio.get_running_loop().time() - self._said >= self._timings.heartbeat:
            await self.write([HEARTBEAT])

    async def end(self, reason: str) -> NoReturn:
        """Say why the stream ends, and raise CutError."""
        await self.write([message("bye", {"reason": reason})])
        raise CutError(reason)


@contextlib.asynccontextmanager
async def counted(telemetry: Telemetry, stream: str) -> AsyncIterator[None]:
    """Count a stream while the block runs, and why it was cut."""
    gauge = telemetry.metrics.console_streams.labels(telemetry.service, stream)
    gauge.inc()
    try:
        yield
    except CutError as cut:
        telemetry.metrics.console_streams_cut_total.labels(telemetry.service, stream, str(cut)).inc()
    finally:
        gauge.dec()


async def send_model(outlet: Outlet, audience: Audience, last_id: str) -> None:
    """Send what a viewer sees, from what his page has on, until the stream ends; raises CutError."""
    journal, known = audience.journal, read_mark(last_id)
    revision = known[1] if known is not None and known[0] == audience.epoch else 0
    resumed: Delta | None = journal.since(revision) if revision else None
    await outlet.write([message("hello", {"epoch": audience.epoch, "full": resumed is None})])
    delta = resumed or journal.since(0)
    while True:
        news = audience.news.next
        if delta is not None and (delta.revision > delta.since or not delta.since):
            await outlet.write(delta_messages(audience.epoch, delta, PIECE_BYTES))
            revision = delta.revision
        if audience.over:
            await outlet.end("again")
        if journal.revision == revision:
            await outlet.wait(news)
        delta = journal.since(revision) if revision else journal.since(0)
        if delta is None:
            # It was slow for as long as it takes to forget what it has.
            await outlet.write([message("hello", {"epoch": audience.epoch, "full": True})])
            delta = journal.since(0)
