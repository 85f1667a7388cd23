"""controller_host as a process, on a real API server and a real bus, with controllers in namespaces of their own."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import http
import json
import os
import secrets
import signal
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import wasmtime
from prometheus_client import generate_latest

from controller_host.app import create_app
from controller_host.settings import Settings
from controller_host.timings import Timings
from support.cluster.definitions import ensure_served
from support.cluster.grants import until_bound
from support.suite.in_process import serving
from support.suite.service_process import free_port, get, lines, running
from support.suite.typed import typed_meanwhile
from trellis.kube.resources import WASM_CONTROLLERS
from trellis.telemetry.metrics import process_metrics
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.api import Api

DEADLINE = 40.0
PREBUILT = Path(__file__).parents[3] / "deploy" / "examples" / "controllers"
Manifest = dict[str, Any]


def prebuilt(name: str) -> bytes:
    """Return an example as it is in the repository."""
    return (PREBUILT / f"{name}.wasm").read_bytes()


def compiled(text: str) -> bytes:
    """Return the module of a text in WebAssembly's own language."""
    return bytes(wasmtime.wat2wasm(text))


def series(text: str) -> dict[str, float]:
    """Return the values of Prometheus' text, by name and labels."""
    lines = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
    return {item: float(value) for item, _, value in lines}


@dataclass
class Host:
    """The service, and the directory that outlives it. ``kill`` is SIGKILL."""

    cluster: ClusterInfo
    nats_url: str
    directory: Path
    settings: dict[str, str] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    name: str = field(default_factory=lambda: f"ch-{secrets.token_hex(4)}")
    port: int = field(default_factory=free_port)
    process: Process | None = None
    counted: dict[str, float] | None = None
    """While it runs in this process: what other tests of the process had counted before."""

    @property
    def log(self) -> Path:
        return self.directory / "log"

    @property
    def environment(self) -> dict[str, str]:
        return {
            "TRELLIS_KUBECONFIG": str(self.cluster.kubeconfig),
            "TRELLIS_NATS_URL": self.nats_url,
            "TRELLIS_NAMESPACE": self.name,
            "TRELLIS_CLAIM_NAMESPACE": self.name,
            "TRELLIS_HEALTH_PORT": str(self.port),
            "TRELLIS_CONTROLLER_DATA_DIR": str(self.directory / "data"),
            "TRELLIS_SOURCES_INTERVAL": "1s",
        } | self.settings

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[Process]:
        self.log.touch()  # the process opens it a moment after it is there
        async with running(self.log, "controller-host", *self.flags, **self.environment) as process:
            self.process = process
            yield process

    @contextlib.asynccontextmanager
    async def serving_here(self, timings: Timings) -> AsyncIterator[None]:
        """Run the service in this process: only there it can be given shorter timings."""
        settings = {key.removeprefix("TRELLIS_").lower(): value for key, value in self.environment.items()}
        self.counted = series(generate_latest(process_metrics().registry).decode())
        try:
            async with serving(partial(create_app, timings=timings), Settings, settings):
                yield
        finally:
            self.counted = None

    async def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        await self.process.wait()

    def metric(self, name: str, **labels: str) -> float:
        """Return the sum of a metric's series with these labels."""
        if self.counted is None:
            found = series(get(self.port, "/metrics")[1])
        else:
            found = series(generate_latest(process_metrics().registry).decode())
            found = {item: value - self.counted.get(item, 0.0) for item, value in found.items()}
        return sum(
            value
            for item, value in found.items()
            if item.partition("{")[0] == name and all(f'{key}="{is_}"' in item for key, is_ in labels.items())
        )

    def asleep(self, count: int = 1) -> bool:
        """Return whether so many controllers are on disk, and none is in memory."""
        state = "trellis_controllers"
        return self.metric(state, state="Suspended") == count and self.metric(state, state="Resident") == 0

    async def command(self, *arguments: str) -> dict[str, Any]:
        """Return what a command of ``trellis`` says as JSON, whether or not it finds something wrong."""
        environment = os.environ | {
            "TRELLIS_KUBECONFIG": str(self.cluster.kubeconfig),
            "TRELLIS_NATS_URL": self.nats_url,
            "TRELLIS_NAMESPACE": self.name,
            "TRELLIS_CLAIM_NAMESPACE": self.name,
        }
        done = await typed_meanwhile(environment, *arguments, "-o", "json")
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def logged(self, **fields: str) -> list[dict[str, Any]]:
        """Return the lines of the log that have these fields."""
        return [line for line in lines(self.log) if all(line.get(key) == value for key, value in fields.items())]


@dataclass
class Tenant:
    """A namespace with controllers, and one with what they make."""

    api: Api
    name: str

    def make(self, manifest: Manifest) -> Manifest:
        """Create an object."""
        status, found = self.api.call("POST", self._path(manifest), manifest)
        assert status == http.HTTPStatus.CREATED, found
        return found

    def config_map(self, name: str, namespace: str = "", **data: str) -> Manifest:
        """Create or change a ConfigMap."""
        metadata: Manifest = {"namespace": namespace or self.name, "name": name}
        metadata["labels"] = {"watched": "true"}
        manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
        path = f"{self._path(manifest)}/{name}"
        if self.api.call("PATCH", path, {"data": data})[0] == http.HTTPStatus.OK:
            return manifest
        return self.make(manifest)

    def delete(self, name: str) -> None:
        """Delete a ConfigMap."""
        assert self.api.call("DELETE", f"/api/v1/namespaces/{self.name}/configmaps/{name}")[0] == http.HTTPStatus.OK

    def data(self, name: str, namespace: str = "") -> dict[str, str] | None:
        """Return the data of a ConfigMap, None if there is none."""
        status, found = self.api.call("GET", f"/api/v1/namespaces/{namespace or self.name}/configmaps/{name}")
        return (found.get("data") or {}) if status == http.HTTPStatus.OK else None

    def account(self, name: str, *rules: Manifest, namespaces: tuple[str, ...] = ()) -> None:
        """Create a ServiceAccount with these permissions in these namespaces, its own if none is named."""
        self.make({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"namespace": self.name, "name": name}})
        rbac = {"apiVersion": "rbac.authorization.k8s.io/v1"}
        for namespace in namespaces or (self.name,):
            role_name = f"{self.name}-{name}"
            metadata = {"namespace": namespace, "name": role_name}
            self.make(rbac | {"kind": "Role", "metadata": metadata, "rules": list(rules)})
            subject = {"kind": "ServiceAccount", "namespace": self.name, "name": name}
            role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role_name}
            binding = rbac | {"kind": "RoleBinding", "metadata": metadata, "subjects": [subject], "roleRef": role}
            self.make(binding)
            until_bound(self.api, binding)

    def module(self, name: str, wasm: bytes) -> None:
        """Put a module into a ConfigMap."""
        metadata = {"namespace": self.name, "name": name}
        binary = {"module.wasm": base64.b64encode(wasm).decode()}
        self.make({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "binaryData": binary})

    def controller(self, name: str, module: str = "", source: Manifest | None = None, **spec: Any) -> None:
        """Create a controller that watches those ConfigMaps of its namespace that ``config_map`` makes.

        ``module``: the ConfigMap that its module is in; ``source``: where it is else.
        """
        selector = {"matchLabels": {"watched": "true"}}
        body = {
            "module": source or {"configMap": {"name": module or name, "key": "module.wasm"}},
            "serviceAccountName": name,
            "watches": [{"apiVersion": "v1", "kind": "ConfigMap", "labelSelector": selector}],
            "idle": {"suspendAfter": "0s"},
        }
        self.make(
            {
                "apiVersion": "trellis.dev/v1alpha1",
                "kind": "WasmController",
                "metadata": {"namespace": self.name, "name": name},
                "spec": body | spec,
            }
        )

    def found(self, name: str) -> Manifest:
        """Return a controller."""
        status, found = self.api.call("GET", f"{self._of_controllers()}/{name}")
        assert status == http.HTTPStatus.OK
        return found

    def status(self, name: str) -> Manifest:
        """Return the status of a controller."""
        return dict(self.found(name).get("status") or {})

    def condition(self, name: str, kind: str) -> tuple[str, str]:
        """Return status and reason of a condition of a controller, two "" if there is none."""
        for condition in self.status(name).get("conditions") or ():
            if condition["type"] == kind:
                return condition["status"], condition["reason"]
        return "", ""

    def change(self, name: str, spec: Manifest) -> None:
        """Merge fields into the spec of a controller."""
        status, found = self.api.call("PATCH", f"{self._of_controllers()}/{name}", {"spec": spec})
        assert status == http.HTTPStatus.OK, found

    def remove(self, name: str) -> None:
        """Delete a controller."""
        assert self.api.call("DELETE", f"{self._of_controllers()}/{name}")[0] == http.HTTPStatus.OK

    def events(self) -> list[Manifest]:
        """Return the Events of the namespace."""
        return list(self.api.call("GET", f"/api/v1/namespaces/{self.name}/events")[1]["items"])

    def _of_controllers(self) -> str:
        return WASM_CONTROLLERS.path(self.name)

    @staticmethod
    def _path(manifest: Manifest) -> str:
        group = manifest["apiVersion"]
        root = f"/apis/{group}" if "/" in group else f"/api/{group}"
        plural = manifest["kind"].lower() + "s"
        return f"{root}/namespaces/{manifest['metadata']['namespace']}/{plural}"


def tenant_of(api: Api) -> Tenant:
    """Return a new namespace."""
    tenant = Tenant(api, f"ctl-{secrets.token_hex(4)}")
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": tenant.name}}
    assert api.call("POST", "/api/v1/namespaces", manifest)[0] == http.HTTPStatus.CREATED
    return tenant


@contextlib.contextmanager
def tenancy(api: Api) -> Iterator[Callable[[], Tenant]]:
    """Make namespaces for controllers, the kind defined; at the end of the block they and their controllers go."""
    define(api)
    made: list[Tenant] = []

    def make() -> Tenant:
        made.append(tenant_of(api))
        return made[-1]

    yield make
    for tenant in made:
        for item in api.call("GET", WASM_CONTROLLERS.path(tenant.name))[1].get("items") or ():
            tenant.remove(item["metadata"]["name"])
        api.call("DELETE", f"/api/v1/namespaces/{tenant.name}")


@contextlib.contextmanager
def own_namespace(api: Api, host: Host) -> Iterator[Host]:
    """Have a host, the kind defined; at the end of the block the namespace goes that is the host's alone."""
    define(api)
    yield host
    api.call("DELETE", f"/api/v1/namespaces/{host.name}")


CONFIG_MAPS: Manifest = {
    "apiGroups": [""],
    "resources": ["configmaps"],
    "verbs": ["get", "list", "watch", "create", "update", "patch", "delete"],
}


def define(api: Api) -> None:
    """See to it that the kind is served."""
    ensure_served(api, WASM_CONTROLLERS)


async def until(condition: Callable[[], bool], what: str, deadline: float = DEADLINE) -> None:
    """Wait for a condition that may ask servers, in this thread: a connection to the API server is a thread's."""
    end = time.monotonic() + deadline
    while not condition():
        assert time.monotonic() < end, what
        await asyncio.sleep(0.05)


def shown(found: object) -> str:
    """Return JSON for a message."""
    return json.dumps(found, indent=1)[:4000]
