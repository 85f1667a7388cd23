"""The users as which secrets-kubernetes read Secrets, and the needs of each."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

import pytest

from support.suite.naming import lacking
from trellis.crds.secret_grants import SecretGrant
from trellis_cli.migrate.model.plan import Doing, Step
from trellis_cli.migrate.model.wasmcloud import Former, FormerGroup
from trellis_cli.migrate.model.wasmcloud_secrets import plan_secrets

Manifest = dict[str, Any]


def a_role(name: str = "db", namespace: str = "payments", **rule: Any) -> Manifest:
    base = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list"], "resourceNames": ["db"]}
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"kind": "Role" if namespace else "ClusterRole", "metadata": metadata, "rules": [base | rule]}


def a_binding(*users: str, role: str = "db", namespace: str = "payments", cluster_role: bool = False) -> Manifest:
    metadata = {"name": role} | ({"namespace": namespace} if namespace else {})
    return {
        "kind": "RoleBinding" if namespace else "ClusterRoleBinding",
        "metadata": metadata,
        "roleRef": {"kind": "ClusterRole" if cluster_role or not namespace else "Role", "name": role},
        "subjects": [{"kind": "User", "name": user} for user in users],
    }


def an_app(user: str | None, name: str = "cart", namespace: str | None = "payments", **policy: Any) -> Manifest:
    properties = {"backend": "kube", "namespace": namespace, "impersonate": user}
    given = {key: value for key, value in properties.items() if value is not None}
    whole = {"name": "vault", "type": "policy.secret.wasmcloud.dev/v1alpha1", "properties": given} | policy
    return {"metadata": {"name": name, "namespace": "shop"}, "spec": {"policies": [whole], "components": []}}


def plan(
    *rbac: Manifest,
    apps: tuple[Manifest, ...] = (),
    grants: tuple[Manifest, ...] = (),
    hosts: tuple[str, ...] = (),
) -> list[Step]:
    groups = tuple(FormerGroup({"metadata": {"name": "hosts", "namespace": host}}, {}) for host in hosts)
    steps = plan_secrets(Former(rbac=rbac, apps=apps, grants=grants, groups=groups))
    assert all(step.write is None and step.doing is Doing.LEAVE for step in steps), "nothing is changed"
    return steps


def test_a_user_that_a_policy_names_needs_a_setting_a_grant_and_permissions() -> None:
    [step] = plan(a_role(), a_binding("jane"), apps=(an_app("jane"), an_app("jane", "till")))
    assert step.object == "RoleBinding payments/db"
    assert lacking(step.what, "jane", "Secret db", "namespace payments") == []
    assert lacking(step.reason, "shop/cart, shop/till", "jane", "TRELLIS_SECRETS_USERS") == []
    assert "`trellis secrets roles -n payments --user jane | kubectl apply -f -`" in step.reason


@pytest.mark.parametrize("user", ["jane", "jane@example.com", "o'hara"])
def test_the_suggested_grant_is_valid(user: str) -> None:
    [step] = plan(a_role(), a_binding(user), apps=(an_app(user),))
    found = re.search(r"`kubectl apply -f - <<< (.*)`$", step.reason)
    assert found is not None
    [text] = shlex.split(found[1])
    manifest = json.loads(text)
    spec = SecretGrant.model_validate(manifest).spec
    assert (manifest["metadata"]["namespace"], spec.users, spec.from_[0].namespace) == ("payments", [user], "shop")


def test_an_unnamed_user_is_reported_as_possible() -> None:
    [step] = plan(a_role(), a_binding("jane"))
    assert lacking(step.reason, "jane") == []
    assert "shop/" not in step.reason


@pytest.mark.parametrize(
    "rule",
    [{"verbs": ["list"]}, {"resources": ["configmaps"]}, {"apiGroups": ["apps"]}],
    ids=["no get", "no Secrets", "another group"],
)
def test_a_user_without_secrets_is_ignored(rule: dict[str, Any]) -> None:
    assert plan(a_role(**rule), a_binding("jane")) == []


def test_rules_for_everything_count_as_well() -> None:
    rule = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"], "resourceNames": []}
    [step] = plan(
        a_role("admin", "", **rule), a_binding("jane", role="admin", cluster_role=True), apps=(an_app("jane"),)
    )
    assert lacking(step.what, "jane", "Secrets", "namespace payments") == []


def test_a_user_with_cluster_wide_permission_is_reported_only_if_a_policy_names_them() -> None:
    permissions = (a_role("admin", "", resourceNames=[]), a_binding("jane", "john", role="admin", namespace=""))
    [step] = plan(*permissions, apps=(an_app("jane"),))
    assert step.object == "ClusterRoleBinding admin"
    assert "jane" in step.what


def test_users_of_kubernetes_itself_and_groups_are_no_matter() -> None:
    binding = a_binding("system:kube-scheduler")
    binding["subjects"].append({"kind": "Group", "name": "devs"})
    assert plan(a_role(), binding) == []


def test_a_service_account_named_as_a_user_stays_one_without_a_line() -> None:
    user = "system:serviceaccount:payments:reader"
    [step] = plan(a_role(), a_binding(user), apps=(an_app(user),))
    assert "`trellis secrets roles -n payments -a reader | kubectl apply -f -`" in step.reason
    assert "TRELLIS_SECRETS_USERS" not in step.reason


def test_a_policy_with_an_unbound_user_is_reported() -> None:
    [step] = plan(apps=(an_app("jane", namespace=None),))
    assert step.object == "Application shop/cart"
    assert lacking(step.what, "namespace default", "user jane") == []


def test_other_policies_and_those_without_a_user_are_no_matter() -> None:
    assert plan(apps=(an_app(None), an_app("jane", type="policy.other/v1"))) == []


def test_a_user_that_a_grant_has_needs_no_other() -> None:
    grant = {"metadata": {"namespace": "payments", "name": "g"}, "spec": {"users": ["jane"]}}
    [step] = plan(a_role(), a_binding("jane"), apps=(an_app("jane"),), grants=(grant,))
    assert lacking(step.reason, "SecretGrant", "jane", "TRELLIS_SECRETS_USERS") == []
    assert "kubectl apply -f - <<<" not in step.reason


@pytest.mark.parametrize("accounts", [["reader"], ["*"]])
def test_an_account_that_a_grant_has_is_no_user_that_needs_a_line(accounts: list[str]) -> None:
    """An application of Trellis itself: as a user it would be read as another user."""
    grant = {"metadata": {"namespace": "payments", "name": "g"}, "spec": {"serviceAccounts": accounts}}
    assert plan(apps=(an_app("reader"),), grants=(grant,)) == []
    assert plan(apps=(an_app("reader", namespace="ledger"),), grants=(grant,)) != []


@pytest.mark.parametrize(
    ("hosts", "grants", "accounts"),
    [
        (("payments",), (), ["*"]),
        (("payments",), ({"metadata": {"namespace": "payments", "name": "g"}, "spec": {}},), None),
        (("shop",), (), None),
    ],
    ids=["open by default", "with grants already", "not of hosts"],
)
def test_the_suggested_grant_closes_no_open_access(
    hosts: tuple[str, ...], grants: tuple[Manifest, ...], accounts: list[str] | None
) -> None:
    [step] = plan(a_role(), a_binding("jane"), apps=(an_app("jane"),), grants=grants, hosts=hosts)
    found = re.search(r"`kubectl apply -f - <<< (.*)`$", step.reason)
    assert found is not None
    assert json.loads(shlex.split(found[1])[0])["spec"].get("serviceAccounts") == accounts


def test_a_binding_to_a_missing_role_gives_nothing() -> None:
    assert plan(a_binding("jane")) == []


def test_a_binding_of_another_namespace_than_the_policy_asks_about_is_not_what_it_needs() -> None:
    steps = plan(a_role(), a_binding("jane"), apps=(an_app("jane", namespace="ledger"),))
    assert [(step.object, "shop/cart" in step.reason.partition(":")[0]) for step in steps] == [
        ("Application shop/cart", True),
        ("RoleBinding payments/db", False),
    ]
