"""Shared state of the disk: after a failed write of one controller, the rest do not try.

In: results of writes, from any thread. Out: the time of the next attempt. Called by ``guest_state``, ``hosting`` and
``app``. Invariants: while writes fail, the disk is retried at least every half minute; the log has one line at the
start and one at the end of a failure.
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
"""Reasons: the disk is full; writes fail for another cause."""
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

_log = get_logger(__name__)


class DiskSpace:
    """State of the disk. ``reason`` is "" while writes succeed; otherwise ``error`` is the error.

    ``backoff``: for a single guest that cannot be suspended.
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
        self.error = ""

    @property
    def refuses(self) -> bool:
        """True if the last write failed."""
        return bool(self.reason)

    def wait(self) -> float:
        """Return the seconds until the next attempt; 0 if it is due."""
        return max(0.0, self._again_at - self._clock()) if self.reason else 0.0

    def again(self, not_before: float = 0.0) -> float:
        """Return the seconds until a controller that could not be suspended to disk retries."""
        return max(self.wait(), not_before - self._clock(), self._timings.least)

    def refused(self, error: SnapshotFailed | NotWritten | OSError) -> None:
        """Record a failed write."""
        reason = DISK_FULL if is_full(error) else DISK_FAILED
        with self._lock:
            now = self._clock()
            if now >= self._again_at:  # count only the first of concurrent failures
                self._refusals += 1
                self._again_at = now + self.backoff.bound(self._refusals)
            begins, self.reason, self.error = not self.reason, reason, str(error)
        if begins:
            _log.error(
                "controller data directory not writable, controllers stay in memory", reason=reason, error=str(error)
            )

    def took(self) -> None:
        """Record a successful write."""
        if not self.reason:
            return
        with self._lock:
            over, self.reason, self.error = bool(self.reason), "", ""
            self._refusals = 0
            self._again_at = 0.0
        if over:
            _log.info("controller data directory writable again")

    async def run(self, write: Callable[[], None], recovered: Callable[[], None]) -> None:
        """Retry the disk by ``write`` while writes fail, and call ``recovered`` afterwards."""
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
    """Return whether the disk is full, as opposed to another error."""
    if isinstance(error, NotWritten):
        return error.full
    number = error.number if isinstance(error, SnapshotFailed) else error.errno
    return number in _NO_ROOM
