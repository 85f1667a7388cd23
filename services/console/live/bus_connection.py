"""The console's connection to the bus: it follows new messages of its cluster, and reads stored ones.

In: the address; the cluster's name, once it is known. Out: items in the feed, stored messages. Called by ``app`` and
``replays``. Invariants: it acknowledges, publishes and deletes nothing; an unavailable bus affects only its views,
which report that; only messages of this cluster are read.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Final

from console.domain.limits import EVENTS_KEPT
from console.http.refusals import RefusedError
from console.live.feed import Feed, dead_letter_item, item_of
from console.timings import Timings
from trellis.bus.accounts.naming import inbox_prefix
from trellis.bus.connection.dial import dial, hang_up
from trellis.bus.connection.user_client import UserClient
from trellis.bus.dead_letters.read import read_dead_letter
from trellis.bus.errors import BusError
from trellis.bus.streams.stream_reader import Start, Stored, StreamReader
from trellis.bus.streams.tail import event_of
from trellis.config.nats_credentials import Credentials
from trellis.events.subjects import (
    CONSOLE,
    STREAM_DEAD,
    STREAM_EVENTS,
    STREAM_LATTICE,
    copies_filter,
    dead_filter,
    events_filter,
)
from trellis.limits.backoff import Attempts, Backoff
from trellis.telemetry import get_logger
from trellis.telemetry.health import Health

_REPLAYED: Final = EVENTS_KEPT // 4
"""Messages of each stream that are read back at start, so that a page shows past messages."""
_ALL: Final = ".>"
_TRY: Final = "retry; `trellis check` checks the bus"

_log = get_logger(__name__)


class BusConnection:
    """One connection to the bus. ``cluster``: resolves to the cluster's name on the bus."""

    def __init__(
        self,
        url: str,
        credentials: Credentials | None,
        cluster: asyncio.Future[str],
        feed: Feed,
        health: Health,
        *,
        timings: Timings = Timings(),  # noqa: B008 - frozen
    ) -> None:
        self._url = url
        self._credentials = credentials
        self._cluster = cluster
        self._feed = feed
        self._health = health
        self._timings: Final = timings
        self._client: UserClient | None = None
        self._unavailable = (
            "the name of the cluster on the bus is unknown",
            "set TRELLIS_CLUSTER, or log in as an account that can get the namespace kube-system",
        )

    @property
    def unavailable(self) -> str:
        """The reason why the bus is unavailable, "" if it is available."""
        return self._unavailable[0]

    async def run(self) -> None:
        """Connect, with unlimited retries, and follow the streams until cancelled."""
        name = await asyncio.shield(self._cluster)
        attempts = Attempts(Backoff(self._timings.bus_first, self._timings.bus_most))
        while True:
            try:
                await self._follow_all(name)
            except* BusError as errors:
                reason = "; ".join(dict.fromkeys(str(error) for error in errors.exceptions))
                self._health.note("bus", reason)
                if self._unavailable[0] != reason:
                    _log.warning("bus unavailable, retrying", error=reason)
                self._unavailable = (reason, _TRY)
            finally:
                await self._close()
            await asyncio.sleep(attempts.next())

    async def past(
        self, stream: str, subjects: str, start: Start, *, headers_only: bool = False
    ) -> AsyncGenerator[tuple[Stored, str], None]:
        """Yield the messages stored now, the oldest first, each with the epoch of its stream.

        ``subjects``: filter of the subject after root and cluster: ``node.ready.>``.

        Raises:
            RefusedError: the bus is unavailable, or forbids the read.
        """
        client = self._client
        if client is None:
            raise RefusedError(503, f"the bus is unavailable: {self._unavailable[0]}", self._unavailable[1])
        wanted = _roots(self._cluster.result())[stream].removesuffix(_ALL) + f".{subjects}"
        reader = StreamReader(client, stream, wanted, start, headers_only=headers_only)
        try:
            async with contextlib.aclosing(reader.past()) as messages:
                async for message in messages:
                    yield message, "" if reader.epoch is None else reader.epoch.token
        except BusError as error:
            raise RefusedError(503, f"the bus is unavailable: {error}", _TRY) from None

    async def _follow_all(self, name: str) -> None:
        inbox = inbox_prefix(CONSOLE, name)
        self._client = await dial(self._url, "trellis-console", self._credentials, inbox=inbox)
        self._health.note("bus", "")
        self._unavailable = ("", "")
        async with asyncio.TaskGroup() as group:
            for stream, subjects in _roots(name).items():
                group.create_task(self._follow(self._client, stream, subjects), name=f"follow {stream}")

    async def _follow(self, client: UserClient, stream: str, subjects: str) -> None:
        dead_letters = stream == STREAM_DEAD
        reader = StreamReader(client, stream, subjects, Start(last=_REPLAYED), headers_only=dead_letters)
        async with contextlib.aclosing(reader.follow()) as messages:
            async for message in messages:
                if message is None:
                    continue
                index = self._feed.newest + 1
                if dead_letters:
                    epoch = "" if reader.epoch is None else reader.epoch.token
                    self._feed.add(dead_letter_item(read_dead_letter(message, epoch), index))
                else:
                    self._feed.add(item_of(event_of(message), index))

    async def _close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await hang_up(client)


def _roots(name: str) -> dict[str, str]:
    """Return the subject filter of this cluster for each stream."""
    return {
        STREAM_EVENTS: events_filter(name),
        STREAM_LATTICE: copies_filter(name),
        STREAM_DEAD: dead_filter(name),
    }
