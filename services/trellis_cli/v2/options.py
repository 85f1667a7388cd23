"""Options of ``trellis explain`` for wasmCloud v2: NATS of its hosts, replies, registries.

In: flags, settings. Out: what a page may read besides Kubernetes. Called by ``explain``. Invariants: without these
options, nothing but the API server is contacted; plain http is used for registries that the user named only.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from trellis.config.authorities import trust
from trellis.config.nats_credentials import CredentialsError
from trellis.config.settings import SettingsError
from trellis.lattice.connection.address import NatsAddress
from trellis.lattice.connection.host_nats import host_nats
from trellis.oci.references import registry_host
from trellis.read_model.reading.explained_v2 import KINDS
from trellis_cli.common.settings import ClientSettings

NatsOption = Annotated[
    str | None,
    typer.Option(
        "--v2-nats",
        metavar="URL",
        help="NATS of wasmCloud v2: receive heartbeats for 20 s, read-only [env: TRELLIS_V2_NATS]",
    ),
]
RepliesOption = Annotated[
    bool,
    typer.Option(
        "--v2-replies",
        help="with --v2-nats, receive replies to starts for 65 s. This needs trust: the user receives the replies to "
        "all requests of its NATS account (`_INBOX.>`)",
    ),
]
RegistryOption = Annotated[
    bool,
    typer.Option(
        "--v2-registry",
        help="query the registries of the images from this machine, with the pull Secrets of the workload, and read "
        "components",
    ),
]
CA_FILE: Final = "--v2-registry-ca-file"
INSECURE: Final = "--v2-insecure-registry"
RegistryCaOption = Annotated[
    Path | None,
    typer.Option(
        CA_FILE,
        metavar="FILE",
        help="with --v2-registry, CA certificates (PEM) to trust besides those of the system",
    ),
]
InsecureRegistryOption = Annotated[
    list[str] | None,
    typer.Option(
        INSECURE,
        metavar="HOST[:PORT]",
        help="with --v2-registry, use HTTP without TLS for this registry if it does not serve HTTPS; the login of the "
        "pull Secret is then sent without encryption (repeatable)",
    ),
]


@dataclass(frozen=True, slots=True)
class Flags:
    """The flags for wasmCloud v2 as given; ``nats``: --v2-nats is one of them."""

    nats: bool = False
    replies: bool = False
    registry: bool = False
    ca_file: Path | None = None
    insecure: Sequence[str] = ()

    @property
    def used(self) -> list[str]:
        """Names of the flags that are given."""
        flags = {
            "--v2-nats": self.nats,
            "--v2-replies": self.replies,
            "--v2-registry": self.registry,
            CA_FILE: self.ca_file is not None,
            INSECURE: bool(self.insecure),
        }
        return [name for name, is_given in flags.items() if is_given]


@dataclass(frozen=True, slots=True)
class RegistryAccess:
    """The access to registries. ``tls``: None for the CAs of the system; ``insecure``: hosts for plain http."""

    tls: ssl.SSLContext | None = None
    insecure: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Sources:
    """Sources besides Kubernetes. ``nats``, ``registry``: None means that none is contacted."""

    nats: NatsAddress | None = None
    replies: bool = False
    registry: RegistryAccess | None = None


def sources_of(settings: ClientSettings, kind: str, flags: Flags) -> Sources:
    """Return the sources that the options select.

    Raises:
        SettingsError: the options do not fit together, or a file cannot be used.
    """
    if kind not in KINDS:
        if flags.used:
            raise SettingsError(f"{flags.used[0]}: only for {', '.join(KINDS)}")
        return Sources()
    registry = _registry_access(flags)
    if settings.v2_nats is None:
        if flags.replies:
            raise SettingsError("--v2-replies: needs --v2-nats or TRELLIS_V2_NATS")
        return Sources(registry=registry)
    return Sources(host_nats(settings), flags.replies, registry)


def _registry_access(flags: Flags) -> RegistryAccess | None:
    if not flags.registry:
        for name in (CA_FILE, INSECURE):
            if name in flags.used:
                raise SettingsError(f"{name}: needs --v2-registry")
        return None
    try:
        insecure = frozenset(registry_host(host) for host in flags.insecure)
    except ValueError as error:
        raise SettingsError(f"{INSECURE}: {error}") from None
    try:
        tls = None if flags.ca_file is None else trust(flags.ca_file, system=True)
    except CredentialsError as error:
        raise SettingsError(f"{CA_FILE}: {flags.ca_file}: {error}") from None
    return RegistryAccess(tls, insecure)
