"""What wadm last said of each application of a lattice: heard when it says it, asked for when that may be missed.

In: a link, a client of wadm. Out: statuses, word of every change. Called by ``lattice_store``. Invariants: an answer
never replaces what was heard after it was asked for; at most 16 questions at once; garbage changes nothing.
Source: wadm 0.21 says a status on ``wadm.status.<lattice>.<application>`` when it is another than the one before.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection, Iterable
from typing import Final

from trellis.bus import cancellation
from trellis.lattice.link import Link, LinkAwayError
from trellis.lattice.reading import LatticeDataError
from trellis.lattice.replies import Status, WadmRefusedError, read_status_said
from trellis.lattice.subjects import SubjectError, status_of, status_subject
from trellis.lattice.wadm import Wadm
from trellis.telemetry import get_logger

EVERY_SECONDS: Final = 300.0
"""Between two comparisons of all statuses when nothing goes wrong."""
_TRY_AGAIN_SECONDS: Final = 10.0
_SETTLE_SECONDS: Final = 0.1
_ASKED_AT_ONCE: Final = 16
_KEPT: Final = 10_000
_REPORT_SECONDS: Final = 60.0
_TROUBLE: Final = (LinkAwayError, LatticeDataError, WadmRefusedError, SubjectError)

_log = get_logger(__name__)


class Statuses:
    """``names`` returns the applications there are; ``changed`` is told those of which wadm says something else."""

    def __init__(
        self, wadm: Wadm, link: Link, names: Callable[[], Collection[str]], changed: Callable[[Iterable[str]], None]
    ) -> None:
        self._wadm = wadm
        self._link = link
        self._names = names
        self._changed = changed
        self._said: dict[str, Status] = {}
        self._heard: dict[str, int] = {}
        self._count = 0
        self._wanted = asyncio.Event()
        self._asked_on: float | None = None
        self._asked_at = 0.0
        self._garbage_told = -_REPORT_SECONDS

    def find(self, name: str) -> Status | None:
        """Return what wadm last said of an application, None if nothing was heard."""
        return self._said.get(name)

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
                    async with asyncio.timeout(EVERY_SECONDS if complete else _TRY_AGAIN_SECONDS):
                        await self._wanted.wait()
                await asyncio.sleep(_SETTLE_SECONDS)  # several changes, one comparison
        finally:
            await self._link.ignore(subject, self._on_status)

    async def _compare(self) -> bool:
        """Ask for the statuses that may have been missed; return whether all were answered."""
        self._wanted.clear()
        names, since = set(self._names()), self._link.since
        anew = since != self._asked_on or time.monotonic() - self._asked_at >= EVERY_SECONDS
        for name in self._said.keys() - names if anew else ():
            self._forget(name)
        gate = asyncio.Semaphore(_ASKED_AT_ONCE)

        async def one(name: str) -> bool:
            async with gate:
                heard = self._heard.get(name)
                try:
                    status = await self._wadm.status(name)
                except _TROUBLE:
                    return False
                if self._heard.get(name) == heard and self._said.get(name) != status:
                    self._said[name] = status
                    self._changed([name])
                return True

        asked = names if anew else names - self._said.keys()
        complete = all(await asyncio.gather(*map(one, asked)))
        if anew and complete and since is not None:
            self._asked_on, self._asked_at = since, time.monotonic()
        return complete

    def _on_status(self, subject: str, payload: bytes) -> None:
        name = status_of(subject)
        if name is None:
            return
        try:
            status = read_status_said(payload)
        except LatticeDataError as error:
            self._tell_garbage(subject, error)
            return
        self._count += 1
        self._heard[name] = self._count
        if self._said.get(name) != status:
            self._said[name] = status
            self._changed([name])
        if len(self._said) > _KEPT:
            self._forget(next(iter(self._said)))

    def _forget(self, name: str) -> None:
        self._said.pop(name, None)
        self._heard.pop(name, None)

    def _tell_garbage(self, subject: str, error: LatticeDataError) -> None:
        now = time.monotonic()
        if now - self._garbage_told >= _REPORT_SECONDS:
            self._garbage_told = now
            _log.warning("a status of wadm cannot be read: it is left out", subject=subject, reason=str(error))
