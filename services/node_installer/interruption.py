"""What SIGTERM does: an end at the next point where the node is whole.

In: the signal. Out: an exception at a safe point. Called by ``operations`` and ``apply``.
While nothing was changed, at once. While files change, after the current one, and all go back: no further run may
come, when it was the Job's deadline. Once the runtime restarts, not any more: it may be that restart that ends our
pod, and undoing it would restart the runtime a second time; the journal lets the next run finish.
"""

from __future__ import annotations

import signal
from types import FrameType
from typing import Final

from node_installer.domain.errors import InstallError
from trellis.installer_api.result import FailureReason

INTERRUPTED: Final = InstallError(
    FailureReason.INTERRUPTED, "the installer was told to end (SIGTERM) before it was done: the node is as it was"
)


class Interruption:
    """Whether this process was asked to end."""

    def __init__(self) -> None:
        self.requested = False
        self._at_once = True

    def listen(self) -> None:
        """Take SIGTERM and SIGINT from now on."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._take)

    def hold(self) -> None:
        """From now on only note it: the node is being changed, and who changes it looks at ``requested``."""
        self._at_once = False

    def _take(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self.requested = True
        if self._at_once:
            raise INTERRUPTED
