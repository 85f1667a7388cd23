"""`trellis apps`, run as a user runs it, on a real API server and a wadm that answers over a real NATS."""

from __future__ import annotations

import http
import json
import os
import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.cluster.definitions import OURS, ensure_served
from support.suite.tiers import first_of
from support.suite.typed import Done, typed_meanwhile
from support.wadm.applications_kind import ApplicationsKind, until
from support.wadm.asked_wadm import AskedWadm, manifest
from trellis.kube.resources import (
    APPLICATIONS,
    HOST_CONFIGS,
    ROLE_BINDINGS,
    ROLES,
    SERVICE_ACCOUNTS,
)
from trellis.lattice.domain.projection import project
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.api import Api
from trellis_dev.localcluster.nats import NatsServer

pytestmark = [pytest.mark.cluster, pytest.mark.nats, pytest.mark.timeout(420)]

Manifest = dict[str, Any]
STATUS = {
    "phase": "Deployed",
    "observedGeneration": 1,
    "deployedVersion": "v2",
    "versions": [{"version": "v1", "deployed": False}, {"version": "v2", "deployed": True}],
    "conditions": [
        {
            "type": kind,
            "status": "True",
            "reason": "Well",
            "message": "",
            "lastTransitionTime": "2026-11-22T07:00:00Z",
        }
        for kind in ("Ready", "Synced")
    ],
}


class World:
    """A namespace with hosts of a lattice of its own, Applications in it, and the command."""

    def __init__(self, api: Api, info: ClusterInfo, namespace: str, nats_url: str) -> None:
        self.api, self.namespace, self.nats_url = api, namespace, nats_url
        self.lattice = f"l{secrets.token_hex(4)}"
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith("TRELLIS_")}
        self.environment |= {"TRELLIS_KUBECONFIG": str(info.kubeconfig), "TRELLIS_NAMESPACE": namespace}
        self.environment["TRELLIS_CLAIM_NAMESPACE"] = namespace

    def hosts(self, port: int) -> None:
        """Create a group of hosts whose NATS is on a port of this machine."""
        spec = {"lattice": self.lattice, "version": "1.4.0", "natsAddress": "nats://127.0.0.1", "natsClientPort": port}
        body = {
            "apiVersion": HOST_CONFIGS.api_version,
            "kind": HOST_CONFIGS.kind,
            "metadata": {"name": "group"},
            "spec": spec,
        }
        status, answer = self.api.call("POST", HOST_CONFIGS.path(self.namespace), body)
        assert status == http.HTTPStatus.CREATED, answer

    def apply(self, given: Manifest, manager: str = "kubectl", **metadata: Any) -> Manifest:
        """Create an Application as a user, with a status as application_manager writes it."""
        body = {**given, "metadata": {**given["metadata"], **metadata}}
        path = APPLICATIONS.path(self.namespace)
        status, made = self.api.call("POST", f"{path}?fieldManager={manager}", body)
        assert status == http.HTTPStatus.CREATED, made
        version = given["metadata"]["annotations"]["version"]
        synced = {"specDigest": project(given).digest, "wadmVersion": version, "time": "2026-11-22T07:00:00Z"}
        body = {"status": STATUS | {"lattice": self.lattice, "synced": synced}}
        place = APPLICATIONS.path(self.namespace, given["metadata"]["name"], "status")
        status, found = self.api.call("PATCH", place, body)
        assert status == http.HTTPStatus.OK, found
        return self.get(given["metadata"]["name"])

    def get(self, name: str) -> Manifest:
        status, found = self.api.call("GET", APPLICATIONS.path(self.namespace, name))
        assert status == http.HTTPStatus.OK, found
        made: Manifest = found
        return made

    def permit(self, kubeconfig: Path) -> None:
        """Run the command from now on as an account that may change Applications of this namespace alone."""
        rules = [
            {"apiGroups": [APPLICATIONS.group], "resources": ["applications"], "verbs": ["get", "list", "patch"]},
            {"apiGroups": [HOST_CONFIGS.group, ""], "resources": ["*"], "verbs": ["get", "list"]},
        ]
        about = {"metadata": {"name": "person"}}
        bound = {
            "roleRef": {"apiGroup": ROLES.group, "kind": "Role", "name": "person"},
            "subjects": [{"kind": "ServiceAccount", "name": "person", "namespace": self.namespace}],
        }
        for res, fields in ((SERVICE_ACCOUNTS, {}), (ROLES, {"rules": rules}), (ROLE_BINDINGS, bound)):
            body = {"apiVersion": res.api_version, "kind": res.kind, **about, **fields}
            assert self.api.call("POST", res.path(self.namespace), body)[0] == http.HTTPStatus.CREATED
        path = SERVICE_ACCOUNTS.path(self.namespace, "person", "token")
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
        token = self.api.call("POST", path, asked)[1]["status"]["token"]
        whole = yaml.safe_load(Path(self.environment["TRELLIS_KUBECONFIG"]).read_text())
        whole["users"][0]["user"] = {"token": token}
        kubeconfig.write_text(yaml.safe_dump(whole))
        self.environment["TRELLIS_KUBECONFIG"] = str(kubeconfig)
        applications = APPLICATIONS.path(self.namespace)

        def may() -> bool:
            user = Api.of_kubeconfig(kubeconfig)
            try:
                return user.ok(applications)
            finally:
                user.close()

        until(may, "its rights have arrived")

    async def run(self, *arguments: str, command: str = "apps") -> Done:
        return await typed_meanwhile(self.environment, command, *arguments)

    async def document(self, *arguments: str, code: int = 0) -> Any:
        done = await self.run(*arguments, "-o", "json")
        assert done.returncode == code, done.stderr
        return json.loads(done.stdout)


@pytest.fixture
def kind(cluster_api: Api) -> Iterator[ApplicationsKind]:
    found = ApplicationsKind(cluster_api)
    found.clear()
    found.define()
    ensure_served(cluster_api, *OURS)
    yield found
    found.clear()


@pytest.fixture
def world(
    kind: ApplicationsKind, cluster_api: Api, cluster: ClusterInfo, namespace: str, nats_server: NatsServer
) -> World:
    del kind
    return World(cluster_api, cluster, namespace, nats_server.url)


@pytest.fixture
async def wadm(world: World, nats_server: NatsServer) -> AsyncIterator[AskedWadm]:
    world.hosts(int(nats_server.url.rpartition(":")[2]))
    async with AskedWadm(nats_server.url, world.lattice) as answering:
        yield answering


V1, V2 = manifest("shop", "v1", "example.com/shop:1"), manifest("shop", "v2", "example.com/shop:2")


def both(wadm: AskedWadm) -> None:
    """Let wadm have two versions of shop, the second deployed."""
    wadm.put(V1)
    wadm.put(V2, deployed=True)


async def test_applications_are_listed_and_compared_with_wadm(world: World, wadm: AskedWadm) -> None:
    both(wadm)
    world.apply(V2)
    listed = await world.document("-n", world.namespace)
    assert [(app["name"], app["lattice"], app["phase"], app["deployed"]) for app in listed["apps"]] == [
        ("shop", world.lattice, "Deployed", "v2")
    ]
    same = await world.document("--live", "-n", world.namespace)
    assert same["ok"], same
    [row] = same["apps"]
    assert (row["kubernetes"]["phase"], row["wadm"]) == (
        "Deployed",
        {"status": "deployed", "deployed": "v2", "newest": "v2"},
    )
    wadm.put(manifest("fromwash", "v1"))
    wadm.deployed["shop"] = "v1"
    other = await world.document("--live", "-n", world.namespace, code=1)
    differences = {app["application"]: app["differences"] for app in other["apps"]}
    assert len(differences["fromwash"]) == 1
    rows = {app["application"]: app for app in other["apps"]}
    assert rows["fromwash"]["kubernetes"] is None
    assert (rows["shop"]["kubernetes"]["deployed"], rows["shop"]["wadm"]["deployed"]) == ("v2", "v1")
    for version in ("v1", "v2"):
        assert version in differences["shop"][0]
    assert "version v1" in differences["shop"][1]
    assert (await world.document("-n", world.namespace, "--lattice", "another"))["apps"] == []


@pytest.mark.thorough
async def test_an_unreachable_lattice_is_reported_and_the_state_of_kubernetes_is_shown(world: World) -> None:
    world.hosts(1)
    world.apply(V2)
    unavailable = await world.document("--live", "-n", world.namespace, code=1)
    [row] = unavailable["apps"]
    assert row["kubernetes"]["phase"] == "Deployed"
    assert row["differences"] == []
    assert "--nats nats://127.0.0.1:PORT" in row["unknown"]
    async with AskedWadm(world.nats_url, world.lattice) as wadm:
        both(wadm)
        over = await world.document("--live", "-n", world.namespace, "--nats", world.nats_url)
    assert over["ok"]
    silent = await world.document("--live", "-n", world.namespace, "--nats", world.nats_url, code=1)
    assert "wadm.api" in silent["apps"][0]["unknown"]


@pytest.mark.thorough
async def test_an_application_without_hosts_is_not_asked_about(world: World) -> None:
    world.apply(V2)
    found = await world.document("--live", "-n", world.namespace, code=1)
    assert found["apps"][0]["wadm"] is None
    assert found["apps"][0]["unknown"]
    assert "--nats" not in found["apps"][0]["unknown"], "there is no lattice that another way would lead to"
    refused = await world.run("rollback", "shop", "-n", world.namespace, "--yes")
    assert refused.returncode == 1
    assert f"namespace {world.namespace}" in refused.stderr
    assert "WasmCloudHostConfig" in refused.stderr


@pytest.mark.thorough
async def test_a_history_is_of_the_status_or_of_wadm(world: World, wadm: AskedWadm) -> None:
    both(wadm)
    world.apply(V2)
    wadm.put(manifest("shop", "v3"))
    stored = await world.document("history", "shop", "-n", world.namespace)
    assert [version["version"] for version in stored["versions"]] == ["v1", "v2"]
    asked = await world.document("history", "shop", "-n", world.namespace, "--live")
    assert [(version["version"], version["deployed"], version["shown"]) for version in asked["versions"]] == [
        ("v1", False, False),
        ("v2", True, True),
        ("v3", False, False),
    ]


@pytest.mark.parametrize("manager", first_of(["kubectl", "trellis.dev/wadm"]))
async def test_a_rollback_gives_the_object_exactly_the_former_manifest(
    world: World, wadm: AskedWadm, manager: str
) -> None:
    both(wadm)
    world.apply(V2, manager, labels={"trellis.dev/lattice": world.lattice})
    before = world.get("shop")
    planned = await world.document("rollback", "shop", "-n", world.namespace, "--dry-run")
    assert (planned["from"], planned["to"], planned["done"]) == ("v2", "v1", False)
    assert world.get("shop")["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    unasked = await world.run("rollback", "shop", "-n", world.namespace)
    assert (unasked.returncode, "--yes" in unasked.stderr) == (1, True)
    done = await world.document("rollback", "shop", "-n", world.namespace, "--yes")
    assert done["done"]
    after = world.get("shop")
    assert project(after).digest == project(V1).digest
    assert after["metadata"]["annotations"]["version"] == "v1"
    assert after["metadata"]["labels"] == {"trellis.dev/lattice": world.lattice}
    owners = {
        managed_field["manager"]
        for managed_field in after["metadata"]["managedFields"]
        if "f:spec" in managed_field["fieldsV1"]
    }
    assert "kubectl" in owners
    again = await world.document("rollback", "shop", "-n", world.namespace, "--to", "v1", "--yes")
    assert (again["changes"], again["done"]) == ([], False)


async def test_components_applied_by_another_user_do_not_remain_after_a_rollback(world: World, wadm: AskedWadm) -> None:
    wadm.put(V1)
    more = json.loads(json.dumps(V2))
    more["spec"]["components"].append(
        {"name": "extra", "type": "component", "properties": {"image": "example.com/extra:1"}}
    )
    wadm.put(more, deployed=True)
    world.apply(more, "another-tool")
    done = await world.document("rollback", "shop", "-n", world.namespace, "--yes")
    assert any("component extra" in change for change in done["changes"]), done
    assert [component["name"] for component in world.get("shop")["spec"]["components"]] == ["main"]


@pytest.mark.thorough
async def test_an_application_managed_by_argo_cd_is_rolled_back_there_unless_forced(
    world: World, wadm: AskedWadm
) -> None:
    both(wadm)
    world.apply(V2, annotations={"version": "v2", "argocd.argoproj.io/tracking-id": "x"})
    refused = await world.run("rollback", "shop", "-n", world.namespace, "--yes")
    assert refused.returncode == 1
    assert "Argo CD manages" in refused.stderr
    assert (await world.document("rollback", "shop", "-n", world.namespace, "--yes", "--force"))["done"]
    assert world.get("shop")["metadata"]["annotations"]["argocd.argoproj.io/tracking-id"] == "x"


async def test_mistakes_are_one_line_that_names_the_remedy(world: World, wadm: AskedWadm) -> None:
    both(wadm)
    world.apply(V2)
    for arguments, status, named in (
        (("history", "nobody"), 1, ('Application "nobody"',)),
        (("rollback", "shop", "-n", world.namespace, "--to", "v9", "--yes"), 1, ("'v9'", "v1, v2")),
        (("--nats", world.nats_url), 2, ("--nats", "--live")),
    ):
        done = await world.run(*arguments)
        assert (done.returncode, done.stdout) == (status, "")
        assert done.stderr.startswith("Error: ")
        assert done.stderr.count("\n") == 1
        for word in named:
            assert word in done.stderr


async def test_permissions_in_one_namespace_are_sufficient(world: World, wadm: AskedWadm, tmp_path: Path) -> None:
    both(wadm)
    wadm.put(manifest("elsewhere", "v1"))
    world.apply(V2)
    world.permit(tmp_path / "kubeconfig")
    live = await world.document("--live", "-n", world.namespace)
    assert [app["application"] for app in live["apps"]] == ["shop"], "what else wadm has may be in another namespace"
    assert (await world.document("history", "shop", "-n", world.namespace, "--live"))["versions"]
    planned = await world.document("rollback", "shop", "-n", world.namespace, "--dry-run")
    assert planned["to"] == "v1"
    page = await world.run("application/shop", "-n", world.namespace, "-o", "json", command="explain")
    assert json.loads(page.stdout)["ok"], page.stdout
    refused = await world.run()
    assert refused.returncode == 1
    assert " forbidden: " in refused.stderr
    assert APPLICATIONS.definition in refused.stderr


async def test_one_page_explains_the_whole_chain_and_status_counts_the_problem(world: World, wadm: AskedWadm) -> None:
    both(wadm)
    world.apply(V2)
    page = await world.run("application/shop", "-n", world.namespace, "-o", "json", command="explain")
    assert page.returncode == 1, "no host is ready, and nobody leads"
    lines = {line["about"]: line for line in json.loads(page.stdout)["lines"]}
    assert lines["application"]["ok"]
    assert "kubectl" in lines["application"]["text"]
    for named in (f"{world.namespace}/group", f"lattice {world.lattice}", "0 of 0"):
        assert named in lines["hosts"]["text"]
    assert "trellis run application-manager" in lines["application-manager"]["do"]
    status = await world.run("-o", "json", "--nats-url", world.nats_url, command="status")
    found = json.loads(status.stdout)["applications"]
    assert (found["count"], found["phases"], found["holder"]) == (1, {"Deployed": 1}, None)
    assert "application-manager" in found["problem"]


@pytest.mark.thorough
async def test_a_cluster_without_the_crd_gets_the_command_to_install_it(kind: ApplicationsKind, world: World) -> None:
    kind.clear()
    done = await world.run()
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    for named in ("applications.core.oam.dev", "`trellis crds apply applications`"):
        assert named in done.stderr
    status = await world.run("-o", "json", "--nats-url", world.nats_url, command="status")
    assert json.loads(status.stdout)["applications"]["problem"] is None
    kind.register("wadm-operator")
    until(lambda: not kind.served(), "it is hidden")
    hidden = await world.run()
    assert hidden.returncode == 1
    assert "`trellis migrate wasmcloud-operator`" in hidden.stderr
    status = await world.run("-o", "json", "--nats-url", world.nats_url, command="status")
    assert "`trellis migrate wasmcloud-operator`" in json.loads(status.stdout)["applications"]["problem"]
