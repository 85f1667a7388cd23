"""Wraps the pull subscription of the NATS client for the pull loop of FastStream, and observes both.

In: calls of the loop. Out: messages, signs of progress, and at the end the messages that were received but not handled.
Called by FastStream instead of the subscription that it created. FastStream ignores errors in its loop, and drops
fetched messages when it stops. Invariants: after a rejected request the next one is delayed; a message is handed over
when it arrives; every received message is handled or returned.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Final

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js import JetStreamContext

from trellis.bus.consume.pulling import more
from trellis.bus.consume.staleness import Staleness
from trellis.bus.timings import FetchTimings
from trellis.telemetry import get_logger

_NO_MORE: Final = {"Status": "408"}

_log = get_logger(__name__)


class PullLoop:
    """The replacement of the pull subscription; the loop of FastStream calls ``fetch`` and ``unsubscribe``."""

    def __init__(
        self,
        subscription: JetStreamContext.PullSubscription,
        staleness: Staleness,
        timings: FetchTimings = FetchTimings(),
    ) -> None:
        self._timings = timings
        self._subscription = subscription
        self._client: Client = subscription._nc  # noqa: SLF001 (no public accessor)
        self._inbox: Subscription = subscription._sub  # noqa: SLF001
        self._staleness = staleness
        self._under_way: asyncio.Task[list[Msg]] | None = None
        self._delivered = 0
        self._requested_at = 0.0
        self._untaken: dict[str, Msg] = {}
        self._ending = False

    async def fetch(self, batch: int, timeout: float) -> list[Msg]:  # noqa: ASYNC109 (FastStream's call)
        """Return messages as soon as they arrive, none after ``timeout`` seconds; does not raise errors of NATS."""
        if self._ending:
            await asyncio.get_running_loop().create_future()
        began = time.monotonic()
        messages = await self._once(batch, timeout)
        self._staleness.went_round()
        if messages:
            self._staleness.received()
        elif time.monotonic() - began < self._timings.too_soon:
            await asyncio.sleep(self._timings.too_soon)
        return messages

    async def unsubscribe(self) -> None:
        """End the subscription at the server."""
        await self._subscription.unsubscribe()

    def took(self, message: Msg) -> None:
        """Record that this message is being handled."""
        self._untaken.pop(message.reply, None)

    async def finish(self) -> None:
        """Stop fetching. Messages that the server has already sent are still handed over."""
        self._ending = True
        await self._last_batch()
        # Also between two fetches: the last one may have ended with its first message while more are in transit.
        await self._hush()
        task = self._under_way
        if task is not None and not task.done():
            if self._subscription.delivered != self._delivered:
                # The server would report the end of the batch, but the subscription has ended there.
                self._inbox._pending_queue.put_nowait(Msg(self._client, headers=_NO_MORE))  # noqa: SLF001
                await asyncio.wait({task}, timeout=self._timings.last)
            task.cancel()
        self._untaken |= {message.reply: message for message in self._leftovers()}

    async def _last_batch(self) -> None:
        """Wait while the server is likely to be sending.

        The server queues a whole batch before it sends the first message, and drops the queue when the subscription
        ends: these messages count as delivered and are redelivered a minute later. A request that was just sent or
        partly answered completes within milliseconds; a waiting request may be ended at any time.
        """
        task, ends = self._under_way, time.monotonic() + self._timings.last
        while task is not None and not task.done() and self._client.is_connected and time.monotonic() < ends:
            if self._subscription.delivered != self._delivered:
                await asyncio.wait({task}, timeout=ends - time.monotonic())
            elif (young := self._requested_at + self._timings.settles - time.monotonic()) > 0:
                await asyncio.wait({task}, timeout=min(young, self._timings.settles / 10))
            else:
                return

    async def _hush(self) -> None:
        """End the subscription at the server and wait for messages in transit, which unsubscribing here would drop."""
        if not self._client.is_connected:
            return
        with contextlib.suppress(nats.errors.Error, OSError):
            await self._client._send_unsubscribe(self._inbox._id)  # noqa: SLF001 (no public API)
            await self._client.flush(self._timings.last)

    def untaken(self) -> list[Msg]:
        """Return the received messages that were not handled; called after the loop of FastStream has stopped."""
        messages, self._untaken = list(self._untaken.values()), {}
        return messages

    async def _once(self, batch: int, timeout: float) -> list[Msg]:  # noqa: ASYNC109
        self._delivered, self._requested_at = self._subscription.delivered, time.monotonic()
        # A separate task: FastStream may cancel its loop after messages have arrived.
        self._under_way = asyncio.create_task(self._read(batch, timeout))
        self._under_way.add_done_callback(self._came)
        try:
            return await asyncio.shield(self._under_way)
        except nats.errors.TimeoutError:
            return []
        except nats.errors.Error as error:
            _log.debug("message fetch failed", error=str(error))
            return []

    async def _read(self, batch: int, timeout: float) -> list[Msg]:  # noqa: ASYNC109
        # Read here: the client would keep them while it waits for more, and lose them when it is cancelled.
        if found := self._leftovers():
            return found
        found = await self._subscription.fetch(1, timeout)
        if self._ending or not self._client.is_connected:
            return found
        return found + await more(self._subscription, batch - len(found), self._timings.more)

    def _leftovers(self) -> list[Msg]:
        """Return the messages that arrived after their fetch had ended."""
        queue, found = self._inbox._pending_queue, []  # noqa: SLF001
        while not queue.empty():
            message = queue.get_nowait()
            self._inbox._pending_size -= len(message.data)  # noqa: SLF001
            queue.task_done()
            if "Status" not in (message.headers or {}):
                found.append(message)
        return found

    def _came(self, task: asyncio.Task[list[Msg]]) -> None:
        if not task.cancelled() and task.exception() is None:
            self._untaken = {message.reply: message for message in task.result()}
