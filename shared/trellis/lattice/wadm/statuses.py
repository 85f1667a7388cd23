"""What wadm last said of each application of a lattice: heard when it says it, asked for when that may be missed.

In: a link, a client of wadm. Out: statuses, word of every change. Called by ``lattice_store``. Invariants: an answer
never replaces what was heard after it was asked for; what was said of one deployed version is never told of another
(ADR 0049); at most 16 questions at once; garbage changes nothing; nothing is kept of what is no application, and no
more of all together than the bound: what has to go is asked for when it is time for that.
Source: wadm 0.21 says a status on ``wadm.status.<lattice>.<application>`` when it is another than the one before.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, Protocol

from trellis.bus.connection import cancellation
from trellis.lattice.connection.link import Link, LinkAwayError
from trellis.lattice.domain.reading import LatticeDataError
from trellis.lattice.domain.replies import Status, WadmRefusedError, read_status_said
from trellis.lattice.domain.store import StoredModel
from trellis.lattice.domain.subjects import SubjectError, status_of, status_subject
from trellis.lattice.timings import LatticeTimings
from trellis.lattice.wadm.client import Wadm
from trellis.telemetry import get_logger

_ASKED_AT_ONCE: Final = 16
CHARACTERS_KEPT: Final = 64 * 2**20
"""Of all applications of a lattice; what is said of one may have 1 MiB, which takes four times that in memory."""
_TROUBLE: Final = (LinkAwayError, LatticeDataError, WadmRefusedError, SubjectError)

_log = get_logger(__name__)


class Models(Protocol):
    """The applications there are."""

    def names(self) -> Collection[str]:
        """Return their names."""

    def find(self, name: str) -> StoredModel | None:
        """Return one, None if there is none of this name."""


class Statuses:
    """``changed`` is told the applications of which wadm says something else."""

    def __init__(
        self,
        wadm: Wadm,
        link: Link,
        models: Models,
        changed: Callable[[Iterable[str]], None],
        timings: LatticeTimings = LatticeTimings(),
    ) -> None:
        self._timings = timings.statuses
        self._report = timings.report
        self._wadm = wadm
        self._link = link
        self._models = models
        self._changed = changed
        self._said: dict[str, Status] = {}
        self._characters = 0
        self._heard: dict[str, int] = {}
        self._deployed: dict[str, bytes] = {}  # digest of its spec, empty of what is not to run
        self._begun = False
        self._doubted: dict[str, float] = {}  # until when, monotonic seconds
        self._count = 0
        self._wanted = asyncio.Event()
        self._asked_on: float | None = None
        self._asked_at = 0.0
        self._garbage_told = -self._report

    def find(self, name: str) -> Status | None:
        """Return what wadm last said of an application as it is deployed now, None if nothing was heard."""
        return None if name in self._doubted else self._said.get(name)

    def models_changed(self, names: Iterable[str] | None) -> None:
        """Something may be new of these applications, None for all: what was said of another version is doubted."""
        for name in list({*self._models.names(), *self._deployed} if names is None else names):
            model = self._models.find(name)
            if model is None:
                self._forget(name)
                self._deployed.pop(name, None)
                continue
            specs = {version: manifest.spec for version, manifest in model.versions}
            now, former = specs.get(model.deployed, b""), self._deployed.get(name)
            self._deployed[name] = now
            if now and now != former and self._begun:
                self._doubted[name] = time.monotonic() + self._timings.doubt
        self._begun = self._begun or names is None
        self.want()

    def asking(self) -> Callable[[Mapping[str, Status]], None]:
        """Return whom to tell the statuses that an answer to a question has that is asked now."""
        asked, at, doubted = self._count, time.monotonic(), dict(self._doubted)

        def answered(statuses: Mapping[str, Status]) -> None:
            for name, status in statuses.items():
                doubt = doubted.get(name)
                settled = doubt is not None and doubt <= at and self._doubted.get(name) == doubt
                if self._heard.get(name, 0) <= asked:
                    if settled:  # else yet another version is deployed
                        del self._doubted[name]
                    self._take(name, status, news=settled)

        return answered

    def want(self) -> None:
        """There may be applications of which nothing was heard, or another link: it is asked soon."""
        self._wanted.set()

    async def run(self, lattice: str) -> None:
        """Listen and ask until cancelled."""
        subject = status_subject(lattice)
        try:
            await self._link.listen(subject, self._on_status)
            while True:
                cancellation.check()
                await self._link.there()
                complete = await self._compare()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._pause(complete)):
                        await self._wanted.wait()
                await asyncio.sleep(self._timings.settle)  # several changes, one comparison
        finally:
            await self._link.ignore(subject, self._on_status)

    def _pause(self, complete: bool) -> float:
        """Return after how many seconds it is asked again, should nothing be wanted."""
        pause = self._timings.every if complete else self._timings.again
        # Of what is not deployed any more a doubt stays, and nothing is asked.
        due = (until for name, until in self._doubted.items() if self._deployed.get(name))
        doubts = min(due, default=None) if complete else None
        return pause if doubts is None else max(0.0, min(pause, doubts - time.monotonic()))

    async def _compare(self) -> bool:
        """Ask for the statuses that may have been missed; return whether all were answered."""
        self._wanted.clear()
        names, since, now = set(self._models.names()), self._link.since, time.monotonic()
        anew = since != self._asked_on or now - self._asked_at >= self._timings.every
        for name in self._said.keys() - names if anew else ():
            self._forget(name)
        # wadm publishes what becomes of a deployment: it is asked about one only if nothing was heard for a while. Of
        # what is not deployed nothing has to be known.
        running = {name for name in names if self._deployed.get(name)}
        due = {name for name, until in self._doubted.items() if until <= now}
        gate = asyncio.Semaphore(_ASKED_AT_ONCE)

        async def one(name: str) -> bool:
            async with gate:
                return await self._ask(name)

        asked = running if anew else (running - self._said.keys() - self._doubted.keys()) | (due & running)
        complete = all(await asyncio.gather(*map(one, asked)))
        if anew and complete and since is not None:
            self._asked_on, self._asked_at = since, time.monotonic()
        return complete

    async def _ask(self, name: str) -> bool:
        """Ask for a status; return whether it was answered."""
        answered = self.asking()
        try:
            status = await self._wadm.status(name)
        except _TROUBLE:
            return False
        answered({name: status})
        return True

    def _take(self, name: str, status: Status, *, news: bool) -> None:
        former = self._said.get(name)
        if former != status:
            self._characters += status.characters - (former.characters if former is not None else 0)
            self._said[name], news = status, True
            while self._characters > CHARACTERS_KEPT and len(self._said) > 1:
                self._forget(next(one for one in self._said if one != name))
        if news:
            self._changed([name])

    def _on_status(self, subject: str, payload: bytes) -> None:
        name = status_of(subject)
        if name is None or self._models.find(name) is None:
            return  # of an application that is there a moment later it is asked then
        try:
            status = read_status_said(payload)
        except LatticeDataError as error:
            self._tell_garbage(subject, error)
            return
        self._count += 1
        self._heard[name] = self._count
        self._take(name, status, news=self._doubted.pop(name, None) is not None)

    def _forget(self, name: str) -> None:
        if (said := self._said.pop(name, None)) is not None:
            self._characters -= said.characters
        for held in (self._heard, self._doubted):
            held.pop(name, None)

    def _tell_garbage(self, subject: str, error: LatticeDataError) -> None:
        now = time.monotonic()
        if now - self._garbage_told >= self._report:
            self._garbage_told = now
            _log.warning("a status of wadm cannot be read: it is left out", subject=subject, reason=str(error))
