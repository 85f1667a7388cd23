"""``trellis run``: any set of services in one process, with the same code as in separate processes.

In: names of services and flags. Out: a running process. Called by the command line.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from trellis.config.settings import ServiceSettings, SettingsError, load, unknown_variables
from trellis.runtime import gc
from trellis.runtime.run import RunningService, run_services
from trellis.services import SERVICES, Service
from trellis.telemetry import get_logger, setup_logging
from trellis_cli.common import additions
from trellis_cli.common.settings import ClientSettings

NAMED: Final[dict[str, Service]] = {service.name: service for service in SERVICES.values()}
_log = get_logger(__name__)


class OwnNats(Protocol):
    """A bus that this process starts."""

    @property
    def url(self) -> str:
        """Address for the services of this process, with the password."""

    def running(self) -> AbstractAsyncContextManager[None]:
        """Keep the server running within the block."""


@dataclass(frozen=True, slots=True)
class RunFlags:
    """Flags of ``trellis run``; None if not given, then the environment applies."""

    kubeconfig: Path | None = None
    nats_url: str | None = None
    cluster: str | None = None
    health_port: int | None = None
    own_nats: Path | None = None


def choose(services: Sequence[str]) -> list[str]:
    """Return the services to run; if none is named, all that are completely installed, except optional ones.

    Raises:
        SettingsError: a name is unknown, with the list of names; or a service lacks its dependencies.
    """
    unknown = [name for name in services if name not in NAMED]
    if unknown:
        raise SettingsError(f"SERVICE: has {unknown[0]!r}, needs one or more of: {', '.join(NAMED)}")
    for name in services:
        if not NAMED[name].installed:
            package = f"trellis-wasm[{NAMED[name].extra}]"
            raise SettingsError(f"SERVICE: {name} needs {NAMED[name].needs}, which is not installed: install {package}")
    if services:
        return list(dict.fromkeys(services))
    return [name for name, item in NAMED.items() if item.installed and not item.only_if_named]


def refuse_half_confined(loaded: Sequence[ServiceSettings]) -> None:
    """Reject a confined service in one process with cluster-wide services.

    A confined service has its own cluster name on the bus, so under one name they would exclude each other.

    Raises:
        SettingsError: one is confined and another cannot be.
    """
    wide = [item.service.replace("_", "-") for item in loaded if not getattr(item, "watch_namespaces", ())]
    if wide and len(wide) < len(loaded):
        raise SettingsError(
            f"TRELLIS_WATCH_NAMESPACES: is set, and {', '.join(wide)} cannot be confined to namespaces: run confined "
            "services in a separate process (trellis run host-manager)"
        )


def run(services: Sequence[str], flags: RunFlags) -> None:
    """Run services until SIGTERM.

    Raises:
        SettingsError: a setting is invalid, or a service is unknown.
    """
    chosen = [NAMED[name] for name in choose(services)]
    nats = _own_nats(flags)
    overrides = {
        "kubeconfig": flags.kubeconfig,
        "nats_url": flags.nats_url if nats is None else nats.url,
        "cluster": flags.cluster,
        "health_port": flags.health_port,
    }
    loaded = [load(service.settings, **overrides) for service in chosen]
    refuse_half_confined(loaded)
    if nats is not None and any(its.nats_credentials for its in loaded):
        raise SettingsError(
            "--own-nats: the server has its own user and password: unset TRELLIS_NATS_NKEY_FILE, "
            "TRELLIS_NATS_CREDENTIALS_FILE and TRELLIS_NATS_CA_FILE"
        )
    setup_logging(log_format=loaded[0].log_format, level=loaded[0].log_level)
    for name in [name for name, item in NAMED.items() if not item.installed and not services]:
        _log.info("service skipped, not installed", service=name, extra=NAMED[name].extra)
    for line in misspelt():
        _log.warning(line)
    with gc.importing():
        apps: list[RunningService] = [
            service.load("app").create_app(its) for service, its in zip(chosen, loaded, strict=True)
        ]
    gc.freeze()
    asyncio.run(_run(apps, loaded[0].health_port, nats))


def misspelt(environ: Mapping[str, str] | None = None) -> list[str]:
    """Return a line for each ``TRELLIS_`` variable that is unknown to services and commands, which share it."""
    return unknown_variables([ClientSettings, *(service.settings for service in SERVICES.values())], environ)


def _own_nats(flags: RunFlags) -> OwnNats | None:
    """Return the bus to start in this process, None without --own-nats.

    Raises:
        SettingsError: another bus is configured too.
    """
    if flags.own_nats is None:
        return None
    if flags.nats_url is not None:
        raise SettingsError("--own-nats: cannot be used with --nats-url")
    made: Callable[[Path], OwnNats] | None = additions.addition(additions.RUN, "own-nats")
    if made is None:
        raise SettingsError(f"--own-nats: nats-server is not installed: {additions.HOW}")
    return made(flags.own_nats)


async def _run(services: Sequence[RunningService], health_port: int, nats: OwnNats | None) -> None:
    """Run services; the bus stays up until they have stopped."""
    async with contextlib.nullcontext() if nats is None else nats.running():
        await run_services(services, health_port=health_port)
