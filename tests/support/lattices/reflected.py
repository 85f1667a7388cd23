"""Applications of a lattice and service_reflector, on a real API server and a NATS of the test's."""

from __future__ import annotations

import contextlib
import http
import json
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Self

import pytest

import service_reflector.app
import service_reflector.settings
from service_reflector.timings import Timings
from support.lattices.host_world import PATIENCE, HostWorld
from support.lattices.lattice_speaker import LatticeSpeaker
from support.nodes.fleet import eventually
from support.suite.in_process import serving
from support.suite.permits import permit_deletions
from support.suite.settling import settle
from trellis import names
from trellis.events.subjects import SERVICE_REFLECTOR
from trellis.kube.resources import ENDPOINT_SLICES, EVENTS, PODS, SERVICES
from trellis.kube.watch_timings import WatchTimings
from trellis.lattice.domain.preserved import belongs_to
from trellis.lattice.domain.service_views import view_slice
from trellis.lattice.timings import ComparisonTimings, ConnectionTimings, LatticeTimings
from trellis.runtime.run import LedService
from trellis_dev.localcluster.nats import NatsServer

Manifest = dict[str, Any]
QUICK = Timings(
    watch=WatchTimings(absent=0.3),
    lattice=LatticeTimings(
        connection=ConnectionTimings(backoff_first=0.1, backoff_most=0.5),
        comparison=ComparisonTimings(answer=1.0, again=0.5),
    ),
)


class Wadm:
    """wadm of one lattice: says what it does, and answers to ``model.list`` and ``model.get`` while it ``answers``."""

    def __init__(self, speaker: LatticeSpeaker) -> None:
        self.speaker = speaker
        self.deployed: dict[str, Manifest] = {}
        self.answers = True
        self.requested = 0

    async def __aenter__(self) -> Self:
        api = f"wadm.api.{self.speaker.lattice}.model"
        await self.speaker.client.subscribe(f"{api}.list", cb=self._list)
        await self.speaker.client.subscribe(f"{api}.get.*", cb=self._get)
        await settle(self.speaker.client)
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def deploy(self, application: Manifest, *, quietly: bool = False) -> None:
        """Deploy an application, and say so unless ``quietly``."""
        self.deployed[application["metadata"]["name"]] = application
        if not quietly:
            await self.publish("manifest_published", application)

    async def undeploy(self, name: str, *, quietly: bool = False) -> None:
        """Undeploy an application, and say so twice, as wadm does, unless ``quietly``."""
        self.deployed.pop(name, None)
        for _ in range(0 if quietly else 2):
            await self.publish("manifest_unpublished", {"name": name})

    async def publish(self, event: str, data: object) -> None:
        """Say an event now."""
        time = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        envelope = {"specversion": "1.0", "id": secrets.token_hex(8), "source": "wadm", "time": time, "data": data}
        await self.speaker.client.publish(f"wadm.evt.{self.speaker.lattice}.{event}", json.dumps(envelope).encode())

    async def _list(self, message: Any) -> None:
        self.requested += 1
        if self.answers:
            versions = {name: item["metadata"]["annotations"]["version"] for name, item in self.deployed.items()}
            models = [{"name": name, "version": v, "deployed_version": v} for name, v in versions.items()]
            await message.respond(json.dumps(models).encode())

    async def _get(self, message: Any) -> None:
        found = self.deployed.get(message.subject.rsplit(".", 1)[1])
        if self.answers and found is not None:
            await message.respond(json.dumps({"result": "success", "manifest": found}).encode())


class ReflectedWorld:
    """The Services of one test: a namespace, a NATS, lattices on it."""

    def __init__(self, hosts: HostWorld, server: NatsServer) -> None:
        self.hosts = hosts
        self.server = server
        self.namespace = hosts.namespace
        self._addresses = iter(range(1, 60_000))

    @contextlib.asynccontextmanager
    async def wadm(self, lattice: str) -> AsyncIterator[Wadm]:
        """Have a wadm of a lattice for the time of a block."""
        async with LatticeSpeaker(self.server.url, lattice) as speaker, Wadm(speaker) as wadm:
            yield wadm
            # A client that is closed while it connects again leaves tasks behind.
            await eventually(lambda: speaker.client.is_connected, "the test's own client is back", seconds=PATIENCE)

    def group(self, name: str, lattice: str, **spec: Any) -> Manifest:
        """Create a group of hosts on a lattice of the test's NATS; nobody makes pods of it."""
        address = {"natsAddress": "nats://127.0.0.1", "natsClientPort": self.server.port}
        return self.hosts.create(name, lattice=lattice, **{**address, **spec})

    def pod(self, group: str, name: str, *, address: str = "", ready: bool = True, **labels: str) -> str:
        """Create the pod of a host, with an address; return that."""
        number = next(self._addresses)
        address = address or f"10.77.{number // 250}.{number % 250 + 1}"
        marks = {f"{names.HOST_LABEL_PREFIX}{key}": value for key, value in labels.items()}
        body = {
            "metadata": {
                "name": name,
                "labels": {names.LABEL_MANAGED_BY: names.WADM_OPERATOR, names.LABEL_INSTANCE: group, **marks},
            },
            # No node: no simulated kubelet has a say in its status.
            "spec": {
                "schedulerName": "nobody",
                "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "host", "image": "example.com/host:1"}],
            },
        }
        self.hosts.call("POST", PODS, body={"apiVersion": "v1", "kind": "Pod", **body})
        self.ready(name, ready=ready, address=address)
        return address

    def ready(self, name: str, *, ready: bool, address: str = "") -> None:
        """Say whether a pod is ready, as its kubelet would."""
        conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
        status: Manifest = {"phase": "Running", "conditions": conditions}
        if address:
            status |= {"podIP": address, "podIPs": [{"ip": address}]}
        self.hosts.call("PATCH", PODS, name, {"status": status}, sub="status")

    def service(self, name: str, namespace: str = "") -> Manifest | None:
        """Return a Service, None if there is none."""
        status, found = self.hosts.api.call("GET", SERVICES.path(namespace or self.namespace, name))
        return found if status == http.HTTPStatus.OK else None

    def slices(self, service: str) -> list[Manifest]:
        """Return the EndpointSlices of a Service, by name."""
        found = self.hosts.call("GET", ENDPOINT_SLICES)["items"]
        of = [item for item in found if item["metadata"].get("labels", {}).get(names.LABEL_SERVICE_NAME) == service]
        return sorted(of, key=lambda item: str(item["metadata"]["name"]))

    def belong_to(self, name: str, service: Manifest) -> bool:
        """Say whether a name has EndpointSlices, and all of them are of this very Service."""
        pieces = [view_slice(item) for item in self.slices(name)]
        return bool(pieces) and all(belongs_to(piece, service["metadata"]["uid"]) for piece in pieces)

    def addresses(self, service: str) -> set[str]:
        """Return the addresses that are ready."""
        endpoints = [endpoint for each in self.slices(service) for endpoint in each.get("endpoints") or ()]
        return {endpoint["addresses"][0] for endpoint in endpoints if endpoint["conditions"]["ready"]}

    def warnings(self) -> dict[str, str]:
        """Return the messages of the Events in the namespace, by reason."""
        return {item["reason"]: item["message"] for item in self.hosts.call("GET", EVENTS)["items"]}

    async def has_service(self, name: str, *ports: int) -> Manifest:
        """Wait until there is a Service with these ports."""
        found: list[Manifest] = []

        def there() -> bool:
            item = self.service(name)
            found[:] = [item] if item is not None and "deletionTimestamp" not in item["metadata"] else []
            return bool(found) and [port["port"] for port in found[0]["spec"]["ports"]] == list(ports)

        await eventually(there, f"Service {name} with ports {ports}", seconds=PATIENCE)
        return found[0]

    async def has_no_service(self, name: str) -> None:
        """Wait until there is no Service of a name."""
        await eventually(lambda: self.service(name) is None, f"no Service {name}", seconds=PATIENCE)

    async def leads_to(self, name: str, *addresses: str) -> None:
        """Wait until a Service leads to these addresses, and no others."""
        try:
            await eventually(lambda: self.addresses(name) == set(addresses), "endpoints", seconds=PATIENCE)
        except AssertionError:
            pytest.fail(f"{name} leads to {self.addresses(name)}, not {set(addresses)}")

    def reflector(self, timings: Timings = QUICK, **changes: Any) -> AbstractAsyncContextManager[LedService]:
        """Run service_reflector in this process for the time of a block; ``changes`` are settings."""
        create = partial(service_reflector.app.create_app, timings=timings)
        return serving(create, service_reflector.settings.Settings, self.hosts.fleet.settings(**changes))

    def permit_deletions(self) -> None:
        """Let the circuit breaker pass every deletion of this test."""
        permit_deletions(self.hosts.api, self.hosts.fleet.system, SERVICE_REFLECTOR, SERVICES.plural)

    def clean_up(self) -> None:
        """Delete every Service, also one of a former version."""
        for item in self.hosts.call("GET", SERVICES)["items"]:
            path = SERVICES.path(self.namespace, item["metadata"]["name"])
            self.hosts.api.call("PATCH", path, {"metadata": {"finalizers": None}})
            self.hosts.api.call("DELETE", path)


@pytest.fixture
def world(hosts: HostWorld, tmp_path: Path) -> Iterator[ReflectedWorld]:
    """A world of one test."""
    with NatsServer(tmp_path / "nats") as server:
        made = ReflectedWorld(hosts, server)
        yield made
        made.clean_up()


__all__ = ["ReflectedWorld", "Wadm", "world"]
