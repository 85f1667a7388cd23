"""The certificates of authorities that a NATS server's certificate has to be of.

In: a file (PEM), or none for those of the system. Out: a TLS context. Called by the settings, which refuse a wrong file
at the start, and at each connect, so that a rotated file counts from the next connection on.
"""

from __future__ import annotations

import ssl
from pathlib import Path

from trellis.config.nats_credentials import CredentialsError


def trust(ca_file: Path | None) -> ssl.SSLContext:
    """Return what to connect with: the server's certificate has to be of one of the authorities of now.

    Raises:
        CredentialsError: the file is missing, may not be read, or holds no certificates.
    """
    if ca_file is None:
        return ssl.create_default_context()
    try:
        authorities = ca_file.read_bytes().decode("ascii", errors="ignore")  # bundles have names in UTF-8
        return ssl.create_default_context(cadata=authorities or "nothing")
    except (ssl.SSLError, ValueError):
        why = "it contains none"
    except OSError as error:
        why = error.strerror or type(error).__name__
    raise CredentialsError(f"needs a file with CA certificates (PEM): {why}")
