"""The servers of the bus: one, or three that keep a copy each; killed, ended, frozen, wiped, rolled, without room.

In: how many, and whose disk is to be small. Out: addresses, and what is done to each. Called by ``world`` and
``faults``. Invariant: clients learn no other address than the one they were given, which is a proxy's.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Iterator
from pathlib import Path

from chaos import small_disk
from trellis.localcluster.nats import NatsServer
from trellis.localcluster.ports import LOOPBACK, free_ports


class BusServers:
    """The servers, by number. ``small``: those whose disk can be filled."""

    def __init__(self, directory: Path, count: int, small: Collection[int] = ()) -> None:
        self._directory = directory
        self._small = small
        routes = free_ports(count)
        self.all = [NatsServer(directory / str(number), config=self._config(number, routes)) for number in range(count)]

    def _config(self, number: int, routes: list[int]) -> Path:
        self._directory.mkdir(parents=True, exist_ok=True)
        # What streams may take is said: otherwise it is three quarters of the disk, and a small one is refused.
        text = f'server_name: "chaos-{number}"\njetstream {{ max_file_store: 100G }}\n'
        if len(routes) > 1:
            others = ", ".join(f'"nats-route://{LOOPBACK}:{port}"' for port in routes)
            listens = f'name: chaos, listen: "{LOOPBACK}:{routes[number]}", no_advertise: true'
            text += f"cluster {{ {listens}, routes: [{others}] }}\n"
        path = self._directory / f"{number}.conf"
        path.write_text(text, encoding="utf-8")
        return path

    @contextlib.contextmanager
    def running(self) -> Iterator[BusServers]:
        """Have them run for the time of a block."""
        with contextlib.ExitStack() as stack:
            for number in self._small:
                stack.enter_context(small_disk.mounted(self._directory / f"disk-{number}"))
            for number, one in enumerate(self.all):
                store = self._store(number)
                store.parent.mkdir(parents=True, exist_ok=True)
                if number in self._small:
                    store.symlink_to(self._directory / f"disk-{number}")
                else:
                    store.mkdir()
                stack.enter_context(one)
            yield self

    def _store(self, number: int) -> Path:
        return self._directory / str(number) / "store"

    @property
    def urls(self) -> list[str]:
        """The servers themselves, for who looks on."""
        return [one.url for one in self.all]

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
        """Leave one no room for so long; then there is room again, and it is started anew.

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
    """Take what a client has to say about a server that is away: whoever asks asks again."""
