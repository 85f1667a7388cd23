"""The only exception of this program: a reason for programs and a message for users."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from trellis.installer_api.result import FailureReason, ShimResult


class InstallError(Exception):
    """The run cannot continue. Unless the message states otherwise, the node is unchanged.

    ``shims``: the affected shims, if the error is not about the node.
    """

    def __init__(self, reason: FailureReason, message: str, shims: tuple[ShimResult, ...] = ()) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.shims = shims

    def bare(self) -> InstallError:
        """Return a copy without traceback, which would keep files of its frames open."""
        return InstallError(self.reason, self.message, self.shims)


@contextlib.contextmanager
def about(handler: str, digest: str = "") -> Iterator[None]:
    """Attach the shim to errors, except for an interruption."""
    try:
        yield
    except InstallError as error:
        if error.reason is FailureReason.INTERRUPTED or error.shims:
            raise
        shim = ShimResult(handler, digest, problem=error.message)
        raise InstallError(error.reason, error.message, (shim,)) from error


def combined(errors: Sequence[InstallError]) -> InstallError:
    """Return one error for the errors of several shims; its reason is that of the first."""
    first, *more = errors
    shims = tuple(shim for error in errors for shim in error.shims)
    if not more:
        return InstallError(first.reason, first.message, shims)
    message = "; ".join(f"{shim.handler}: {shim.problem}" for shim in shims)
    return InstallError(first.reason, message, shims)
