"""The one exception of this program: a reason for machines and a sentence for people."""

from __future__ import annotations

from trellis.install_results import FailureReason


class InstallError(Exception):
    """The run cannot go on. Unless the message says otherwise the node is as it was before."""

    def __init__(self, reason: FailureReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
