"""The CA certificates that verify a server.

In: a file (PEM), or none for the CAs of the system. Out: a TLS context. Called by the settings, which reject an invalid
file at the start, and at each connect, so that a rotated file applies to the next connection;
and by commands.
"""

from __future__ import annotations

import ssl
from pathlib import Path

from trellis.config.nats_credentials import CredentialsError


def trust(ca_file: Path | None, *, system: bool = False) -> ssl.SSLContext:
    """Return a TLS context that verifies the server with the current CA certificates.

    ``system``: the CAs of the system are trusted besides those of the file.

    Raises:
        CredentialsError: the file is missing, is not readable, or contains no certificates.
    """
    if ca_file is None:
        return ssl.create_default_context()
    try:
        authorities = ca_file.read_bytes().decode("ascii", errors="ignore")  # bundles have names in UTF-8
        context = ssl.create_default_context(cadata=authorities or "nothing")
    except (ssl.SSLError, ValueError):
        reason = "it contains none"
    except OSError as error:
        reason = error.strerror or type(error).__name__
    else:
        if system:
            context.load_default_certs()
        return context
    raise CredentialsError(f"needs a file with CA certificates (PEM): {reason}")
