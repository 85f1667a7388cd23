"""Options of ``trellis explain`` for wasmCloud v2: NATS of its hosts, replies, registries.

In: flags, settings. Out: what a page may read besides Kubernetes. Called by ``explain``. Invariant: without these
options, nothing but the API server is contacted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from trellis.config.settings import SettingsError
from trellis.lattice.connection.address import NatsAddress
from trellis.lattice.connection.host_nats import host_nats
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
        help="ask the registries of the images from here, with the pull Secrets of the workload, and read components",
    ),
]


@dataclass(frozen=True, slots=True)
class Sources:
    """Sources besides Kubernetes. ``nats``: None means that no NATS is contacted."""

    nats: NatsAddress | None = None
    replies: bool = False
    registry: bool = False


def sources_of(settings: ClientSettings, kind: str, *, replies: bool, registry: bool, given: bool) -> Sources:
    """Return the sources that the options select; ``given``: --v2-nats is one of them.

    Raises:
        SettingsError: the options do not fit together, or a file cannot be used.
    """
    if kind not in KINDS:
        used = [name for name, is_set in (("nats", given), ("replies", replies), ("registry", registry)) if is_set]
        if used:
            raise SettingsError(f"--v2-{used[0]}: only for {', '.join(KINDS)}")
        return Sources()
    if settings.v2_nats is None:
        if replies:
            raise SettingsError("--v2-replies: needs --v2-nats or TRELLIS_V2_NATS")
        return Sources(registry=registry)
    return Sources(host_nats(settings), replies, registry)
