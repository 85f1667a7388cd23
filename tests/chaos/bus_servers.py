"""The servers of the bus: one, or three that keep a copy each; killed, frozen, wiped, rolled, without room, parted.

In: how many, and whose disk is to be small. Out: addresses, and what is done to each. Called by ``world`` and
``faults``. Invariants: clients learn no other address than the one they were given, which is a proxy's; servers have
no other way to each other than those here, one for each direction.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Collection
from pathlib import Path
from typing import Final

from chaos import small_disk
from support.suite.tcp_proxy import TcpProxy
from trellis_dev.localcluster.nats import NatsServer
from trellis_dev.localcluster.ports import LOOPBACK, free_ports

_NOWHERE: Final = f"{LOOPBACK}:1"
"""Where servers that hear of each other from a third find nobody: such a route would lead past the proxies."""


class BusServers:
    """The servers, by number. ``small``: those whose disk can be filled."""

    def __init__(self, directory: Path, count: int, small: Collection[int] = ()) -> None:
        self._directory = directory
        self._small = small
        self._ports = free_ports(count)
        pairs = itertools.permutations(range(count), 2)
        self._ways = {pair: TcpProxy(LOOPBACK, self._ports[pair[1]]) for pair in pairs}
        self.all = [NatsServer(directory / str(number), config=self._config(number)) for number in range(count)]

    def _config(self, number: int) -> Path:
        return self._directory / f"{number}.conf"

    def _configure(self, number: int) -> None:
        """Write what one has to know, once the ways to the others are there."""
        self._directory.mkdir(parents=True, exist_ok=True)
        # What streams may take is said: otherwise it is three quarters of the disk, and a small one is refused.
        text = f'server_name: "chaos-{number}"\njetstream {{ max_file_store: 100G }}\n'
        if len(self._ports) > 1:
            # Its own is among them: as many as there are routes it takes the servers to be.
            ports = [self._ports[number], *(way.port for ends, way in self._ways.items() if ends[0] == number)]
            routes = ", ".join(f'"nats-route://{LOOPBACK}:{port}"' for port in ports)
            listens = f'listen: "{LOOPBACK}:{self._ports[number]}", advertise: "{_NOWHERE}", no_advertise: true'
            text += f"cluster {{ name: chaos, {listens}, routes: [{routes}] }}\n"
        self._config(number).write_text(text, encoding="utf-8")

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[BusServers]:
        """Have them run for the time of a block."""
        async with contextlib.AsyncExitStack() as stack:
            for way in self._ways.values():
                await stack.enter_async_context(way)
            for number in self._small:
                stack.enter_context(small_disk.mounted(self._directory / f"disk-{number}"))
            for number, item in enumerate(self.all):
                store = self._store(number)
                store.parent.mkdir(parents=True, exist_ok=True)
                if number in self._small:
                    store.symlink_to(self._directory / f"disk-{number}")
                else:
                    store.mkdir()
                self._configure(number)
                stack.enter_context(item)
                # Not in the loop, which would hold up the proxies: they would not see the end of their connections.
                stack.push_async_callback(asyncio.to_thread, item.kill)
            yield self

    def _store(self, number: int) -> Path:
        return self._directory / str(number) / "store"

    @property
    def urls(self) -> list[str]:
        """The servers themselves, for who looks on."""
        return [item.url for item in self.all]

    def ways_of(self, number: int) -> list[TcpProxy]:
        """Return the ways between one and the others, there and back."""
        return [way for ends, way in self._ways.items() if number in ends]

    async def start(self, number: int) -> None:
        """Start one that was ended."""
        await asyncio.to_thread(self.all[number].start)

    async def stop(self, number: int, *, wiped: bool = False, kill: bool = True) -> None:
        """End one; ``wiped``: what it kept is lost."""
        server = self.all[number]
        await asyncio.to_thread(server.kill if kill else server.stop)
        if wiped:
            await asyncio.to_thread(small_disk.empty, self._store(number))

    async def without_room(self, number: int, seconds: float) -> None:
        """Leave one no room for so long; then there is room again, and it is started again.

        That it takes: a nats-server that once could not write stores nothing until it is.
        """
        await asyncio.to_thread(small_disk.fill, self._store(number))
        try:
            await asyncio.sleep(seconds)
        finally:
            small_disk.free(self._store(number))
            await self.stop(number, kill=False)
            await self.start(number)


async def quiet(_: Exception) -> None:
    """Take what a client has to say about a server that is unavailable: clients retry."""
