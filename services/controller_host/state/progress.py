"""Processed versions of each controller, stored with its snapshot: a restart wakes no controller for them.

In: object versions that a controller was called for. Out: the same after a restart, if the snapshot includes them.
Called by ``hosting``, from threads of the pool. Invariants: a version that counts as processed was processed before the
snapshot was taken; lost or damaged data causes repeated calls, never missing ones.
Source: ADR 0057.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from controller_host.state.database import Damaged, Database, NotWritten
from controller_host.timings import DiskTimings
from trellis.telemetry import get_logger

__all__ = ["NEVER", "Damaged", "KnownModule", "LastCall", "NotWritten", "Progress", "Saved", "SeenVersions"]

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS controllers (
  uid TEXT PRIMARY KEY, sha256 TEXT NOT NULL, config TEXT NOT NULL, token TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS done (
  uid TEXT NOT NULL, key TEXT NOT NULL, version TEXT NOT NULL, due REAL, PRIMARY KEY (uid, key)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS saved (
  uid TEXT PRIMARY KEY, sha256 TEXT NOT NULL, state BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS modules (
  source TEXT PRIMARY KEY, sha256 TEXT NOT NULL, abi INTEGER NOT NULL, bytes INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS claims (uid TEXT PRIMARY KEY, claim TEXT NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS claims_by_claim ON claims (claim);
"""
_SHOWN: Final = (
    "SELECT EXISTS (SELECT 1 FROM claims WHERE uid = ? AND claim = ?), EXISTS (SELECT 1 FROM claims WHERE claim = ?)"
)
NEVER: Final = "!"
"""A version that no object has: the key is not processed."""
_OF_CONTROLLERS: Final = ("controllers", "done", "saved", "claims")
_FORGET: Final = tuple(f"DELETE FROM {table} WHERE uid = ?" for table in _OF_CONTROLLERS)  # noqa: S608 - constant table names

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LastCall:
    """Last successful call for a key. ``version``: of the object, "" if deleted; ``due``: next call, Unix seconds."""

    version: str
    due: float | None = None


@dataclass(frozen=True, slots=True)
class SeenVersions:
    """Stored state of a controller: module and configuration of its snapshot, and the processed versions."""

    sha256: str
    config: str
    token: str = ""
    """Token in the note of the snapshot of ``processed``; with another snapshot, no version counts as processed."""
    processed: dict[str, LastCall] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Saved:
    """State that a module saved for the next version of its controller."""

    sha256: str
    state: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class KnownModule:
    """The module of a source whose content cannot change."""

    sha256: str
    abi: int | None
    """None: only the running module can return it."""
    bytes: int

    def as_found(self, former: KnownModule | None) -> KnownModule:
        """Return the module with the ABI version of ``former``, if that is the same module."""
        return self if former is None or self.abi is not None or former.sha256 != self.sha256 else former


class Progress(Database):
    """One file in the data directory of the host; thread-safe.

    Methods that write raise NotWritten if the write fails, except those for known sources.
    Commits do not wait for the disk: after a power failure, the most recent ones may be lost, in order; the token
    detects this, as the snapshot may be newer or older.
    """

    def __init__(self, directory: Path, timings: DiskTimings = DiskTimings()) -> None:  # noqa: B008 - frozen
        super().__init__(directory, _TABLES, timings.busy)

    def load(self, uid: str) -> SeenVersions | None:
        """Return the stored state of a controller, None if there is none."""
        with self._reading() as base:
            row = base.execute("SELECT sha256, config, token FROM controllers WHERE uid = ?", (uid,)).fetchone()
            found = base.execute("SELECT key, version, due FROM done WHERE uid = ?", (uid,))
            processed = {key: LastCall(version, due) for key, version, due in found}
            if row is None:
                return SeenVersions("", "", "", processed) if processed else None
            return SeenVersions(row[0], row[1], row[2], processed)

    def meet(self, uid: str, keys: Iterable[str]) -> None:
        """Record keys before the first call of a controller for them."""
        with self._writing() as base:
            rows = [(uid, key, NEVER) for key in keys]
            base.executemany("INSERT OR REPLACE INTO done VALUES (?, ?, ?, NULL)", rows)

    def commit(self, uid: str, seen: SeenVersions) -> None:
        """Record a complete snapshot and the changes of ``seen.processed`` since the last; "" without due: deleted."""
        with self._writing() as base:
            deleted = [(uid, key) for key, call in seen.processed.items() if not call.version and call.due is None]
            kept = [
                (uid, key, call.version, call.due)
                for key, call in seen.processed.items()
                if call.version or call.due is not None
            ]
            if deleted:
                base.executemany("DELETE FROM done WHERE uid = ? AND key = ?", deleted)
            if kept:
                base.executemany("INSERT OR REPLACE INTO done VALUES (?, ?, ?, ?)", kept)
            row = (uid, seen.sha256, seen.config, seen.token)
            base.execute("INSERT OR REPLACE INTO controllers VALUES (?, ?, ?, ?)", row)
            # This snapshot includes the saved state of a former version.
            base.execute("DELETE FROM saved WHERE uid = ? AND sha256 <> ?", (uid, seen.sha256))

    def lose(self, uid: str) -> None:
        """Mark all keys as not processed (the snapshot is lost); keep the keys and the state for the next version."""
        with self._writing() as base:
            base.execute("DELETE FROM controllers WHERE uid = ?", (uid,))
            base.execute("UPDATE done SET version = ?, due = NULL WHERE uid = ?", (NEVER, uid))

    def forget(self, uid: str) -> None:
        """Delete all rows of a controller."""
        with self._writing() as base:
            for statement in _FORGET:
                base.execute(statement, (uid,))

    def uids(self) -> set[str]:
        """Return the uids of all stored controllers."""
        with self._reading() as base:
            return {
                uid
                for table in _OF_CONTROLLERS
                for (uid,) in base.execute(f"SELECT DISTINCT uid FROM {table}")  # noqa: S608 - constant table names
            }

    def sweep(self, keep: Collection[str]) -> int:
        """Delete all controllers except ``keep``; return the number of deleted ones."""
        deleted = self.uids() - set(keep)
        for uid in deleted:
            self.forget(uid)
        return len(deleted)

    def save(self, uid: str, saved: Saved) -> None:
        """Store the state for the next version, until a snapshot of another module is committed, or ``drop_saved``."""
        with self._writing() as base:
            base.execute("INSERT OR REPLACE INTO saved VALUES (?, ?, ?)", (uid, saved.sha256, saved.state))

    def saved(self, uid: str) -> Saved | None:
        """Return the stored state for the next version, None if there is none."""
        with self._reading() as base:
            row = base.execute("SELECT sha256, state FROM saved WHERE uid = ?", (uid,)).fetchone()
            return Saved(*row) if row else None

    def drop_saved(self, uid: str) -> None:
        """Delete the stored state for the next version."""
        with self._writing() as base:
            base.execute("DELETE FROM saved WHERE uid = ?", (uid,))

    def learn(self, source: str, module: KnownModule) -> None:
        """Store the module of a fixed source, so that a restart does not fetch it."""
        row = (source, module.sha256, module.abi or 0, module.bytes)
        self._keep("INSERT OR REPLACE INTO modules VALUES (?, ?, ?, ?)", row)

    def learn_version(self, sha256: str, abi: int) -> None:
        """Store the ABI version of a module."""
        self._keep("UPDATE modules SET abi = ? WHERE sha256 = ?", (abi, sha256))

    def known(self, source: str) -> KnownModule | None:
        """Return the stored module of a source, None if there is none."""
        with self._reading() as base:
            row = base.execute("SELECT sha256, abi, bytes FROM modules WHERE source = ?", (source,)).fetchone()
            return KnownModule(row[0], row[1] or None, row[2]) if row else None

    def show(self, uid: str, claim: str) -> None:
        """Record that a source permitted a controller to read it; ``claim``: digest of the source and the user."""
        self._keep("INSERT OR REPLACE INTO claims VALUES (?, ?)", (uid, claim))

    def has_shown(self, uid: str, claim: str) -> bool:
        """Return whether a source permitted this controller, or another existing one with the same user, to read it.

        The claim is deleted with its last controller: a namespace or account can be re-created by another owner.
        """
        with self._reading() as base:
            own, shown = base.execute(_SHOWN, (uid, claim, claim)).fetchone()
        if shown and not own:
            self.show(uid, claim)
        return bool(shown)

    def digests(self) -> set[str]:
        """Return the SHA-256 of all stored modules."""
        with self._reading() as base:
            return {
                digest
                for table in ("controllers", "saved", "modules")
                for (digest,) in base.execute(f"SELECT sha256 FROM {table}")  # noqa: S608 - constant table names
            }

    def keep_modules(self, sources: Mapping[str, object] | Collection[str]) -> None:
        """Delete the modules of all sources except ``sources``."""
        with self._writing() as base:
            known = [source for (source,) in base.execute("SELECT source FROM modules")]
            base.executemany("DELETE FROM modules WHERE source = ?", [(item,) for item in known if item not in sources])

    def _keep(self, statement: str, row: tuple[object, ...]) -> None:
        """Write a row that can be fetched again: a failed write is only logged."""
        try:
            with self._writing() as base:
                base.execute(statement, row)
        except NotWritten as error:
            _log.warning("source not cached, fetching it again after a restart", error=str(error))
