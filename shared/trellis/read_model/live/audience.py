"""The live state of some namespaces for one viewer: watches, and the revisions from them.

In: a connection with the identity of the viewer. Out: a journal, and a notification of each revision. Created by the
console for each viewer, and by `trellis top`. Invariants: a change is part of a revision after the interval of a
``Pace``, together with all later changes; slow readers use no additional memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from trellis.kube.client import Kube
from trellis.kube.watch_timings import WatchTimings
from trellis.read_model.entities.composing import Composer
from trellis.read_model.entities.journal import Journal
from trellis.read_model.live.watching import Part, Watches, viewer_timings


class News:
    """Notifies any number of readers of the next change."""

    def __init__(self) -> None:
        self._next = asyncio.Event()

    @property
    def next(self) -> asyncio.Event:
        """An event that is set at the next change; get it before reading the current state."""
        return self._next

    def notify(self) -> None:
        """Wake all readers."""
        now, self._next = self._next, asyncio.Event()
        now.set()


@dataclass(frozen=True, slots=True)
class Pace:
    """Interval for which changes are collected before they are shown, in seconds, and number of ids that are stored."""

    seconds: float
    ids_kept: int
    look: float = 0.5
    """Interval of checks for readable kinds in seconds, which no watch reports."""
    watch: WatchTimings = field(default_factory=viewer_timings)


class Audience:
    """Runs while it has readers. ``epoch`` distinguishes its revisions from those of other runs."""

    def __init__(self, kube: Kube, parts: Sequence[Part], namespaces: Sequence[str], pace: Pace) -> None:
        self.epoch: Final = secrets.token_hex(8)
        self.journal: Final = Journal(pace.ids_kept)
        self._pace: Final = pace
        self.news: Final = News()
        self._composer: Final = Composer()
        self._watches: Final = Watches(kube, parts, namespaces, self._take, pace.watch)
        self._dirty = asyncio.Event()
        self.over = False
        """True once it has ended: no further revision follows."""

    @property
    def watches(self) -> int:
        """Number of watches."""
        return len(self._watches.informers)

    async def run(self) -> None:
        """Watch until cancelled."""
        try:
            await self._run()
        finally:
            self.over = True
            self.news.notify()

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for informer in self._watches.informers:
                group.create_task(informer.run(), name="viewer's watch")
            group.create_task(self._watches.prove_absences(self._pace.look), name="viewer's kinds")
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._pace.look):
                        await self._dirty.wait()
                if self._dirty.is_set():
                    await asyncio.sleep(self._pace.seconds)
                self._dirty.clear()
                self._revise()

    def _take(self, part: str, key: str, new: Any, /) -> None:  # noqa: ANN401 - the part's view
        self._composer.take(part, key, new)
        self._dirty.set()

    def _revise(self) -> None:
        self._watches.forget_refused()
        for status in self._watches.statuses():
            self._composer.report(status)
        if self.journal.write(self._composer.flush()):
            self.news.notify()
