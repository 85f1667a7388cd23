"""The address of the NATS of wasmCloud v2, from settings.

In: settings, files. Out: an address. Called by ``trellis explain``, ``trellis top``, the console and host_manager.
Invariants: what is read of a file is of bounded size; no error shows its content.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from trellis.config.authorities import trust
from trellis.config.nats_credentials import CachedCredentials, CredentialsError, Kind, identity_of
from trellis.config.settings import HostNatsSettings, SettingsError
from trellis.lattice.connection.address import NatsAddress
from trellis.lattice.connection.tls import CertificateError, client_context

_FILE_MAX: Final = 2**20
"""Bytes; a bundle of the CAs of a system has 280 KB."""


def host_nats(settings: HostNatsSettings) -> NatsAddress | None:
    """Return the address, None if no URL is set.

    Raises:
        SettingsError: a file cannot be used.
    """
    if settings.v2_nats is None:
        return None
    credentials = None
    if (path := settings.v2_nats_credentials_file) is not None:
        credentials = CachedCredentials(_content("CREDENTIALS", path), Kind.CREDENTIALS, str(path))
        try:
            identity_of(credentials.text, credentials.kind)
        except CredentialsError as error:
            raise SettingsError(f"TRELLIS_V2_NATS_CREDENTIALS_FILE: {path}: {error}") from None
    authorities = _content("CA", settings.v2_nats_ca_file) if settings.v2_nats_ca_file else ""
    certificate = (
        _content("CERTIFICATE", settings.v2_nats_certificate_file) if settings.v2_nats_certificate_file else ""
    )
    _require_certificates(settings, authorities, certificate)
    return NatsAddress(settings.v2_nats, credentials, authorities, certificate)


def _require_certificates(settings: HostNatsSettings, authorities: str, certificate: str) -> None:
    """Raise SettingsError if a file has no certificates: without them, no connection would be made later."""
    try:
        if settings.v2_nats_ca_file is not None:
            trust(settings.v2_nats_ca_file)
    except CredentialsError as error:
        raise SettingsError(f"TRELLIS_V2_NATS_CA_FILE: {settings.v2_nats_ca_file}: {error}") from None
    try:
        client_context(NatsAddress(settings.v2_nats or "", None, authorities, certificate))
    except CertificateError:
        reason = "needs a client certificate and its key (PEM), without a password"
        path = settings.v2_nats_certificate_file
        raise SettingsError(f"TRELLIS_V2_NATS_CERTIFICATE_FILE: {path}: {reason}") from None


def _content(name: str, path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_FILE_MAX).decode("ascii", errors="ignore")
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise SettingsError(f"TRELLIS_V2_NATS_{name}_FILE: {path}: {reason}") from None
