"""One SQLite file for many threads, which is re-created if it is damaged.

In: a directory, and statements that create tables. Out: transactions. Called by ``progress``. Invariants: failed writes
do not damage the file, and the file is not re-created for them; a damaged file is re-created at startup and at run
time, without a restart of the host; a closed file is not changed.
Source: SQLite, "Result and Error Codes"; ADR 60.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from trellis.telemetry import get_logger

FILE: Final = "progress.sqlite"
_DAMAGED: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})

_log = get_logger(__name__)


class NotWritten(Exception):  # noqa: N818 - named after the outcome
    """A write failed and was rolled back. ``full``: the disk is full."""

    def __init__(self, error: sqlite3.Error) -> None:
        super().__init__(f"{FILE}: {error}")
        self.full = _code(error) == sqlite3.SQLITE_FULL


class Damaged(sqlite3.DatabaseError):
    """The file was damaged and re-created empty, as after the loss of the disk."""


class Database:
    """The database file of a directory; ``tables``: SQL statements that create its tables."""

    def __init__(self, directory: Path, tables: str, busy: float) -> None:
        self._busy = busy
        self._path = directory / FILE
        self._tables = tables
        self._lock = threading.Lock()
        self._damaged = ""
        self._base = self._open()

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._base.close()

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """Yield the connection for reading; raises Damaged."""
        with self._lock, self._mending():
            yield self._base

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """Run the block as one transaction; raises NotWritten."""
        with self._lock:
            try:
                with self._mending():
                    self._base.execute("BEGIN IMMEDIATE")
                    yield self._base
                    self._base.execute("COMMIT")
            except (sqlite3.OperationalError, Damaged) as error:
                self._roll_back()
                raise NotWritten(error) from error
            except BaseException:
                self._roll_back()
                raise

    def _open(self) -> sqlite3.Connection:
        try:
            return self._connect()
        except sqlite3.DatabaseError as error:
            if _code(error) not in _DAMAGED:
                raise OSError(f"{self._path} cannot be opened: {error}") from error
            return self._reconnect(str(error))

    def _reconnect(self, error: str) -> sqlite3.Connection:
        _log.warning("controller progress unreadable, delivering all objects again", error=error)
        for suffix in ("", "-wal", "-shm"):
            self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
        return self._connect()

    def _connect(self) -> sqlite3.Connection:
        base = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False, timeout=self._busy)
        try:
            self._path.chmod(0o600)
            # Only one process uses the directory, so the WAL index can be in memory: a start does not write to a full
            # disk.
            base.execute("PRAGMA locking_mode=EXCLUSIVE")
            base.execute("PRAGMA journal_mode=WAL")
            base.execute("PRAGMA synchronous=NORMAL")
            _check(base)
            base.executescript(self._tables)
        except BaseException:
            base.close()
            raise
        return base

    @contextlib.contextmanager
    def _mending(self) -> Iterator[None]:
        """Re-create the file if it is damaged, and raise Damaged: a retry uses the new file."""
        if self._damaged:
            self._replace_damaged()
        try:
            yield
        except sqlite3.DatabaseError as error:
            if getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK) & 0xFF not in _DAMAGED:
                raise
            self._base.close()
            self._damaged = str(error)
            self._replace_damaged()
            raise Damaged(str(error)) from error

    def _replace_damaged(self) -> None:
        try:
            self._base = self._reconnect(self._damaged)
        except (sqlite3.Error, OSError) as error:
            raise Damaged(f"{self._damaged}, and the file cannot be re-created: {error}") from error
        self._damaged = ""

    def _roll_back(self) -> None:
        """Roll back the transaction, unless the failure ended it; suppress further errors."""
        with contextlib.suppress(sqlite3.Error):
            if self._base.in_transaction:
                self._base.execute("ROLLBACK")


def _code(error: sqlite3.Error) -> int:
    """Return the primary result code of SQLite; without a code, the code of a damaged file."""
    return int(getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)) & 0xFF


def _check(base: sqlite3.Connection) -> None:
    (found,) = base.execute("PRAGMA quick_check(1)").fetchone()
    if found != "ok":
        raise sqlite3.DatabaseError(str(found)[:200])
