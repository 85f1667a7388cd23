"""Applications of a lattice and application_manager, on a real API server and a NATS with a wadm."""

from __future__ import annotations

import contextlib
import http
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any

import pytest

import application_manager.app
import application_manager.settings
from application_manager.timings import Timings
from support.cluster.definitions import ensure_served
from support.lattices.host_behaviour import own_lattice
from support.lattices.host_world import PATIENCE, HostWorld
from support.lattices.real_lattice import RealLattice, Wadm, wasm_component
from support.nodes.fleet import eventually
from support.suite.in_process import serving
from support.suite.permits import permit_deletions
from support.wadm.wadm_stand_in import WadmStandIn
from trellis import names
from trellis.events.subjects import APPLICATION_MANAGER
from trellis.kube.resources import APPLICATIONS, EVENTS
from trellis.kube.watch_timings import WatchTimings
from trellis.lattice.timings import (
    BucketTimings,
    ClaimTimings,
    ConnectionTimings,
    LatticeTimings,
    ListingTimings,
    ProbeTimings,
    StatusTimings,
    WadmTimings,
)
from trellis.runtime.run import LedService
from trellis_dev.localcluster.api import Api
from trellis_dev.localcluster.nats import NatsServer

Manifest = dict[str, Any]
KUBECTL = "?fieldManager=kubectl"
QUICK = Timings(
    unavailable=0.2,
    unreported=0.5,
    look=1.0,
    refused_first=0.2,
    status=0.5,
    watch=WatchTimings(absent=0.3),
    lattice=LatticeTimings(
        connection=ConnectionTimings(backoff_first=0.1, backoff_most=0.5),
        wadm=WadmTimings(answer=1.0),
        bucket=BucketTimings(fetch=0.5, backoff_most=0.5),
        statuses=StatusTimings(again=0.5),
        probe=ProbeTimings(every=0.2, again=0.1),
        listing=ListingTimings(every=0.5),
        claim=ClaimTimings(look=0.5),
    ),
)
"""For a stand-in for wadm, which answers at once."""


class ApplicationWorld:
    """The Applications of one test: a namespace, a lattice on a NATS; ``place``: what its groups say of where it is.

    ``timings``: of the managers that it runs.
    """

    def __init__(
        self,
        hosts: HostWorld,
        port: int,
        lattice: str,
        place: Manifest | None = None,
        timings: Timings = Timings(),
    ) -> None:
        self.timings = timings
        self.hosts = hosts
        self.namespace = hosts.namespace
        self.port = port
        self.lattice = lattice
        self.place = place or {}

    def group(self, name: str = "group", lattice: str = "", **spec: Any) -> Manifest:
        """Create a group of hosts on a lattice of the test's NATS; nobody makes pods of it."""
        address: Manifest = {"natsAddress": "nats://127.0.0.1", "natsClientPort": self.port} | self.place
        return self.hosts.create(name, lattice=lattice or self.lattice, **(address | spec))

    def apply(self, name: str, spec: Manifest, **metadata: Any) -> Manifest:
        """Create an Application as kubectl does."""
        manifest = {
            "apiVersion": APPLICATIONS.api_version,
            "kind": APPLICATIONS.kind,
            "metadata": {"name": name} | metadata,
            "spec": spec,
        }
        status, answer = self.hosts.api.call("POST", APPLICATIONS.path(self.namespace) + KUBECTL, manifest)
        assert status == http.HTTPStatus.CREATED, answer
        return answer

    def patch(self, name: str, patch: Manifest) -> Manifest:
        """Change an Application as kubectl does."""
        status, answer = self.hosts.api.call("PATCH", APPLICATIONS.path(self.namespace, name) + KUBECTL, patch)
        assert status == http.HTTPStatus.OK, answer
        return answer

    def undeploy(self, name: str, value: str | None = "true") -> None:
        """Say that an Application is not to run."""
        self.patch(name, {"metadata": {"annotations": {names.ANNOTATION_UNDEPLOY: value}}})

    def delete(self, name: str) -> None:
        """Delete an Application as kubectl does."""
        self.hosts.call("DELETE", APPLICATIONS, name)

    def find(self, name: str) -> Manifest | None:
        """Return an Application, None if there is none."""
        return self.hosts.find(APPLICATIONS, name)

    def status(self, name: str) -> Manifest:
        """Return the status of an Application, {} if there is none."""
        found: Manifest = (self.find(name) or {}).get("status") or {}
        return found

    def conditions(self, name: str) -> dict[str, tuple[str, str]]:
        """Return verdict and reason of an Application's conditions."""
        found = self.status(name).get("conditions") or ()
        return {item["type"]: (item["status"], item["reason"]) for item in found}

    def warnings(self) -> dict[str, str]:
        """Return the messages of the Events in the namespace, by reason."""
        return {item["reason"]: item["message"] for item in self.hosts.call("GET", EVENTS)["items"]}

    async def until(self, name: str, what: str, holds: Callable[[Manifest], Any]) -> Manifest:
        """Wait until something holds of an Application, and return it."""
        found: list[Manifest] = []

        def there() -> bool:
            item = self.find(name)
            found[:] = [item] if item is not None else []
            return item is not None and bool(holds(item))

        try:
            await eventually(there, what, seconds=PATIENCE)
        except AssertionError:
            pytest.fail(f"{name}: not {what}: {found}")
        return found[0]

    async def synced(self, name: str, *, deployed: bool = True, version: str = "") -> Manifest:
        """Wait until both sides of an Application are equal in its newest generation."""

        def equal(one: Manifest) -> bool:
            status = one.get("status") or {}
            conditions = {each["type"]: each["status"] for each in status.get("conditions") or ()}
            base = status.get("synced") or {}
            return (
                status.get("observedGeneration") == one["metadata"]["generation"]
                and conditions.get("Synced") == "True"
                and base.get("deployed") is deployed
                and version in {"", base.get("wadmVersion")}
            )

        return await self.until(name, f"synced, deployed {deployed}, version {version or 'any'}", equal)

    async def deleted(self, name: str) -> None:
        """Wait until there is no Application of a name."""
        await eventually(lambda: self.find(name) is None, f"no Application {name}", seconds=PATIENCE)

    async def condition(self, name: str, kind: str, verdict: str, reason: str = "") -> Manifest:
        """Wait for a condition."""

        def holds(one: Manifest) -> bool:
            found = (one.get("status") or {}).get("conditions") or ()
            return any(
                (each["type"], each["status"]) == (kind, verdict) and reason in {"", each["reason"]} for each in found
            )

        return await self.until(name, f"{kind}={verdict} {reason}", holds)

    def manager(self, **changes: Any) -> AbstractAsyncContextManager[LedService]:
        """Run application_manager in this process for the time of a block."""
        settings = self.hosts.fleet.settings(**changes)
        create = partial(application_manager.app.create_app, timings=self.timings)
        return serving(create, application_manager.settings.Settings, settings)

    def permit_deletions(self) -> None:
        """Let the circuit breaker pass every deletion of this test."""
        permit_deletions(self.hosts.api, self.hosts.fleet.system, APPLICATION_MANAGER, APPLICATIONS.plural)

    def clean_up(self) -> None:
        """Let go of every Application: nothing else would."""
        for item in self.hosts.call("GET", APPLICATIONS)["items"]:
            path = APPLICATIONS.path(self.namespace, item["metadata"]["name"])
            self.hosts.api.call("DELETE", path)
            self.hosts.api.call("PATCH", path, {"metadata": {"finalizers": None}})


def define_applications(api: Api) -> None:
    """Have the kind defined and served."""
    ensure_served(api, APPLICATIONS)


@contextlib.contextmanager
def application_world(
    hosts: HostWorld,
    port: int,
    lattice: str,
    place: Manifest | None = None,
    timings: Timings = Timings(),
) -> Iterator[ApplicationWorld]:
    """Have a world of one test for the time of a block."""
    define_applications(hosts.api)
    made = ApplicationWorld(hosts, port, lattice, place, timings)
    try:
        yield made
    finally:
        made.clean_up()


def spec(image: str = "file:///none-1.wasm") -> Manifest:
    """Return a spec with one component; no host needs to find its image."""
    return {"components": [wasm_component("echo", image)]}


@pytest.fixture
def apps(hosts: HostWorld, real_lattice: RealLattice) -> Iterator[ApplicationWorld]:
    """Applications of a lattice of its own, with a real wadm."""
    with application_world(hosts, real_lattice.nats.port, own_lattice()) as made:
        yield made


@pytest.fixture
async def stand_in(nats_server: NatsServer) -> AsyncIterator[WadmStandIn]:
    """Give a lattice of its own a stand-in for wadm, on the NATS of the test process."""
    async with WadmStandIn(nats_server.url, own_lattice()) as started:
        yield started


@pytest.fixture
def apps_by_stand_in(hosts: HostWorld, nats_server: NatsServer, stand_in: WadmStandIn) -> Iterator[ApplicationWorld]:
    """Applications of a lattice that has a stand-in for wadm."""
    with application_world(hosts, nats_server.port, stand_in.lattice, timings=QUICK) as made:
        yield made


@pytest.fixture
async def wadm(apps: ApplicationWorld, real_lattice: RealLattice) -> AsyncIterator[Wadm]:
    """Say to wadm what wash says."""
    async with Wadm.of(real_lattice.url, apps.lattice) as client:
        yield client
