"""``trellis secrets check`` on a real API server: rules are given one by one, and what stops next is named."""

from __future__ import annotations

import http
import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from secrets_backend.domain.refusals import ErrorName
from support.cluster.definitions import OURS, ensure_served
from support.cluster.grants import Granted, granted, until_bound
from support.secrets.secrets_command import SecretsCommand
from support.secrets.secrets_world import define_grants
from support.suite import planted
from support.wadm.applications_kind import ApplicationsKind, until
from trellis.kube.resources import (
    APPLICATIONS,
    DEFINITIONS,
    HOST_CONFIGS,
    NAMESPACES,
    ROLE_BINDINGS,
    ROLES,
    SECRET_GRANTS,
    SECRETS,
    SERVICE_ACCOUNTS,
    Resource,
)
from trellis_cli.secrets.model import DEFINITION, READING
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.api import Api

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(420)]

RECORDED = json.loads((Path(__file__).parents[2] / "data/secrets/vectors.json").read_text())
TOKEN: str = next(jwt["jwt"] for jwt in RECORDED["jwts"] if (jwt["kind"], jwt["variant"]) == ("component", "good"))
ISSUER: str = RECORDED["keys"]["account"]["public"]


class World:
    """A namespace with hosts and an application that asks for a Secret of another, and the command."""

    def __init__(self, api: Api, info: ClusterInfo, account: Granted, mark: str) -> None:
        self.api, self.info, self.account = api, info, account
        self.shop, self.payments = f"test-{mark}-shop", f"test-{mark}-payments"
        self.command = SecretsCommand(info.kubeconfig, "trellis-system")
        self.run = self.command.run

    def make(self, res: Resource, namespace: str | None, name: str, **fields: Any) -> None:
        body = {"apiVersion": res.api_version, "kind": res.kind, "metadata": {"name": name}, **fields}
        status, answer = self.api.call("POST", res.path(namespace), body)
        assert status == http.HTTPStatus.CREATED, answer

    def application(self) -> None:
        policy = {
            "name": "vault",
            "type": "policy.secret.wasmcloud.dev/v1alpha1",
            "properties": {"backend": "kube", "namespace": self.payments, "impersonate": "reader"},
        }
        secret = {"name": "password", "properties": {"policy": "vault", "key": "db", "field": "password"}}
        properties = {"image": "example.com/cart", "secrets": [secret]}
        component = {"name": "cart", "type": "component", "properties": properties}
        self.make(APPLICATIONS, self.shop, "cart", spec={"policies": [policy], "components": [component]})

    def come_as(self, token: str, kubeconfig: Path) -> None:
        """Run the command from now on as another user."""
        whole = yaml.safe_load(Path(self.info.kubeconfig).read_text())
        whole["users"][0]["user"] = {"token": token}
        kubeconfig.write_text(yaml.safe_dump(whole))
        self.command.come_with(kubeconfig)

    async def steps(self, *arguments: str, code: int) -> dict[str, tuple[bool | None, str]]:
        """Return the message about the one secret, by rule."""
        done = await self.run("check", "--app", "cart", "-n", self.shop, *arguments, "-o", "json")
        assert done.returncode == code, done.stderr or done.stdout
        found = json.loads(done.stdout)
        assert found["ok"] == (code == 0)
        [row] = found["secrets"]
        steps = [found["token"], found["crd"], *row["steps"]]
        results = {step["what"]: (step["ok"], step["text"]) for step in steps}
        return results | {"user": (None, row["user"] or "")}

    async def roles(self, *arguments: str) -> None:
        done = await self.run("roles", "-n", self.payments, "-a", "reader", *arguments)
        new = [item for item in yaml.safe_load_all(done.stdout) if not self.api.ok(_place(item))]
        self.account.apply(new)


def _place(manifest: dict[str, Any]) -> str:
    res = {"Role": ROLES, "RoleBinding": ROLE_BINDINGS}[manifest["kind"]]
    return res.path(manifest["metadata"]["namespace"], manifest["metadata"]["name"])


@pytest.fixture
def world(cluster: ClusterInfo, cluster_api: Api, tmp_path: Path) -> Iterator[World]:
    kind = ApplicationsKind(cluster_api)
    kind.clear()
    kind.define()
    ensure_served(cluster_api, *OURS)
    with granted(cluster, cluster_api, "trellis-secrets-backend", tmp_path) as account:
        made = World(cluster_api, cluster, account, secrets.token_hex(4))
        for namespace in (made.shop, made.payments):
            made.make(NAMESPACES, None, namespace)
        spec = {"lattice": "default", "version": "1.4.0"}
        made.make(HOST_CONFIGS, made.shop, "hosts", spec=spec)
        made.application()
        yield made
        for namespace in (made.shop, made.payments):
            cluster_api.call("DELETE", NAMESPACES.path(name=namespace))
    kind.clear()


async def test_each_rule_that_is_missing_is_named_with_what_gives_it(world: World, tmp_path: Path) -> None:
    token = tmp_path / "cart.jwt"
    token.write_text(TOKEN + "\n")
    flags = ("--entity-jwt", str(token))
    results = await world.steps(*flags, code=1)
    assert results["token"][0] is True
    assert ISSUER in results["token"][1]
    assert results["grant"][0] is False
    assert "SecretGrant" in results["grant"][1]
    assert world.shop in results["grant"][1]
    assert "secret" not in results, "nothing is asked about what is not granted"

    grant = {"from": [{"namespace": world.shop}], "serviceAccounts": ["reader"], "entityIssuers": [ISSUER]}
    world.make(SECRET_GRANTS, world.payments, "shop", spec=grant)
    results = await world.steps(*flags, code=1)
    assert results["grant"][0] is True
    assert f"SecretGrant {world.payments}/shop" in results["grant"][1]
    assert results["user"][1] == f"system:serviceaccount:{world.payments}:reader"
    assert results["impersonation"][0] is False
    assert f"`trellis secrets roles -n {world.payments} -a reader | kubectl apply -f -`" in results["impersonation"][1]
    assert results[READING][0] is False
    assert "-a reader -s db |" in results[READING][1]
    assert results["secret"][0] is False
    assert f"Secret {world.payments}/db" in results["secret"][1]

    await world.roles()
    results = await world.steps(*flags, code=1)
    assert results["impersonation"][0] is True
    assert results[READING][0] is False

    await world.roles("-s", "db")
    world.make(SECRETS, world.payments, "db", stringData={"user": planted.VALUE})
    results = await world.steps(*flags, code=1)
    assert results[READING][0] is True
    assert results["secret"][0] is False
    for named in (f"Secret {world.payments}/db", "password", "user"):
        assert named in results["secret"][1]

    world.api.call("PATCH", SECRETS.path(world.payments, "db"), {"stringData": {"password": planted.VALUE}})
    results = await world.steps(*flags, code=0)
    assert results["secret"][0] is True
    for named in (f"Secret {world.payments}/db", "password", f"{len(planted.VALUE)} bytes"):
        assert named in results["secret"][1]
    table = await world.run("check", "--app", "cart", "-n", world.shop, *flags)
    assert table.returncode == 0
    assert {"password", "cart"} <= set(table.stdout.replace(":", " ").split())


@pytest.mark.thorough
async def test_a_refused_token_is_reported_with_the_reason(world: World, tmp_path: Path) -> None:
    forged = tmp_path / "forged.jwt"
    head, claims, signature = TOKEN.split(".")
    forged.write_text(f"{head}.{claims}.{signature[:-8]}AAAAAAAA")
    results = await world.steps("--entity-jwt", str(forged), code=1)
    assert results["token"][0] is False
    assert ErrorName.INVALID_ENTITY_JWT in results["token"][1]
    missing = await world.run("check", "--app", "cart", "-n", world.shop, "--entity-jwt", str(tmp_path / "none"))
    assert missing.returncode == 1
    assert str(tmp_path / "none") in missing.stderr


async def test_clients_without_read_permission_cannot_detect_whether_a_secret_exists(
    world: World, tmp_path: Path
) -> None:
    world.make(
        SECRET_GRANTS, world.payments, "shop", spec={"from": [{"namespace": world.shop}], "serviceAccounts": ["*"]}
    )
    world.make(SECRETS, world.payments, "db", stringData={"password": planted.VALUE})
    rules = [
        {
            "apiGroups": [APPLICATIONS.group, HOST_CONFIGS.group, SECRET_GRANTS.group],
            "resources": ["*"],
            "verbs": ["list"],
        }
    ]
    kind = {"apiGroup": ROLES.group, "kind": "ClusterRole", "name": f"person-{world.shop}"}
    subject = {"kind": "ServiceAccount", "name": "person", "namespace": world.shop}
    base = "/apis/rbac.authorization.k8s.io/v1"
    binding = {"metadata": {"name": kind["name"]}, "roleRef": kind, "subjects": [subject]}
    for path, body in (
        (SERVICE_ACCOUNTS.path(world.shop), {"metadata": {"name": "person"}}),
        (f"{base}/clusterroles", {"metadata": {"name": kind["name"]}, "rules": rules}),
        (f"{base}/clusterrolebindings", binding),
    ):
        assert world.api.call("POST", path, body)[0] == http.HTTPStatus.CREATED
    try:
        until_bound(world.api, binding)
        requested = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": 3600},
        }
        token = world.api.call("POST", SERVICE_ACCOUNTS.path(world.shop, "person", "token"), requested)[1]["status"][
            "token"
        ]
        world.come_as(token, tmp_path / "person")
        before = await world.steps(code=0)
        world.api.call("DELETE", SECRETS.path(world.payments, "db"))
        after = await world.steps(code=0)
    finally:
        for plural in ("clusterroles", "clusterrolebindings"):
            world.api.call("DELETE", f"{base}/{plural}/{kind['name']}")
    assert before == after
    assert before["secret"][0] is None
    assert before["impersonation"][0] is None
    assert before[READING][0] is None


async def test_a_crd_that_is_not_there_stops_every_secret(world: World) -> None:
    """secrets_backend would answer UpstreamError: the namespaces of hosts are not open then either."""
    assert world.api.call("DELETE", DEFINITIONS.path(name=SECRET_GRANTS.definition))[0] == http.HTTPStatus.OK
    until(lambda: not world.api.ok(DEFINITIONS.path(name=SECRET_GRANTS.definition)), "the CRD is gone")
    try:
        results = await world.steps(code=1)
    finally:
        define_grants(world.api)
    assert results[DEFINITION][0] is False
    assert results["grant"][0] is False
    assert "impersonation" not in results
