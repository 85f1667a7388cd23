"""The world of the benchmark of Services: wadm of every lattice on a NATS, groups, pods, and watches of the results.

In: a NATS, an API server. Out: events as wadm publishes them, objects, and their times. Called by ``reflect``.
"""

from __future__ import annotations

import asyncio
import http
import json
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import orjson
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import StreamConfig

from trellis import names
from trellis.kube.informer import Change
from trellis.kube.resources import HOST_CONFIGS, PODS, Manifest
from trellis_dev.localcluster.api import Api

NAMESPACE = "default"
_EVENTS = StreamConfig(name="wadm_events", subjects=["wadm.evt.*.>"], max_age=70)
"""Stream with the events of wadm, which wasmcloud-operator reads."""


def application(name: str) -> dict[str, Any]:
    """Return a manifest such as most people write."""
    link = {
        "namespace": "wasi",
        "package": "http",
        "interfaces": ["incoming-handler"],
        "source": {"config": [{"name": "http", "properties": {"address": "0.0.0.0:8080"}}]},
        "target": {"name": "component"},
    }
    traits = [{"type": "link", "properties": link}, {"type": "daemonscaler", "properties": {"instances": 1}}]
    image = {"image": "ghcr.io/wasmcloud/http-server:0.27.0"}
    capability = {"name": "httpserver", "type": "capability", "properties": image, "traits": traits}
    metadata = {"name": name, "annotations": {"version": "v1"}}
    spec = {"components": [capability]}
    return {"apiVersion": "core.oam.dev/v1beta1", "kind": "Application", "metadata": metadata, "spec": spec}


@dataclass
class Wadm:
    """wadm of every lattice on a NATS."""

    client: Client
    deployed: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)

    async def start(self) -> None:
        """Answer requests and store events from now on."""
        await self.client.jetstream().add_stream(_EVENTS)
        await self.client.subscribe("wadm.api.*.model.list", cb=self._list)
        await self.client.subscribe("wadm.api.*.model.get.*", cb=self._get)

    async def deploy(self, lattice: str, name: str) -> None:
        """Deploy an application and publish it."""
        found = self.deployed.setdefault(lattice, {})[name] = application(name)
        await self._publish(lattice, "manifest_published", found)

    async def undeploy(self, lattice: str, name: str) -> None:
        """Undeploy an application and publish it."""
        del self.deployed[lattice][name]
        for _ in range(2):  # as wadm does
            await self._publish(lattice, "manifest_unpublished", {"name": name})

    async def _publish(self, lattice: str, event: str, data: object) -> None:
        time_ = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        envelope = {
            "specversion": "1.0",
            "id": secrets.token_hex(8),
            "type": f"com.wadm.{event}",
            "source": "wadm",
            "datacontenttype": "application/json",
            "time": time_,
            "data": data,
        }
        await self.client.publish(f"wadm.evt.{lattice}.{event}", json.dumps(envelope).encode())

    async def _list(self, message: Msg) -> None:
        found = self.deployed.get(message.subject.split(".")[2], {})
        fixed = {"version": "v1", "deployed_version": "v1", "status": "deployed"}
        await message.respond(orjson.dumps([{"name": item, **fixed} for item in found]))

    async def _get(self, message: Msg) -> None:
        parts = message.subject.split(".")
        found = self.deployed.get(parts[2], {}).get(parts[5])
        await message.respond(orjson.dumps({"result": "success", "manifest": found}))


@dataclass
class Seen:
    """The watches of another client: Services by name, and the time of the last change of each slice."""

    services: dict[str, float] = field(default_factory=dict)
    slices: dict[str, tuple[str, float]] = field(default_factory=dict)

    def service(self, change: Change[str]) -> None:
        """Note a Service."""
        name = change.key.partition("/")[2]
        if change.new is None:
            self.services.pop(name, None)
        elif change.old is None:
            self.services[name] = time.monotonic()

    def slice(self, change: Change[tuple[str, str]]) -> None:
        """Note what a slice leads to."""
        if change.new is not None:
            self.slices[change.new[0]] = (change.new[1], time.monotonic())


def ready_addresses(manifest: Manifest) -> tuple[str, str]:
    """Return the Service of a slice, and what is ready in it."""
    ready = [
        endpoint["addresses"][0] for endpoint in manifest.get("endpoints") or () if endpoint["conditions"]["ready"]
    ]
    return manifest["metadata"]["labels"][names.LABEL_SERVICE_NAME], ",".join(sorted(ready))


async def until(check: Callable[[], bool], what: str, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not check():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds} s: {what}")
        await asyncio.sleep(0.001)


def create(api: Api, path: str, manifest: dict[str, Any]) -> None:
    status, answer = api.call("POST", path, manifest)
    assert status == http.HTTPStatus.CREATED, answer


def create_group(api: Api, lattice: str, port: int) -> None:
    spec = {"lattice": lattice, "version": "1.9.2", "natsAddress": "nats://127.0.0.1", "natsClientPort": port}
    manifest = {
        "apiVersion": HOST_CONFIGS.api_version,
        "kind": HOST_CONFIGS.kind,
        "metadata": {"name": lattice},
        "spec": spec,
    }
    create(api, HOST_CONFIGS.path(NAMESPACE), manifest)


def create_pod(api: Api, group: str, name: str, number: int) -> None:
    labels = {names.LABEL_NAME: "wasmcloud", names.LABEL_MANAGED_BY: names.WADM_OPERATOR, names.LABEL_INSTANCE: group}
    spec = {"schedulerName": "nobody", "containers": [{"name": "host", "image": "example.com/host:1"}]}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}
    create(api, PODS.path(NAMESPACE), body)
    set_ready(api, name, f"10.80.{number // 250}.{number % 250 + 1}", ready=True)


def set_ready(api: Api, pod: str, address: str, *, ready: bool) -> None:
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    status = {"phase": "Running", "conditions": conditions, "podIP": address, "podIPs": [{"ip": address}]}
    code, answer = api.call("PATCH", PODS.path(NAMESPACE, pod, "status"), {"status": status})
    assert code == http.HTTPStatus.OK, answer
