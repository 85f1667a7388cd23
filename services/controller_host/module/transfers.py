"""Fetching over the network for tenants: who may, when, for how long, and with how much memory.

In: the namespace that a fetch is for. Out: a ``Transfer``, by which all requests of that one fetch are made. Called by
``sources``. Invariants: a namespace has no more fetches in progress than its share, and whoever waits gets his turn; a
fetch ends in time, whatever its servers do: redirects, refusals and answers of one byte a second included; only few
have much in memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from controller_host.domain.source_errors import MOST_BYTES, SourceError, SourceReason
from controller_host.module.web import Answer, Web
from controller_host.timings import SourceTimings
from trellis.runtime.fair_share import Shares

AT_ONCE: Final = 12
"""Fetches at a time."""
EACH: Final = 3
"""Of these, for one namespace."""
LARGE_BYTES: Final = 2**20
"""What a fetch may have in memory before it needs to be one of the large ones."""
LARGE_AT_ONCE: Final = 2
"""Each may have 64 MiB, and an image twice that besides; of one namespace there is one at a time."""
LEAST_SPEED: Final = 64 * 2**10
"""Bytes for each of which a fetch has a second more than ``SourceTimings.patience``."""


class Transfers:
    """All fetches over the network of this host."""

    def __init__(self, web: Web, timings: SourceTimings) -> None:
        self._timings: Final = timings
        self._web = web
        self._at_once = Shares(AT_ONCE, EACH)
        self._large = Shares(LARGE_AT_ONCE, 1)

    @asynccontextmanager
    async def begin(self, namespace: str) -> AsyncIterator[Transfer]:
        """Have a fetch in progress while the block runs; waits until the namespace may have one (more)."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._at_once.hold(namespace))
            yield Transfer(self._web, self._large, namespace, stack, self._timings)


class Transfer:
    """The requests of one fetch. What it takes of memory it has until its block ends."""

    def __init__(self, web: Web, large: Shares, namespace: str, stack: AsyncExitStack, timings: SourceTimings) -> None:
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
        """Give the block the time that a fetch has; ``what`` is fetched.

        Raises:
            SourceError: it took longer.
        """
        self._began = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout_at(self._deadline()) as self._timeout:
                yield
        except TimeoutError:
            patience, most = self._timings.patience, self._timings.most
            message = (
                f"cannot fetch {what}: no answer in time, or too slow: it came to {self._bytes} bytes, and a fetch has "
                f"{patience:g} s, one more for each {LEAST_SPEED >> 10} KiB, {most:g} at most"
            )
            raise SourceError(SourceReason.UNAVAILABLE, message) from None

    async def ask(
        self, method: str, url: str, headers: Mapping[str, str] | None = None, *, most: int = MOST_BYTES
    ) -> Answer:
        """Return what is at an address; raises SourceError."""
        return await self._web.get(url, headers, most=most, method=method, arrived=self._arrived)

    async def grow(self) -> None:
        """Be one of those that may have much in memory, from now on; its time stands still while it waits for that."""
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
