"""A replica: every service in one process, its ways to the servers through proxies, started again when it ended.

In: a name, where the servers are. Out: a process that is watched as a kubelet watches it. Called by ``world`` and
``faults``. ``wrong``: restarts that a kubelet would have made without an injected fault.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from chaos import orders
from support.cluster.api_proxy import ApiProxy
from support.suite import stepped_clock
from support.suite.forkserver import Child, Forkserver
from support.suite.service_process import free_port, get_status
from support.suite.tcp_proxy import TcpProxy

_PAUSE_SECONDS: Final = 1.0
_LOOK_SECONDS: Final = 2.0
_END_SECONDS: Final = 40.0


class Replica:
    """One replica. ``api`` and ``kube``: the way to the API server; ``bus``: the ways to NATS."""

    def __init__(self, name: str, directory: Path, kubeconfig: Path, bus: list[str]) -> None:
        self.name = name
        self.directory = directory
        directory.mkdir(parents=True)
        self.log = directory / "log"
        self.api = ApiProxy(kubeconfig, directory, keeps=True)
        self.bus = [TcpProxy(str(urlsplit(url).hostname), int(urlsplit(url).port or 0)) for url in bus]
        self.port = free_port()
        self.order = directory / "order"
        self.clock = directory / "clock"
        self.clock.write_text("0")
        self.wrong: list[str] = []
        self.starts = 0
        self.process: Child | None = None
        self._doomed = False
        self._tasks: list[asyncio.Task[None]] = []

    @contextlib.asynccontextmanager
    async def running(self, forkserver: Forkserver, environment: dict[str, str]) -> AsyncIterator[Replica]:
        """Have it run, however often it ends, for the time of a block."""
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(self.api)
            self.kube = await stack.enter_async_context(TcpProxy("127.0.0.1", self.api.port))
            for bus in self.bus:
                await stack.enter_async_context(bus)
            given = environment | {
                "TRELLIS_KUBECONFIG": str(self.api.kubeconfig(self.kube.port, self.directory / "kubeconfig")),
                "TRELLIS_NATS_URL": ",".join(f"nats://127.0.0.1:{bus.port}" for bus in self.bus),
                "TRELLIS_HEALTH_PORT": str(self.port),
                "TRELLIS_CONTROLLER_DATA_DIR": str(self.directory / "controllers"),
                orders.VARIABLE: str(self.order),
                stepped_clock.VARIABLE: str(self.clock),
                "TRELLIS_LOG_FORMAT": "json",
            }
            self._tasks = [asyncio.create_task(self._keep(forkserver, given)), asyncio.create_task(self._look())]
            try:
                yield self
            finally:
                await self.end()

    async def _keep(self, forkserver: Forkserver, environment: dict[str, str]) -> None:
        while True:
            self.starts += 1
            self._doomed = False
            identity = {"TRELLIS_IDENTITY": f"{self.name}-{self.starts}"}
            self.process = await forkserver.have(environment | identity, ["run"], self.log)
            code = await self.process.wait()
            if not self._doomed and code != -signal.SIGKILL:
                self.wrong.append(f"{self.name}-{self.starts} ended by itself, with {code}: see {self.log}")
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _look(self) -> None:
        """Ask for its life as a kubelet does; one that is not alive would be started again."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            status, body = await get_status(self.port, "/livez")
            if status not in {0, 200}:
                self.wrong.append(f"{self.name}-{self.starts} reports that it is not alive: {body[:300]}")

    async def ready(self) -> tuple[bool, str]:
        """Say whether it is ready, and why not."""
        status, body = await get_status(self.port, "/readyz")
        return status == 200, f"{self.name}: {status} {body[:300]}"

    def send(self, number: signal.Signals) -> None:
        """Send a signal, if it runs."""
        self._doomed |= number in {signal.SIGTERM, signal.SIGKILL}
        if self.process is not None and self.process.returncode is None:
            self.process.send_signal(number)

    async def end(self) -> None:
        """End it for good; it has a grace period, and must keep to it."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.send(signal.SIGCONT)
        self.send(signal.SIGTERM)
        if self.process is not None:
            try:
                await asyncio.wait_for(self.process.wait(), _END_SECONDS)
            except TimeoutError:
                self.wrong.append(f"{self.name}-{self.starts} does not end when asked")
                self.send(signal.SIGKILL)
                await self.process.wait()

    def memory(self) -> int:
        """Return its resident bytes, 0 if it does not run."""
        if self.process is None or self.process.returncode is not None:
            return 0
        with contextlib.suppress(OSError):
            pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
            return pages * os.sysconf("SC_PAGE_SIZE")
        return 0
