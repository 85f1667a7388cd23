"""All that runs guests, as one thing: who imports this module has the engine in memory.

In: a directory for compiled modules. Out: modules and instances. Imported by ``controller_host.module.loading`` when
the first guest is to run; the rest of the service knows it by its type alone.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from controller_host.guest.guest import Host
from controller_host.guest.instance import Instance
from controller_host.guest.limits import CompileBounds, Limits
from controller_host.guest.modules import Module, Modules
from controller_host.guest.snapshots import Snapshot


class Runtime:
    """An engine and the modules that were compiled for it. ``key``: what of a snapshot has to be of this engine."""

    def __init__(self, directory: Path, bounds: CompileBounds) -> None:
        self.modules: Final = Modules(directory, bounds=bounds)
        self.key: Final = self.modules.engine.key

    def boot(self, module: Module, limits: Limits, host: Host, begun: Callable[[Instance], None]) -> Instance:
        """Start a guest; see :meth:`controller_host.guest.instance.Instance.boot`."""
        return Instance.boot(module, limits, host, begun)

    def wake(self, module: Module, limits: Limits, host: Host, snapshot: Snapshot) -> Instance:
        """Bring a guest back; see :meth:`controller_host.guest.instance.Instance.wake`."""
        return Instance.wake(module, limits, host, snapshot)

    def close(self) -> None:
        """Compile nothing any more."""
        self.modules.close()
