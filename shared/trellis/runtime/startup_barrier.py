"""Delays the first decisions of the services in one process until all have read their lists.

In: a report of each service that it has read its lists, or cannot read them now. Out: a wait before the first
decisions. Created by ``trellis.runtime.run`` for the services of a process, called by ``trellis.runtime.service``.
Reason: the services share an event loop, and thousands of first writes of one would delay the lists of the remaining
services and the readiness of the process. Invariants: no wait exceeds ``seconds``; after all services have read, or one
wait timed out, no service waits again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from typing import Final

from trellis.config.timings import ProcessTimings


class StartupBarrier:
    """The startup barrier of the services of a process."""

    def __init__(self, services: Iterable[str], seconds: float = ProcessTimings().barrier) -> None:
        self._reading: Final = set(services)
        self._seconds: Final = seconds
        self._started: Final = asyncio.Event()
        self._look()

    def has_read(self, service: str) -> None:
        """Record that a service has read its lists, or that another replica does its work."""
        self._reading.discard(service)
        self._look()

    async def wait(self, service: str) -> None:
        """Record that a service has read its lists, and wait for all services or the timeout."""
        self.has_read(service)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._seconds):
                await self._started.wait()
        self._started.set()

    def _look(self) -> None:
        if not self._reading:
            self._started.set()
