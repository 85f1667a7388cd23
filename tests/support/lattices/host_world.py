"""Groups of wasmCloud hosts in a namespace of one test, and host_manager, on a real API server with simulated nodes."""

from __future__ import annotations

import contextlib
import http
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import host_manager.app
import host_manager.settings
from host_manager.timings import Timings
from support.cluster.definitions import ensure_served
from support.lattices.host_groups import MINIMAL, TODAYS_NAME, children, custom_resource
from support.nodes.fleet import Fleet, eventually
from support.suite.in_process import serving
from trellis import names
from trellis.kube.access import Access
from trellis.kube.client import Kube
from trellis.kube.resources import (
    CONFIGMAPS,
    DAEMON_SETS,
    DEPLOYMENTS,
    HOST_CONFIGS,
    PODS,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    Resource,
)
from trellis.runtime.run import LedService
from trellis.telemetry import setup
from trellis.telemetry.health import Health

Manifest = dict[str, Any]
CHILDREN = {
    item.kind: item for item in (CONFIGMAPS, SERVICE_ACCOUNTS, ROLES, ROLE_BINDINGS, DEPLOYMENTS, DAEMON_SETS, SERVICES)
}
SOURCES_SECONDS = 1.0
PATIENCE = 60.0


class HostWorld:
    """The groups of one test."""

    def __init__(self, fleet: Fleet, namespace: str) -> None:
        self.fleet = fleet
        self.api = fleet.api
        self.namespace = namespace

    def call(self, method: str, res: Resource, name: str = "", body: Manifest | None = None, sub: str = "") -> Any:
        """Return the answer of a call on an object of the test's namespace; it has to succeed."""
        path = res.path(self.namespace, name or None, sub or None)
        status, answer = self.api.call(method, path, body)
        assert status in {http.HTTPStatus.OK, http.HTTPStatus.CREATED, http.HTTPStatus.ACCEPTED}, answer
        return answer

    def find(self, res: Resource, name: str) -> Manifest | None:
        """Return an object, None if there is none."""
        status, answer = self.api.call("GET", res.path(self.namespace, name))
        return answer if status == http.HTTPStatus.OK else None

    def create(self, name: str, metadata: Manifest | None = None, **spec: Any) -> Manifest:
        """Create a group."""
        manifest = {
            "apiVersion": HOST_CONFIGS.api_version,
            "kind": HOST_CONFIGS.kind,
            "metadata": {"name": name} | (metadata or {}),
            "spec": MINIMAL | spec,
        }
        made: Manifest = self.call("POST", HOST_CONFIGS, body=manifest)
        return made

    def change(self, name: str, **spec: Any) -> None:
        """Change fields of a group's spec."""
        self.call("PATCH", HOST_CONFIGS, name, {"spec": spec})

    def secret(self, name: str, **data: str) -> None:
        """Create a Secret, or change it."""
        body = {"metadata": {"name": name}, "stringData": data}
        if self.find(SECRETS, name) is None:
            self.call("POST", SECRETS, body={"apiVersion": "v1", "kind": "Secret"} | body)
        else:
            self.call("PATCH", SECRETS, name, body)

    def status(self, name: str) -> Manifest:
        """Return the status of a group."""
        found: Manifest = self.call("GET", HOST_CONFIGS, name).get("status") or {}
        return found

    def condition(self, name: str, kind: str) -> tuple[str, str, str]:
        """Return status, reason and message of a condition, "" each if there is none."""
        for condition in self.status(name).get("conditions") or ():
            if condition["type"] == kind:
                return condition["status"], condition["reason"], condition["message"]
        return "", "", ""

    def pods(self, group: str) -> list[Manifest]:
        """Return the pods of a group."""
        found: list[Manifest] = [
            pod
            for pod in self.call("GET", PODS)["items"]
            if pod["metadata"].get("labels", {}).get(names.LABEL_INSTANCE) == group
        ]
        return found

    def give_address(self, pod: Manifest, address: str) -> None:
        """Give a pod an address, which simulated kubelets do not."""
        status = {"podIP": address, "podIPs": [{"ip": address}]}
        self.call("PATCH", PODS, pod["metadata"]["name"], {"status": status}, sub="status")

    def wait_in(self, pod: Manifest, reason: str, message: str, last: Manifest | None = None) -> None:
        """Say of a pod what a kubelet says of one whose host does not run; ``last``: how it ended the last time."""
        container = {"name": "wasmcloud-host", "ready": False, "restartCount": 3, "image": "x", "imageID": ""}
        container |= {"state": {"waiting": {"reason": reason, "message": message}}}
        container |= {"lastState": {"terminated": last}} if last else {}
        conditions = [
            condition | {"status": "False"} if condition["type"] in {"Ready", "ContainersReady"} else condition
            for condition in pod["status"]["conditions"]
        ]
        status = {"containerStatuses": [container], "conditions": conditions}
        self.call("PATCH", PODS, pod["metadata"]["name"], {"status": status}, sub="status")

    async def settled(self, name: str, *, revision: int | None = None) -> None:
        """Wait until a group is ready in its newest spec."""

        def done() -> bool:
            found = self.call("GET", HOST_CONFIGS, name)
            status = found.get("status") or {}
            conditions = {condition["type"]: condition["status"] for condition in status.get("conditions") or ()}
            return (
                status.get("observedGeneration") == found["metadata"]["generation"]
                and (conditions.get("Available"), conditions.get("Progressing"), conditions.get("Degraded"))
                == ("True", "False", "False")
                and revision in {None, status.get("templateRevision")}
            )

        try:
            await eventually(done, f"group {name} is settled", seconds=PATIENCE)
        except AssertionError:
            pytest.fail(f"group {name} does not settle at revision {revision}: {self.status(name)}")

    def service(self, timings: Timings = Timings(), **changes: Any) -> AbstractAsyncContextManager[LedService]:
        """Run host_manager in this process for the time of a block."""
        settings = {"sources_interval": SOURCES_SECONDS} | self.fleet.settings(**changes)
        create = partial(host_manager.app.create_app, timings=timings)
        return serving(create, host_manager.settings.Settings, settings)

    async def as_recorded(self, case: str, operator: str = TODAYS_NAME) -> None:
        """Make what wasmcloud-operator was recorded to make: a group with its finalizer, and the children."""
        access = Access(Path(self.fleet.info.kubeconfig))
        kube = await Kube.connect(access, telemetry=setup("other"), health=Health("other"))
        try:
            metadata = {"finalizers": [names.WASMCLOUD_OPERATOR]}
            uid = self.create(case, metadata, **custom_resource(case)["spec"])["metadata"]["uid"]
            for child in children(case, operator).values():
                child["metadata"]["namespace"] = self.namespace
                child["metadata"]["ownerReferences"][0]["uid"] = uid
                child["metadata"].pop("annotations", None)
                for subject in child.get("subjects", ()):
                    subject["namespace"] = self.namespace
                for field in ("clusterIP", "clusterIPs"):  # another service may have it
                    child.get("spec", {}).pop(field, None)
                await kube.apply(
                    CHILDREN[child["kind"]], child, field_manager=names.WASMCLOUD_OPERATOR, create_if_missing=True
                )
        finally:
            await kube.close()

    def clean_up(self) -> None:
        """Let go of every group: nothing else would."""
        for group in self.call("GET", HOST_CONFIGS)["items"]:
            name = group["metadata"]["name"]
            self.api.call("DELETE", HOST_CONFIGS.path(self.namespace, name))
            self.api.call("PATCH", HOST_CONFIGS.path(self.namespace, name), {"metadata": {"finalizers": None}})


@contextlib.contextmanager
def host_world(fleet: Fleet, namespace: str) -> Iterator[HostWorld]:
    """Have a world with two nodes, the kind of groups defined and served, for the time of a block."""
    ensure_served(fleet.api, HOST_CONFIGS)
    fleet.add("host", "host", opted_in=False)
    made = HostWorld(fleet, namespace)
    yield made
    made.clean_up()


@pytest.fixture
def hosts(fleet: Fleet, namespace: str) -> Iterator[HostWorld]:
    """A world in the cluster of the tests."""
    with host_world(fleet, namespace) as made:
        yield made
