"""What ``lifecycle`` needs of the guest runtime: modules, instances, and their state on disk.

In: whose guest, and what it is to be. Out: instances. Called in threads of the pool. Invariant: a snapshot is found for
the very controller, module, engine and configuration that it was taken of, or not at all.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from controller_host.guest.guest import Host
from controller_host.guest.instance import Instance
from controller_host.guest.limits import Limits
from controller_host.guest.modules import Module


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose state it is: uid of the controller, SHA-256 of its module, digest of its configuration."""

    uid: str
    sha256: str
    config: str


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a controller is to run. ``init``: the request of ``init``; ``config``: digest of what that says."""

    sha256: str
    init: bytes = field(repr=False)
    config: str
    limits: Limits

    def owner(self, uid: str) -> Owner:
        """Return whose state it is that a controller has of it."""
        return Owner(uid, self.sha256, self.config)


class Guests(Protocol):
    """Guests of one engine and one directory."""

    def load(self, wasm: bytes) -> Module:
        """Return the module of these bytes, compiled; raises ModuleRefused."""

    def module(self, sha256: str) -> Module | None:
        """Return a compiled module; None: it has to be loaded from its bytes."""

    def boot(self, module: Module, limits: Limits, host: Host) -> Instance:
        """Start a guest anew; raises GuestFault, ModuleRefused."""

    def has(self, owner: Owner) -> bool:
        """Return whether there is a snapshot."""

    def wake(self, module: Module, limits: Limits, host: Host, owner: Owner) -> Instance | None:
        """Bring a guest back as it was; None: there is no snapshot, or it cannot be used. Raises GuestFault."""

    def suspend(self, instance: Instance, owner: Owner) -> int:
        """Put a guest to disk, after which it is gone; returns the bytes that it takes there.

        Raises:
            OSError, GuestFault: it could not be; there is no snapshot of it.
        """

    def size(self, instance: Instance) -> int:
        """Return the bytes of memory that a guest has."""

    def forget(self, uid: str) -> None:
        """Remove the snapshot of a controller, if there is one."""
