"""Errors of fetching a module; the message names the module and the resolution.

Pure. Raised by all sources of modules. controller_host uses the reasons in the condition ``Accepted``.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

MOST_BYTES: Final = 64 * 2**20
"""Maximum size of a module; larger ones are rejected before they are read."""


class SourceReason(StrEnum):
    """Reason why a module cannot be fetched."""

    NOT_FOUND = "ModuleNotFound"
    FORBIDDEN = "ModuleForbidden"
    NOT_ALLOWED = "SourceNotAllowed"
    NOT_PINNED = "ModuleNotPinned"
    CHECKSUM_MISMATCH = "ChecksumMismatch"
    TOO_LARGE = "ModuleTooLarge"
    NO_MODULE = "NoModule"
    UNAVAILABLE = "SourceUnavailable"


class SourceError(Exception):
    """A module cannot be fetched; ``message`` names the source and the resolution. A retry can succeed."""

    def __init__(self, reason: SourceReason, message: str) -> None:
        self.reason = reason
        self.message = message
        super().__init__(f"{reason}: {message}")


class TlsProblem(StrEnum):
    """Cause of a failed connection that TLS has. ISSUER_UNKNOWN: the CA of the server is not trusted.

    CERTIFICATE_INVALID: another fault of its certificate, such as its name or its expiry.
    """

    ISSUER_UNKNOWN = "IssuerUnknown"
    CERTIFICATE_INVALID = "CertificateInvalid"
    PLAIN_HTTP = "PlainHttp"


class TransportError(SourceError):
    """A server that gave no usable answer. ``host``: ``HOST[:PORT]``; ``tls``: None if TLS is not the cause."""

    def __init__(self, reason: SourceReason, message: str, host: str, tls: TlsProblem | None = None) -> None:
        self.host = host
        self.tls = tls
        super().__init__(reason, message)


def too_large(what: str) -> SourceError:
    """Return the error for a module of more than ``MOST_BYTES``."""
    return SourceError(SourceReason.TOO_LARGE, f"{what} is larger than {MOST_BYTES >> 20} MiB: it is not a module")
