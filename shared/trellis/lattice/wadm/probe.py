"""Checks that a wadm answers: its storage and last messages remain readable after it stopped.

In: clients of wadm for its lattices, their connection. Out: the reason why wadm does not answer, and notifications of
changes. Called by ``lattice_store``. Invariants: one query at a time for all lattices of a wadm, which take turns; a
restart of wadm does not count; a NATS user without permission to query does not count as missing answer. Source: wadm
0.21 answers the requests of all lattices of its NATS account by one subscription.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from enum import Enum, auto
from typing import Final

from trellis.bus.connection import cancellation
from trellis.lattice.connection.lattice_connection import LatticeConnection, NatsUnavailableError, SilenceError
from trellis.lattice.domain.reading import LatticeDataError
from trellis.lattice.domain.replies import WadmRefusedError
from trellis.lattice.timings import ProbeTimings
from trellis.lattice.wadm.client import Wadm

_OUTAGE: Final = 3
"""Consecutive queries without an answer that count as an outage; without responders they last two seconds."""
_PROBE_NAME: Final = "trellis-asks"
"""Name of a nonexistent application: wadm also answers for it, and reads only one stream."""


class _Result(Enum):
    ANSWERED = auto()
    NO_ANSWER = auto()
    UNKNOWN = auto()
    """The query failed for another reason, for example because it is denied."""


class WadmProbe:
    """Availability of the wadm of all lattices with one connection and one account.

    ``reason``: why it does not answer, for users; "" if it does, or after too few queries.
    """

    def __init__(self, connection: LatticeConnection, timings: ProbeTimings = ProbeTimings()) -> None:
        self.reason = ""
        self._connection = connection
        self._timings = timings
        self._turn = asyncio.Lock()
        self._changed: dict[Wadm, Callable[[], None]] = {}
        self._unanswered = 0  # consecutive queries without an answer
        self._unknown = 0  # consecutive queries that failed otherwise
        self._due = 0.0

    async def run(self, wadm: Wadm, changed: Callable[[], None]) -> None:
        """Query wadm, in turns with its other lattices, until cancelled."""
        self._changed[wadm] = changed
        try:
            while True:
                cancellation.check()
                await self._connection.there()
                async with self._turn:  # the lock is fair
                    await asyncio.sleep(max(0.0, self._due - time.monotonic()))
                    await self._query(wadm)
        finally:
            del self._changed[wadm]

    async def _query(self, wadm: Wadm) -> None:
        reason, result = "", _Result.ANSWERED
        try:
            await wadm.status(_PROBE_NAME)
        except SilenceError as error:
            reason, result = str(error), _Result.NO_ANSWER
        except NatsUnavailableError:
            result = _Result.UNKNOWN
        except (LatticeDataError, WadmRefusedError):
            pass
        self._take(result, reason, connected=self._connection.since is not None)
        self._due = time.monotonic() + (self._timings.again if self._unanswered else self._timings.every)

    def _take(self, result: _Result, reason: str, *, connected: bool) -> None:
        match result:
            case _Result.ANSWERED:
                self._unanswered = self._unknown = 0
                self._report("")
            case _Result.NO_ANSWER:
                self._unanswered, self._unknown = self._unanswered + 1 if connected else 0, 0
                if self._unanswered >= _OUTAGE:
                    self._report(reason)
            case _Result.UNKNOWN:  # maybe of this lattice only
                self._unknown += 1
                if self._unknown >= _OUTAGE or not connected:
                    self._unanswered = 0
                    self._report("")

    def _report(self, reason: str) -> None:
        is_new, self.reason = bool(reason) != bool(self.reason), reason
        if is_new:
            for changed in [*self._changed.values()]:
                changed()
