"""A world of a size: a control plane with simulated nodes, two NATS servers, a real wadm, and what people asked for.

In: sizes. Out: a world that is larger than before; how long Trellis took to do what is new in it. Called by ``run``.
The lattices have one NATS, the bus another, as they should; both report their traffic on a monitoring port.
"""

from __future__ import annotations

import asyncio
import contextlib
import http
import json
import threading
import time
from collections.abc import AsyncIterator, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from nats.aio.client import Client

from load import objects, sizes
from load.objects import Made
from load.seen import Seen, looking, until
from load.sizes import EMPTY, Size
from provision import process
from trellis.crds.kinds import APPLICATIONS, KINDS, make_definition
from trellis.kube.resources import DEFINITIONS, PODS
from trellis_dev.localcluster import ClusterInfo, lattice_servers, local_cluster
from trellis_dev.localcluster.api import Api
from trellis_dev.localcluster.building import How
from trellis_dev.localcluster.nats import NatsServer
from trellis_dev.localcluster.ports import LOOPBACK, free_ports
from trellis_dev.localcluster.progress import Lines

_IN_FLIGHT: Final = 8
_TRIES: Final = 5
_WADM_SECONDS: Final = 30.0
_SERVED_SECONDS: Final = 60.0


@dataclass
class World:
    """``size``: what there is; ``full``: the size that it grows to, by which lattices are filled."""

    info: ClusterInfo
    api: Api
    bus: NatsServer
    lattices: NatsServer
    monitors: tuple[int, ...]
    seen: Seen
    client: Client
    full: Size
    size: Size = field(default=EMPTY)
    spares: set[str] = field(default_factory=set)

    def environment(self, directory: Path) -> dict[str, str]:
        """Return the settings of Trellis."""
        return {
            "TRELLIS_KUBECONFIG": str(self.info.kubeconfig),
            "TRELLIS_NATS_URL": self.bus.url,
            "TRELLIS_CONTROLLER_RESOURCES": "v1/ConfigMap",
            "TRELLIS_CONTROLLER_DATA_DIR": str(directory / "controllers"),
            "TRELLIS_INSTALLER_IMAGE": "example.com/installer:1",
            "TRELLIS_MAX_UNAVAILABLE": "100%",
            "TRELLIS_LOG_LEVEL": "warning",
        }

    async def grow(self, size: Size, spares: Iterable[str]) -> None:
        """Ask for what a larger size has and this one has not; Trellis may do it from then on."""
        new = set(spares)
        await asyncio.to_thread(self._create, list(self._objects(size, new)))
        self.spares |= new
        former, self.size = self.size, size
        for number in range(former.lattices, size.lattices):
            await asyncio.to_thread(self.start_host, number, objects.STEADY, ready=True)
        await asyncio.gather(*(self._put(lattice, size, former) for lattice in range(size.lattices)))
        nodes = size.nodes + len(self.spares)
        await until(lambda: len(self.seen.ready) >= nodes, lambda: f"{len(self.seen.ready)} of {nodes} nodes are Ready")

    def _objects(self, size: Size, spares: set[str]) -> Iterable[Made]:
        former = self.size
        if former == EMPTY:
            yield objects.request()
            yield from objects.controllers_rbac()
        for number in range(former.lattices, size.lattices):
            lattice = sizes.lattice(number)
            yield objects.namespace(lattice)
            yield objects.group(lattice, self.lattices.port)
            yield from (objects.pod(lattice, name) for name in (objects.STEADY, objects.STARTED))
        yield from (objects.node(sizes.node(number), opted_in=True) for number in range(former.nodes, size.nodes))
        yield from (objects.node(name, opted_in=False) for name in sorted(spares))
        for number in range(former.applications, size.applications):
            if not by_wash(number):
                lattice = sizes.lattice(self.full.lattice_of(number))
                yield objects.application(sizes.application(number), lattice)
        for number in range(former.controllers, size.controllers):
            yield from objects.controller(number)

    def _create(self, wanted: list[Made]) -> None:
        """Create everything; namespaces and what all need come first, and are waited for."""
        first = [item for item in wanted if item[0] == "/api/v1/namespaces"]
        for path, manifest in first:
            self.post(path, manifest)
        with ThreadPoolExecutor(_IN_FLIGHT) as pool:
            list(pool.map(lambda item: self.post(*item), (item for item in wanted if item not in first)))

    def post(self, path: str, manifest: dict[str, Any]) -> None:
        """Create an object; one that is there was made by a request whose answer got lost.

        Raises:
            SystemExit: the server refuses it.
        """
        for _ in range(_TRIES):
            with contextlib.suppress(OSError):
                status, answer = self.api.call("POST", path, manifest)
                if status in {http.HTTPStatus.CREATED, http.HTTPStatus.CONFLICT}:
                    return
                if status != http.HTTPStatus.TOO_MANY_REQUESTS:
                    raise SystemExit(f"{path}: {status} {answer}")
            time.sleep(1)
        raise SystemExit(f"{path}: no answer")

    def patch(self, path: str, manifest: dict[str, Any]) -> None:
        """Change an object.

        Raises:
            SystemExit: the server refuses it.
        """
        status, answer = self.api.call("PATCH", path, manifest)
        if status != http.HTTPStatus.OK:
            raise SystemExit(f"{path}: {status} {answer}")

    def start_host(self, lattice: int, pod: str, *, ready: bool) -> None:
        """Let a pod of a lattice be ready, or not."""
        self.patch(PODS.path(sizes.lattice(lattice), pod, "status"), objects.pod_status(lattice, pod, ready=ready))

    async def _put(self, lattice: int, size: Size, former: Size) -> None:
        """Put and deploy a lattice's new applications that come from wash, one after the other as people do."""
        for number in range(former.applications, size.applications):
            if by_wash(number) and self.full.lattice_of(number) == lattice:
                name = sizes.application(number)
                await self._ask(lattice, "put", objects.model(name))
                await self._ask(lattice, f"deploy.{name}", {"version": "v1"})

    async def _ask(self, lattice: int, operation: str, body: dict[str, Any]) -> None:
        subject = f"wadm.api.{sizes.lattice(lattice)}.model.{operation}"
        answer = json.loads((await self.client.request(subject, json.dumps(body).encode(), timeout=60)).data)
        if answer.get("result") not in {"created", "acknowledged"}:
            raise SystemExit(f"{subject}: {answer}")


def by_wash(application: int) -> bool:
    """Return whether an application comes from wash; every second one does, the rest from kubectl."""
    return application % 2 == 1


@contextlib.asynccontextmanager
async def world(full: Size, directory: Path) -> AsyncIterator[World]:
    """Have an empty world for the time of a block."""
    ports = free_ports(2)
    async with contextlib.AsyncExitStack() as stack:
        info = await stack.enter_async_context(local_cluster(long_leases=True))
        servers = []
        for name, port in zip(("bus", "lattices"), ports, strict=True):
            config = directory / f"{name}.conf"
            config.write_text(f'http: "{LOOPBACK}:{port}"\n')
            servers.append(stack.enter_context(NatsServer(directory / name, config=config)))
        api = Api.of_kubeconfig(Path(info.kubeconfig))
        for kind in (*KINDS, APPLICATIONS):
            api.call("POST", DEFINITIONS.path(), make_definition(kind))
        paths = [f"/apis/{kind.group}/{kind.version}/{kind.plural}" for kind in (*KINDS, APPLICATIONS)]
        await until(lambda: all(map(api.ok, paths)), lambda: "the CRDs are served", _SERVED_SECONDS)
        seen, client = await stack.enter_async_context(looking(info, servers[1].url))
        programs = lattice_servers.lattice_servers(How(Lines(), threading.Event()))
        argv = [str(programs[lattice_servers.WADM]), "--nats-server", f"{LOOPBACK}:{servers[1].port}"]
        stack.enter_context(process(argv, {"RUST_LOG": "error"}))
        await _answers(client)
        yield World(info, api, servers[0], servers[1], tuple(ports), seen, client, full)


async def _answers(client: Client) -> None:
    """Wait until wadm answers."""
    async with asyncio.timeout(_WADM_SECONDS):
        while True:
            with contextlib.suppress(Exception):
                await client.request("wadm.api.default.model.get", b"", timeout=1)
                return
            await asyncio.sleep(0.2)
