"""The lattice connections of all host groups: one per address and credentials.

In: the connection of each host group. Out: a :class:`Serving` for each, and the number in each state. Called by
``watches`` and ``app``. Invariants: a connection ends with its last host group, after its accepted requests were
answered; a connection with an unexpected error is re-created, without effect on further connections.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from functools import partial

from secrets_backend.gather import Cache
from secrets_backend.serving import Environment, Serving, State
from trellis.installer_api.redaction import redact_url
from trellis.lattice.connection.address import NatsAddress
from trellis.telemetry import get_logger

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Kept:
    serving: list[Serving]
    task: asyncio.Task[None]


class GroupConnections:
    """The lattice connections; they are served while ``run`` runs."""

    def __init__(self, cache: Cache, environment: Environment) -> None:
        self._cache = cache
        self._environment = environment
        self._kept: dict[NatsAddress, _Kept] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._running = False
        for state in State:
            environment.metrics.links(state.value, partial(self._count, state))
        environment.metrics.in_progress(lambda: sum(item.in_progress for item in self.serving))

    @property
    def serving(self) -> list[Serving]:
        """The connections that are served, or connecting."""
        return [item for kept in self._kept.values() for item in kept.serving]

    def need(self, group: str, address: NatsAddress | None) -> None:
        """Set the connection of a host group, None for none."""
        if self._cache.addresses.get(group) == address:
            return
        if address is None:
            self._cache.addresses.pop(group, None)
        else:
            self._cache.addresses[group] = address
        self._cache.changed()
        self._settle()

    async def run(self) -> None:
        """Serve until cancelled."""
        self._running = True
        try:
            self._settle()
            await asyncio.Event().wait()
        finally:
            self._running = False
            tasks = [*(kept.task for kept in self._kept.values()), *self._ending]
            self._kept.clear()
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)

    async def close(self, seconds: float) -> None:
        """Accept no more requests, and answer the accepted ones, within ``seconds``."""
        await asyncio.gather(*(item.end(seconds) for item in self.serving))

    def _settle(self) -> None:
        if not self._running:
            return
        needed = set(self._cache.addresses.values())
        for address in [item for item in self._kept if item not in needed]:
            self._end(address, self._kept.pop(address))
        for address in needed - self._kept.keys():
            current: list[Serving] = []
            self._kept[address] = _Kept(current, asyncio.create_task(self._keep(address, current), name="secrets link"))

    async def _keep(self, address: NatsAddress, current: list[Serving]) -> None:
        while True:
            current[:] = [Serving(address, self._environment)]
            try:
                await current[0].run()
            except Exception as error:  # noqa: BLE001 - a failure affects only its connection
                _log.error("lattice connection failed, reconnecting", url=redact_url(address.url), error=repr(error))
            await asyncio.sleep(self._environment.timings.restart)

    def _end(self, address: NatsAddress, kept: _Kept) -> None:
        async def end() -> None:
            await asyncio.gather(*(item.end(self._environment.timings.end) for item in kept.serving))
            kept.task.cancel()
            await asyncio.wait({kept.task})

        self._cache.connection_removed(address)
        task = asyncio.create_task(end(), name="end of a secrets link")
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def _count(self, state: State) -> float:
        return Counter(item.state for item in self.serving)[state]
