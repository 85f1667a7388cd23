"""Handles SIGTERM: the run ends at the next point at which the node is consistent.

In: the signal. Out: an exception at a safe point. Called by ``operations`` and ``apply``.
Before the first change, the run ends at once. While files change, it ends after the current one, and all are restored:
after the deadline of the Job, no further run may follow. Once the runtime restarts, it does not end: that restart may
be the cause of the signal, and a rollback would restart the runtime a second time; the journal lets the next run
finish.
"""

from __future__ import annotations

import signal
from types import FrameType
from typing import Final

from node_installer.domain.errors import InstallError
from trellis.installer_api.result import FailureReason

INTERRUPTED: Final = InstallError(
    FailureReason.INTERRUPTED, "the installer received SIGTERM before it was done: the node is unchanged"
)


class Interruption:
    """Request to end this process."""

    def __init__(self) -> None:
        self.requested = False
        self._at_once = True

    def listen(self) -> None:
        """Handle SIGTERM and SIGINT from now on."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._take)

    def hold(self) -> None:
        """Only record signals from now on: the node is being changed, and the caller checks ``requested``."""
        self._at_once = False

    def _take(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self.requested = True
        if self._at_once:
            raise INTERRUPTED
