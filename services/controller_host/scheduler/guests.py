"""Interface of ``lifecycle`` to the guest runtime: modules, instances, and their state on disk.

In: the owner and the prepared input of a guest. Out: instances. Called in threads of the pool. Invariants: a snapshot
is found only for its controller, module, engine and configuration; the engine is loaded to run a guest, not to remove
files.
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
    """Owner of a state: uid of the controller, SHA-256 of its module, digest of its configuration."""

    uid: str
    sha256: str
    config: str


@dataclass(frozen=True, slots=True)
class Prepared:
    """Prepared input of a guest. ``init``: the request of ``init``; ``config``: its digest."""

    sha256: str
    init: bytes = field(repr=False)
    config: str
    limits: Limits

    def owner(self, uid: str) -> Owner:
        """Return the owner of the state of a controller with this input."""
        return Owner(uid, self.sha256, self.config)


class Guests(Protocol):
    """Guests of one engine and one directory. Methods that require the engine raise EngineUnavailable without one."""

    def require(self) -> None:
        """Check that guests can run; raises EngineUnavailable."""

    def load(self, wasm: bytes) -> Module:
        """Return the module of these bytes, compiled; raises ModuleRefused."""

    def module(self, sha256: str) -> Module | None:
        """Return a compiled module; None: use ``load`` with its bytes."""

    def boot(self, module: Module, limits: Limits, host: Host, on_start: Callable[[Instance], None]) -> Instance:
        """Start a guest cold; ``on_start`` gets it before guest code runs. Raises GuestFault, ModuleRefused."""

    def note(self, owner: Owner) -> str | None:
        """Return the note of a snapshot; None: there is none."""

    def wake(self, module: Module, limits: Limits, host: Host, owner: Owner) -> Instance | None:
        """Restore a guest; None: there is no snapshot, or it cannot be used. Raises GuestFault."""

    def suspend(self, instance: Instance, owner: Owner, note: str) -> int:
        """Suspend a guest to disk and close it; return the disk usage of its snapshot in bytes.

        Raises:
            SnapshotFailed: the write failed: the guest is still in memory, without a snapshot.
        """

    def disk_bytes(self, uid: str) -> int:
        """Return the disk usage of a controller's snapshot in bytes, 0 if there is none."""

    def size(self, instance: Instance) -> int:
        """Return the memory of a guest in bytes."""

    def forget(self, uid: str) -> None:
        """Remove the snapshot of a controller, if there is one."""


class LocalGuests:
    """Guests of this process, with their modules and snapshots in one directory; ``report``: see ``loading.Loading``.

    Raises:
        PermissionError: another account owns the directory.
        BlockingIOError: another process uses it.
    """

    def __init__(
        self,
        directory: Path,
        bounds: CompileBounds = CompileBounds(),  # noqa: B008 - frozen
        report: Callable[[str], None] = lambda _: None,
        timings: Timings = Timings(),  # noqa: B008 - frozen
    ) -> None:
        self._directory = directory
        self._young: Final = timings.disk.young
        self._compiled = private_directory(directory / "modules")
        self._snapshots = Snapshots(directory / "snapshots")
        self._engine = loading.local(self._compiled, bounds, report, timings.turns.engine)

    def require(self) -> None:
        """Load the engine; raises EngineUnavailable."""
        self._engine.get()

    def load(self, wasm: bytes) -> Module:
        """Compile a module, once; raises ModuleRefused."""
        return self._engine.get().modules.load(wasm)

    def module(self, sha256: str) -> Module | None:
        """Return a module that was compiled before."""
        return self._engine.get().modules.cached(sha256)

    def boot(self, module: Module, limits: Limits, host: Host, on_start: Callable[[Instance], None]) -> Instance:
        """Start a guest cold; raises GuestFault, ModuleRefused."""
        return self._engine.get().boot(module, limits, host, on_start)

    def note(self, owner: Owner) -> str | None:
        """Return the note of a snapshot; None: there is none."""
        snapshot = self._snapshots.find(self._identity(owner))
        return None if snapshot is None else snapshot.note.decode()

    def wake(self, module: Module, limits: Limits, host: Host, owner: Owner) -> Instance | None:
        """Restore a guest; raises GuestFault, SnapshotLost."""
        snapshot = self._snapshots.find(self._identity(owner))
        return None if snapshot is None else self._engine.get().wake(module, limits, host, snapshot)

    def suspend(self, instance: Instance, owner: Owner, note: str) -> int:
        """Suspend a guest to disk; raises SnapshotFailed."""
        return instance.suspend(self._snapshots, self._identity(owner), note.encode()).disk_bytes

    def disk_bytes(self, uid: str) -> int:
        """Return the disk usage of a snapshot in bytes."""
        return self._snapshots.disk_bytes(uid)

    def size(self, instance: Instance) -> int:
        """Return the private memory of a guest in bytes."""
        return instance.resident_bytes()

    def forget(self, uid: str) -> None:
        """Remove a snapshot."""
        self._snapshots.forget(uid)

    def uids(self) -> set[str]:
        """Return the uids of controllers with a snapshot."""
        return self._snapshots.uids()

    def sweep(self, keep: Iterable[str], modules: Iterable[str]) -> None:
        """Remove all snapshots except of the uids in ``keep``, and all modules except the digests in ``modules``."""
        self._snapshots.sweep(keep)
        self.sweep_modules(modules)

    def sweep_modules(self, keep: Iterable[str]) -> None:
        """Remove compiled modules except the digests in ``keep``, and modules in use."""
        with self._engine.if_loaded() as engine:
            if engine is not None:
                engine.modules.sweep(keep, young_seconds=self._young)
                return
            # Without an engine, no module is in use. Kept files of a former engine are removed after it is loaded.
            kept = set(keep)
            for path in self._compiled.iterdir():
                if path.name.partition(".")[0] not in kept:
                    path.unlink(missing_ok=True)

    def try_disk(self) -> None:
        """Write a test file and remove it; raises OSError if the disk refuses writes."""
        path = self._directory / "trial"
        try:
            write_whole(path, b"\1" * _TRIAL_BYTES)
        finally:
            path.unlink(missing_ok=True)

    def close(self) -> None:
        """Record a clean shutdown, so that the next run trusts the snapshots, and cancel compilations."""
        self._engine.close()
        self._snapshots.close()

    def _identity(self, owner: Owner) -> Identity:
        return Identity(owner.uid, owner.sha256, self._engine.get().key, owner.config)
