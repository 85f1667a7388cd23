"""Operators of others as processes beside a test's API server, with the accounts and permissions of their own releases.

In: programs of ``versions.toml``, built once from the modules of their releases, and the manifests in these modules.
Out: what runs, each with a log file of its own. Called by tests of the examples that these operators are for.
Invariant: an operator comes as the ServiceAccount that its release gives it, never as the cluster's administrator, and
none outlives the test process, even if that is killed.
"""

from __future__ import annotations

import http
import secrets
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Self

import yaml

from support.examples.applied_examples import Kubectl
from trellis.kube.resources import NAMESPACES, SERVICE_ACCOUNTS, SERVICES
from trellis_dev.localcluster import ClusterInfo, gobuild, tools
from trellis_dev.localcluster.api import Api
from trellis_dev.localcluster.guard import Guard, guard
from trellis_dev.localcluster.ports import LOOPBACK
from trellis_dev.localcluster.processes import ProcessRecord, end, spawn, wait_ended
from trellis_dev.localcluster.progress import Lines, Quiet
from trellis_dev.localcluster.readiness import tail, wait_ready

_DAY: Final = 24 * 3600
_READY_SECONDS: Final = 120.0
_STOP_SECONDS: Final = 10.0
_ENV: Final = "/usr/bin/env"


class Operators:
    """A context manager: what was started has ended when its block is over."""

    def __init__(self, cluster: ClusterInfo, api: Api, directory: Path) -> None:
        self.cluster = cluster
        self.api = api
        self.kubectl = Kubectl(cluster)
        self.directory = directory
        self._token = secrets.token_hex(16)
        self._guard: Guard | None = None
        self._running: dict[str, ProcessRecord] = {}

    def __enter__(self) -> Self:
        """Be ready to start some."""
        guarded = self.directory / "guarded"  # it is removed with the processes; the logs are not
        guarded.mkdir(parents=True)
        self._guard = guard(guarded, self._token)
        return self

    def __exit__(self, *_: object) -> None:
        """End them all, politely first."""
        end(self._running.values(), grace=_STOP_SECONDS)
        if self._guard is not None:
            self._guard.abandon()

    def module(self, product: str) -> Path:
        """Return the folder of a product's module, where its manifests are."""
        return gobuild.module_folder(product, Quiet(), threading.Event())

    def namespace(self, name: str) -> None:
        """Have a namespace."""
        status, answer = self.api.call("POST", NAMESPACES.path(), {"metadata": {"name": name}})
        assert status in {http.HTTPStatus.CREATED, http.HTTPStatus.CONFLICT}, answer

    def apply(self, *paths: Path) -> None:
        """Apply files, and folders with a kustomization, on the server: definitions do not fit into annotations."""
        for path in paths:
            self.kubectl("apply", "--server-side", "--force-conflicts", "-k" if path.is_dir() else "-f", str(path))

    def define(self, *paths: Path) -> None:
        """Apply what has definitions, and wait until the API server has taken all of them in."""
        self.apply(*paths)
        # kubectl's wait fails on a definition that has no conditions at all yet.
        self.kubectl("wait", "--for=jsonpath={.status.conditions}", "crd", "--all", "--timeout=50s")
        self.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=50s")

    def outside(self, namespace: str, name: str, port: int) -> None:
        """Have a Service lead to a port of this machine: what the operator's own selects are pods, and there are none.

        The API server reaches aggregated servers by it, as the port has to be the one that an APIService names (443).
        """
        ports = [{"name": "https", "port": port}]
        spec = {"type": "ExternalName", "externalName": "localhost", "ports": ports}
        body = {"metadata": {"name": name}, "spec": spec}
        status, answer = self.api.call("POST", SERVICES.path(namespace), body)
        assert status == http.HTTPStatus.CREATED, answer

    def kubeconfig(self, namespace: str, account: str) -> Path:
        """Return a kubeconfig with a token of a ServiceAccount."""
        path = f"{SERVICE_ACCOUNTS.path(namespace, account)}/token"
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": _DAY}}
        status, answer = self.api.call("POST", path, body)
        assert status == http.HTTPStatus.CREATED, answer
        config: dict[str, Any] = yaml.safe_load(Path(self.cluster.kubeconfig).read_text(encoding="utf-8"))
        config["users"][0]["user"] = {"token": answer["status"]["token"]}
        target = self.directory / f"{namespace}-{account}.kubeconfig"
        target.touch(mode=0o600)
        target.write_text(yaml.safe_dump(config), encoding="utf-8")
        return target

    def start(
        self,
        name: str,
        command: tuple[str | Path, ...],
        ready: Callable[[], bool],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start a tool with arguments, and wait until it is ready. It sees the variables given and the usual few."""
        log = self.log(name)
        position = log.stat().st_size if log.exists() else 0
        process = self._spawn(name, command, environment or {})
        wait_ready(name, ready, process, (log, position), _READY_SECONDS)

    def run(self, name: str, command: tuple[str | Path, ...], environment: Mapping[str, str] | None = None) -> None:
        """Start a tool that ends by itself, so that it be started again, and wait until it has."""
        process = self._spawn(name, command, environment or {})
        assert not wait_ended([process], _READY_SECONDS), f"{name} runs on:\n{tail((self.log(name), 0))}"

    def _spawn(self, name: str, command: tuple[str | Path, ...], environment: Mapping[str, str]) -> ProcessRecord:
        tool, *arguments = command
        program = tools.ensure(str(tool), Lines()) if str(tool) in tools.TOOLS else tool
        argv = [_ENV, *(f"{key}={value}" for key, value in environment.items()), str(program), *map(str, arguments)]
        process = self._running[name] = spawn(argv, log=self.log(name), token=self._token)
        return process

    def log(self, name: str) -> Path:
        """Return where a process writes what it has to say."""
        return self.directory / f"{name}.log"

    def output(self) -> str:
        """Return the end of every log, for a test that fails."""
        return "\n".join(f"--- {name}\n{tail((self.log(name), 0))}" for name in self._running)


def address(port: int) -> str:
    """Return a port of this machine as an address."""
    return f"{LOOPBACK}:{port}"
