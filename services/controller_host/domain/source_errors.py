"""Why a module cannot be had, in words that name it and say what to do.

Pure. Raised by the modules that fetch. The reasons become those of the condition ``Accepted``.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

MOST_BYTES: Final = 64 * 2**20
"""Size of a module: what is larger is refused before it is read."""


class SourceReason(StrEnum):
    """Why a module cannot be had."""

    NOT_FOUND = "ModuleNotFound"
    FORBIDDEN = "ModuleForbidden"
    NOT_ALLOWED = "SourceNotAllowed"
    NOT_PINNED = "ModuleNotPinned"
    CHECKSUM_MISMATCH = "ChecksumMismatch"
    TOO_LARGE = "ModuleTooLarge"
    NO_MODULE = "NoModule"
    UNAVAILABLE = "SourceUnavailable"


class SourceError(Exception):
    """A module cannot be had; ``message`` names what was asked for and says what to do. It may work later."""

    def __init__(self, reason: SourceReason, message: str) -> None:
        self.reason = reason
        self.message = message
        super().__init__(f"{reason}: {message}")


def too_large(what: str) -> SourceError:
    """Return the error for more than ``MOST_BYTES``."""
    return SourceError(SourceReason.TOO_LARGE, f"{what} is larger than {MOST_BYTES >> 20} MiB: it is not a module")
