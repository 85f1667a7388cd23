"""`trellis migrate wasmcloud-operator` on a real API server, its aggregator included."""

from __future__ import annotations

import asyncio
import http
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from support.lattices.host_world import PATIENCE, HostWorld
from support.nodes.fleet import eventually
from support.nodes.leftovers import as_new, leftover
from support.suite import killed_command
from support.wadm.applications_kind import ApplicationsKind
from trellis import names
from trellis.kube.resources import (
    API_SERVICES,
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    DEFINITIONS,
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    HOST_CONFIGS,
    NAMESPACES,
    ROLE_BINDINGS,
    ROLES,
    SERVICE_ACCOUNTS,
    SERVICES,
    Resource,
)
from trellis.kube.resources import APPLICATIONS as APPLICATION_OBJECTS
from trellis_cli.migrate.model.plan import Doing

pytestmark = pytest.mark.cluster

Manifest = dict[str, Any]
REGISTRATION = "v1beta1.core.oam.dev"
OF_NOBODY_ELSE = {"", "none"}
"""The API server makes a registration of its own for a kind that is defined, a moment after the former one is gone."""
APPLICATIONS: Manifest = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "applications.core.oam.dev"},
    "spec": {
        "group": "core.oam.dev",
        "scope": "Namespaced",
        "names": {"plural": "applications", "singular": "application", "kind": "Application"},
        "versions": [
            {
                "name": "v1beta1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


class Former:
    """The objects of wasmcloud-operator in the namespace of one test, and the command that takes them over."""

    def __init__(self, hosts: HostWorld) -> None:
        self.hosts = hosts
        self.api = hosts.api
        self.made: list[str] = []

    def make(self, res: Resource, what: str, **fields: Any) -> Manifest:
        """Create an object of the operator; what is no namespace's is taken away after the test."""
        manifest = as_new(leftover("wasmcloud", what, namespace=self.hosts.namespace, app=fields.pop("app", "app")))
        manifest["spec" if "spec" in manifest else "metadata"] |= fields
        status, answer = self.api.call("POST", res.path(self.hosts.namespace), manifest)
        assert status == http.HTTPStatus.CREATED, answer
        if not res.namespaced:
            self.made.append(res.path(name=answer["metadata"]["name"]))
        found: Manifest = answer
        return found

    def delete(self, res: Resource, name: str) -> None:
        """Ask for an object to be deleted."""
        self.hosts.call("DELETE", res, name)

    def deletion_requested(self, res: Resource, name: str) -> bool:
        """Say whether an object is on its way out, and still there."""
        found = self.hosts.find(res, name)
        return found is not None and "deletionTimestamp" in found["metadata"]

    def registered(self) -> str:
        """Return which Service the API of applications is registered for, "" if it is of the API server itself."""
        status, found = self.api.call("GET", API_SERVICES.path(name=REGISTRATION))
        if status == http.HTTPStatus.NOT_FOUND:
            return "none"
        return str((found["spec"].get("service") or {}).get("name", ""))

    async def migrate(self, *arguments: str, killed: str = "") -> subprocess.CompletedProcess[str]:
        """Run the command as a user runs it; ``killed``: it ends before or after its first write."""
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("TRELLIS_", "KUBE"))}
        how = [killed_command.__file__, killed] if killed else ["-m", "trellis_cli"]
        return await asyncio.to_thread(
            subprocess.run,
            [sys.executable, *how, "migrate", "wasmcloud-operator", *arguments],
            env=environment | self.hosts.fleet.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    async def document(self, *arguments: str) -> Manifest:
        """Return what the command says as JSON."""
        done = await self.migrate(*arguments, "-o", "json")
        assert done.returncode == 0, done.stderr
        document: Manifest = json.loads(done.stdout)
        return document

    def writes(self, offset: int) -> list[tuple[str, str]]:
        """Return what the command wrote since an audit offset, as the API server logged it."""
        return [
            (write["verb"], write["objectRef"]["resource"])
            for write in self.hosts.fleet.writes(offset)
            if "trellis-command-line" in str(write.get("userAgent"))
            and write.get("objectRef", {}).get("resource") != "selfsubjectaccessreviews"
        ]


@pytest.fixture
def former(hosts: HostWorld) -> Iterator[Former]:
    """The leftovers of one test."""
    made = Former(hosts)
    kind = ApplicationsKind(hosts.api)
    kind.clear()
    yield made
    kind.clear()
    for path in made.made:
        made.api.call("DELETE", path)
    for service in hosts.call("GET", SERVICES)["items"]:
        path = SERVICES.path(hosts.namespace, service["metadata"]["name"])
        made.api.call("PATCH", path, {"metadata": {"finalizers": None}})


def steps_of(document: Manifest, namespace: str) -> dict[str, str]:
    """Return the steps for objects of a namespace, and for those without one; other tests have objects in others."""
    steps = {step["object"]: step["do"] for step in document["steps"]}
    named = {title: title.split(" ")[1].partition("/") for title in steps}
    return {title: steps[title] for title, (first, slash, _) in named.items() if not slash or first == namespace}


async def test_all_that_the_operator_left_is_handed_over_and_nothing_else(hosts: HostWorld, former: Former) -> None:
    await hosts.as_recorded("minimal")
    await hosts.as_recorded("daemonset")
    former.make(API_SERVICES, "registration")
    former.make(CLUSTER_ROLES, "role")
    former.make(CLUSTER_ROLE_BINDINGS, "binding")
    former.make(SERVICE_ACCOUNTS, "account")
    former.make(DEPLOYMENTS, "deployment", replicas=0)
    for app in ("kept", "leaving"):
        former.make(SERVICES, "service", app=app)
        former.make(ENDPOINT_SLICES, "slice", app=app)
    former.delete(HOST_CONFIGS, "daemonset")
    former.delete(SERVICES, "leaving")
    assert former.deletion_requested(HOST_CONFIGS, "daemonset")
    assert former.deletion_requested(SERVICES, "leaving")
    n = hosts.namespace
    wanted = {
        "CustomResourceDefinition applications.core.oam.dev": "define",
        f"APIService {REGISTRATION}": "delete",
        f"WasmCloudHostConfig {n}/minimal": "keep",
        f"WasmCloudHostConfig {n}/daemonset": "remove finalizer",
        f"Service {n}/kept": "keep",
        f"Service {n}/leaving": "remove finalizer",
        f"Deployment {n}/wadm-operator": "leave",
        f"ServiceAccount {n}/wadm-operator": "leave",
        "ClusterRole wadm-operator": "leave",
        "ClusterRoleBinding wadm-operator-delegator": "leave",
        f"CustomResourceDefinition {HOST_CONFIGS.plural}.{HOST_CONFIGS.group}": "leave",
    }

    offset = hosts.fleet.audit_offset()
    planned = await former.document("--dry-run")
    assert steps_of(planned, n) == wanted
    assert planned["writing"] == []
    assert "do NOT delete the CustomResourceDefinition" in planned["notes"][0]
    assert former.writes(offset) == []

    before = hosts.call("GET", HOST_CONFIGS, "minimal")["metadata"]["resourceVersion"]
    done = await former.document("--yes")
    assert done["done"] == 4
    assert former.writes(offset)[0] == ("create", "customresourcedefinitions"), "before the API in front of it goes"
    assert sorted(former.writes(offset)) == [
        ("create", "customresourcedefinitions"),
        ("delete", "apiservices"),
        ("patch", "services"),
        ("patch", "wasmcloudhostconfigs"),
    ]
    assert former.registered() in OF_NOBODY_ELSE
    await eventually(ApplicationsKind(former.api).served, "applications are served", seconds=PATIENCE)
    assert hosts.find(HOST_CONFIGS, "daemonset") is None
    assert hosts.find(SERVICES, "leaving") is None
    assert not former.deletion_requested(SERVICES, "kept")
    assert hosts.find(ENDPOINT_SLICES, "kept") is not None
    assert hosts.call("GET", HOST_CONFIGS, "minimal")["metadata"]["resourceVersion"] == before

    offset = hosts.fleet.audit_offset()
    again = await former.document("--yes")
    assert again["done"] == 0
    assert former.writes(offset) == []
    assert not {"delete", "remove finalizer"} & set(steps_of(again, hosts.namespace).values())


@pytest.mark.thorough
async def test_namespaces_can_be_deleted_again_and_a_definition_of_applications_is_served(
    hosts: HostWorld, former: Former
) -> None:
    former.make(API_SERVICES, "registration")
    assert former.api.call("POST", DEFINITIONS.path(), APPLICATIONS)[0] == http.HTTPStatus.CREATED
    former.made.insert(0, DEFINITIONS.path(name=APPLICATIONS["metadata"]["name"]))
    applications = f"/apis/core.oam.dev/v1beta1/namespaces/{hosts.namespace}/applications"
    other = f"{hosts.namespace}-other"
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": other}}
    assert former.api.call("POST", NAMESPACES.path(), manifest)[0] == http.HTTPStatus.CREATED
    assert former.api.call("DELETE", NAMESPACES.path(name=other))[0] in {http.HTTPStatus.OK, http.HTTPStatus.ACCEPTED}

    def terminating() -> bool:
        _, found = former.api.call("GET", NAMESPACES.path(name=other))
        conditions = (found.get("status") or {}).get("conditions") or ()
        return any(
            condition["type"] == "NamespaceDeletionDiscoveryFailure" and condition["status"] == "True"
            for condition in conditions
        )

    await eventually(terminating, "the API that is down holds the namespace", seconds=PATIENCE)
    assert former.api.call("GET", applications)[0] == http.HTTPStatus.SERVICE_UNAVAILABLE

    done = await former.document("--yes")
    assert done["done"] == 1
    await eventually(
        lambda: former.api.call("GET", NAMESPACES.path(name=other))[0] == http.HTTPStatus.NOT_FOUND,
        "the namespace is gone",
        seconds=PATIENCE,
    )
    await eventually(
        lambda: former.registered() == "" and former.api.call("GET", applications)[0] == http.HTTPStatus.OK,
        "the definition is served",
        seconds=PATIENCE,
    )
    again = await former.document("--yes")  # the registration that is there now is the API server's own
    assert again["done"] == 0
    assert f"APIService {REGISTRATION}" not in steps_of(again, hosts.namespace)


@pytest.mark.thorough
async def test_nothing_is_done_while_the_operator_runs_unless_it_is_requested(hosts: HostWorld, former: Former) -> None:
    former.make(API_SERVICES, "registration")
    former.make(DEPLOYMENTS, "deployment")
    offset = hosts.fleet.audit_offset()
    refused = await former.migrate("--yes")
    assert refused.returncode == 1
    assert f"Deployment {hosts.namespace}/wadm-operator" in refused.stderr
    assert "--take-over" in refused.stderr
    assert former.writes(offset) == []
    assert former.registered() == "wadm-operator"

    done = await former.document("--yes", "--take-over")
    assert steps_of(done, hosts.namespace)[f"Deployment {hosts.namespace}/wadm-operator"] == "take over"
    assert former.registered() in OF_NOBODY_ELSE
    annotations = hosts.call("GET", DEPLOYMENTS, "wadm-operator")["metadata"]["annotations"]
    assert annotations[names.ANNOTATION_TAKEN_OVER] == "true"
    again = await former.document("--yes")
    assert (again["done"], again["writing"]) == (0, [])


@pytest.mark.thorough
async def test_a_group_that_was_handed_over_is_adopted_without_a_restart(hosts: HostWorld, former: Former) -> None:
    await hosts.as_recorded("minimal")
    done = await former.document("--yes")
    assert steps_of(done, hosts.namespace)[f"WasmCloudHostConfig {hosts.namespace}/minimal"] == Doing.KEEP
    async with hosts.service():
        await hosts.settled("minimal", revision=1)
    assert hosts.call("GET", DEPLOYMENTS, "minimal")["metadata"]["generation"] == 1
    again = await former.document("--yes")
    assert f"WasmCloudHostConfig {hosts.namespace}/minimal" not in steps_of(again, hosts.namespace)


@pytest.mark.timeout(420)  # six processes, one after the other
@pytest.mark.thorough
async def test_killed_at_any_write_and_run_again_it_comes_to_the_same_end(hosts: HostWorld, former: Former) -> None:
    """Each write in turn is the last of a process that SIGKILL ends, and before the first one does too."""
    await hosts.as_recorded("minimal")
    await hosts.as_recorded("daemonset")
    former.make(API_SERVICES, "registration")
    former.make(DEPLOYMENTS, "deployment")
    for app in ("kept", "leaving"):
        former.make(SERVICES, "service", app=app)
    former.delete(HOST_CONFIGS, "daemonset")
    former.delete(SERVICES, "leaving")
    before = hosts.call("GET", HOST_CONFIGS, "minimal")["metadata"]["resourceVersion"]
    offset = hosts.fleet.audit_offset()
    requested = ("--yes", "--take-over")
    for number, when in enumerate([killed_command.BEFORE, *[killed_command.AFTER] * 5]):
        assert (await former.migrate(*requested, killed=when)).returncode == -signal.SIGKILL
        assert len(former.writes(offset)) == number
    assert (await former.document(*requested))["done"] == 0
    assert former.writes(offset)[:2] == [("create", "customresourcedefinitions"), ("delete", "apiservices")]
    assert sorted(former.writes(offset)) == [
        ("create", "customresourcedefinitions"),
        ("delete", "apiservices"),
        ("patch", "deployments"),
        ("patch", "services"),
        ("patch", "wasmcloudhostconfigs"),
    ]
    assert former.writes(offset)[-1] == ("patch", "deployments"), (
        "nothing goes on beside the operator before the rest is done"
    )
    assert former.registered() in OF_NOBODY_ELSE
    await eventually(ApplicationsKind(former.api).served, "applications are served", seconds=PATIENCE)
    assert hosts.find(HOST_CONFIGS, "daemonset") is None
    assert hosts.find(SERVICES, "leaving") is None
    assert not former.deletion_requested(SERVICES, "kept")
    assert hosts.call("GET", HOST_CONFIGS, "minimal")["metadata"]["resourceVersion"] == before


@pytest.mark.thorough
async def test_users_that_secrets_were_read_as_are_listed_with_what_they_need(hosts: HostWorld, former: Former) -> None:
    ApplicationsKind(hosts.api).define()
    properties = {"backend": "kube", "namespace": hosts.namespace, "impersonate": "jane"}
    policy = {"name": "vault", "type": "policy.secret.wasmcloud.dev/v1alpha1", "properties": properties}
    component = {"name": "api", "type": "component", "properties": {"image": "example.com/api:1"}}
    app = {"metadata": {"name": "cart"}, "spec": {"policies": [policy], "components": [component]}}
    rule = {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["db"], "verbs": ["get"]}
    bound = {
        "roleRef": {"apiGroup": ROLES.group, "kind": "Role", "name": "readers"},
        "subjects": [{"apiGroup": ROLES.group, "kind": "User", "name": name} for name in ("jane", "john")],
    }
    for res, name, fields in (
        (APPLICATION_OBJECTS, "cart", {"spec": app["spec"]}),
        (ROLES, "readers", {"rules": [rule]}),
        (ROLE_BINDINGS, "readers", bound),
    ):
        body = {"apiVersion": res.api_version, "kind": res.kind, "metadata": {"name": name}, **fields}
        hosts.call("POST", res, body=body)
    offset = hosts.fleet.audit_offset()
    planned, done = await former.document("--dry-run"), await former.document("--yes")
    own = [step for step in planned["steps"] if step["object"] == f"RoleBinding {hosts.namespace}/readers"]
    assert [(step["do"], step["what"].split()[2]) for step in own] == [("leave", "jane"), ("leave", "john")]
    for named in (f"{hosts.namespace}/cart", "jane", "TRELLIS_SECRETS_USERS"):
        assert named in own[0]["reason"]
    assert "john" in own[1]["reason"]
    assert f"{hosts.namespace}/cart" not in own[1]["reason"]
    assert [step for step in done["steps"] if step["object"].startswith("RoleBinding")] == own
    assert former.writes(offset) == []
