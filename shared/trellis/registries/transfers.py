"""Limits of fetches over the network: concurrency, time and memory.

In: the namespace of a fetch. Out: a ``Transfer``, which sends all requests of one fetch. Called with ``Registry``.
Invariants: a namespace has at most its share of the fetches in progress, and every waiting fetch gets its turn; a fetch
ends in bounded time, also with redirects, errors and answers of one byte per second; only few fetches use much memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from trellis.registries.domain.errors import MOST_BYTES, SourceError, SourceReason
from trellis.registries.timings import FetchTimings
from trellis.registries.web import Answer, Web
from trellis.runtime.fair_share import FairShare

AT_ONCE: Final = 12
"""Concurrent fetches."""
EACH: Final = 3
"""Concurrent fetches per namespace."""
LARGE_BYTES: Final = 2**20
"""Memory of a fetch above which it counts as large."""
LARGE_AT_ONCE: Final = 2
"""Concurrent large fetches, one per namespace; each can use 64 MiB, and an image twice that in addition."""
LEAST_SPEED: Final = 64 * 2**10
"""Received bytes that extend the timeout of a fetch (``FetchTimings.patience``) by one second."""


class Transfers:
    """All network fetches of a process."""

    def __init__(self, web: Web, timings: FetchTimings) -> None:
        self._timings: Final = timings
        self._web = web
        self._at_once = FairShare(AT_ONCE, EACH)
        self._large = FairShare(LARGE_AT_ONCE, 1)

    @asynccontextmanager
    async def begin(self, namespace: str) -> AsyncIterator[Transfer]:
        """Wait until the namespace can start a fetch, and yield its transfer."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._at_once.hold(namespace))
            yield Transfer(self._web, self._large, namespace, stack, self._timings)


class Transfer:
    """The requests of one fetch. It keeps its share of memory until its block ends."""

    def __init__(
        self, web: Web, large: FairShare, namespace: str, stack: AsyncExitStack, timings: FetchTimings
    ) -> None:
        self._timings: Final = timings
        self._web = web
        self._large = large
        self._namespace = namespace
        self._stack = stack
        self._is_large = False
        self._bytes = 0
        self._began = 0.0
        self._timeout = asyncio.Timeout(None)

    @asynccontextmanager
    async def in_time(self, what: str) -> AsyncIterator[None]:
        """Apply the timeout of a fetch of ``what`` to the block.

        Raises:
            SourceError: the fetch exceeded its timeout.
        """
        self._began = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout_at(self._deadline()) as self._timeout:
                yield
        except TimeoutError:
            patience, most = self._timings.patience, self._timings.most
            message = (
                f"cannot fetch {what}: timeout after {self._bytes} bytes: the limit is {patience:g} s and 1 s for each "
                f"{LEAST_SPEED >> 10} KiB, at most {most:g} s"
            )
            raise SourceError(SourceReason.UNAVAILABLE, message) from None

    async def ask(
        self, method: str, url: str, headers: Mapping[str, str] | None = None, *, most: int = MOST_BYTES
    ) -> Answer:
        """Return the answer for an address; raises SourceError."""
        return await self._web.get(url, headers, most=most, method=method, arrived=self._arrived)

    async def grow(self) -> None:
        """Become a large fetch; its timeout is suspended while it waits for this."""
        if self._is_large:
            return
        loop = asyncio.get_running_loop()
        began = loop.time()
        self._timeout.reschedule(None)
        await self._stack.enter_async_context(self._large.hold(self._namespace))
        self._is_large = True
        self._began += loop.time() - began
        self._timeout.reschedule(self._deadline())

    async def _arrived(self, count: int) -> None:
        self._bytes += count
        if self._bytes > LARGE_BYTES:
            await self.grow()
        self._timeout.reschedule(self._deadline())

    def _deadline(self) -> float:
        return self._began + min(self._timings.patience + self._bytes / LEAST_SPEED, self._timings.most)
