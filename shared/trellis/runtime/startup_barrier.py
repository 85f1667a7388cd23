"""Has the services of one process read first, and work then: what one of them does must not hold up what others read.

In: word of each service that it has read what there is, or reads nothing for now. Out: a wait before first decisions.
Made by ``trellis.runtime.run`` for the services of a process, called by ``trellis.runtime.service``. Why: they share an
event loop. Where much is new, who has read begins to write by the thousand, and the process was ready only when that
had let the last one finish its lists. Invariants: nobody waits longer than ``seconds``, and only as the process begins:
once all have read, or one has waited in vain, nobody waits any more.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from typing import Final

from trellis.config.timings import ProcessTimings


class Together:
    """The services that a process begins with."""

    def __init__(self, services: Iterable[str], seconds: float = ProcessTimings().together) -> None:
        self._reading: Final = set(services)
        self._seconds: Final = seconds
        self._begun: Final = asyncio.Event()
        self._look()

    def has_read(self, service: str) -> None:
        """Say that a service has read what it decides on, or that another replica does its work."""
        self._reading.discard(service)
        self._look()

    async def wait(self, service: str) -> None:
        """Say so, and wait until that holds for all, or took too long."""
        self.has_read(service)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._seconds):
                await self._begun.wait()
        self._begun.set()

    def _look(self) -> None:
        if not self._reading:
            self._begun.set()
