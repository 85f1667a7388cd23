"""Whether the disk takes what is written: what one controller found out spares all others the try.

In: writes that were taken or refused, from any thread. Out: when to try again. Called by ``keeping``, ``hosting`` and
``app``. Invariants: while the disk refuses, somebody tries it again and again, at most half a minute apart; what is
told of it is one line when it begins, and one when it is over.
"""

from __future__ import annotations

import asyncio
import errno
import threading
import time
from collections.abc import Callable
from typing import Final

from controller_host.guest.snapshots import SnapshotFailed
from controller_host.state.progress import NotWritten
from controller_host.timings import DiskTimings
from trellis.limits.backoff import Backoff
from trellis.telemetry import get_logger

DISK_FULL: Final = "DiskFull"
DISK_FAILED: Final = "DiskFailed"
"""Reasons: it has no room; it takes nothing although it may have."""
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

_log = get_logger(__name__)


class Room:
    """What is known of the disk. ``reason`` is "" while it takes what is written, ``why`` its words else.

    ``backoff``: by which a guest waits that it does not take, and perhaps takes others.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        timings: DiskTimings = DiskTimings(),  # noqa: B008 - frozen
    ) -> None:
        self._timings: Final = timings
        self.backoff: Final = Backoff(first=timings.first, cap=timings.most)
        self._clock = clock
        self._lock = threading.Lock()
        self._again_at = 0.0
        self._refusals = 0
        self.reason = ""
        self.why = ""

    @property
    def refuses(self) -> bool:
        """Whether the last that was written was refused."""
        return bool(self.reason)

    def wait(self) -> float:
        """Return the seconds until it is worth a try; 0 if it is now."""
        return max(0.0, self._again_at - self._clock()) if self.reason else 0.0

    def again(self, not_before: float = 0.0) -> float:
        """Return the seconds until a controller that could not be suspended to disk retries."""
        return max(self.wait(), not_before - self._clock(), self._timings.least)

    def refused(self, error: SnapshotFailed | NotWritten | OSError) -> None:
        """Take word that something could not be written."""
        reason = DISK_FULL if is_full(error) else DISK_FAILED
        with self._lock:
            now = self._clock()
            if now >= self._again_at:  # of many that fail together the first counts
                self._refusals += 1
                self._again_at = now + self.backoff.bound(self._refusals)
            begins, self.reason, self.why = not self.reason, reason, str(error)
        if begins:
            _log.error(
                "controller data directory not writable, controllers stay in memory", reason=reason, error=str(error)
            )

    def took(self) -> None:
        """Take word that something was written."""
        if not self.reason:
            return
        with self._lock:
            over, self.reason, self.why = bool(self.reason), "", ""
            self._refusals = 0
            self._again_at = 0.0
        if over:
            _log.info("controller data directory writable again")

    async def run(self, write: Callable[[], None], recovered: Callable[[], None]) -> None:
        """Try the disk while it takes nothing, which otherwise nobody may who has nothing to put there."""
        while True:
            refused = self.refuses
            await asyncio.sleep(max(self.wait(), self._timings.look))
            if self.refuses:
                refused = True
                try:
                    await asyncio.to_thread(write)
                except OSError as error:
                    self.refused(error)
                else:
                    self.took()
            if refused and not self.refuses:
                recovered()


def is_full(error: SnapshotFailed | NotWritten | OSError) -> bool:
    """Return whether there is no room, rather than something wrong with the disk."""
    if isinstance(error, NotWritten):
        return error.full
    number = error.number if isinstance(error, SnapshotFailed) else error.errno
    return number in _NO_ROOM
