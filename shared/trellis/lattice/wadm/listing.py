"""The applications of a lattice from answers of wadm, for NATS users without access to its storage.

In: a client of wadm. Out: the applications and their statuses, and the time of the last complete list. Called by
``lattice_store`` while the bucket is unreadable. Invariants: at most 16 requests at once; a version is requested once;
events of wadm only shorten the wait; nothing here proves a deletion, and a failed request removes nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final

from trellis.lattice.connection.lattice_connection import LatticeConnection, NatsUnavailableError
from trellis.lattice.domain.models import Model
from trellis.lattice.domain.reading import LatticeDataError
from trellis.lattice.domain.replies import WadmRefusedError
from trellis.lattice.domain.store import StoredManifest, StoredModel
from trellis.lattice.domain.subjects import SubjectError, wadm_events_subject
from trellis.lattice.timings import ListingTimings
from trellis.lattice.wadm.client import Wadm
from trellis.lattice.wadm.statuses import Statuses
from trellis.lattice.wakeup import Wakeup

_CONCURRENT_REQUESTS: Final = 16
_TROUBLE: Final = (NatsUnavailableError, LatticeDataError, WadmRefusedError, SubjectError)

Manifest = Mapping[str, Any]


class Listing:
    """Applications from answers of wadm. ``reason``: why wadm does not answer, for users; "" if it does."""

    def __init__(
        self, wadm: Wadm, connection: LatticeConnection, statuses: Statuses, timings: ListingTimings = ListingTimings()
    ) -> None:
        self._timings = timings
        self.reason = "wadm not queried yet"
        self.known = False
        """True if wadm listed all applications since the bucket became unreadable; then this list is used."""
        self._wadm = wadm
        self._connection = connection
        self._statuses = statuses
        self._wanted = Wakeup()
        self._models: dict[str, tuple[Model, StoredModel]] = {}
        self._afresh = 0.0
        self._synced: tuple[float, float] | None = None

    @property
    def synced_at(self) -> float | None:
        """Time of the last complete list on the current connection, in Unix seconds; None without one."""
        if self._synced is None or self._connection.since != self._synced[0]:
            return None
        return self._synced[1]

    def find(self, name: str) -> StoredModel | None:
        """Return an application, None if it does not exist."""
        found = self._models.get(name)
        return None if found is None else found[1]

    def names(self) -> Collection[str]:
        """Return the names of all applications."""
        return self._models.keys()

    def want(self) -> None:
        """Request a query soon."""
        self._wanted.set()

    async def run(
        self, lattice: str, readable: Callable[[], bool], changed: Callable[[Iterable[str] | None], None]
    ) -> None:
        """Query wadm until the bucket is readable; ``changed`` gets the names of changed applications, None for all."""
        subject = wadm_events_subject(lattice)
        await self._connection.listen(subject, self._on_wadm)
        try:
            while not readable():
                self._wanted.clear()
                was_unavailable = self.synced_at is None
                changed_names = await self._compare()
                if was_unavailable != (self.synced_at is None):
                    changed(None)
                elif changed_names:
                    changed(changed_names)
                await self._wanted.wait(self._timings.every)
                await asyncio.sleep(self._timings.settle)  # several changes, one list
        finally:
            self._synced, self.known = None, False
            await self._connection.ignore(subject, self._on_wadm)

    def _on_wadm(self, subject: str, payload: bytes) -> None:
        del subject, payload  # the query returns the state: events arrive twice, late, and from other tenants
        self.want()

    async def _compare(self) -> set[str]:
        """Query the changes; return the names of changed applications."""
        since = self._connection.since
        afresh = time.monotonic() - self._afresh > self._timings.afresh
        answered = self._statuses.asking()
        try:
            models, statuses = await self._wadm.models_and_statuses()
            listed = {model.name: model for model in models}
            wanted = [model for name, model in listed.items() if afresh or not self._has(name, model)]
            found = await self._get_all(wanted, afresh)
        except _TROUBLE as error:
            self.reason, self._synced = f"wadm: {error}", None
            return set()
        if afresh:
            self._afresh = time.monotonic()
        changed_names = {name for name, stored in found.items() if self.find(name) != stored} | (
            self._models.keys() - listed
        )
        self._models = {
            name: (model, found[name] if name in found else self._models[name][1])
            for name, model in listed.items()
            if name in found or name in self._models
        }
        answered(statuses)
        self.reason, self.known = "", True
        self._synced = None if since is None else (since, time.time())
        return changed_names

    def _has(self, name: str, model: Model) -> bool:
        known = self._models.get(name)
        return known is not None and (known[0].version, known[0].deployed) == (model.version, model.deployed)

    async def _get_all(self, wanted: Collection[Model], afresh: bool) -> dict[str, StoredModel]:
        gate = asyncio.Semaphore(_CONCURRENT_REQUESTS)

        async def get_model(model: Model) -> StoredModel | None:
            async with gate:
                return await self._get(model.name, {} if afresh else self._known(model.name))

        answers = await asyncio.gather(*map(get_model, wanted), return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return {answer.name: answer for answer in answers if isinstance(answer, StoredModel)}

    def _known(self, name: str) -> dict[str, StoredManifest]:
        found = self.find(name)
        return {} if found is None else dict(found.versions)

    async def _get(self, name: str, known: Mapping[str, StoredManifest]) -> StoredModel | None:
        """Return an application, None if it was deleted in the meantime."""
        listed = await self._wadm.versions(name)
        if listed is None:
            return None
        versions: list[tuple[str, StoredManifest]] = []
        for item in listed:
            if (cached := known.get(item.version)) is not None:
                versions.append((item.version, cached))
            elif (manifest := await self._wadm.get(name, item.version)) is not None:
                versions.append((item.version, StoredManifest.of(manifest)))
        deployed = next((item.version for item in listed if item.deployed), "")
        return StoredModel(name, tuple(versions), deployed, 0) if versions else None
