"""Removes from disk what no controller needs any more: state of those that are gone, and modules that nobody runs.

In: what is on disk, and who lives. Out: files and rows that are gone. Called by ``app``: at the start of a term, and
then each minute in which controllers or their modules have changed. Invariants: nothing of a controller that lives is
removed, whenever it came; no module that is in use, or may be about to be; without an answer from all controllers no
module goes.
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
    """What guests have on disk; see ``guests``."""

    def uids(self) -> set[str]:
        """Return the controllers that have a snapshot."""

    def forget(self, uid: str) -> None:
        """Remove a snapshot."""

    def sweep(self, keep: Collection[str], modules: Collection[str]) -> None:
        """Remove all snapshots but those of these controllers, and compiled modules but those of these digests."""

    def sweep_modules(self, keep: Collection[str]) -> None:
        """Remove compiled modules but those of these digests, and those in use."""


@dataclass(frozen=True, slots=True)
class Living:
    """Who lives. ``modules``: SHA-256 of what they run; ``wanted``: what their specs say."""

    uids: frozenset[str]
    modules: frozenset[str]
    wanted: tuple[Wanted, ...]


def living_of(uids: Collection[str], hosted: Collection[Hosted]) -> Living | None:
    """Return who lives; None while there are controllers of which nobody has read yet what they want."""
    if not set(uids) <= {one.view.uid for one in hosted}:
        return None
    return Living(
        uids=frozenset(uids).union(one.view.uid for one in hosted),
        modules=frozenset(one.life.prepared.sha256 for one in hosted if one.life.prepared is not None),
        wanted=tuple(one.wanted for one in hosted if one.wanted is not None),
    )


class Sweeping:
    """``living`` returns who lives, and is called in the event loop."""

    def __init__(
        self,
        stored: Stored,
        progress: Progress,
        living: Callable[[], Living | None],
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
        """Remove what is left behind, if something may be.

        Raises:
            NotWritten, OSError, sqlite3.Error: the disk does not take it, or cannot be read.
        """
        # First what there is, then who lives: who came in between is not among the former.
        found = await asyncio.to_thread(self._found)
        living = self._living()
        if living is None or self._swept == (living.uids, living.modules):
            return
        await asyncio.to_thread(self._remove, found - living.uids, living)
        self._swept = (living.uids, living.modules)

    def _found(self) -> set[str]:
        return self._stored.uids() | self._progress.uids()

    def _remove(self, gone: Collection[str], living: Living) -> None:
        for uid in gone:
            self._stored.forget(uid)
            self._progress.forget(uid)
        self._progress.keep_modules({wanted.source for wanted in living.wanted})
        self._stored.sweep_modules(living.modules | self._progress.digests())


def needs_controllers(progress: Progress, guests: Stored) -> str | None:
    """Return why WasmControllers have to be listed: some have state on disk; None if none has."""
    try:
        count = len(progress.uids() | guests.uids())
    except (NotWritten, OSError, sqlite3.Error) as error:
        return f"it is not known which controllers have state on disk: {error}"
    return f"{count} controllers have state on disk, which is kept" if count else None


def sweep_all(progress: Progress, guests: Stored, keep: set[str]) -> None:
    """Remove what was left of controllers that are gone, and modules that nobody runs."""
    try:
        progress.sweep(keep)
        guests.sweep(keep, progress.digests())
    except (NotWritten, OSError, sqlite3.Error) as error:
        _log.warning("data of deleted controllers not removed, retrying", error=str(error))
