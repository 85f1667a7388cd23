"""What each controller has worked through, kept beside its snapshot: a restart wakes nobody for what is old news.

In: versions of objects that a controller was called for. Out: the same after a restart, if they are what the snapshot's
memory has seen. Called by ``hosting``, from threads of the pool. Invariants: what is noted as done was done before the
snapshot was taken, never after; whatever is lost or damaged here costs calls that repeat, never one that is missing.
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

__all__ = ["NEVER", "Damaged", "KnownModule", "Mark", "NotWritten", "Progress", "Saved", "SeenVersions"]

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
"""A version that no object has: the key is not done."""
_OF_CONTROLLERS: Final = ("controllers", "done", "saved", "claims")
_FORGET: Final = tuple(f"DELETE FROM {table} WHERE uid = ?" for table in _OF_CONTROLLERS)  # noqa: S608 - names of our own tables

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Mark:
    """The last good call for a key. ``version``: of the object, "" if gone; ``due``: of the next one, Unix seconds."""

    version: str
    due: float | None = None


@dataclass(frozen=True, slots=True)
class SeenVersions:
    """What a controller left: which module and configuration its snapshot is of, and what that has worked through."""

    sha256: str
    config: str
    token: str = ""
    """Stands in the note of the snapshot that ``marks`` are of; with any other nothing counts as done."""
    marks: dict[str, Mark] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Saved:
    """What a module said to the next version of its controller."""

    sha256: str
    state: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class KnownModule:
    """What a source that cannot change was found to have."""

    sha256: str
    abi: int | None
    """None: only the module itself can tell, when it starts."""
    bytes: int

    def as_found(self, former: KnownModule | None) -> KnownModule:
        """Return it with the version that was found out before, if it is the same module."""
        return self if former is None or self.abi is not None or former.sha256 != self.sha256 else former


class Progress(Database):
    """One file in the directory of the host's data; every method may be called from any thread.

    Whatever writes raises NotWritten where the disk does not take it, but for what is known of sources.
    No commit waits for the disk: after a power failure the newest ones may be lost together, never some of them; the
    token tells that, as the snapshot beside it may be a newer one, or an older.
    """

    def __init__(self, directory: Path, timings: DiskTimings = DiskTimings()) -> None:  # noqa: B008 - frozen
        super().__init__(directory, _TABLES, timings.busy)

    def recall(self, uid: str) -> SeenVersions | None:
        """Return what is known of a controller, None if nothing is."""
        with self._reading() as base:
            row = base.execute("SELECT sha256, config, token FROM controllers WHERE uid = ?", (uid,)).fetchone()
            found = base.execute("SELECT key, version, due FROM done WHERE uid = ?", (uid,))
            marks = {key: Mark(version, due) for key, version, due in found}
            if row is None:
                return SeenVersions("", "", "", marks) if marks else None
            return SeenVersions(row[0], row[1], row[2], marks)

    def meet(self, uid: str, keys: Iterable[str]) -> None:
        """Note keys that a controller is to be called for, and never was."""
        with self._writing() as base:
            rows = [(uid, key, NEVER) for key in keys]
            base.executemany("INSERT OR REPLACE INTO done VALUES (?, ?, ?, NULL)", rows)

    def commit(self, uid: str, past: SeenVersions) -> None:
        """Note that a snapshot is whole, with what changed in ``past.marks`` since the last; "" and no due: gone."""
        with self._writing() as base:
            gone = [(uid, key) for key, mark in past.marks.items() if not mark.version and mark.due is None]
            held = [
                (uid, key, mark.version, mark.due)
                for key, mark in past.marks.items()
                if mark.version or mark.due is not None
            ]
            if gone:
                base.executemany("DELETE FROM done WHERE uid = ? AND key = ?", gone)
            if held:
                base.executemany("INSERT OR REPLACE INTO done VALUES (?, ?, ?, ?)", held)
            row = (uid, past.sha256, past.config, past.token)
            base.execute("INSERT OR REPLACE INTO controllers VALUES (?, ?, ?, ?)", row)
            # What a former version saved is in this snapshot now, if it is anywhere.
            base.execute("DELETE FROM saved WHERE uid = ? AND sha256 <> ?", (uid, past.sha256))

    def lose(self, uid: str) -> None:
        """Let nothing count as done: the snapshot is gone. Its keys stay, and what was saved for another version."""
        with self._writing() as base:
            base.execute("DELETE FROM controllers WHERE uid = ?", (uid,))
            base.execute("UPDATE done SET version = ?, due = NULL WHERE uid = ?", (NEVER, uid))

    def forget(self, uid: str) -> None:
        """Forget a controller."""
        with self._writing() as base:
            for statement in _FORGET:
                base.execute(statement, (uid,))

    def uids(self) -> set[str]:
        """Return the controllers that something is known of."""
        with self._reading() as base:
            return {
                uid
                for table in _OF_CONTROLLERS
                for (uid,) in base.execute(f"SELECT DISTINCT uid FROM {table}")  # noqa: S608 - names of our own tables
            }

    def sweep(self, keep: Collection[str]) -> int:
        """Forget controllers that are not among these; returns how many."""
        gone = self.uids() - set(keep)
        for uid in gone:
            self.forget(uid)
        return len(gone)

    def save(self, uid: str, saved: Saved) -> None:
        """Keep what a module said to its next version, until a snapshot of another is committed, or ``drop_saved``."""
        with self._writing() as base:
            base.execute("INSERT OR REPLACE INTO saved VALUES (?, ?, ?)", (uid, saved.sha256, saved.state))

    def saved(self, uid: str) -> Saved | None:
        """Return what is kept for the next version, None if nothing is."""
        with self._reading() as base:
            row = base.execute("SELECT sha256, state FROM saved WHERE uid = ?", (uid,)).fetchone()
            return Saved(*row) if row else None

    def drop_saved(self, uid: str) -> None:
        """Forget what was kept for the next version."""
        with self._writing() as base:
            base.execute("DELETE FROM saved WHERE uid = ?", (uid,))

    def learn(self, source: str, module: KnownModule) -> None:
        """Keep what a source that cannot change was found to have, so that a restart need not fetch it."""
        row = (source, module.sha256, module.abi or 0, module.bytes)
        self._keep("INSERT OR REPLACE INTO modules VALUES (?, ?, ?, ?)", row)

    def learn_version(self, sha256: str, abi: int) -> None:
        """Keep the version of the ABI that a module says it is made for."""
        self._keep("UPDATE modules SET abi = ? WHERE sha256 = ?", (abi, sha256))

    def known(self, source: str) -> KnownModule | None:
        """Return what a source was found to have, None if that is not known."""
        with self._reading() as base:
            row = base.execute("SELECT sha256, abi, bytes FROM modules WHERE source = ?", (source,)).fetchone()
            return KnownModule(row[0], row[1] or None, row[2]) if row else None

    def show(self, uid: str, claim: str) -> None:
        """Note that a controller was let have a source; ``claim``: digest of the source and of the user who asked."""
        self._keep("INSERT OR REPLACE INTO claims VALUES (?, ?)", (uid, claim))

    def has_shown(self, uid: str, claim: str) -> bool:
        """Return whether a controller was let have a source, or another that lives now and asks as the same user.

        With the last of them the claim is forgotten: a namespace or an account may be re-created by another writer.
        """
        with self._reading() as base:
            own, anybody = base.execute(_SHOWN, (uid, claim, claim)).fetchone()
        if anybody and not own:
            self.show(uid, claim)
        return bool(anybody)

    def digests(self) -> set[str]:
        """Return the SHA-256 of all modules that are known of."""
        with self._reading() as base:
            return {
                digest
                for table in ("controllers", "saved", "modules")
                for (digest,) in base.execute(f"SELECT sha256 FROM {table}")  # noqa: S608 - names of our own tables
            }

    def keep_modules(self, sources: Mapping[str, object] | Collection[str]) -> None:
        """Forget what other sources were found to have."""
        with self._writing() as base:
            known = [source for (source,) in base.execute("SELECT source FROM modules")]
            base.executemany("DELETE FROM modules WHERE source = ?", [(one,) for one in known if one not in sources])

    def _keep(self, statement: str, row: tuple[object, ...]) -> None:
        """Write what is asked for again where it is not known: a disk that does not take it is no reason to fail."""
        try:
            with self._writing() as base:
                base.execute(statement, row)
        except NotWritten as error:
            _log.warning("source not cached, fetching it again after a restart", error=str(error))
