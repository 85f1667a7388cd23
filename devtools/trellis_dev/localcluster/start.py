"""Starts the components of one cluster, in parallel where possible.

In: the directory of a cluster with certificates and links to programs, and its state. Out: running, ready components,
each recorded in the state before the wait for readiness. Called by :mod:`.cluster`.

  nats-server ─┐
  jaeger ──────┤
  etcd ── kube-apiserver ──┬─ kube-controller-manager ──(its first ServiceAccount)──┬─ ready
                           ├─ kube-scheduler ───────────────────────────────────────┤
                           └─ kwok ─────────────────────────────────────────────────┘

Invariant: a component whose port is taken between selection and listening is restarted on another port.
"""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from typing import Final

import yaml

from trellis_dev.localcluster.api import Api
from trellis_dev.localcluster.certs import USERS, read_token, write_private
from trellis_dev.localcluster.commands import PORTS, command
from trellis_dev.localcluster.errors import PortInUseError, StartError
from trellis_dev.localcluster.paths import Layout
from trellis_dev.localcluster.ports import LOOPBACK, free_ports, is_free
from trellis_dev.localcluster.processes import alive, spawn
from trellis_dev.localcluster.progress import Progress, stepping
from trellis_dev.localcluster.readiness import etcd_healthy, http_ok, nats_answers, tail, wait_ready
from trellis_dev.localcluster.state import ClusterState, save

_READY_SECONDS: Final = 90.0
_PORT_SECONDS: Final = 20.0
_TRIES: Final = 6
_POLL: Final = 0.02
_AFTER_APISERVER: Final = ("kube-controller-manager", "kube-scheduler", "kwok")


class Starter:
    """Starts components of one cluster. When ``abort`` is set, every wait raises AbortedError."""

    def __init__(self, layout: Layout, state: ClusterState, progress: Progress, abort: threading.Event) -> None:
        self._layout = layout
        self._state = state
        self._progress = progress
        self._abort = abort

    def start(self, tools: set[str]) -> None:
        """Start these components; their dependencies must be included or running.

        Raises:
            StartError: a component ends or is not ready in time. AbortedError: stop was requested.
        """
        with ThreadPoolExecutor(len(PORTS), thread_name_prefix="start") as pool:
            futures: list[Future[None]] = [
                pool.submit(self._start, tool) for tool in ("nats-server", "jaeger") if tool in tools
            ]
            futures.append(pool.submit(self._control_plane, tools))
            try:
                done, _ = wait(futures, return_when=FIRST_EXCEPTION)
                for future in done:
                    future.result()
            except BaseException:
                self._abort.set()
                raise
        self._check_all_run(tools)

    def restart(self, tool: str) -> None:
        """Start one component on its previous ports.

        Raises:
            StartError: it ends, is not ready in time, or its ports stay in use for 20 s.
        """
        self._start(tool)

    def _control_plane(self, tools: set[str]) -> None:
        for tool in ("etcd", "kube-apiserver"):
            if tool in tools:
                self._start(tool)
        self._write_kubeconfigs()
        rest = [tool for tool in _AFTER_APISERVER if tool in tools]
        with ThreadPoolExecutor(len(_AFTER_APISERVER)) as pool:
            list(pool.map(self._start, rest))

    def _start(self, tool: str) -> None:
        with stepping(self._progress, f"start {tool}"):
            given = all(name in self._state.ports for name in PORTS[tool])
            for _ in range(_TRIES):
                if given:
                    self._wait_for_ports(tool)
                else:
                    self._state.ports.update(zip(PORTS[tool], free_ports(len(PORTS[tool])), strict=True))
                try:
                    self._start_once(tool)
                except PortInUseError:
                    continue
                return
            raise StartError(f"{tool}: its ports were in use in {_TRIES} attempts; see {self._layout.log(tool)}")

    def _start_once(self, tool: str) -> None:
        log = self._layout.log(tool)
        position = log.stat().st_size if log.exists() else 0
        argv = command(
            tool,
            self._layout,
            self._state.ports,
            audit=self._state.audit,
            quick_jobs=self._state.quick_jobs,
            long_leases=self._state.long_leases,
            address=self._state.address,
        )
        process = spawn(argv, log=log, token=self._state.token)
        self._state.processes[tool] = process
        save(self._layout, self._state)
        api = (
            Api.of_pki(self._state.ports["kube-apiserver"], self._layout.pki, self._state.address)
            if "kube-apiserver" in self._state.ports
            else None
        )
        try:
            wait_ready(tool, self._check(tool, api), process, (log, position), _READY_SECONDS, self._abort)
        finally:
            if api is not None:
                api.close()

    def _check(self, tool: str, api: Api | None) -> Callable[[], bool]:
        """Return the readiness check of a component."""
        ports = self._state.ports
        match tool:
            case "nats-server":
                return lambda: nats_answers(ports["nats"])
            case "etcd":
                return lambda: etcd_healthy(ports["etcd"])
            case "jaeger":
                return lambda: http_ok(f"http://{LOOPBACK}:{ports['jaeger-admin']}/")
        assert api is not None, "only after kube-apiserver has a port"
        if tool == "kube-apiserver":
            return lambda: api.ok("/readyz")
        if tool == "kube-controller-manager":
            # Pods cannot be created without it; it is among the last objects to appear.
            return lambda: api.ok("/api/v1/namespaces/default/serviceaccounts/default")
        record = self._state.processes[tool]
        return lambda: alive(record)

    def _wait_for_ports(self, tool: str) -> None:
        """Wait until the sockets of the previous owner are closed: a killed process can hold them briefly."""
        deadline = time.monotonic() + _PORT_SECONDS
        for name in PORTS[tool]:
            port = self._state.ports[name]
            while not is_free(port):
                if time.monotonic() > deadline:
                    raise StartError(
                        f"{tool}: port {port} is still in use after {_PORT_SECONDS:.0f} s; see what listens there"
                    )
                time.sleep(_POLL)

    def _check_all_run(self, tools: set[str]) -> None:
        """Detect components that ended after their start: the scheduler and kwok have no readiness check."""
        for tool in sorted(tools):
            if not alive(self._state.processes[tool]):
                log = self._layout.log(tool)
                raise StartError(f"{tool} ended soon after its start; the end of {log}:\n{tail((log, 0))}")

    def _write_kubeconfigs(self) -> None:
        """Write a self-contained kubeconfig for each user; it can be copied to other machines."""
        server = f"https://{self._state.address}:{self._state.ports['kube-apiserver']}"
        for user in USERS:
            write_private(self._layout.kubeconfig(user), kubeconfig(self._layout, server, user).encode())


def kubeconfig(layout: Layout, server: str, user: str) -> str:
    """Return a kubeconfig for one user of a cluster; cluster and context are named ``trellis-<name>``."""
    name = f"trellis-{layout.name}"
    authority = base64.b64encode((layout.pki / "ca.crt").read_bytes()).decode()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": server, "certificate-authority-data": authority}}],
        "users": [{"name": user, "user": {"token": read_token(layout.pki, user)}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": user}}],
        "current-context": name,
    }
    text: str = yaml.safe_dump(config, sort_keys=False)
    return text
