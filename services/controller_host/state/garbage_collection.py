"""Garbage collection on disk: state of deleted controllers, and unused modules.

In: the files and rows on disk, and the existing controllers. Out: deleted files and rows. Called by ``app``: at the
start of a term, and then each minute after a change of controllers or modules. Invariants: data of an existing
controller is not removed, also of a new one; nor is a module that is in use or may start; modules are removed only when
the specs of all controllers were read.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final, Protocol

from controller_host.domain.views import Wanted
from controller_host.scheduler.hosted import Hosted
from controller_host.state.progress import NotWritten, Progress
from controller_host.timings import DiskTimings
from trellis.telemetry import get_logger

_log = get_logger(__name__)


class Stored(Protocol):
    """Files of guests on disk; see ``guests``."""

    def uids(self) -> set[str]:
        """Return the uids of controllers with a snapshot."""

    def forget(self, uid: str) -> None:
        """Remove a snapshot."""

    def sweep(self, keep: Collection[str], modules: Collection[str]) -> None:
        """Remove all snapshots except of the uids in ``keep``, and compiled modules except these digests."""

    def sweep_modules(self, keep: Collection[str]) -> None:
        """Remove compiled modules except the digests in ``keep``, and modules in use."""


@dataclass(frozen=True, slots=True)
class ExistingControllers:
    """Existing controllers. ``modules``: SHA-256 of their modules; ``wanted``: their parsed specs."""

    uids: frozenset[str]
    modules: frozenset[str]
    wanted: tuple[Wanted, ...]


def existing_controllers_of(uids: Collection[str], hosted: Collection[Hosted]) -> ExistingControllers | None:
    """Return the existing controllers; None while specs of some are not read yet."""
    if not set(uids) <= {item.view.uid for item in hosted}:
        return None
    return ExistingControllers(
        uids=frozenset(uids).union(item.view.uid for item in hosted),
        modules=frozenset(item.lifecycle.prepared.sha256 for item in hosted if item.lifecycle.prepared is not None),
        wanted=tuple(item.wanted for item in hosted if item.wanted is not None),
    )


class GarbageCollection:
    """Periodic garbage collection; ``living`` returns the existing controllers, called in the event loop."""

    def __init__(
        self,
        stored: Stored,
        progress: Progress,
        living: Callable[[], ExistingControllers | None],
        timings: DiskTimings = DiskTimings(),  # noqa: B008 - frozen
    ) -> None:
        self._timings: Final = timings
        self._stored = stored
        self._progress = progress
        self._living = living
        self._swept: tuple[frozenset[str], frozenset[str]] | None = None

    async def run(self) -> None:
        """Sweep until cancelled."""
        while True:
            await asyncio.sleep(self._timings.sweep)
            try:
                await self.sweep()
            except (NotWritten, OSError, sqlite3.Error) as error:
                _log.warning("unused files not removed, retrying", error=str(error))

    async def sweep(self) -> None:
        """Remove leftover data, if controllers or modules have changed.

        Raises:
            NotWritten, OSError, sqlite3.Error: the disk cannot be written or read.
        """
        # Read the disk first, then the controllers: data of a controller created in between is not in `found`.
        found = await asyncio.to_thread(self._found)
        living = self._living()
        if living is None or self._swept == (living.uids, living.modules):
            return
        await asyncio.to_thread(self._remove, found - living.uids, living)
        self._swept = (living.uids, living.modules)

    def _found(self) -> set[str]:
        return self._stored.uids() | self._progress.uids()

    def _remove(self, deleted: Collection[str], living: ExistingControllers) -> None:
        for uid in deleted:
            self._stored.forget(uid)
            self._progress.forget(uid)
        self._progress.keep_modules({wanted.source for wanted in living.wanted})
        self._stored.sweep_modules(living.modules | self._progress.digests())


def needs_controllers(progress: Progress, guests: Stored) -> str | None:
    """Return the reason why WasmControllers have to be listed: state on disk; None if there is none."""
    try:
        count = len(progress.uids() | guests.uids())
    except (NotWritten, OSError, sqlite3.Error) as error:
        return f"the state of controllers on disk cannot be read: {error}"
    return f"{count} controllers have state on disk, which is preserved" if count else None


def sweep_all(progress: Progress, guests: Stored, keep: set[str]) -> None:
    """Remove data of deleted controllers, and unused modules."""
    try:
        progress.sweep(keep)
        guests.sweep(keep, progress.digests())
    except (NotWritten, OSError, sqlite3.Error) as error:
        _log.warning("data of deleted controllers not removed, retrying", error=str(error))
