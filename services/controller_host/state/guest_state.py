"""What of one guest is on disk: its snapshot and what that has seen; and what holds while the disk takes nothing.

In: an instance to suspended to disk, keys, a past that is lost. Out: whether the disk took it. Called by ``lifecycle``,
in threads of the pool. Invariants: memory is right whatever the disk took: what it did not take is no snapshot, or one
of which nothing counts as done; what is refused is said to ``room``, and no reason to lose what is in memory. Source:
ADR 54, 57 and 60.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from controller_host.domain.keys import key_text
from controller_host.guest.snapshots import SnapshotFailed
from controller_host.report.figures import Figures
from controller_host.scheduler.deliveries import Delivery, Served
from controller_host.scheduler.guests import Prepared
from controller_host.scheduler.starting import Parts
from controller_host.state.marks import Marks
from controller_host.state.progress import NotWritten, SeenVersions

if TYPE_CHECKING:
    from controller_host.guest.instance import Instance


class Kept:
    """The state on disk of the controller ``uid``. ``snapshot``: there is one that can be woken."""

    __slots__ = ("_figures", "_parts", "_uid", "marks", "snapshot")

    def __init__(self, parts: Parts, uid: str, figures: Figures) -> None:
        self._parts = parts
        self._uid = uid
        self._figures = figures
        self.marks: Final = Marks(parts.progress, uid)
        self.snapshot = False

    def recall(self, past: SeenVersions, prepared: Prepared) -> bool:
        """Take over what a former run left; returns whether there is a snapshot of what is to run."""
        fits = (past.sha256, past.config) == (prepared.sha256, prepared.config)
        token = self._parts.guests.note(prepared.owner(self._uid)) if fits else None
        if token is None:
            return False
        self.snapshot = True
        self._figures.snapshot_bytes = self._parts.guests.disk_bytes(self._uid)
        self.on_disk(partial(self.marks.recall, past, token))
        return True

    def put(self, instance: Instance, prepared: Prepared) -> bool:
        """Put an instance to disk; returns whether it is there, and gone from memory. It is as it was otherwise."""
        token = secrets.token_hex(8)
        try:
            size = self._parts.guests.suspend(instance, prepared.owner(self._uid), token)
        except SnapshotFailed as error:
            self.snapshot, self._figures.snapshot_bytes = False, 0
            self._refused(error)
            return False
        self.snapshot, self._figures.snapshot_bytes = True, size
        # What it has seen is written after it, and owed if the disk has no room for that.
        if self.on_disk(partial(self.marks.commit, prepared.sha256, prepared.config, token)):
            self._parts.room.took()
        return True

    def settle(self) -> None:
        """Write what the snapshot has seen, if the disk did not take that with it."""
        if self.on_disk(self.marks.settle):
            self._parts.room.took()

    def meet(self, served: Served, deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
        """Return what may be told: all; while the disk takes nothing, what the guest was told of before."""
        try:
            self.marks.meet(key_text(one.turn.key) for one in deliveries)
        except NotWritten as error:
            self._refused(error)
            known = [one for one in deliveries if self.marks.get(key_text(one.turn.key)) is not None]
            served.unwritten = str(error)
            served.later = [one.turn for one in deliveries if one not in known]
            return known
        return deliveries

    def lose(self, past: SeenVersions | None = None) -> None:
        """Forget the snapshot, and what its guest has seen: the next start is cold, whatever the disk takes of that."""
        self.snapshot, self._figures.snapshot_bytes = False, 0
        self.on_disk(partial(self._parts.guests.forget, self._uid))
        self.on_disk(partial(self.marks.lose, past))

    def forget(self) -> None:
        """Leave nothing: the controller is gone. What the disk does not released is swept later."""
        self.on_disk(partial(self._parts.guests.forget, self._uid))
        self.on_disk(partial(self._parts.progress.forget, self._uid))

    def on_disk(self, work: Callable[[], None]) -> bool:
        """Do on disk what holds in memory already; returns whether the disk took it."""
        try:
            work()
        except (NotWritten, OSError) as error:
            self._refused(error)
            return False
        return True

    def _refused(self, error: SnapshotFailed | NotWritten | OSError) -> None:
        telemetry = self._parts.telemetry
        telemetry.metrics.controller_disk_failures_total.labels(telemetry.service).inc()
        self._parts.room.refused(error)
