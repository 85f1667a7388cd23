"""The applications of one lattice in wadm, followed by its events.

In: a connection and the name of a lattice. Out: the current applications, and notifications of changes. Called by
``trellis.lattice.follow.lattice_watches``. Invariants: wadm is queried at the start, after each connect, and after
events that do not contain the change; a lost connection or an unreachable wadm removes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from trellis.bus.connection import cancellation
from trellis.lattice.connection.address import LatticeAddress
from trellis.lattice.connection.lattice_connection import LatticeConnection, NatsUnavailableError
from trellis.lattice.domain.manifests import read_identity
from trellis.lattice.domain.model_list import ModelList
from trellis.lattice.domain.models import Model, read_models
from trellis.lattice.domain.outage import Outage
from trellis.lattice.domain.reading import LatticeDataError, read_event, text
from trellis.lattice.domain.subjects import (
    MANIFEST_PUBLISHED,
    MANIFEST_UNPUBLISHED,
    model_list_subject,
    wadm_event_of,
    wadm_events_subject,
)
from trellis.lattice.timings import LatticeTimings
from trellis.lattice.wakeup import Wakeup


class ModelWatch:
    """``changed`` is called in the event loop when the applications, or the reason of an outage of wadm, change."""

    def __init__(
        self,
        address: LatticeAddress,
        connection: LatticeConnection,
        changed: Callable[[], None],
        timings: LatticeTimings = LatticeTimings(),
    ) -> None:
        self._timings = timings.models
        self._address = address
        self._connection = connection
        self._changed = changed
        self._list = ModelList(timings.models)
        self._wadm = Outage("wadm not queried yet", timings.connection.outage)
        self._queried = False
        self._queried_on: float | None = None
        self._wake = Wakeup()

    @property
    def settled(self) -> bool:
        """True after the first query of wadm, successful or not."""
        return self._queried or (self._connection.tried and self._connection.since is None)

    @property
    def reason(self) -> str:
        """The reason why wadm does not answer, for users; "" if it does."""
        return self._wadm.reason

    def models(self) -> tuple[Model, ...] | None:
        """Return the current applications, None before the first answer of wadm."""
        return self._list.models

    def connection_changed(self) -> None:
        """Query wadm again after a reconnect."""
        self._wake.set()

    async def run(self) -> None:
        """Watch until cancelled."""
        subject = wadm_events_subject(self._address.lattice)
        try:
            await self._connection.listen(subject, self._on_event)
            while True:
                cancellation.check()
                await self._connection.there()
                await self._ask()
                await self._rest()
        finally:
            await self._connection.ignore(subject, self._on_event)

    def _on_event(self, subject: str, payload: bytes) -> None:
        now, before = time.monotonic(), self.models()
        if self._address.account:
            self._list.invalidate(now)  # wadm uses the same subject for the lattice of this name of every tenant
        else:
            self._take(wadm_event_of(subject), payload, now)
        self._wake.set()
        if self.models() != before:
            self._changed()

    def _take(self, event: str, payload: bytes, now: float) -> None:
        try:
            if event == MANIFEST_PUBLISHED:
                self._list.deployed(*read_identity(read_event(payload)["data"]), now)
            elif event == MANIFEST_UNPUBLISHED:
                self._list.undeployed(text(read_event(payload)["data"], "name", required=True), now)
        except LatticeDataError:
            self._list.invalidate(now)

    async def _rest(self) -> None:
        """Wait until the next query of wadm is due."""
        until = time.monotonic() + (self._timings.again if self._wadm.reason else self._timings.refresh)
        while self._connection.since == self._queried_on:
            self._wake.clear()
            now = time.monotonic()
            due = self._list.due_in(now)
            left = until - now if due is None else min(due, until - now)
            if left <= 0:
                return
            await self._wake.wait(left)

    async def _ask(self) -> None:
        before = self.models(), self._wadm.reason, self._queried
        self._queried_on = self._connection.since
        self._list.asking()
        try:
            subject = model_list_subject(self._address.lattice, self._address.account)
            self._list.listed(read_models(await self._connection.ask(subject, seconds=self._timings.answer)))
            self._wadm.over()
        except NatsUnavailableError as error:
            self._wadm.unavailable(f"wadm: {error}", time.monotonic())
        except LatticeDataError as error:
            self._wadm.unavailable(f"wadm's answer: {error}", time.monotonic())
        finally:
            self._list.unanswered()
        self._queried = True
        if (self.models(), self._wadm.reason, self._queried) != before:
            self._changed()
