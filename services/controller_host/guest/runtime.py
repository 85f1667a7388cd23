"""Facade of everything that runs guests; importing this module loads the engine into memory.

In: a directory for compiled modules. Out: modules and instances. Imported by ``controller_host.module.loading`` before
the first guest runs; the rest of the service imports only its type.
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
    """An engine and the modules compiled for it. ``key``: identifies the engine in snapshots."""

    def __init__(self, directory: Path, bounds: CompileBounds) -> None:
        self.modules: Final = Modules(directory, bounds=bounds)
        self.key: Final = self.modules.engine.key

    def boot(self, module: Module, limits: Limits, host: Host, on_start: Callable[[Instance], None]) -> Instance:
        """Start a guest; see :meth:`controller_host.guest.instance.Instance.boot`."""
        return Instance.boot(module, limits, host, on_start)

    def wake(self, module: Module, limits: Limits, host: Host, snapshot: Snapshot) -> Instance:
        """Restore a guest; see :meth:`controller_host.guest.instance.Instance.wake`."""
        return Instance.wake(module, limits, host, snapshot)

    def close(self) -> None:
        """Stop all compilations."""
        self.modules.close()
