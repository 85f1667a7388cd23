"""Measures the memory of services with nothing to do: ``python bench/footprint.py [SERVICE]… [--nodes N]``.

In: nothing; it starts a NATS, an API server in memory behind TLS, and one service after the other, each as its image
starts it, in a cluster of ``N`` Nodes that did not opt in. ``--python`` names the interpreter of an environment that
has the packages of the images alone (requirements-services.lock): those for development use 3 MiB more, as
libraries import what they find. Out: for each its memory once it is imported, and once it has been ready for some
seconds, on stdout with the machine; exit status 1 if one has more than the target without Nodes. ``bundle`` is all of
them in one process, without the console, as ``trellis run`` has them.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ssl
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aiohttp import web

from load.bundle import as_in_the_images
from machine import describe
from provision import free_port, http_ready, process
from trellis.kube.resources import NODES
from trellis.kube.transport import ConnectionFailed, HttpRequest
from trellis.services import SERVICES
from trellis_dev.fakes.fake import FakeKube
from trellis_dev.fakes.server import FakeApiServer
from trellis_dev.localcluster.certs import write_pki
from trellis_dev.localcluster.nats import NatsServer
from trellis_dev.localcluster.nodes import node_manifest
from trellis_dev.localcluster.ports import LOOPBACK

TARGET: Final = 70.0
"""MiB of one service."""
TOGETHER: Final = "bundle"
_IMPORTED: Final = """
import sys
from trellis.runtime import gc
with gc.importing():
    import trellis.runtime.run
    for service in sys.argv[1:]:
        __import__(service + ".settings")
        __import__(service + ".app")
resident = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmRSS"))
print(resident, len(sys.modules))
"""
_AS_IN_A_POD: Final = """
import os, runpy, sys
from trellis.kube import client_package
from kubernetes.aio.config import incluster_config
for module in incluster_config, client_package:
    module.SERVICE_TOKEN_FILENAME, module.SERVICE_CERT_FILENAME = sys.argv[1:3]
del sys.argv[1:3]
runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
"""
"""The files of the account are elsewhere; the rest is as it is in a pod: there is no kubeconfig."""


@dataclass(frozen=True)
class World:
    """The addresses of API server and NATS, and the settings of services; ``account``: files of token and CA."""

    python: str
    environment: dict[str, str]
    account: tuple[str, str]

    def imported(self, service: str) -> tuple[float, int]:
        """Return MiB and number of modules once a service is imported."""
        services = [item.package for item in _TOGETHER] if service == TOGETHER else [service]
        command = [self.python, "-c", _IMPORTED, *services]
        resident, modules = subprocess.check_output(command, env=self.environment).split()
        return int(resident) / 1024, int(modules)

    async def ready(self, service: str, seconds: float) -> float:
        """Return MiB of a service that has been ready for so many seconds."""
        port = free_port()
        arguments = ["trellis_cli", "run"] if service == TOGETHER else [service]
        command = [self.python, "-c", _AS_IN_A_POD, *self.account, *arguments]
        with process(command, {**self.environment, "TRELLIS_HEALTH_PORT": str(port)}) as running:
            await http_ready(port)
            await asyncio.sleep(seconds)
            return float(running.memory_info().rss) / 2**20


_TOGETHER: Final = [service for service in SERVICES.values() if not service.only_if_named]


class Front:
    """HTTP in front of an API server in memory, which does not support field selectors, and has no objects."""

    def __init__(self, api: FakeApiServer) -> None:
        self._api = api

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer a request, or stream a watch."""
        forwarded = HttpRequest(
            request.method,
            request.path,
            {name: value for name, value in request.query.items() if name != "fieldSelector"},
            await request.read() or None,
            request.headers.get("Content-Type", "application/json"),
        )
        if "watch" not in request.query:
            reply = await self._api.send(forwarded)
            return web.Response(body=reply.body, status=reply.status, content_type="application/json")
        response = web.StreamResponse()
        with contextlib.suppress(ConnectionFailed, ConnectionResetError):
            async with self._api.stream(forwarded, idle_seconds=0) as stream:
                response.set_status(stream.status)
                await response.prepare(request)
                async for line in stream.lines:
                    await response.write(line + b"\n")
        return response


@asynccontextmanager
async def served(folder: Path, python: str, nodes: int) -> AsyncIterator[World]:
    """Have an API server with so many Nodes and a NATS for the time of a block."""
    kube = FakeKube()
    for number in range(nodes):
        kube.put(NODES, node_manifest(f"node-{number:05}"))
    write_pki(folder)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "kube-apiserver.crt", folder / "kube-apiserver.key")
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", Front(kube.api).answer)
    runner = web.AppRunner(application, shutdown_timeout=0)
    await runner.setup()
    port = free_port()
    await web.TCPSite(runner, LOOPBACK, port, ssl_context=context).start()
    (folder / "token").write_text("bench")
    try:
        with NatsServer(folder / "nats") as server:
            environment = {
                **as_in_the_images(folder / "bytecode", python),
                "KUBERNETES_SERVICE_HOST": LOOPBACK,
                "KUBERNETES_SERVICE_PORT": str(port),
                "TRELLIS_NATS_URL": server.url,
                "TRELLIS_CONSOLE_PORT": "0",
                "TRELLIS_CONTROLLER_DATA_DIR": str(folder / "controllers"),
                "TRELLIS_LOG_FORMAT": "json",
            }
            yield World(python, environment, (str(folder / "token"), str(folder / "ca.crt")))
    finally:
        await runner.cleanup()


async def measure(given: argparse.Namespace) -> bool:
    """Print a line for each service; return whether each is within the target."""
    print(describe())
    within = True
    with tempfile.TemporaryDirectory() as folder:
        async with served(Path(folder), given.python, given.nodes) as world:
            for service in given.services:
                imported, modules = await asyncio.to_thread(world.imported, service)
                ready = await world.ready(service, given.seconds)
                within &= service == TOGETHER or given.nodes > 0 or ready <= TARGET
                print(
                    f"{service:20} imported: {imported:5.1f} MiB, {modules} modules; ready: {ready:5.1f} MiB",
                    flush=True,
                )
    return within


def main() -> int:
    """Measure, print, and judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("services", nargs="*", default=[*SERVICES, TOGETHER], metavar="SERVICE")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--nodes", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=10.0)
    return 0 if asyncio.run(measure(parser.parse_args())) else 1


if __name__ == "__main__":
    sys.exit(main())
