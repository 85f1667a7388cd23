"""The one exception of this program: a reason for machines and a sentence for people; and how the disk's become it."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator, Sequence
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

    def bare(self) -> InstallError:
        """Return the same without where it was raised, which would keep open what was open there."""
        return InstallError(self.reason, self.message, self.shims)


@contextlib.contextmanager
def about(handler: str, digest: str = "") -> Iterator[None]:
    """Say of what goes wrong which shim it is about; not of being told to end."""
    try:
        yield
    except InstallError as error:
        if error.reason is FailureReason.INTERRUPTED or error.shims:
            raise
        shim = ShimResult(handler, digest, problem=error.message)
        raise InstallError(error.reason, error.message, (shim,)) from error


def together(errors: Sequence[InstallError]) -> InstallError:
    """Return one error for several shims that each have one; its reason is that of the first."""
    first, *more = errors
    shims = tuple(shim for error in errors for shim in error.shims)
    if not more:
        return InstallError(first.reason, first.message, shims)
    message = "; ".join(f"{shim.handler}: {shim.problem}" for shim in shims)
    return InstallError(first.reason, message, shims)


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


def as_install_error(error: Exception) -> InstallError:
    """Return what the disk said as an error of this program."""
    if isinstance(error, InstallError):
        return error
    message = f"{getattr(error, 'filename', None) or 'the node'}: {getattr(error, 'strerror', None) or error}"
    return InstallError(FailureReason.DISK_ERROR, message)
