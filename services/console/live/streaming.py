"""Streams of server-sent events with back-pressure; a page that reads too slowly is disconnected.

In: a request, messages. Out: ``text/event-stream``. Called by routes. Invariants: at most one message waits for a page,
however slow it is; a stream ends, with a reason, at its maximum duration, when the viewer's identity becomes invalid,
and when the process ends; a closed page is detected at the next heartbeat.
Why no library: existing ones add a ping and have no write timeout; the rest of such a library is these lines.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from typing import Final, NoReturn

from aiohttp import web

from console.domain.limits import MESSAGE_BYTES
from console.domain.messages import HEARTBEAT, delta_messages, message, parse_message_id
from console.live.viewer_registry import Visit
from console.timings import Timings
from trellis.read_model.entities.journal import Delta
from trellis.read_model.live.live_model import LiveModel
from trellis.telemetry import Telemetry

_RETRY: Final = b"retry: 1000\n\n"
_HEADERS: Final = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",  # otherwise nginx buffers
}


class StreamEndedError(Exception):
    """The page receives no more messages; the text is the reason, one word."""


class Outlet:
    """One open stream."""

    def __init__(
        self, request: web.Request, visit: Visit, stopping: asyncio.Event, *, seconds: float, timings: Timings
    ) -> None:
        """Create a stream of at most ``seconds``."""
        self._request = request
        self._visit = visit
        self._stopping = stopping
        self._timings: Final = timings
        self._response = web.StreamResponse(headers=_HEADERS)
        self._written_at = asyncio.get_running_loop().time()
        self._until = self._written_at + min(seconds, timings.stream)

    @property
    def response(self) -> web.StreamResponse:
        """The response of the handler."""
        return self._response

    async def open(self) -> None:
        """Send the headers."""
        await self._response.prepare(self._request)
        await self.write([_RETRY])

    async def write(self, pieces: Iterable[bytes]) -> None:
        """Send messages in order; raises StreamEndedError if the page is closed or reads too slowly."""
        for piece in pieces:
            try:
                async with asyncio.timeout(self._timings.slow):
                    await self._response.write(piece)
            except TimeoutError:
                self.abort()
                raise StreamEndedError("slow") from None
            except (ConnectionError, OSError):
                raise StreamEndedError("closed") from None
            self._written_at = asyncio.get_running_loop().time()

    def abort(self) -> None:
        """Close the connection at once, and drop unsent data."""
        if self._request.transport is not None:
            self._request.transport.abort()

    async def wait(self, changed: asyncio.Event) -> None:
        """Wait for a change, with :meth:`check` in between; raises StreamEndedError after the last message."""
        waiting = {
            asyncio.create_task(changed.wait()),
            asyncio.create_task(self._visit.over.wait()),
            asyncio.create_task(self._stopping.wait()),
        }
        try:
            while not changed.is_set():
                await self.check()
                due = min(self._until, self._written_at + self._timings.heartbeat)
                seconds = max(0.0, due - asyncio.get_running_loop().time())
                await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            await self.check()
        finally:
            for task in waiting:
                task.cancel()

    async def check(self) -> None:
        """End the stream if it is due; send a heartbeat if nothing was sent for a while.

        Callers also call it for each change: with frequent changes of which none is for this page, only the heartbeat
        shows that the connection is alive.
        """
        for over, reason in (
            (self._visit.over.is_set(), self._visit.reason),
            (self._stopping.is_set(), "stopping"),
            (asyncio.get_running_loop().time() >= self._until, "again"),
        ):
            if over:
                await self.end(reason)
        if asyncio.get_running_loop().time() - self._written_at >= self._timings.heartbeat:
            await self.write([HEARTBEAT])

    async def end(self, reason: str) -> NoReturn:
        """Send the reason for the end of the stream, and raise StreamEndedError."""
        await self.write([message("bye", {"reason": reason})])
        raise StreamEndedError(reason)


@contextlib.asynccontextmanager
async def counted(telemetry: Telemetry, stream: str) -> AsyncIterator[None]:
    """Count a stream while the block runs, and the reason if it is cut."""
    gauge = telemetry.metrics.console_streams.labels(telemetry.service, stream)
    gauge.inc()
    try:
        yield
    except StreamEndedError as cut:
        telemetry.metrics.console_streams_cut_total.labels(telemetry.service, stream, str(cut)).inc()
    finally:
        gauge.dec()


async def send_model(outlet: Outlet, live_model: LiveModel, last_id: str) -> None:
    """Send the model from the page's last id on, until the stream ends; raises StreamEndedError."""
    journal, known = live_model.journal, parse_message_id(last_id)
    revision = known[1] if known is not None and known[0] == live_model.epoch else 0
    resumed: Delta | None = journal.since(revision) if revision else None
    await outlet.write([message("hello", {"epoch": live_model.epoch, "full": resumed is None})])
    delta = resumed or journal.since(0)
    while True:
        changed = live_model.changes.next
        if delta is not None and (delta.revision > delta.since or not delta.since):
            await outlet.write(delta_messages(live_model.epoch, delta, MESSAGE_BYTES))
            revision = delta.revision
        if live_model.over:
            await outlet.end("again")
        if journal.revision == revision:
            await outlet.wait(changed)
        delta = journal.since(revision) if revision else journal.since(0)
        if delta is None:
            # The page was slower than the history of the journal: send the full model.
            await outlet.write([message("hello", {"epoch": live_model.epoch, "full": True})])
            delta = journal.since(0)
