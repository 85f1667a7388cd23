"""The permissions of both accounts on a real API server, as installed by deploy/rbac."""

from __future__ import annotations

import asyncio
import contextlib
import http
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from secrets_backend.domain.resources import ACCOUNT, Reader, make_impersonation
from support.cluster.grants import SYSTEM, Granted, elsewhere, given, granted, manifests, refused, until_bound, used
from support.lattices.host_world import PATIENCE
from support.nodes.fleet import eventually
from support.secrets.secrets_host import Host, value
from support.secrets.secrets_world import SecretsWorld
from trellis import names
from trellis.kube.resources import (
    HOST_CONFIGS,
    NAMESPACES,
    ROLE_BINDINGS,
    ROLES,
    SECRET_GRANTS,
    SECRETS,
    SERVICE_ACCOUNTS,
)
from trellis.runtime.run import Service
from trellis_dev.localcluster import ClusterInfo

pytestmark = pytest.mark.cluster


@dataclass
class Installed:
    """secrets_backend with exactly the permissions of deploy/rbac, and another namespace with a Secret ``db``."""

    world: SecretsWorld
    account: Granted
    other: str

    def may_be(self, *accounts: str, namespace: str = "") -> None:
        """Let the service impersonate ServiceAccounts of a namespace."""
        for name in accounts:
            self.account.apply(make_impersonation(Reader(namespace or self.world.namespace, name), SYSTEM))

    @contextlib.asynccontextmanager
    async def asking(self, **changes: Any) -> AsyncIterator[tuple[Host, Service]]:
        settings = {"kubeconfig": self.account.kubeconfig, "namespace": SYSTEM} | changes
        async with self.world.backend(**settings) as service, self.world.asking() as host:
            yield host, service


@pytest.fixture
def installed(secret_world: SecretsWorld, cluster: ClusterInfo, tmp_path: Path) -> Iterator[Installed]:
    world, other = secret_world, f"{secret_world.namespace}-other"
    world.api.call("POST", NAMESPACES.path(), {"metadata": {"name": other}})
    body = {"metadata": {"name": "db"}, "stringData": {"password": "theirs"}}
    assert world.api.call("POST", SECRETS.path(other), body)[0] == http.HTTPStatus.CREATED
    world.ready_to_ask()
    # An installation that went leaves its key.
    world.api.call("DELETE", SECRETS.path(SYSTEM, names.SECRETS_KEY))
    with granted(cluster, world.api, ACCOUNT, tmp_path) as account:
        account.apply(manifests("secrets-backend.yaml"))
        yield Installed(world, account, other)
    world.api.call("DELETE", SECRETS.path(SYSTEM, names.SECRETS_KEY))
    world.api.call("DELETE", NAMESPACES.path(None, other))


async def test_no_right_is_missing_and_none_is_given_for_nothing(installed: Installed) -> None:
    world = installed.world
    installed.may_be(names.SECRETS_ACCOUNT)
    world.grant("own", **{"from": [{"namespace": world.namespace}], "serviceAccounts": [names.SECRETS_ACCOUNT]})
    offset = world.hosts.fleet.audit_offset()
    async with installed.asking() as (host, service):
        assert value(await host.get("db", "password", namespace=world.namespace)) == "hunter2"
        await eventually(lambda: world.grant_reason("own") == "AccountsUsable", "its status")
        await eventually(lambda: not service.health.readiness().reasons, "ready")
    records = world.hosts.fleet.writes(offset)
    assert refused(records, installed.account.user) == []
    assert elsewhere(records, installed.account.user) == {"/readyz"}
    wanted, found = given(manifests("secrets-backend.yaml")), used(records, installed.account.user)
    anywhere = {(verb, resource) for verb, resource, place in wanted if not place}
    found = {(verb, resource, "" if (verb, resource) in anywhere else place) for verb, resource, place in found}
    assert found - wanted == {
        ("get", "secrets", world.namespace),  # as the account that it was let be
        ("create", "selfsubjectaccessreviews.authorization.k8s.io", ""),  # which Kubernetes permits to every account
    }
    assert wanted - found == set(), "given, but not used"


async def test_a_grant_reports_what_keeps_it_from_having_an_effect(installed: Installed) -> None:
    world = installed.world
    spec = {"from": [{"namespace": world.namespace}], "serviceAccounts": ["later"]}
    async with installed.asking():
        world.grant("early", **(spec | {"from": [{"namespace": installed.other}]}))
        await eventually(lambda: world.grant_reason("early") == "HostGroupMissing", "no host group")
        world.grant("late", **spec)
        await eventually(lambda: world.grant_reason("late") == "ServiceAccountMissing", "no ServiceAccount")
        world.account("later")
        await eventually(lambda: world.grant_reason("late") == "ImpersonationNotPermitted", "no permission")
        installed.may_be("later")
        await eventually(lambda: world.grant_reason("late") == "AccountsUsable", "in effect")
        world.hosts.call("DELETE", SERVICE_ACCOUNTS, "later")
        await eventually(lambda: world.grant_reason("late") == "ServiceAccountMissing", "its ServiceAccount is deleted")
        world.account("later")
        await eventually(lambda: world.grant_reason("late") == "AccountsUsable", "in effect again")
        world.hosts.call("DELETE", HOST_CONFIGS, "group")
        await eventually(lambda: world.grant_reason("late") == "HostGroupMissing", "its host group is deleted")
    rows = world.hosts.call("GET", SECRET_GRANTS)["items"]
    assert all(row["status"]["observedGeneration"] == row["metadata"]["generation"] for row in rows)


async def test_for_the_credentials_of_a_group_only_permission_for_that_secret_is_checked(installed: Installed) -> None:
    world = installed.world
    installed.may_be(names.SECRETS_ACCOUNT)
    async with installed.asking() as (host, service):
        world.secret("creds", **{"nats.creds": ""})
        world.group("with-secret", secretName="creds")

        def reason() -> str:
            return " ".join(service.health.readiness().reasons)

        await eventually(lambda: "--resource-name=creds" in reason(), "it is told")
        first, second = [item.split() for item in reason().split("`")[1::2]]
        assert first[:4] == ["kubectl", "-n", world.namespace, "create"]
        assert second[-1] == f"--serviceaccount={SYSTEM}:{ACCOUNT}"
        assert value(await host.get("db", "password", namespace=world.namespace)) == "hunter2"
        rules = [{"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["creds"], "verbs": ["get"]}]
        world.bind("link", rules, [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": SYSTEM}])
        await eventually(lambda: not reason(), "it is well", seconds=60)


async def test_without_permission_to_impersonate_the_manifest_to_apply_is_reported(installed: Installed) -> None:
    async with installed.asking() as (host, _):
        answer = value(await host.get("db", "password", namespace=installed.world.namespace))
        assert list(answer) == ["UpstreamError"]
        for named in (
            f"ServiceAccount {installed.world.namespace}/wasmcloud-secrets",
            f"`trellis secrets roles -n {installed.world.namespace} -a wasmcloud-secrets | kubectl apply -f -`",
        ):
            assert named in answer["UpstreamError"]


async def test_an_account_without_permissions_cannot_distinguish_missing_from_forbidden(installed: Installed) -> None:
    world = installed.world
    world.account("poor")
    installed.may_be("poor", "never-made")
    async with installed.asking() as (host, _):
        for account in ("poor", "never-made"):
            answers = {
                str(value(await host.get(name, entry, namespace=world.namespace, impersonate=account))).replace(
                    f'"{name}"',
                    "",  # with its quotes: a namespace's name may hold the letters
                )
                for name, entry in (("db", "password"), ("db", "none"), ("nothing", "password"))
            }
            assert len(answers) == 1, answers
            assert "is forbidden" in answers.pop()


async def test_an_account_with_permissions_gets_the_name_of_the_missing_secret(installed: Installed) -> None:
    world = installed.world
    world.account("rich", secrets=("db", "gone"))
    installed.may_be("rich")
    async with installed.asking() as (host, _):
        answer = value(await host.get("gone", "password", namespace=world.namespace, impersonate="rich"))
        assert answer == {"UpstreamError": 'secrets "gone" not found'}
        assert value(await host.get("db", "none", namespace=world.namespace, impersonate="rich")) == "SecretNotFound"


@pytest.mark.thorough
async def test_a_right_to_list_is_none_to_get(installed: Installed) -> None:
    world = installed.world
    world.account("lister")
    subject = {"kind": "ServiceAccount", "name": "lister", "namespace": world.namespace}
    world.bind("lists", [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["list", "watch"]}], [subject])
    installed.may_be("lister")
    async with installed.asking() as (host, _):
        answer = value(await host.get("db", "password", namespace=world.namespace, impersonate="lister"))
        assert 'secrets "db" is forbidden' in answer["UpstreamError"]


@pytest.mark.thorough
async def test_a_user_is_read_as_by_its_whole_name_if_platform_and_owner_both_list_it(installed: Installed) -> None:
    world = installed.world
    world.bind(
        "alice",
        [{"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["db"], "verbs": ["get"]}],
        [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice@shop"}],
    )
    world.grant("shop", **{"from": [{"namespace": world.namespace}], "users": ["alice@shop"]})
    installed.account.apply(make_impersonation(Reader(world.namespace, "alice@shop", is_user=True), SYSTEM))
    async with installed.asking() as (host, _):
        answer = str(value(await host.get("db", "password", namespace=world.namespace, impersonate="alice@shop")))
        assert "TRELLIS_SECRETS_USERS" in answer
    async with installed.asking(secrets_users="alice@shop") as (host, _):
        assert value(await host.get("db", "password", namespace=world.namespace, impersonate="alice@shop")) == "hunter2"
        assert "PolicyError" in str(value(await host.get("db", "password", namespace=world.namespace)))


async def test_another_namespace_needs_its_own_grant_and_then_its_permissions(installed: Installed) -> None:
    world, other = installed.world, installed.other
    api = "rbac.authorization.k8s.io"
    world.api.call("POST", SERVICE_ACCOUNTS.path(other), {"metadata": {"name": "reader"}})
    rules = [{"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["db"], "verbs": ["get"]}]
    world.api.call("POST", ROLES.path(other), {"metadata": {"name": "read"}, "rules": rules})
    subject = {"kind": "ServiceAccount", "name": "reader", "namespace": other}
    binding = {"roleRef": {"kind": "Role", "apiGroup": api, "name": "read"}, "subjects": [subject]}
    world.api.call("POST", ROLE_BINDINGS.path(other), {"metadata": {"name": "read"}} | binding)
    until_bound(world.api, {"metadata": {"namespace": other}} | binding)
    installed.may_be("reader", namespace=other)
    async with installed.asking() as (host, _):
        results = {
            str(value(await host.get(name, "password", namespace=other, impersonate="reader")))
            for name in ("db", "nothing")
        }
        assert len(results) == 1
        assert "PolicyError" in results.pop()
        world.grant("shop", other, **{"from": [{"namespace": world.namespace}], "serviceAccounts": ["reader"]})

        async with asyncio.timeout(PATIENCE):
            while value(await host.get("db", "password", namespace=other, impersonate="reader")) != "theirs":
                pass
