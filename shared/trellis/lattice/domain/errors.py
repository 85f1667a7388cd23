"""Errors of requests over a lattice connection.

Raised by ``lattice_connection`` and ``requests``, caught by their callers. Invariant: the messages are for users, and
contain no secret.
"""

from __future__ import annotations

from collections.abc import Mapping


class NatsUnavailableError(Exception):
    """The NATS of the lattice is unreachable; the message has the reason, for users."""


class SilenceError(NatsUnavailableError):
    """The NATS of the lattice is reachable, but no answer arrived in time, or the subject has no responders."""


class NoLatticeRespondersError(SilenceError):
    """The NATS of the lattice is reachable, but the subject has no responders."""


class TooLargeError(Exception):
    """A message exceeds the limit of the NATS of the lattice, and was not sent; the message has both sizes."""

    def __init__(self, what: str, size: int, limit: int, remedy: str = "make it smaller") -> None:
        super().__init__(
            f"{what} of {size:,} bytes, the NATS of the lattice accepts {limit:,}: {remedy}, or raise max_payload of "
            "its servers"
        )


def require_payload_limit(limit: int, subject: str, payload: bytes, headers: Mapping[str, str] | None) -> None:
    """Raise TooLargeError for a message that exceeds the limit of the server.

    The library does not count headers, and the server closes the connection if they exceed the limit. Source: ADR-4 of
    NATS: one line per header, in the form of HTTP.
    """
    size = len(payload)
    if headers:
        size += len("NATS/1.0\r\n\r\n")
        size += sum(len(f"{key}: {value}\r\n".encode()) for key, value in headers.items())
    if size > limit:
        raise TooLargeError(f"a message on {subject}", size, limit)
