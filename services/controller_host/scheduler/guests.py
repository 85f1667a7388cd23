"""What ``lifecycle`` needs of the guest runtime: modules, instances, and their state on disk.

In: whose guest, and what it is to be. Out: instances. Called in threads of the pool. Invariants: a snapshot is found
for the very controller, module, engine and configuration that it was taken of, or not at all; the engine is loaded by
who needs a guest, and not to look after files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from controller_host.guest.directories import private_directory, write_whole
from controller_host.guest.limits import CompileBounds, Limits
from controller_host.guest.snapshots import Identity, Snapshots
from controller_host.module import loading
from controller_host.timings import Timings

if TYPE_CHECKING:
    from controller_host.guest.guest import Host
    from controller_host.guest.instance import Instance
    from controller_host.guest.modules import Module

_TRIAL_BYTES: Final = 1 << 20


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
    """Guests of one engine and one directory. Whatever needs the engine raises EngineUnavailable if there is none."""

    def require(self) -> None:
        """See to it that guests can be run; raises EngineUnavailable."""

    def load(self, wasm: bytes) -> Module:
        """Return the module of these bytes, compiled; raises ModuleRefused."""

    def module(self, sha256: str) -> Module | None:
        """Return a compiled module; None: it has to be loaded from its bytes."""

    def boot(self, module: Module, limits: Limits, host: Host, begun: Callable[[Instance], None]) -> Instance:
        """Start a guest again; ``begun`` gets it before anything of it runs. Raises GuestFault, ModuleRefused."""

    def note(self, owner: Owner) -> str | None:
        """Return what was given with a snapshot; None: there is none."""

    def wake(self, module: Module, limits: Limits, host: Host, owner: Owner) -> Instance | None:
        """Bring a guest back as it was; None: there is no snapshot, or it cannot be used. Raises GuestFault."""

    def suspend(self, instance: Instance, owner: Owner, note: str) -> int:
        """Put a guest to disk, after which it is gone; returns the bytes that it takes there.

        Raises:
            SnapshotFailed: it could not be: it is in memory as before, and there is no snapshot of it.
        """

    def disk_bytes(self, uid: str) -> int:
        """Return what the snapshot of a controller takes on disk, 0 if there is none."""

    def size(self, instance: Instance) -> int:
        """Return the bytes of memory that a guest has."""

    def forget(self, uid: str) -> None:
        """Remove the snapshot of a controller, if there is one."""


class LocalGuests:
    """Guests of this process, their modules and snapshots in one directory; ``told`` as of ``loading.Loading``.

    Raises:
        PermissionError: the directory is another owner's.
        BlockingIOError: another process has it.
    """

    def __init__(
        self,
        directory: Path,
        bounds: CompileBounds = CompileBounds(),  # noqa: B008 - frozen
        told: Callable[[str], None] = lambda _: None,
        timings: Timings = Timings(),  # noqa: B008 - frozen
    ) -> None:
        self._directory = directory
        self._young: Final = timings.disk.young
        self._compiled = private_directory(directory / "modules")
        self._snapshots = Snapshots(directory / "snapshots")
        self._engine = loading.local(self._compiled, bounds, told, timings.turns.engine)

    def require(self) -> None:
        """Load the engine; raises EngineUnavailable."""
        self._engine.get()

    def load(self, wasm: bytes) -> Module:
        """Compile a module, once; raises ModuleRefused."""
        return self._engine.get().modules.load(wasm)

    def module(self, sha256: str) -> Module | None:
        """Return a module that was compiled before."""
        return self._engine.get().modules.cached(sha256)

    def boot(self, module: Module, limits: Limits, host: Host, begun: Callable[[Instance], None]) -> Instance:
        """Start a guest again; raises GuestFault, ModuleRefused."""
        return self._engine.get().boot(module, limits, host, begun)

    def note(self, owner: Owner) -> str | None:
        """Return what was given with a snapshot; None: there is none."""
        snapshot = self._snapshots.find(self._identity(owner))
        return None if snapshot is None else snapshot.note.decode()

    def wake(self, module: Module, limits: Limits, host: Host, owner: Owner) -> Instance | None:
        """Bring a guest back; raises GuestFault, SnapshotLost."""
        snapshot = self._snapshots.find(self._identity(owner))
        return None if snapshot is None else self._engine.get().wake(module, limits, host, snapshot)

    def suspend(self, instance: Instance, owner: Owner, note: str) -> int:
        """Put a guest to disk; raises SnapshotFailed."""
        return instance.suspend(self._snapshots, self._identity(owner), note.encode()).disk_bytes

    def disk_bytes(self, uid: str) -> int:
        """Return what a snapshot takes on disk."""
        return self._snapshots.disk_bytes(uid)

    def size(self, instance: Instance) -> int:
        """Return the bytes of memory that are a guest's alone."""
        return instance.resident_bytes()

    def forget(self, uid: str) -> None:
        """Remove a snapshot."""
        self._snapshots.forget(uid)

    def uids(self) -> set[str]:
        """Return the controllers that have a snapshot."""
        return self._snapshots.uids()

    def sweep(self, keep: Iterable[str], modules: Iterable[str]) -> None:
        """Remove snapshots of all controllers but these, and all modules but those of these digests."""
        self._snapshots.sweep(keep)
        self.sweep_modules(modules)

    def sweep_modules(self, keep: Iterable[str]) -> None:
        """Remove compiled modules but those of these digests, and those in use."""
        with self._engine.held() as engine:
            if engine is not None:
                engine.modules.sweep(keep, young_seconds=self._young)
                return
            # Nobody runs or compiles one. What is kept of a former engine goes with the sweep after this one is there.
            kept = set(keep)
            for path in self._compiled.iterdir():
                if path.name.partition(".")[0] not in kept:
                    path.unlink(missing_ok=True)

    def try_disk(self) -> None:
        """Write something and remove it; raises OSError if the disk does not take it."""
        path = self._directory / "trial"
        try:
            write_whole(path, b"\1" * _TRIAL_BYTES)
        finally:
            path.unlink(missing_ok=True)

    def close(self) -> None:
        """Say that all ended well: snapshots are trusted by the next run. What is being compiled is given up."""
        self._engine.close()
        self._snapshots.close()

    def _identity(self, owner: Owner) -> Identity:
        return Identity(owner.uid, owner.sha256, self._engine.get().key, owner.config)
