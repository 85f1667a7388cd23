"""secrets_backend as whoever installs it has it: a process of its own, groups of hosts, a lattice's NATS.

In: a cluster, the NATS of a lattice, namespaces. Out: a process that answers on that NATS. Called by tests and
benchmarks that judge it from outside. Invariant: its log is on disk, and what was planted can be looked for in it.
"""

from __future__ import annotations

import contextlib
import http
import os
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psutil

from support.cluster.definitions import OURS, ensure_served
from support.secrets.secrets_client import ClientError, SecretsClient
from support.secrets.secrets_conformance.world import World
from support.suite.forkserver import Child
from support.suite.service_process import free_port, get
from support.suite.typed import started
from trellis.kube.resources import HOST_CONFIGS
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.api import Api
from trellis_dev.localcluster.nats import NatsServer

READY_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 30.0
_PAUSE: Final = 0.05


@dataclass
class Server:
    """One running replica."""

    process: Child
    port: int
    log: Path
    ended: bool = False

    def end(self, how: signal.Signals) -> None:
        """End it before its time, and wait until it has."""
        self.ended = True
        self.process.send_signal(how)
        assert self.process.end_within(_STOP_SECONDS) is not None, "it does not stop"

    def processor_seconds(self) -> float:
        """Return how much processor time it took since its start."""
        return sum(psutil.Process(self.process.pid).cpu_times()[:2])

    def metrics(self) -> str:
        """Return its metrics, as Prometheus reads them."""
        return get(self.port, "/metrics")[1]


@dataclass(frozen=True)
class Place:
    """The cluster and the servers of replicas: ``home`` has the key's Secret, ``bus`` is the server for events."""

    info: ClusterInfo
    bus: NatsServer
    home: str
    directory: Path
    settings: Mapping[str, str] = field(default_factory=dict)

    @contextlib.contextmanager
    def replica(self) -> Iterator[Server]:
        """Run one, from when it says that it is ready."""
        port = free_port()
        environment = {
            **os.environ,
            "TRELLIS_KUBECONFIG": str(self.info.kubeconfig),
            "TRELLIS_NATS_URL": self.bus.url,
            "TRELLIS_NAMESPACE": self.home,
            "TRELLIS_HEALTH_PORT": str(port),
            "TRELLIS_LOG_FORMAT": "json",
            **self.settings,
        }
        log = self.directory / f"secrets-backend-{port}.log"
        log.write_bytes(b"")
        process = started(environment, "run", "secrets-backend", log=log)
        try:
            _wait_ready(process, port, log)
            server = Server(process, port, log)
            yield server
            assert server.ended or process.returncode is None, f"it ended by itself:\n{log.read_text()[-3000:]}"
        finally:
            process.terminate()
            assert process.end_within(_STOP_SECONDS) is not None, "it does not stop"


def _wait_ready(process: Child, port: int, log: Path) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while (found := get(port, "/readyz"))[0] != http.HTTPStatus.OK:
        assert process.returncode is None, f"it ended by itself:\n{log.read_text()[-3000:]}"
        assert time.monotonic() < deadline, f"not ready: {found}\n{log.read_text()[-3000:]}"
        time.sleep(_PAUSE)


def define_kinds(api: Api) -> None:
    """Have the API server know our kinds."""
    ensure_served(api, *OURS)


@contextlib.contextmanager
def groups(api: Api, name: str, lattice: NatsServer, *namespaces: str) -> Iterator[None]:
    """Have a group of hosts of this lattice in each namespace."""
    spec = {"lattice": name, "version": "1.9.2", "natsAddress": "nats://127.0.0.1", "natsClientPort": lattice.port}
    body = {"apiVersion": HOST_CONFIGS.api_version, "kind": HOST_CONFIGS.kind, "metadata": {"name": name}, "spec": spec}
    for namespace in namespaces:
        status, answer = api.call("POST", HOST_CONFIGS.path(namespace), body)
        assert status == http.HTTPStatus.CREATED, answer
    try:
        yield
    finally:
        for namespace in namespaces:
            api.call("DELETE", HOST_CONFIGS.path(namespace, name))


@dataclass(frozen=True)
class ServedBackend:
    """A backend that answers, and the world it is asked in."""

    world: World
    place: Place
    servers: list[Server]

    @property
    def log(self) -> str:
        """Return the output of all replicas."""
        return "".join(server.log.read_text() for server in self.servers)


@contextlib.contextmanager
def running_backend(
    place: Place, lattice: NatsServer, *, lattice_name: str, own: tuple[str, ...], replicas: int = 1
) -> Iterator[ServedBackend]:
    """Have a backend for a lattice whose hosts are in some namespaces, with Secrets in the first of them.

    Namespaces are made and removed, but for ``default``. The backend has the name that the place's settings say.
    """
    backend, outside = place.settings.get("TRELLIS_SECRETS_BACKEND", "kube"), f"{lattice_name}-outside"
    with contextlib.ExitStack() as stack:
        api = stack.enter_context(contextlib.closing(Api.of_kubeconfig(Path(place.info.kubeconfig))))
        for namespace in {*own, outside, place.home} - {"default"}:
            api.call("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
            stack.callback(api.call, "DELETE", f"/api/v1/namespaces/{namespace}")
        define_kinds(api)
        client = stack.enter_context(SecretsClient(lattice.url))
        world = World(client, api, own[0], backend, lattice_name, outside)
        stack.callback(world.remove)
        world.prepare()
        stack.enter_context(groups(api, lattice_name, lattice, *own))
        servers = [stack.enter_context(place.replica()) for _ in range(replicas)]
        world.server_xkey = until_served(client, world.subject("server_xkey"))
        yield ServedBackend(world, place, servers)


def until_served(client: SecretsClient, subject: str) -> str:
    """Wait until a backend gives its key; return it."""
    deadline = time.monotonic() + READY_SECONDS
    while True:
        with contextlib.suppress(ClientError):
            return client.request(subject, b"", seconds=1.0).data.decode()
        assert time.monotonic() < deadline, f"nobody answers on {subject}"
        time.sleep(_PAUSE)
