"""The one exception of this program: a reason for machines and a sentence for users."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from trellis.installer_api.result import FailureReason, ShimResult


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
