"""Follows all requested lattices, over one connection per address.

In: requests of services for lattices. Out: a view of each, and notifications of changes. Called by services.
Invariants: one connection per (address, credentials, certificates); each lattice is watched once, for the requested
parts only; connection and watches end with the last request; an unreachable lattice affects no other lattice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Hashable
from dataclasses import dataclass
from enum import Enum, auto
from types import TracebackType
from typing import Generic, Self, TypeVar

from trellis.lattice.connection.address import LatticeAddress, NatsAddress
from trellis.lattice.connection.lattice_connection import LatticeConnection
from trellis.lattice.domain.view import LatticeView
from trellis.lattice.follow.host_watch import HostWatch
from trellis.lattice.follow.model_watch import ModelWatch
from trellis.lattice.timings import LatticeTimings

Key = TypeVar("Key", bound=Hashable)
Beside = Callable[[LatticeAddress, LatticeConnection], Coroutine[None, None, None]]
BesideConnection = Callable[[LatticeConnection], Coroutine[None, None, None]]


class Part(Enum):
    """A watched part of a lattice."""

    HOSTS = auto()
    MODELS = auto()
    """The applications in wadm."""


@dataclass(frozen=True, slots=True)
class _Pooled:
    connection: LatticeConnection
    task: asyncio.Task[None]


@dataclass(frozen=True, slots=True)
class _Watched:
    """The watches of a lattice; ``hosts`` and ``models``: None if the service does not request them."""

    connection: LatticeConnection
    hosts: HostWatch | None
    models: ModelWatch | None
    silence: float

    def view(self) -> LatticeView:
        """Return the current state of the lattice."""
        connection, hosts, models = self.connection, self.hosts, self.models
        return LatticeView(
            connection.receiving_since,
            connection.reason,
            () if hosts is None else hosts.hosts(),
            None if models is None else models.models(),
            "" if models is None else models.reason,
            settled=all(watch.settled for watch in (hosts, models) if watch is not None),
            refused=hosts is not None and hosts.refused,
            silence=self.silence,
        )

    def connection_changed(self) -> None:
        """Notify the watches that the connection was lost or restored."""
        for watch in (self.hosts, self.models):
            if watch is not None:
                watch.connection_changed()


@dataclass(frozen=True, slots=True)
class _Followed:
    watched: _Watched
    task: asyncio.Task[None]


class LatticeWatches(Generic[Key]):
    """A context manager. ``changed`` is called in the event loop with each key whose view of the lattice changed.

    ``parts`` of each lattice are watched while a key needs it, together with ``beside``; ``beside_connection`` runs for
    each connection. ``name``: name of the connections in NATS monitoring. An unexpected error ends the context with
    that error, as in a task group.
    """

    def __init__(
        self,
        name: str,
        changed: Callable[[Key], None],
        beside: Beside | None = None,
        beside_connection: BesideConnection | None = None,
        parts: Collection[Part] = (),
        timings: LatticeTimings = LatticeTimings(),
    ) -> None:
        self._timings = timings
        self._parts = parts
        self._name = name
        self._changed = changed
        self._beside = beside
        self._beside_connection = beside_connection
        self._needs: dict[Key, LatticeAddress] = {}
        self._connections: dict[NatsAddress, _Pooled] = {}
        self._followed: dict[LatticeAddress, _Followed] = {}
        self._lock = asyncio.Lock()
        self._tasks = asyncio.TaskGroup()
        self._entered = asyncio.Event()

    @property
    def connections(self) -> int:
        """Number of connections, established or pending."""
        return len(self._connections)

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        self._entered.set()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                await self._close()
        finally:
            await self._tasks.__aexit__(kind, error, trace)

    async def run(self) -> None:
        """Enter the context and wait until cancelled."""
        async with self:
            await asyncio.Event().wait()

    def view(self, key: Key) -> LatticeView | None:
        """Return the state of the lattice that this key needs, None if it needs none."""
        address = self._needs.get(key)
        return None if address is None else self._followed[address].watched.view()

    async def need(self, key: Key, address: LatticeAddress | None) -> None:
        """Set the lattice that a key needs from now on, None for none; waits until the context is entered."""
        await self._entered.wait()
        if self._needs.get(key) == address:
            return
        async with self._lock:
            if address is None:
                self._needs.pop(key, None)
            else:
                self._follow(address)
                self._needs[key] = address
            await self._end_unused()

    async def _close(self) -> None:
        async with self._lock:
            self._needs.clear()
            await self._end_unused()

    def _follow(self, address: LatticeAddress) -> None:
        if address in self._followed:
            return
        connection, timings = self._connection_of(address.nats), self._timings

        def changed() -> None:
            self._notify(lambda need: need == address)

        hosts = HostWatch(address, connection, changed, timings) if Part.HOSTS in self._parts else None
        models = ModelWatch(address, connection, changed, timings) if Part.MODELS in self._parts else None
        watched = _Watched(connection, hosts, models, timings.silence)
        task = self._tasks.create_task(self._run(watched, address), name=f"lattice {address.lattice}")
        self._followed[address] = _Followed(watched, task)

    async def _run(self, watched: _Watched, address: LatticeAddress) -> None:
        async with asyncio.TaskGroup() as tasks:
            for watch in (watched.hosts, watched.models):
                if watch is not None:
                    tasks.create_task(watch.run())
            if self._beside is not None:
                tasks.create_task(self._beside(address, watched.connection))

    def _connection_of(self, address: NatsAddress) -> LatticeConnection:
        pooled = self._connections.get(address)
        if pooled is None:
            connection = LatticeConnection(
                address, self._name, lambda: self._on_connection(address), self._timings.connection
            )
            pooled = self._connections[address] = _Pooled(
                connection, self._tasks.create_task(self._keep(connection), name="link")
            )
        return pooled.connection

    async def _keep(self, connection: LatticeConnection) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(connection.run())
            if self._beside_connection is not None:
                tasks.create_task(self._beside_connection(connection))

    def _on_connection(self, address: NatsAddress) -> None:
        for lattice, followed in self._followed.items():
            if lattice.nats == address:
                followed.watched.connection_changed()
        self._notify(lambda need: need.nats == address)

    def _notify(self, concerns: Callable[[LatticeAddress], bool]) -> None:
        for key, need in list(self._needs.items()):
            if concerns(need):
                self._changed(key)

    async def _end_unused(self) -> None:
        needed = set(self._needs.values())
        unneeded = [address for address in self._followed if address not in needed]
        await _end([self._followed.pop(address).task for address in unneeded])
        linked = {address.nats for address in needed}
        unlinked = [address for address in self._connections if address not in linked]
        await _end([self._connections.pop(address).task for address in unlinked])


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
