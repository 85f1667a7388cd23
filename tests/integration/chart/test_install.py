"""The chart on a real API server, installed by Helm: Secrets are read as granted accounts alone, and nothing stays.

Objects only: no kubelet runs pods here. What the services do runs in this process, with the account's own token.
"""

from __future__ import annotations

import http
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from secrets_backend.domain.resources import ACCOUNT
from support.chart.installed import BUS_SECRET, Installation, Where, make_keys
from support.chart.rendered import CHART, ChartRefusedError, helm, hooks, only, rendered
from support.cluster.grants import SYSTEM, Granted, granted
from support.cluster.kube_world import eventually
from support.secrets.secrets_host import value
from support.secrets.secrets_world import SecretsWorld
from trellis import names
from trellis.crds.kinds import KINDS as KINDS_OF_OURS
from trellis.crds.kinds import make_definition
from trellis.kube.resources import (
    ALL,
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    DEFINITIONS,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
    Resource,
)
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.api import Api

FORBIDDEN = 'secrets "{}" is forbidden'
pytestmark = pytest.mark.cluster

RELEASE = "trellis"
OWNER = "meta.helm.sh/release-name"
STATEFUL_SETS = Resource("apps", "v1", "statefulsets", "StatefulSet", namespaced=True)
NETWORK_POLICIES = Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", namespaced=True)
KINDS = {item.kind: item for item in (*ALL, STATEFUL_SETS, NETWORK_POLICIES)}
OBJECTS_ONLY = {"nats": {"enabled": False, "url": "nats://nats.example.com:4222"}, "crds": {"install": False}}
"""Without what the cluster of the tests has already, and no bus."""
PERMISSIONS = (SERVICE_ACCOUNTS, ROLES, ROLE_BINDINGS, CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS)


@dataclass
class Release:
    """The chart in the namespace of the installation, and the account of secrets_backend with its token."""

    kubeconfig: Path
    account: Granted
    services: dict[str, Any] = field(default_factory=dict)

    def apply(self, *more: str, **values: Any) -> None:
        """Install it, or upgrade it, with these values and further options of Helm's."""
        options = ("--namespace", SYSTEM, "--install", "--wait=false", *more)
        values = {"services": self.services} | OBJECTS_ONLY | values
        helm("upgrade", RELEASE, str(CHART), *options, values=values, kubeconfig=self.kubeconfig)

    def uninstall(self) -> None:
        helm(
            "uninstall", RELEASE, "--namespace", SYSTEM, "--ignore-not-found", "--no-hooks", kubeconfig=self.kubeconfig
        )


@pytest.fixture
def release(cluster: ClusterInfo, cluster_api: Api, tmp_path: Path) -> Iterator[Release]:
    with granted(cluster, cluster_api, ACCOUNT, tmp_path) as account:
        made = Release(Path(cluster.kubeconfig), account, only("secretsBackend"))
        try:
            yield made
        finally:
            made.uninstall()


def ours(api: Api, res: Resource) -> set[str]:
    """Return the uids of what is marked as Trellis' own."""
    status, found = api.call("GET", res.path() + "?labelSelector=app.kubernetes.io%2Fname%3Dtrellis")
    assert status == http.HTTPStatus.OK
    return {item["metadata"]["uid"] for item in found["items"]}


@pytest.mark.thorough
async def test_a_granted_account_is_read_as_and_no_other_until_it_is_granted_no_more(
    release: Release, secret_world: SecretsWorld
) -> None:
    world, namespace = secret_world, secret_world.namespace
    world.group()
    world.secret("db", password="hunter2")
    reader = {"namespace": namespace, "serviceAccount": names.SECRETS_ACCOUNT, "secrets": ["db"]}
    release.apply(secrets={"accounts": [reader]})
    release.account.log_in()
    settings = {"kubeconfig": release.account.kubeconfig, "namespace": SYSTEM}
    try:
        async with world.backend(**settings) as service, world.asking() as host:
            assert value(await host.get("db", "password", namespace=namespace)) == "hunter2"
            assert service.health.readiness().reasons == ()
            answer = str(value(await host.get("db", "password", namespace=namespace, impersonate="other")))
            assert f"ServiceAccount {namespace}/other" in answer
            assert f"trellis secrets roles -n {namespace} -a other" in answer
            world.secret("api", password="hunter3")
            assert FORBIDDEN.format("api") in str(value(await host.get("api", "password", namespace=namespace)))

            release.apply(secrets={"accounts": [reader | {"secrets": ["api"]}]})

            async def given(name: str) -> bool:
                return bool(value(await host.get(name, "password", namespace=namespace)) == "hunter3")

            await eventually(lambda: given("api"), "the other Secret is given")
            assert FORBIDDEN.format("db") in str(value(await host.get("db", "password", namespace=namespace)))

            release.apply()

            async def refused() -> bool:
                text = str(value(await host.get("api", "password", namespace=namespace)))
                return f"ServiceAccount {namespace}/{names.SECRETS_ACCOUNT}" in text

            await eventually(refused, "nobody is granted")
    finally:
        world.api.call("DELETE", SECRETS.path(SYSTEM, names.SECRETS_KEY))


def test_an_uninstalled_chart_leaves_no_right(release: Release, cluster_api: Api) -> None:
    before = {res: ours(cluster_api, res) for res in PERMISSIONS}
    release.services = {}
    release.apply()
    assert all(ours(cluster_api, res) - before[res] for res in PERMISSIONS)
    release.uninstall()
    for res in PERMISSIONS:
        assert ours(cluster_api, res) <= before[res]


@pytest.mark.parametrize("mode", ["services", "bundle"])
def test_the_api_server_takes_every_object_as_it_is_rendered(cluster_api: Api, namespace: str, mode: str) -> None:
    """Strictly: a field that no kind has is an error."""
    for item in (*rendered(namespace, mode=mode), *hooks("pre-install", namespace, mode=mode)):
        path = KINDS[item["kind"]].path(item["metadata"].get("namespace") or None)
        if item["metadata"].get("namespace") == "trellis-installers":
            continue  # not there, in a dry run; its rules are those of a role in another namespace
        status, answer = cluster_api.call("POST", f"{path}?dryRun=All&fieldValidation=Strict", item)
        there = status == http.HTTPStatus.CONFLICT and item["kind"] in {"CustomResourceDefinition", "Namespace"}
        assert status == http.HTTPStatus.CREATED or there, answer


@pytest.mark.thorough
async def test_keys_of_the_bus_stay_as_they_are_on_an_upgrade(
    cluster: ClusterInfo, cluster_api: Api, tmp_path: Path
) -> None:
    where, installation = Where(cluster, cluster_api, tmp_path, ""), Installation(cluster_api)
    item, three = (hooks("pre-upgrade", nats={"replicas": replicas}) for replicas in (1, 3))
    try:
        await make_keys(where, item)
        before = installation.secret(BUS_SECRET)
        await make_keys(where, three)
        after = installation.secret(BUS_SECRET)
        assert {key: after[key] for key in before if key != "accounts.conf"} == {
            key: text for key, text in before.items() if key != "accounts.conf"
        }
        assert after.keys() - before.keys() == {"routes.conf"}
        cluster_api.call("DELETE", SECRETS.path(SYSTEM, BUS_SECRET))
        await make_keys(where, three)
        assert installation.secret(BUS_SECRET)["cli.nk"] != before["cli.nk"]
    finally:
        cluster_api.call("DELETE", SECRETS.path(SYSTEM, BUS_SECRET))


def test_an_upgrade_with_the_same_values_restarts_no_server(release: Release, cluster_api: Api) -> None:
    options = {"nats": {"enabled": True, "replicas": 1}}
    release.apply("--no-hooks", **options)
    before = ours(cluster_api, STATEFUL_SETS), generation(cluster_api)
    release.apply("--no-hooks", **options)
    assert (ours(cluster_api, STATEFUL_SETS), generation(cluster_api)) == before


def generation(api: Api) -> int:
    """Return how often the spec of the bus' servers was changed."""
    status, found = api.call("GET", STATEFUL_SETS.path(SYSTEM, "trellis-nats"))
    assert status == http.HTTPStatus.OK
    return int(found["metadata"]["generation"])


def test_a_definition_of_another_owner_is_not_taken_over(release: Release, cluster_api: Api) -> None:
    kinds = cluster_api.call("GET", DEFINITIONS.path())[1]["items"]
    if not kinds:
        cluster_api.call("POST", DEFINITIONS.path(), make_definition(KINDS_OF_OURS[0]))
    with pytest.raises(ChartRefusedError, match=r"crds\.install: .* release .*/trellis: .*crds\.adopt=true"):
        release.apply(crds={"install": True})


@pytest.mark.thorough
def test_a_crd_is_adopted_if_both_the_values_and_helm_request_it(release: Release, cluster_api: Api) -> None:
    for kind in KINDS_OF_OURS:
        cluster_api.call("POST", DEFINITIONS.path(), make_definition(kind))
    adopting = {"install": True, "adopt": True}
    with pytest.raises(ChartRefusedError, match=r"meta\.helm\.sh/release-name"):
        release.apply(crds=adopting)

    def owners() -> set[str]:
        found = [cluster_api.call("GET", DEFINITIONS.path(None, kind.name))[1]["metadata"] for kind in KINDS_OF_OURS]
        return {item.get("annotations", {}).get(OWNER, "") for item in found}

    try:
        release.apply("--take-ownership", crds=adopting)
        assert owners() == {RELEASE}
        release.apply(crds={"install": True})
        assert owners() == {RELEASE}, "an upgrade needs neither"
        release.uninstall()
        assert owners() == {RELEASE}, "they stay, and with them all objects"
    finally:
        for kind in KINDS_OF_OURS:
            nobodys = {"metadata": {"annotations": {OWNER: None}}}
            cluster_api.call("PATCH", DEFINITIONS.path(None, kind.name), nobodys)


def test_a_namespace_that_is_not_there_is_named(release: Release) -> None:
    missing = {"namespace": "never-made", "serviceAccount": "reader", "secrets": ["db"]}
    with pytest.raises(ChartRefusedError, match='namespaces "never-made" not found'):
        release.apply(secrets={"accounts": [missing]})
