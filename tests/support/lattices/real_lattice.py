"""A real lattice for tests: a nats-server, wadm, and as many wasmCloud hosts as a test starts.

The servers are one set per test process, started on first use and ended with it, even if it is killed; wadm serves
every lattice. A test has a lattice of its own (``host_behaviour.own_lattice``), and its hosts end with the test.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import threading
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import nats
import pytest
from nats.aio.client import Client

from trellis_dev.localcluster import lattice_servers
from trellis_dev.localcluster.building import How
from trellis_dev.localcluster.guard import Guard, guard
from trellis_dev.localcluster.lattice_servers import WADM
from trellis_dev.localcluster.lattices import Place, start_host, start_wadm
from trellis_dev.localcluster.nats import NatsServer
from trellis_dev.localcluster.processes import ProcessRecord, alive, end
from trellis_dev.localcluster.progress import Lines
from trellis_dev.localcluster.state import LatticeHost

SECONDS = 60.0
_STOP_SECONDS = 15.0


class HostProcess:
    """A host that was started: what it is, and its process."""

    def __init__(self, host: LatticeHost, process: ProcessRecord) -> None:
        self.id = host.id
        self.labels = host.labels
        self.process = process

    @property
    def runs(self) -> bool:
        """Return whether the process runs."""
        return alive(self.process)

    def terminate(self) -> None:
        """Ask it to end, and return when it has; made to after 15 s."""
        end([self.process], grace=_STOP_SECONDS)

    def kill(self) -> None:
        """End it by SIGKILL."""
        end([self.process], grace=0)


class RealLattice:
    """NATS and wadm, and what starts hosts. A context manager."""

    def __init__(self, directory: Path, config: Path | None = None) -> None:
        self._directory = directory
        self._token = secrets.token_hex(16)
        self._guard: Guard | None = None
        self._wadm: ProcessRecord | None = None
        self.nats = NatsServer(directory / "nats", config=config)

    @property
    def url(self) -> str:
        """Address of the NATS server."""
        return self.nats.url

    def __enter__(self) -> Self:
        """Start both, building wadm and the host the first time."""
        programs = lattice_servers.lattice_servers(How(Lines(), threading.Event()))
        work = self._directory / "servers"
        work.mkdir(parents=True)
        self._guard = guard(work, self._token)
        try:
            self.nats.__enter__()
            self._place = Place(programs[WADM].parent, self.nats.port, work, work, self._token, threading.Event())
            self.start_wadm()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """End everything and remove its files."""
        if self._guard is not None:
            self._guard.abandon()
        self.nats.close()

    def start_wadm(self) -> None:
        """Start wadm, and wait until it answers."""

        def started(process: ProcessRecord) -> None:
            self._wadm = process

        start_wadm(self._place, started, self.wadm_arguments())()

    def wadm_arguments(self) -> list[str]:
        """Return what wadm is started with."""
        return ["--nats-server", self.url.removeprefix("nats://")]

    def kill_wadm(self) -> None:
        """End wadm by SIGKILL."""
        assert self._wadm is not None
        end([self._wadm], grace=0)

    def start_host(
        self,
        lattice: str,
        labels: Mapping[str, str] | None = None,
        heartbeat: int = 30,
        arguments: Sequence[str] = (),
    ) -> HostProcess:
        """Start a host, and wait until it is in its lattice; ``arguments``: further options of the host."""
        wanted = LatticeHost(name=secrets.token_hex(6), lattice=lattice, labels=dict(labels or {}), heartbeat=heartbeat)
        made: list[HostProcess] = []
        start_host(self._place, wanted, lambda host, process: made.append(HostProcess(host, process)), arguments)()
        return made[0]

    @contextlib.asynccontextmanager
    async def hosts(self, lattice: str, count: int = 1, **labels: str) -> AsyncIterator[list[HostProcess]]:
        """Have some hosts in a lattice for the time of a block."""
        found: list[HostProcess] = []
        try:
            for _ in range(count):
                host = await asyncio.to_thread(self.start_host, lattice, labels)
                found.append(host)
            yield found
        finally:
            for host in found:
                await asyncio.to_thread(host.kill)


class Wadm:
    """A client of wadm for the applications of a lattice; every answer is returned unchanged."""

    def __init__(self, client: Client, lattice: str) -> None:
        self._client = client
        self._prefix = f"wadm.api.{lattice}.model"

    @classmethod
    @contextlib.asynccontextmanager
    async def of(cls, url: str, lattice: str) -> AsyncIterator[Wadm]:
        """Talk to wadm over a connection of its own, for the time of a block."""
        client = await nats.connect(url)
        try:
            yield cls(client, lattice)
        finally:
            await client.close()

    async def put(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """Store a version of an application."""
        return await self._ask("put", manifest)

    async def deploy(self, name: str, version: str | None = None) -> dict[str, Any]:
        """Deploy a version of an application, by default its newest."""
        return await self._ask(f"deploy.{name}", {"version": version})

    async def undeploy(self, name: str) -> dict[str, Any]:
        """Take an application out of its hosts."""
        return await self._ask(f"undeploy.{name}", {})

    async def delete(self, name: str) -> dict[str, Any]:
        """Delete an application with all versions."""
        return await self._ask(f"del.{name}", {"version": None})

    async def names(self) -> set[str]:
        """Return the names of the lattice's applications."""
        return {model["name"] for model in (await self._ask("get", None))["models"]}

    async def status(self, name: str) -> dict[str, Any]:
        """Return the status that wadm gives of an application."""
        found: dict[str, Any] = (await self._ask(f"status.{name}", None))["status"]
        return found

    async def until(self, name: str, *types: str, seconds: float = SECONDS) -> dict[str, Any]:
        """Wait until an application's status is one of these; return it, or fail with what it was last."""
        last: dict[str, Any] = {}
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while True:
                    last = await self.status(name)
                    if last["status"]["type"] in types:
                        return last
                    await asyncio.sleep(0.1)
        pytest.fail(f"application {name} is not {' or '.join(types)} after {seconds:.0f} s: {json.dumps(last)}")

    async def _ask(self, operation: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
        given = b"" if body is None else json.dumps(body).encode()
        reply = await self._client.request(f"{self._prefix}.{operation}", given, timeout=SECONDS)
        found: dict[str, Any] = json.loads(reply.data)
        return found


def application(name: str, *components: Mapping[str, Any], **annotations: str) -> dict[str, Any]:
    """Return the manifest of an application."""
    return {
        "apiVersion": "core.oam.dev/v1beta1",
        "kind": "Application",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"components": list(components)},
    }


def http_server(name: str = "httpserver", **labels: str) -> dict[str, Any]:
    """Return the built-in HTTP server as a component: one on each host that has the labels."""
    scaler: dict[str, Any] = {"type": "daemonscaler", "properties": {"instances": 1}}
    if labels:
        scaler["properties"]["spread"] = [{"name": "labelled", "requirements": labels}]
    properties = {"image": "wasmcloud+builtin://http-server"}
    return {"name": name, "type": "capability", "properties": properties, "traits": [scaler]}


def wasm_component(name: str, image: str, instances: int = 1) -> dict[str, Any]:
    """Return a Wasm component, spread over hosts."""
    scaler = {"type": "spreadscaler", "properties": {"instances": instances}}
    return {"name": name, "type": "component", "properties": {"image": image}, "traits": [scaler]}


@pytest.fixture(scope="session")
def real_lattice(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealLattice]:
    """NATS and wadm for all tests of this process; skips where neither is built nor can be."""
    if (reason := lattice_servers.missing()) is not None:
        pytest.skip(f"NOT RUN: {reason}")
    with RealLattice(tmp_path_factory.mktemp("lattice")) as servers:
        yield servers
