"""A TCP proxy that fails as networks do: cut, refusing, silent while the connection stays open, or very late."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Self

import yaml

from trellis_dev.localcluster.ports import free_ports


def kubeconfig_through(port: int, kubeconfig: Path, directory: Path) -> Path:
    """Write a copy of a kubeconfig that takes the way through a proxy of this machine."""
    config = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
    config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{port}"
    path = directory / "kubeconfig"
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return path


class TcpProxy:
    """Forwards ``port`` of an address of Trellis (127.0.0.1) to one address."""

    def __init__(self, host: str, port: int, *, listen: str = "127.0.0.1") -> None:
        self._target = (host, port)
        self._listen = listen
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._ways: dict[asyncio.StreamWriter, asyncio.StreamWriter] = {}
        self._forgotten: set[asyncio.StreamWriter] = set()
        self._asking, self._answering = asyncio.Event(), asyncio.Event()
        self.resume()
        self._held: list[tuple[asyncio.StreamWriter, bytes]] | None = None
        self.late = 0.0
        """Seconds that whatever goes through is late."""
        # Not one that the system chooses: while the proxy refuses, it would be free for any connection to leave by.
        (self.port,) = free_ports(1)
        self.accepted = 0

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.refuse()
        while tasks := list(self._tasks):  # one that was joining two connections has begun others
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        self.cut()  # what was joined after the first cut, and whose task had not begun

    async def open(self) -> None:
        """Accept connections, on the same port as before."""
        self._server = await asyncio.start_server(self._accept, self._listen, self.port)

    async def refuse(self) -> None:
        """Cut all connections and refuse new ones."""
        assert self._server is not None
        self._server.close()
        self.cut()

    def cut(self) -> None:
        """Reset all connections; new ones work."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()
        self._ways.clear()
        self._forgotten.clear()

    def lead_to(self, port: int) -> None:
        """Lead connections from now on to another port of the same host."""
        self._target = (self._target[0], port)

    def forget(self) -> None:
        """Drop all data of present connections from now on without notice, as NAT does; new ones work."""
        self._forgotten |= self._writers

    def finish(self, *, clients: bool) -> None:
        """Tell clients, or else the server, that the other side sends no more; the other way stays open."""
        for client, server in self._ways.items():
            (client if clients else server).write_eof()

    def silence(self) -> None:
        """Stop forwarding; connections stay open and new ones are accepted, as behind a dead middlebox."""
        self._asking.clear()
        self._answering.clear()

    def mute(self) -> None:
        """Forward what clients send and no answer, as for a client that does not read: the server has to wait."""
        self._answering.clear()

    def resume(self) -> None:
        """Forward again."""
        self._asking.set()
        self._answering.set()

    def hold(self) -> None:
        """Keep data of clients from now on, also after they have left; what is sent to them still flows."""
        self._held = []

    def holding(self) -> int:
        """Return on how many connections something is held."""
        return len({id(writer) for writer, _ in self._held or ()})

    def release(self) -> None:
        """Deliver what was held, in its order: packets that took the long way round."""
        held, self._held = self._held or [], None
        for writer, data in held:
            writer.write(data)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        self._writers.add(writer)
        # In a task of ours: who leaves while a connection is made must not leave that behind.
        self._spawn(self._join(reader, writer))

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        self._writers.add(far_writer)
        self._ways[writer] = far_writer
        self._spawn(self._pump(reader, far_writer, up=True))
        self._spawn(self._pump(far_reader, writer, up=False))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, up: bool) -> None:
        held, flowing = False, self._asking if up else self._answering
        try:
            while data := await reader.read(65536):
                if up and self._held is not None:
                    self._held.append((writer, data))
                    held = True
                    continue
                await flowing.wait()
                if writer in self._forgotten or writer.transport.is_closing():
                    continue
                if self.late:
                    await asyncio.sleep(self.late)
                writer.write(data)
                await writer.drain()
        except (OSError, RuntimeError):
            pass  # cut, or finished
        finally:
            # The far side is not to learn that the sender of what is held is gone: it would drop the request.
            if not held and writer not in self._forgotten:
                writer.transport.abort()
                self._writers.discard(writer)
