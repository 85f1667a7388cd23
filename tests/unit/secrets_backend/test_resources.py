"""Rights to be an account, and of the account: each names what it is about, and nothing collides."""

from __future__ import annotations

import pytest

from secrets_backend.domain.resources import ACCOUNT, Reader, make_impersonation, make_reading
from trellis import names

LABELS = {"app.kubernetes.io/name": "trellis", "app.kubernetes.io/component": "secrets-backend"}
READER = Reader("payments", "reader")
JANE = Reader("payments", "jane@example.com", is_user=True)


def test_secrets_backend_may_be_one_account_of_one_namespace() -> None:
    metadata = {"name": "trellis-impersonate-reader", "namespace": "payments", "labels": LABELS}
    assert make_impersonation(READER, "trellis-system") == [
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": metadata,
            "rules": [
                {
                    "apiGroups": [""],
                    "resources": ["serviceaccounts"],
                    "resourceNames": ["reader"],
                    "verbs": ["impersonate"],
                }
            ],
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "Role",
                "name": "trellis-impersonate-reader",
            },
            "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": "trellis-system"}],
        },
    ]


def test_the_account_may_read_the_secrets_that_are_named_each_once() -> None:
    role, binding = make_reading(READER, ["db", "api", "db"])
    assert role["rules"] == [
        {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["db", "api"], "verbs": ["get"]}
    ]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "reader", "namespace": "payments"}]
    assert role["metadata"] == binding["metadata"]
    assert binding["roleRef"]["name"] == role["metadata"]["name"] == "trellis-reader-reader"


def test_a_user_belongs_to_no_namespace_unlike_the_secrets_that_it_reads() -> None:
    role, binding = make_impersonation(JANE, "trellis-system")
    assert (role["kind"], binding["kind"]) == ("ClusterRole", "ClusterRoleBinding")
    assert "namespace" not in role["metadata"]
    assert role["rules"][0]["resources"] == ["users"]
    assert role["rules"][0]["resourceNames"] == ["jane@example.com"]
    reading, bound = make_reading(JANE, ["db"])
    assert reading["metadata"]["namespace"] == "payments"
    assert bound["subjects"] == [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane@example.com"}]


def test_an_account_of_another_namespace_is_impersonated_there_and_reads_here() -> None:
    reader = Reader("payments", "system:serviceaccount:ops:auditor", is_user=True)
    role, _ = make_impersonation(reader, "trellis-system")
    assert (role["kind"], role["metadata"]["namespace"]) == ("Role", "ops")
    assert role["rules"][0]["resources"] == ["serviceaccounts"]
    assert role["rules"][0]["resourceNames"] == ["auditor"]
    reading, bound = make_reading(reader, ["db"])
    assert reading["metadata"]["namespace"] == "payments"
    assert bound["subjects"] == [{"kind": "ServiceAccount", "name": "auditor", "namespace": "ops"}]


def test_no_rule_is_about_more_than_it_names() -> None:
    for reader in (READER, JANE):
        for item in [*make_impersonation(reader, "trellis-system"), *make_reading(reader, ["db"])]:
            assert all(rule["resourceNames"] for rule in item.get("rules", ()))
            assert "*" not in str(item)


@pytest.mark.parametrize("name", ["reader", "a.b-c", "x" * 253, "Jane", "jane@example.com", "ü" * 300, "a:b"])
def test_every_reader_has_a_role_that_kubernetes_takes(name: str) -> None:
    for found in (names.impersonation_role(name), names.reader_role(name)):
        assert len(found) <= 253
        assert names._DOTTED_NAME.fullmatch(found)


def test_a_user_and_an_account_of_one_name_have_roles_of_their_own() -> None:
    readers = [Reader("payments", "jane"), Reader("payments", "jane", is_user=True), Reader("payments", "user-jane")]
    assert len({make_reading(reader, ["db"])[0]["metadata"]["name"] for reader in readers}) == 3
    assert len({make_impersonation(reader, "x")[0]["metadata"]["name"] for reader in readers}) == 3
