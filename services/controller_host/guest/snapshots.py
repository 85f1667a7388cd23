"""The snapshots of one machine: a directory with a file for each suspended controller.

In: an :class:`Identity`. Out: a :class:`Snapshot` that can be woken, or None, which means a cold start. Called by the
service and by ``suspending``. Invariants: a snapshot is found only for its controller, module, engine and
configuration, complete and unchanged: after another boot or an unclean shutdown, it is verified in full; one process
at a time uses the directory; other accounts cannot read it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import threading
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from controller_host.guest import snapshot_file
from controller_host.guest.directories import is_in_memory, private_directory, write_whole
from controller_host.guest.snapshot_file import Header

_log: Final = structlog.get_logger(__name__)

_SUFFIX: Final = ".snapshot"
_UID: Final = re.compile(r"[0-9A-Za-z-]{1,63}")
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class SnapshotLost(Exception):  # noqa: N818 (named after the outcome)
    """A found snapshot can no longer be woken: start cold."""


class SnapshotFailed(Exception):  # noqa: N818 (as above)
    """The snapshot of an instance could not be written. The instance is still awake, without a snapshot.

    ``number``: errno, 0 if there was none.
    """

    def __init__(self, message: str, number: int = 0) -> None:
        super().__init__(message)
        self.number = number


@dataclass(frozen=True, slots=True)
class Identity:
    """Identity of a snapshot. ``engine``: :attr:`controller_host.guest.engine.Engine.key`.

    ``config_digest``: of the input of ``init``. A snapshot with another identity is ignored.
    """

    controller_uid: str
    module_sha256: str
    engine: str
    config_digest: str

    def digest(self) -> bytes:
        """Return the unique digest of 32 bytes."""
        parts = (self.controller_uid, self.module_sha256, self.engine, self.config_digest)
        return hashlib.sha256("\0".join(f"{len(part)}:{part}" for part in parts).encode()).digest()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A suspended instance. ``note``: bytes of the host; ``inode``: of its file."""

    identity: Identity
    header: Header
    note: bytes
    inode: int
    snapshots: Snapshots

    @property
    def memory_bytes(self) -> int:
        """Size of its memory; its file is sparse and smaller on disk."""
        return self.header.memory_bytes


class Snapshots:
    """The snapshots of a directory; call :meth:`close` after all instances are closed.

    Raises:
        PermissionError: Another account owns the directory.
        BlockingIOError: Another process uses it.
    """

    def __init__(self, directory: Path) -> None:
        self._directory: Final = private_directory(directory)
        self.in_memory: Final = is_in_memory(directory)
        """On a tmpfs, reading a hole of a mapped file allocates memory, and ends the process if there is none."""
        self._lock: Final = threading.Lock()
        self._awake: Final[set[str]] = set()
        self._intact: Final[dict[str, tuple[int, int]]] = {}
        self._locked: Final = _locked(self._directory / "lock")
        self.boot: Final = _boot()
        self.run: Final = self._continued_run()

    def find(self, identity: Identity) -> Snapshot | None:
        """Return the snapshot of exactly this identity; None if there is no complete one.

        Verifies all pages if the file may have changed: after a reboot, or an unclean shutdown.
        """
        with self._opened(identity.controller_uid) as descriptor:
            if descriptor is None:
                return None
            header = snapshot_file.read_header(descriptor)
            if header is None:
                self.forget(identity.controller_uid)
                return None
            if header.identity != identity.digest():
                return None
            note = snapshot_file.read_note(descriptor, header)
            if note is None or not self._trusted(identity.controller_uid, descriptor, header):
                self.forget(identity.controller_uid)
                return None
            return Snapshot(identity, header, note, os.fstat(descriptor).st_ino, self)

    def uids(self) -> set[str]:
        """Return the uids of controllers that have a file, complete or not."""
        return {path.name.removesuffix(_SUFFIX) for path in self._directory.glob(f"*{_SUFFIX}")}

    def forget(self, controller_uid: str) -> None:
        """Remove a controller's snapshot. An awake instance stays awake."""
        self.path(controller_uid).unlink(missing_ok=True)

    def sweep(self, keep: Iterable[str]) -> set[str]:
        """Remove the snapshots of all controllers except ``keep``; return the removed uids."""
        deleted = self.uids() - set(keep)
        for uid in deleted:
            self.forget(uid)
        return deleted

    def close(self) -> None:
        """Record a clean shutdown, so that the next run of the same boot trusts the snapshots without verification.

        If the disk refuses this write, the next run verifies each snapshot before it wakes it.
        """
        try:
            write_whole(self._directory / "clean", self.boot + self.run)
        except OSError as error:
            _log.warning(
                "clean shutdown could not be recorded, the next start verifies all snapshots", error=str(error)
            )
        finally:
            os.close(self._locked)

    def disk_bytes(self, controller_uid: str) -> int:
        """Return the disk usage of a controller's file in bytes, 0 if there is none."""
        try:
            return self.path(controller_uid).stat().st_blocks * 512
        except FileNotFoundError:
            return 0

    def path(self, controller_uid: str) -> Path:
        """Return the path of a controller's file. Raise ValueError for an invalid uid."""
        if not _UID.fullmatch(controller_uid):
            raise ValueError(f"{controller_uid!r} is not a uid")
        return self._directory / f"{controller_uid}{_SUFFIX}"

    def claim(self, controller_uid: str) -> None:
        """Record that an instance maps this file; raise RuntimeError if another instance does."""
        with self._lock:
            if controller_uid in self._awake:  # a second instance would see changed pages
                raise RuntimeError(f"the controller {controller_uid} has an instance that is awake")
            self._awake.add(controller_uid)

    def release(self, controller_uid: str) -> None:
        """Record that the instance is closed."""
        with self._lock:
            self._awake.discard(controller_uid)

    @contextlib.contextmanager
    def _opened(self, controller_uid: str) -> Iterator[int | None]:
        try:
            descriptor = os.open(self.path(controller_uid), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            yield None
            return
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _trusted(self, uid: str, descriptor: int, header: Header) -> bool:
        if header.boot == self.boot and header.run == self.run:
            return True
        seen = (os.fstat(descriptor).st_ino, header.generation)
        if self._intact.get(uid) != seen:
            if not snapshot_file.intact(descriptor, header):
                return False
            self._intact[uid] = seen
        return True

    def _continued_run(self) -> bytes:
        """Return the previous run's id if it ended cleanly in this boot; otherwise a new id."""
        marker = self._directory / "clean"
        try:
            content = marker.read_bytes()
        except OSError:
            content = b""
        marker.unlink(missing_ok=True)
        if len(content) == 32 and content[:16] == self.boot:
            return content[16:]
        return uuid.uuid4().bytes


def _locked(path: Path) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise BlockingIOError(
            f"{path.parent} is in use by another controller_host: set TRELLIS_CONTROLLER_DATA_DIR to another directory"
        ) from None
    return descriptor


def _boot() -> bytes:
    """Return the kernel's id of this boot; without one, a random id."""
    try:
        return uuid.UUID(_BOOT_ID.read_text().strip()).bytes
    except (OSError, ValueError):
        return uuid.uuid4().bytes
