"""Errors of requests over a lattice connection.

Raised by ``link`` and ``questions``, caught by their callers. Invariant: the messages are for users, and contain no
secret.
"""

from __future__ import annotations

from collections.abc import Mapping


class LinkAwayError(Exception):
    """The lattice's NATS cannot be asked now; the text says why, for users."""


class SilenceError(LinkAwayError):
    """The lattice's NATS is there, and nobody answered: nobody listens there, or who does said nothing in time."""


class NobodyAnswersError(SilenceError):
    """The lattice's NATS is there, and nobody listens on the subject."""


class TooLargeError(Exception):
    """Something is larger than the lattice's NATS takes, so it was not sent; the text has both sizes, for users."""

    def __init__(self, what: str, size: int, limit: int, remedy: str = "make it smaller") -> None:
        super().__init__(
            f"{what} of {size:,} bytes, the NATS of the lattice accepts {limit:,}: {remedy}, or raise max_payload of "
            "its servers"
        )


def require_room(limit: int, subject: str, payload: bytes, headers: Mapping[str, str] | None) -> None:
    """Raise TooLargeError for a message that is larger than the server takes.

    The library does not count headers, and the server hangs up on what is larger with them. Source: ADR-4 of NATS: a
    line of its own each, in HTTP's form.
    """
    size = len(payload)
    if headers:
        size += len("NATS/1.0\r\n\r\n")
        size += sum(len(f"{key}: {value}\r\n".encode()) for key, value in headers.items())
    if size > limit:
        raise TooLargeError(f"a message on {subject}", size, limit)
