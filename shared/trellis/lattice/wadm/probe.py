"""Checks that wadm answers: its storage and last messages remain readable after it stopped.

In: a client of wadm, its connection. Out: the reason why wadm does not answer, and notifications of changes. Called by
``lattice_store``. Invariants: one query at a time; a restart of wadm does not count; a NATS user without permission to
query does not count as missing answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from trellis.bus.connection import cancellation
from trellis.lattice.connection.lattice_connection import LatticeConnection, NatsUnavailableError, SilenceError
from trellis.lattice.domain.reading import LatticeDataError
from trellis.lattice.domain.replies import WadmRefusedError
from trellis.lattice.timings import ProbeTimings
from trellis.lattice.wadm.client import Wadm

_SILENT: Final = 3
"""Consecutive queries without an answer that count as an outage; without responders they last two seconds."""
_PROBE_NAME: Final = "trellis-asks"
"""Name of a nonexistent application: wadm also answers for it, and reads only one stream."""


class WadmProbe:
    """Availability of wadm. ``reason``: why it does not answer, for users; "" if it does, or after too few queries."""

    def __init__(
        self,
        wadm: Wadm,
        connection: LatticeConnection,
        changed: Callable[[], None],
        timings: ProbeTimings = ProbeTimings(),
    ) -> None:
        self._timings = timings
        self.reason = ""
        self._wadm = wadm
        self._connection = connection
        self._changed = changed

    async def run(self) -> None:
        """Query wadm until cancelled."""
        failures = 0
        while True:
            cancellation.check()
            await self._connection.there()
            reason = await self._ask()
            failures = failures + 1 if reason and self._connection.since is not None else 0
            if not reason or failures >= _SILENT:
                self._report(reason)
            await asyncio.sleep(self._timings.again if failures else self._timings.every)

    async def _ask(self) -> str:
        """Return why wadm does not answer, "" if it does, or if the query failed for another reason."""
        try:
            await self._wadm.status(_PROBE_NAME)
        except SilenceError as error:
            return str(error)
        except (NatsUnavailableError, LatticeDataError, WadmRefusedError):
            return ""
        return ""

    def _report(self, reason: str) -> None:
        news, self.reason = bool(reason) != bool(self.reason), reason
        if news:
            self._changed()
