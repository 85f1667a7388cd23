"""The one exception of this program: a reason for machines and a sentence for people; and how the disk's become it."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from trellis.install_results import FailureReason, ShimResult


class InstallError(Exception):
    """The run cannot go on. Unless the message says otherwise the node is as it was before.

    ``shims``: which of them it is about, where it is about some and not about the node.
    """

    def __init__(self, reason: FailureReason, message: str, shims: tuple[ShimResult, ...] = ()) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.shims = shims


@contextlib.contextmanager
def explained(path: str) -> Iterator[None]:
    """Say of what the node's disk refuses which path it was, and what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            reason, advice = FailureReason.NO_SPACE, "free some space there and try again"
        elif error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
            reason, advice = FailureReason.READ_ONLY_TARGET, "it must be writable for the installer"
        else:
            raise
        message = f"cannot write {path}: {os.strerror(error.errno)}; {advice}"
        raise InstallError(reason, message) from error


@contextlib.contextmanager
def removed_on_failure(partial: Path) -> Iterator[None]:
    """Leave no unfinished file where it could not be finished."""
    try:
        yield
    except OSError:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise
