"""One SQLite file for many threads, that is there again whatever becomes of it.

In: a directory, and statements that make tables. Out: transactions. Called by ``progress``. Invariants: a disk that
takes nothing damages nothing, and is no reason to restarts; a file that is no database any more is one, also where it
is found as the host runs: nobody has to restart that for it; what was closed stays as it is.
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


class NotWritten(Exception):  # noqa: N818 - says what became of it
    """The disk did not take it: all is as it was. ``full``: because there is no room."""

    def __init__(self, error: sqlite3.Error) -> None:
        super().__init__(f"{FILE}: {error}")
        self.full = _code(error) == sqlite3.SQLITE_FULL


class Damaged(sqlite3.DatabaseError):
    """The file is no database any more. It is begun again, as after the loss of the disk.

    Nothing is known of before.
    """


class Database:
    """The file of a directory; ``tables`` makes what it has to have."""

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
        """Have the file to read while the block runs; raises Damaged."""
        with self._lock, self._mending():
            yield self._base

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """Have the block be one transaction; raises NotWritten."""
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
            return self._anew(str(error))

    def _anew(self, why: str) -> sqlite3.Connection:
        _log.warning("controller progress unreadable, delivering all objects again", error=why)
        for suffix in ("", "-wal", "-shm"):
            self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
        return self._connect()

    def _connect(self) -> sqlite3.Connection:
        base = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False, timeout=self._busy)
        try:
            self._path.chmod(0o600)
            # One process has the directory. So the log's index is in memory, and no file that a full disk does not
            # take: a start writes nothing.
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
        """Begin the file again if it is found to be damaged; raises Damaged then: who tries again has a whole one."""
        if self._damaged:
            self._begin_anew()
        try:
            yield
        except sqlite3.DatabaseError as error:
            if getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK) & 0xFF not in _DAMAGED:
                raise
            self._base.close()
            self._damaged = str(error)
            self._begin_anew()
            raise Damaged(str(error)) from error

    def _begin_anew(self) -> None:
        try:
            self._base = self._anew(self._damaged)
        except (sqlite3.Error, OSError) as error:
            raise Damaged(f"{self._damaged}, and no new file can be made: {error}") from error
        self._damaged = ""

    def _roll_back(self) -> None:
        """End the transaction, if the failure has not ended it already; the failure is what counts."""
        with contextlib.suppress(sqlite3.Error):
            if self._base.in_transaction:
                self._base.execute("ROLLBACK")


def _code(error: sqlite3.Error) -> int:
    """Return the primary result code of SQLite, that of a damaged file if it did not say any."""
    return int(getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)) & 0xFF


def _check(base: sqlite3.Connection) -> None:
    (found,) = base.execute("PRAGMA quick_check(1)").fetchone()
    if found != "ok":
        raise sqlite3.DatabaseError(str(found)[:200])
