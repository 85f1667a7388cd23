"""TLS of a lattice connection: client certificate and verification of the server.

In: certificates and a key in PEM, from a Secret. Out: a context, created for each connection. Called by
``lattice_connection``. Invariants: a key is in no message, and in a private file only while it is loaded; no prompt
asks for the password of a key.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Final

from trellis.lattice.connection.address import NatsAddress

_NAME: Final = "trellis-link"
_PAIR: Final = "tls.crt and tls.key of the Secret for leafTls"
_ALERTS: Final = ("CERTIFICATE_REQUIRED", "ALERT_BAD_CERTIFICATE", "ALERT_CERTIFICATE", "ALERT_UNKNOWN_CA")
"""OpenSSL names of the alerts of a server that requires a client certificate and cannot verify it."""
NOT_LET_IN: Final = f"the server demands a certificate that it can verify: see {_PAIR}"


class CertificateError(Exception):
    """The Secret of ``leafTls`` is invalid; the message names the key, for users, without its content."""


def advised(reason: str) -> str:
    """Return the reason of a failed connection, with a remedy if the server rejected the client certificate."""
    return f"{reason}: {NOT_LET_IN}" if any(alert in reason for alert in _ALERTS) else reason


def client_context(address: NatsAddress) -> ssl.SSLContext | None:
    """Return the TLS context, None if the address has no certificates: then the server decides about TLS.

    Raises:
        CertificateError: the certificates or the key cannot be used.
    """
    if not (address.authorities or address.certificate):
        return None
    context = ssl.create_default_context()
    try:
        if address.authorities:
            context.load_verify_locations(cadata=address.authorities)
    except (ssl.SSLError, ValueError, TypeError):
        raise CertificateError("ca.crt of the Secret for leafTls holds no certificates in PEM") from None
    if address.certificate:
        _present(context, address.certificate)
    return context


def _present(context: ssl.SSLContext, certificate: str) -> None:
    """Load the client certificate into the context.

    Raises:
        CertificateError: the certificate or its key cannot be used.
    """
    try:
        with _written(certificate.encode()) as path:
            context.load_cert_chain(path, password=_no_password)
    except ssl.SSLError as error:
        reason = error.reason or "they hold no certificate and key in PEM, or the key has a password"
        raise CertificateError(f"{_PAIR} cannot be used: {reason}") from None
    except ValueError:
        raise CertificateError(f"{_PAIR} cannot be used: the key has a password") from None
    except OSError as error:
        raise CertificateError(f"{_PAIR} cannot be read from a temporary file: {error.strerror}") from None


def _no_password() -> str:
    """Return an empty password, so that the library does not prompt on the terminal."""
    return ""


@contextmanager
def _written(content: bytes) -> Iterator[str]:
    """Write a private file for the duration of a block, because the library reads files only; yields its path.

    Raises:
        OSError: the file cannot be written.
    """
    with _file() as file:
        file.write(content)
        file.flush()
        # A file in memory has no name, only a path in /proc, which other users cannot read.
        yield file.name if isinstance(file.name, str) else f"/proc/self/fd/{file.fileno()}"


def _file() -> IO[bytes]:
    in_memory = getattr(os, "memfd_create", None)  # on Linux
    if in_memory is not None:
        return os.fdopen(in_memory(_NAME), "w+b")
    return tempfile.NamedTemporaryFile(prefix=_NAME)  # mode 0600, removed as it is closed
