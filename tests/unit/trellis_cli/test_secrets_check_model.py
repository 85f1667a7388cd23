"""The rule that stops a secret of a manifest before a request to the API server, and the requests otherwise."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from secrets_backend.domain.decide import ConnectionGrant, Grant, Identity, view_grant
from secrets_backend.domain.tokens import Token
from support.suite.naming import lacking
from trellis.lattice.domain.group_views import GroupView, view_group
from trellis_cli.secrets.model import (
    Row,
    RuleInputs,
    Use,
    connection_grant_of,
    impersonation_review,
    judge,
    judge_definition,
    reading_review,
    uses_of,
)

ISSUER = "A" + "B2" * 27 + "C"
TOKEN = Token(ISSUER, "M" + "B2" * 27 + "C", "cart")
SECRET = {"name": "password", "properties": {"policy": "vault", "key": "db", "field": "pw"}}
POLICY = {
    "name": "vault",
    "type": "policy.secret.wasmcloud.dev/v1alpha1",
    "properties": {"backend": "kube", "namespace": "shop", "impersonate": "reader"},
}
APP: dict[str, Any] = {
    "metadata": {"name": "cart", "namespace": "shop"},
    "spec": {
        "policies": [POLICY],
        "components": [
            {
                "name": "cart",
                "type": "component",
                "properties": {"image": "x", "secrets": [SECRET]},
                "traits": [
                    {
                        "type": "link",
                        "properties": {
                            "namespace": "wasi",
                            "package": "keyvalue",
                            "interfaces": ["store"],
                            "source": {"secrets": [SECRET | {"name": "out"}]},
                            "target": {"name": "redis", "secrets": [SECRET | {"name": "in"}]},
                        },
                    },
                    {"type": "link", "properties": {"namespace": "wasi", "package": "http", "target": "redis"}},
                    {"type": "spreadscaler", "properties": {"instances": 1}},
                ],
            },
            {"name": "redis", "type": "capability", "properties": {"image": "y"}},
        ],
    },
}
[USE, OUT, IN] = uses_of(APP)
HOME = ConnectionGrant(frozenset({"shop"}), frozenset({("shop", "default")}))


def around(link: ConnectionGrant = HOME, token: Token | None = TOKEN, users: tuple[str, ...] = ()) -> RuleInputs:
    return RuleInputs(link, token, frozenset(users), "kube")


def app(**policy: Any) -> dict[str, Any]:
    changed = copy.deepcopy(APP)
    changed["spec"]["policies"] = [{**POLICY, **policy}]
    return changed


def texts_of(row: Row) -> str:
    return row.steps[-1].text


def test_every_place_that_hands_over_secrets_is_looked_at() -> None:
    assert [item.name for item in (USE, OUT, IN)] == ["password", "out", "in"]
    assert USE.place == "cart"
    assert lacking(OUT.place, "cart", "wasi:keyvalue") == []
    assert lacking(IN.place, "redis", "wasi:keyvalue", "cart") == []
    assert (USE.policy, USE.secret, USE.entry) == ("vault", "db", "pw")
    assert uses_of({"metadata": {}, "spec": {}}) == []


def test_a_granted_secret_shows_its_rule_and_account() -> None:
    row = judge(APP, USE, around())
    assert row.ok
    assert row.identity is not None
    assert (row.identity.user, row.identity.namespace) == ("system:serviceaccount:shop:reader", "shop")
    assert lacking(row.identity.rule, "namespace shop") == []
    assert [(step.what, step.ok) for step in row.steps] == [("policy", True), ("grant", True)]
    assert row.document()["rule"] == row.identity.rule


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ({"name": "other"}, "'vault'"),
        ({"type": "policy.wasmcloud.dev/v1"}, "'policy.wasmcloud.dev/v1'"),
        ({"properties": {"namespace": "shop"}}, "backend: kube"),
        ({"properties": {"backend": "kube", "namespace": "Shop"}}, '"Shop"'),
        ({"properties": {"backend": "kube", "namespace": "payments"}}, "namespace payments"),
        ({"properties": {"backend": "kube"}}, "namespace default"),
        (
            {"properties": {"backend": "kube", "namespace": "shop", "impersonate": "Jane"}},
            "'Jane' ",
        ),
    ],
)
def test_a_policy_that_stops_it_states_the_reason(policy: dict[str, Any], words: str) -> None:
    row = judge(app(**policy), USE, around())
    assert not row.ok
    assert row.identity is None
    assert words in texts_of(row)


def test_a_policy_of_another_backend_is_ignored() -> None:
    row = judge(app(properties={"backend": "vault"}), USE, around())
    assert row.ok
    assert row.steps[-1].ok is None
    assert "'vault'" in texts_of(row)


@pytest.mark.parametrize("use", [Use("cart", "x", "vault", "", "pw"), Use("cart", "x", "vault", "db", "")])
def test_a_secret_without_key_or_field_is_stopped(use: Use) -> None:
    assert lacking(texts_of(judge(APP, use, around())), "key", "field") == []


def a_grant(place: str = "shop", **spec: Any) -> Grant:
    return view_grant(
        {"metadata": {"namespace": place, "name": "g"}, "spec": {"from": [{"namespace": "shop"}], **spec}}
    )


def test_without_a_token_it_is_reported_that_the_issuer_decides() -> None:
    limited = ConnectionGrant(
        HOME.home, HOME.groups, (a_grant(serviceAccounts=["*"], entityIssuers=["A" + "C3" * 27 + "D"]),)
    )
    row = judge(APP, USE, around(limited, None))
    assert row.ok
    assert row.steps[-1].ok is None
    assert "--entity-jwt" in texts_of(row)
    assert "entityIssuers" in texts_of(judge(APP, USE, around(limited)))
    assert judge(APP, USE, around(token=None)).steps[-1].ok is True, "where no grant names issuers, none counts"


@pytest.mark.parametrize("other", [{"place": "ledger"}, {"from": [{"namespace": "till"}]}], ids=["namespace", "hosts"])
def test_issuers_of_grants_for_other_accounts_are_certain(other: dict[str, Any]) -> None:
    grant = a_grant(serviceAccounts=["*"], entityIssuers=["A" + "C3" * 27 + "D"], **other)
    row = judge(APP, USE, around(ConnectionGrant(HOME.home, HOME.groups, (grant,)), None))
    assert row.steps[-1].ok is True
    assert "--entity-jwt" not in texts_of(row)


DELETING = {"deletionTimestamp": "2026-01-01T00:05:00Z"}


@pytest.mark.parametrize(
    ("metadata", "age", "well"),
    [
        ({}, 300.0, True),
        ({}, 299.0, None),
        ({}, -60.0, None),
        (DELETING, 900.0, False),
        (None, 900.0, False),
    ],
    ids=["stands", "created a short time ago", "by a clock that is ahead", "being deleted", "not there"],
)
def test_whether_the_crd_stands_is_a_rule_of_its_own(
    metadata: dict[str, Any] | None, age: float, *, well: bool | None
) -> None:
    step = judge_definition(None if metadata is None else {"metadata": metadata}, age, 300.0)
    assert step.ok is well
    assert ("UpstreamError" in step.text) is (well is not True)


def test_while_grants_are_unknown_no_secret_is_given() -> None:
    row = judge(APP, USE, around(link=replace(HOME, known=False)))
    assert [(step.what, step.ok) for step in row.steps] == [("policy", True), ("grant", False)]


def group(namespace: str, lattice: str = "default", **spec: Any) -> GroupView:
    about = {"namespace": namespace, "name": "g", "uid": f"{namespace}-{lattice}"}
    return view_group({"metadata": about, "spec": {"lattice": lattice, "version": "1", **spec}})


def test_groups_with_equal_nats_and_credentials_share_a_connection_for_any_lattice() -> None:
    own = group("shop")
    others = [own, group("till", "other"), group("far", natsAddress="nats://far"), group("own", secretName="creds")]
    link = connection_grant_of(own, others, [])
    assert link.home == {"shop", "till"}
    assert link.groups == {("shop", "default"), ("till", "other")}
    keyed = group("shop", secretName="creds")
    assert connection_grant_of(keyed, [*others, keyed], []).home == {"shop"}, (
        "a Secret of that name elsewhere may hold another user"
    )


def test_access_reviews_use_the_identity_of_the_real_request() -> None:
    identity = Identity("system:serviceaccount:shop:reader", "shop", "")
    be, read = impersonation_review(identity, "trellis-system")["spec"], reading_review(identity, "db")["spec"]
    assert be["user"] == "system:serviceaccount:trellis-system:trellis-secrets-backend"
    assert be["resourceAttributes"] == {
        "verb": "impersonate",
        "resource": "serviceaccounts",
        "namespace": "shop",
        "name": "reader",
    }
    assert read["user"] == identity.user
    assert read["groups"] == ["system:serviceaccounts", "system:serviceaccounts:shop", "system:authenticated"]
    assert read["resourceAttributes"] == {"verb": "get", "resource": "secrets", "namespace": "shop", "name": "db"}
    jane = Identity("jane", "shop", "")
    assert impersonation_review(jane, "x")["spec"]["resourceAttributes"] == {
        "verb": "impersonate",
        "resource": "users",
        "name": "jane",
    }
    assert reading_review(jane, "db")["spec"]["groups"] == ["system:authenticated"]
