"""Describes failures of connections in networking terms.

In: an error of aiohttp, of TLS or of a socket. Out: ``connection refused``. Called by all code that reports such an
error; users do not see texts of libraries.
"""

from __future__ import annotations

import errno
import os
import re
import socket
import ssl
from typing import Final

import aiohttp

NOT_TRUSTED: Final = "certificate not trusted"
_ERRNO: Final = re.compile(r"\[Errno (-?\d+)\]")
_REASONS: Final = {
    errno.ECONNREFUSED: "connection refused",
    errno.ECONNRESET: "connection reset",
    errno.EPIPE: "connection reset",
    errno.ETIMEDOUT: "connection timed out",
    errno.EHOSTUNREACH: "no route to host",
    errno.ENETUNREACH: "network unreachable",
}


def network_reason(error: BaseException) -> str:
    """Return the cause of a failed connection."""
    match getattr(error, "os_error", None) or getattr(error, "certificate_error", None) or error:
        case ssl.SSLCertVerificationError() as cause:
            return f"{NOT_TRUSTED}: {cause.verify_message or cause.reason or 'verification failed'}"
        case ssl.SSLError() as cause:
            return f"TLS error: {cause.reason or 'handshake failed'}"
        case socket.gaierror():
            return "host name not found"
        case aiohttp.ServerDisconnectedError():
            return "connection closed by the server"
        case aiohttp.ClientPayloadError():
            return "connection closed before the end of the response"
        case TimeoutError():
            return "no answer in time"
        case OSError() as cause:
            return _of_socket(cause)
        case cause:
            return str(cause) or type(cause).__name__


def _of_socket(error: OSError) -> str:
    number = error.errno
    if number is None and (found := _ERRNO.search(str(error))):  # the error of the first of several addresses
        number = int(found[1])
    if number is None:
        return str(error) or type(error).__name__
    return _REASONS.get(number) or os.strerror(number).lower()
