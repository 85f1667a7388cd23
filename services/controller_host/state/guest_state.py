"""State of one guest on disk: its snapshot and processed versions, also while the disk refuses writes.

In: an instance to suspend, keys, lost state. Out: results of writes. Called by ``lifecycle``, in threads of the pool.
Invariants: the state in memory is correct regardless of failed writes: after one, there is no snapshot, or none of its
versions counts as processed; a failed write is reported to ``disk_space`` and does not discard state in memory.
Source: ADR 54, 57 and 60.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from controller_host.domain.keys import key_text
from controller_host.guest.snapshots import SnapshotFailed
from controller_host.report.counters import Counters
from controller_host.scheduler.deliveries import Delivery, Served
from controller_host.scheduler.guests import Prepared
from controller_host.scheduler.starting import Parts
from controller_host.state.processed_versions import ProcessedVersions
from controller_host.state.progress import NotWritten, SeenVersions

if TYPE_CHECKING:
    from controller_host.guest.instance import Instance


class GuestState:
    """State on disk of the controller ``uid``. ``snapshot``: true if there is a usable snapshot."""

    __slots__ = ("_counters", "_parts", "_uid", "processed", "snapshot")

    def __init__(self, parts: Parts, uid: str, counters: Counters) -> None:
        self._parts = parts
        self._uid = uid
        self._counters = counters
        self.processed: Final = ProcessedVersions(parts.progress, uid)
        self.snapshot = False

    def restore(self, seen: SeenVersions, prepared: Prepared) -> bool:
        """Load the state of a former run; return whether there is a snapshot for ``prepared``."""
        fits = (seen.sha256, seen.config) == (prepared.sha256, prepared.config)
        token = self._parts.guests.note(prepared.owner(self._uid)) if fits else None
        if token is None:
            return False
        self.snapshot = True
        self._counters.snapshot_bytes = self._parts.guests.disk_bytes(self._uid)
        self.on_disk(partial(self.processed.restore, seen, token))
        return True

    def put(self, instance: Instance, prepared: Prepared) -> bool:
        """Suspend an instance to disk; return whether it succeeded. After a failure, the instance is unchanged."""
        token = secrets.token_hex(8)
        try:
            size = self._parts.guests.suspend(instance, prepared.owner(self._uid), token)
        except SnapshotFailed as error:
            self.snapshot, self._counters.snapshot_bytes = False, 0
            self._refused(error)
            return False
        self.snapshot, self._counters.snapshot_bytes = True, size
        # The processed versions are written after the snapshot, and later if this write fails.
        if self.on_disk(partial(self.processed.commit, prepared.sha256, prepared.config, token)):
            self._parts.disk_space.took()
        return True

    def settle(self) -> None:
        """Write the processed versions of the snapshot, if this failed before."""
        if self.on_disk(self.processed.settle):
            self._parts.disk_space.took()

    def meet(self, served: Served, deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
        """Return the allowed deliveries: all; while writes fail, only keys that the guest was called for before."""
        try:
            self.processed.meet(key_text(delivery.turn.key) for delivery in deliveries)
        except NotWritten as error:
            self._refused(error)
            known = [delivery for delivery in deliveries if self.processed.get(key_text(delivery.turn.key)) is not None]
            served.unwritten = str(error)
            served.later = [delivery.turn for delivery in deliveries if delivery not in known]
            return known
        return deliveries

    def lose(self, seen: SeenVersions | None = None) -> None:
        """Delete the snapshot and the processed versions: the next start is cold, even if the writes fail."""
        self.snapshot, self._counters.snapshot_bytes = False, 0
        self.on_disk(partial(self._parts.guests.forget, self._uid))
        self.on_disk(partial(self.processed.lose, seen))

    def forget(self) -> None:
        """Delete all state of a deleted controller. After a failed write, the sweep deletes it later."""
        self.on_disk(partial(self._parts.guests.forget, self._uid))
        self.on_disk(partial(self._parts.progress.forget, self._uid))

    def on_disk(self, work: Callable[[], None]) -> bool:
        """Write a change that is already applied in memory; return whether the write succeeded."""
        try:
            work()
        except (NotWritten, OSError) as error:
            self._refused(error)
            return False
        return True

    def _refused(self, error: SnapshotFailed | NotWritten | OSError) -> None:
        telemetry = self._parts.telemetry
        telemetry.metrics.controller_disk_failures_total.labels(telemetry.service).inc()
        self._parts.disk_space.refused(error)
