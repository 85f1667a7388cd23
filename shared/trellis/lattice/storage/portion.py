"""The part of the wadm bucket that belongs to one lattice.

In: entries and updates of a bucket that is read for several lattices. Out: the applications of the lattice, the time of
the last complete read, and notifications of changes. Created by ``lattice_store``, filled by ``bucket``. Invariants:
nothing is removed before a complete read (ADR 0045); excess or unreadable entries of one lattice affect no other
lattice (ADR 0077).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Final

from trellis.lattice.connection.address import LatticeAddress
from trellis.lattice.connection.lattice_connection import LatticeConnection
from trellis.lattice.domain.bucket_entries import BucketEntries, Entry
from trellis.lattice.domain.reading import LatticeDataError
from trellis.lattice.domain.subjects import model_list_key
from trellis.lattice.timings import LatticeTimings
from trellis.lattice.wakeup import Wakeup
from trellis.telemetry import get_logger

Changed = Callable[[Iterable[str] | None], None]
"""Called in the event loop with the names of applications that may have changed, None for all."""

_log = get_logger(__name__)


class Portion:
    """Entries of one lattice. ``unreadable``: set while the bucket is missing, or the NATS user may not read it.

    ``report``: seconds between two log lines about invalid entries.
    """

    def __init__(
        self,
        address: LatticeAddress,
        connection: LatticeConnection,
        changed: Changed,
        report: float = LatticeTimings().report,
    ) -> None:
        self._report = report
        self.key: Final = model_list_key(address.lattice, address.account)
        """Key of the list of names of the lattice; with "-" it is the prefix of its other keys."""
        self.stored: Final = BucketEntries(self.key)
        self.unreadable: Final = Wakeup()
        self.reason = "wadm storage not read yet"
        """Why it is not read, for users; "" if it is."""
        self._lattice = address.name
        self._connection = connection
        self._changed = changed
        self._synced: tuple[float, float] | None = None
        self._changed_names: set[str] = set()
        self._invalid_logged = -self._report

    @property
    def synced_at(self) -> float | None:
        """Time of the last complete read on the current connection, in Unix seconds; None without one."""
        if self._synced is None or self._connection.since != self._synced[0]:
            return None
        return self._synced[1]

    def begin(self, bucket: str) -> None:
        """Start a complete read of a bucket."""
        self._changed_names = set()
        self.stored.begin(bucket)

    def take(self, entry: Entry) -> None:
        """Process an entry with a key of this lattice; its change is reported later.

        Raises:
            TooManyError: the entry exceeds the limits.
        """
        try:
            self._changed_names |= self.stored.take(entry)
        except LatticeDataError as error:
            self._log_invalid(error)

    def complete(self, read_on: float, *, first: bool) -> None:
        """Note that all entries were processed. ``read_on``: start of that connection; ``first``: once per read."""
        was_unavailable = self.synced_at is None
        if first:  # later calls drop nothing, because the read contained all entries
            self._changed_names |= self.stored.complete()
        self._synced = (read_on, time.time())
        self.reason = ""
        self.unreadable.clear()
        if was_unavailable:
            self._changed_names.clear()
            self._changed(None)
        else:
            self.report_changes()

    def report_changes(self) -> None:
        """Report the pending changes, if a complete read is cached."""
        if self._changed_names and self.synced_at is not None:
            names, self._changed_names = self._changed_names, set()
            self._changed(names)

    def unavailable(self, reason: str, *, unreadable: bool = False, always: bool = False) -> None:
        """Note that the bucket cannot be read; ``always``: reports it even if it was not read before."""
        was_there, self._synced, self.reason = self._synced is not None, None, reason
        if unreadable:
            self.unreadable.set()
        if was_there or always:  # without the report, dependents would wait without a reason
            self._changed(None)

    def _log_invalid(self, error: LatticeDataError) -> None:
        now = time.monotonic()
        if now - self._invalid_logged >= self._report:
            self._invalid_logged = now
            _log.warning("skipped an invalid entry of the wadm storage", lattice=self._lattice, reason=str(error))
