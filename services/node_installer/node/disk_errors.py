"""Converts errors of the node's disk to errors of this program.

In: an ``OSError``. Out: an ``InstallError`` that names the path and what to do. Called by ``disk``.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from node_installer.domain.errors import InstallError
from trellis.installer_api.result import FailureReason


@contextlib.contextmanager
def explained(path: str) -> Iterator[None]:
    """Convert a refused write to an error that names the path and the remedy."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            reason, advice = FailureReason.NO_SPACE, "free some space there and retry"
        elif error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
            reason, advice = FailureReason.READ_ONLY_TARGET, "it must be writable for the installer"
        else:
            raise
        message = f"cannot write {path}: {os.strerror(error.errno)}; {advice}"
        raise InstallError(reason, message) from error


@contextlib.contextmanager
def removed_on_failure(partial: Path) -> Iterator[None]:
    """Remove an unfinished file after an error."""
    try:
        yield
    except OSError:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise


def as_install_error(error: Exception) -> InstallError:
    """Return an error of the disk as an error of this program."""
    if isinstance(error, InstallError):
        return error
    message = f"{getattr(error, 'filename', None) or 'the node'}: {getattr(error, 'strerror', None) or error}"
    return InstallError(FailureReason.DISK_ERROR, message)
