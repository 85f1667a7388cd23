"""The last status of each application of a lattice, from published statuses and queries of wadm.

In: a connection, a client of wadm. Out: statuses, and notifications of changes. Called by ``lattice_store``.
Invariants: an answer never replaces a status published after the query; the status of one deployed version is never
reported for another (ADR 0049); at most 16 queries at once; an application without an answer delays no other; invalid
data changes nothing; memory is bounded, and evicted statuses are queried again when due. Source: wadm 0.21 publishes a
status on ``wadm.status.<lattice>.<application>`` when it changes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from trellis.bus.connection import cancellation
from trellis.lattice.connection.lattice_connection import LatticeConnection, NatsUnavailableError
from trellis.lattice.domain.reading import LatticeDataError
from trellis.lattice.domain.replies import Status, WadmRefusedError, read_published_status
from trellis.lattice.domain.store import StoredModel
from trellis.lattice.domain.subjects import SubjectError, status_of, status_subject
from trellis.lattice.timings import LatticeTimings
from trellis.lattice.wadm.client import Wadm
from trellis.lattice.wakeup import Wakeup
from trellis.limits.backoff import Backoff
from trellis.telemetry import get_logger

_CONCURRENT_REQUESTS: Final = 16
CHARACTERS_KEPT: Final = 64 * 2**20
"""Limit on the statuses of a lattice; one status may have 1 MiB, and needs four times that in memory."""
_USELESS: Final = (LatticeDataError, WadmRefusedError, SubjectError)
"""Errors of an available wadm: a retry fails too until the application changes or the storage of wadm is available."""

_log = get_logger(__name__)


class Models(Protocol):
    """The existing applications."""

    def names(self) -> Collection[str]:
        """Return the names of all applications."""

    def find(self, name: str) -> StoredModel | None:
        """Return an application by name, None if it does not exist."""


@dataclass(frozen=True, slots=True)
class _Missed:
    """A failed query. ``useless``: number of consecutive invalid answers; ``until``: monotonic seconds of the retry."""

    useless: int
    until: float


class Statuses:
    """The statuses of applications. ``changed`` is called with the names of applications whose status changed."""

    def __init__(
        self,
        wadm: Wadm,
        connection: LatticeConnection,
        models: Models,
        changed: Callable[[Iterable[str]], None],
        timings: LatticeTimings = LatticeTimings(),
    ) -> None:
        self._timings = timings.statuses
        self._backoff = Backoff(timings.statuses.again, timings.statuses.every)
        self._report = timings.report
        self._wadm = wadm
        self._connection = connection
        self._models = models
        self._changed = changed
        self._statuses: dict[str, Status] = {}
        self._characters = 0
        self._received: dict[str, int] = {}
        self._deployed: dict[str, bytes] = {}  # digest of the deployed spec, empty if undeployed
        self._started = False
        self._unconfirmed: dict[str, float] = {}  # until when, monotonic seconds
        self._missed: dict[str, _Missed] = {}
        self._count = 0
        self._wanted = Wakeup()
        self._queried_on: float | None = None
        self._queried_at = 0.0
        self._invalid_logged = -self._report

    def find(self, name: str) -> Status | None:
        """Return the last status of the deployed version of an application, None if there is none."""
        return None if name in self._unconfirmed else self._statuses.get(name)

    def models_changed(self, names: Iterable[str] | None) -> None:
        """Process changes of applications, None for all; invalidates statuses of a former deployed version."""
        for name in list({*self._models.names(), *self._deployed} if names is None else names):
            model = self._models.find(name)
            if model is None:
                self._forget(name)
                self._deployed.pop(name, None)
                continue
            specs = {version: manifest.spec for version, manifest in model.versions}
            now, former = specs.get(model.deployed, b""), self._deployed.get(name)
            self._deployed[name] = now
            if now != former:
                self._missed.pop(name, None)
            if now and now != former and self._started:
                self._unconfirmed[name] = time.monotonic() + self._timings.unconfirmed
        self._started = self._started or names is None
        self.want()

    def asking(self) -> Callable[[Mapping[str, Status]], None]:
        """Start a query; return the function that processes the statuses of its answer."""
        count, at, unconfirmed_until = self._count, time.monotonic(), dict(self._unconfirmed)

        def answered(statuses: Mapping[str, Status]) -> None:
            for name, status in statuses.items():
                self._missed.pop(name, None)
                unconfirmed = unconfirmed_until.get(name)
                settled = unconfirmed is not None and unconfirmed <= at and self._unconfirmed.get(name) == unconfirmed
                if self._received.get(name, 0) <= count:
                    if settled:  # otherwise a further version was deployed
                        del self._unconfirmed[name]
                    self._take(name, status, is_new=settled)

        return answered

    def want(self) -> None:
        """Request a query soon, for applications without a status, or after a reconnect."""
        self._wanted.set()

    async def run(self, lattice: str) -> None:
        """Subscribe and query until cancelled."""
        subject = status_subject(lattice)
        try:
            await self._connection.listen(subject, self._on_status)
            while True:
                cancellation.check()
                await self._connection.there()
                await self._compare()
                await self._wanted.wait(self._pause())
                await asyncio.sleep(self._timings.settle)  # several changes, one comparison
        finally:
            await self._connection.ignore(subject, self._on_status)

    def _pause(self) -> float:
        """Return the seconds until the next query without a request."""
        # The status of an undeployed application stays invalidated, without a query.
        due = [item.until for name, item in self._missed.items() if self._deployed.get(name)]
        due += [at for name, at in self._unconfirmed.items() if self._deployed.get(name) and name not in self._missed]
        return max(0.0, min([self._timings.every, *(at - time.monotonic() for at in due)]))

    async def _compare(self) -> None:
        """Query the statuses that may be missing."""
        self._wanted.clear()
        names, since, now = set(self._models.names()), self._connection.since, time.monotonic()
        repeat = since != self._queried_on or now - self._queried_at >= self._timings.every
        for name in self._statuses.keys() - names if repeat else ():
            self._forget(name)
        # wadm publishes the status of a deployment: it is queried only if none arrives for a while. Undeployed
        # applications need no status.
        running = {name for name in names if self._deployed.get(name)}
        due = {name for name, until in self._unconfirmed.items() if until <= now}
        again = {name for name, item in self._missed.items() if item.until <= now}
        unknown = ((running - self._statuses.keys() - self._unconfirmed.keys()) | due) - self._missed.keys()
        gate = asyncio.Semaphore(_CONCURRENT_REQUESTS)

        async def query_status(name: str) -> None:
            async with gate:
                await self._ask(name)

        await asyncio.gather(*map(query_status, running if repeat else (unknown | again) & running))
        if repeat and since is not None:
            self._queried_on, self._queried_at = since, time.monotonic()

    async def _ask(self, name: str) -> None:
        """Query a status; schedule a retry if the answer is missing or invalid."""
        answered = self.asking()
        try:
            status = await self._wadm.status(name)
        except NatsUnavailableError:
            self._missed[name] = _Missed(0, time.monotonic() + self._timings.again)
        except _USELESS:
            useless = self._missed.get(name, _Missed(0, 0.0)).useless + 1
            self._missed[name] = _Missed(useless, time.monotonic() + self._backoff.bound(useless))
        else:
            answered({name: status})

    def _take(self, name: str, status: Status, *, is_new: bool) -> None:
        former = self._statuses.get(name)
        if former != status:
            self._characters += status.characters - (former.characters if former is not None else 0)
            self._statuses[name], is_new = status, True
            while self._characters > CHARACTERS_KEPT and len(self._statuses) > 1:
                self._forget(next(item for item in self._statuses if item != name))
        if is_new:
            self._changed([name])

    def _on_status(self, subject: str, payload: bytes) -> None:
        name = status_of(subject)
        if name is None or self._models.find(name) is None:
            return  # the status of an application created a moment later is queried then
        try:
            status = read_published_status(payload)
        except LatticeDataError as error:
            self._log_invalid(subject, error)
            return
        self._missed.pop(name, None)
        self._count += 1
        self._received[name] = self._count
        self._take(name, status, is_new=self._unconfirmed.pop(name, None) is not None)

    def _forget(self, name: str) -> None:
        if (former_status := self._statuses.pop(name, None)) is not None:
            self._characters -= former_status.characters
        for by_name in (self._received, self._unconfirmed, self._missed):
            by_name.pop(name, None)

    def _log_invalid(self, subject: str, error: LatticeDataError) -> None:
        now = time.monotonic()
        if now - self._invalid_logged >= self._report:
            self._invalid_logged = now
            _log.warning("skipped an invalid wadm status", subject=subject, reason=str(error))
