"""Registry of the services of ``trellis run``. All other lists of services derive from it.

Out: names, and modules of a service, imported on demand. Called by the command line, the permissions of the
bus, the generators of ``tools`` and tests. CONTRIBUTING.md describes how a service is added.
Invariant: importing this module imports no service.
"""

from __future__ import annotations

import importlib
import importlib.util
from dataclasses import dataclass
from types import ModuleType
from typing import Final

from trellis.config.settings import ServiceSettings
from trellis.events.subjects import (
    APPLICATION_MANAGER,
    CONSOLE,
    CONTROLLER_HOST,
    HOST_MANAGER,
    NODE_WATCHER,
    PROVISIONER,
    SECRETS_BACKEND,
    SERVICE_REFLECTOR,
)


@dataclass(frozen=True, slots=True)
class Service:
    """A service. ``package`` is its folder below ``services/``, its import package and its name on the bus."""

    package: str
    subscriptions: tuple[str, ...] = ()
    """Names of its subscriptions, which are part of the names of its durable consumers."""
    guards: tuple[str, ...] = ()
    """Kinds of objects whose deletion the circuit breakers of the service can pause."""
    needs: str = ""
    """Required import package that only the extra ``extra`` of the distribution installs."""
    extra: str = ""
    only_if_named: bool = False
    """``trellis run`` without names does not run it."""

    @property
    def name(self) -> str:
        """Name on the command line, in Kubernetes and of files: ``node-watcher``."""
        return self.package.replace("_", "-")

    @property
    def chart_key(self) -> str:
        """Key below ``services`` in the values of the Helm chart: ``nodeWatcher``."""
        first, *others = self.package.split("_")
        return first + "".join(map(str.capitalize, others))

    @property
    def installed(self) -> bool:
        """True if the required package is installed."""
        return not self.needs or importlib.util.find_spec(self.needs) is not None

    @property
    def settings(self) -> type[ServiceSettings]:
        """Class of the settings of the service."""
        found: type[ServiceSettings] = self.load("settings").Settings
        return found

    def load(self, module: str) -> ModuleType:
        """Import a module of the service: ``settings``, ``app``, ``handlers``."""
        return importlib.import_module(f"{self.package}.{module}")


SERVICES: Final[dict[str, Service]] = {
    service.package: service
    for service in (
        Service(NODE_WATCHER, subscriptions=("provision",), guards=("nodes",)),
        Service(PROVISIONER, subscriptions=("nodes",), guards=("jobs",)),
        Service(HOST_MANAGER, subscriptions=("secrets",), guards=("hosts",)),
        Service(SERVICE_REFLECTOR, guards=("services",)),
        Service(APPLICATION_MANAGER, guards=("applications",)),
        Service(SECRETS_BACKEND),
        Service(CONTROLLER_HOST, needs="wasmtime", extra="controllers"),
        Service(CONSOLE, only_if_named=True),
    )
}
"""By package, in the order in which they are listed and started."""
