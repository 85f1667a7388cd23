"""The address of the NATS of wasmCloud v2, from settings.

In: settings, files. Out: an address. Called by ``trellis explain``, ``trellis top``, the console and host_manager.
Invariants: what is read of a file is of bounded size; no error shows its content.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from trellis.config.nats_credentials import CachedCredentials, CredentialsError, Kind, identity_of
from trellis.config.settings import HostNatsSettings, SettingsError
from trellis.lattice.connection.address import NatsAddress

_FILE_MAX: Final = 256 * 1024


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
    return NatsAddress(settings.v2_nats, credentials, authorities, certificate)


def _content(name: str, path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_FILE_MAX).decode("ascii", errors="ignore")
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise SettingsError(f"TRELLIS_V2_NATS_{name}_FILE: {path}: {reason}") from None
