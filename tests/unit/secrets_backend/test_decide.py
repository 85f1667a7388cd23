"""The identity with which a Secret is read: permitted by default for a lattice connection, or by SecretGrants."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from secrets_backend.domain.decide import ConnectionGrant, Grant, Identity, identify, view_grant
from secrets_backend.domain.policy import Policy
from secrets_backend.domain.refusals import ErrorName, Reason, Refusal
from secrets_backend.domain.tokens import Token

ISSUER = "A" + "B2" * 27 + "C"
OTHER_ISSUER = "A" + "C3" * 27 + "D"
ENTITY = Token(issuer=ISSUER, subject="M" + "B2" * 27 + "C", name="cart")
NOBODY: frozenset[str] = frozenset()


def a_grant(namespace: str, name: str = "shop", *, source: str = "shop", **spec: Any) -> Grant:
    return view_grant({"metadata": {"namespace": namespace, "name": name}, "spec": {"from": [_from(source)], **spec}})


def _from(source: str) -> dict[str, str]:
    namespace, _, lattice = source.partition("/")
    return {"namespace": namespace} | ({"lattice": lattice} if lattice else {})


def a_link(*groups: str, grants: tuple[Grant, ...] = ()) -> ConnectionGrant:
    """Return the grant of a link; a group is ``namespace/lattice``."""
    pairs = [(namespace, lattice) for namespace, _, lattice in (group.partition("/") for group in groups)]
    return ConnectionGrant(frozenset(namespace for namespace, _ in pairs), frozenset(pairs), grants)


def test_a_namespace_whose_grant_may_be_deleted_with_its_crd_is_refused_and_others_are_not() -> None:
    link = replace(a_link("shop/default", "bank/default"), unsure=frozenset({"shop"}))
    with pytest.raises(Refusal) as refused:
        decision(link, "shop")
    assert refused.value.error is ErrorName.UPSTREAM
    assert decision(link, "bank").namespace == "bank"


def decision(
    link: ConnectionGrant,
    namespace: str,
    impersonate: str | None = None,
    *,
    users: frozenset[str] = NOBODY,
    entity: Token = ENTITY,
) -> Identity:
    return identify(Policy(namespace, impersonate), entity, link, users)


def refusal(
    link: ConnectionGrant,
    namespace: str,
    impersonate: str | None = None,
    *,
    users: frozenset[str] = NOBODY,
    entity: Token = ENTITY,
) -> Refusal:
    with pytest.raises(Refusal) as refused:
        decision(link, namespace, impersonate, users=users, entity=entity)
    assert refused.value.error is ErrorName.POLICY
    return refused.value


def named(refused: Refusal, *names: str) -> Reason | None:
    """Return the reason of a refusal whose message has these names."""
    assert [name for name in names if name not in refused.message] == []
    return refused.reason


SHOP = a_link("shop/default")


def test_a_namespace_with_hosts_of_the_lattice_is_open_by_default_to_its_own_accounts() -> None:
    identity = decision(SHOP, "shop", "reader")
    assert (identity.user, identity.namespace) == ("system:serviceaccount:shop:reader", "shop")
    assert "namespace shop" in identity.rule


def test_while_secret_grants_cannot_be_listed_nothing_is_granted_and_it_is_no_error_of_the_policy() -> None:
    with pytest.raises(Refusal) as refused:
        decision(replace(SHOP, known=False), "shop", "reader")
    assert refused.value.error is ErrorName.UPSTREAM


@pytest.mark.parametrize("impersonate", [None, ""])
def test_without_a_name_it_is_the_account_that_is_made_for_it(impersonate: str | None) -> None:
    assert decision(SHOP, "shop", impersonate).user == "system:serviceaccount:shop:wasmcloud-secrets"


def test_an_account_may_be_named_as_the_user_that_it_is() -> None:
    assert decision(SHOP, "shop", "system:serviceaccount:shop:reader").user == "system:serviceaccount:shop:reader"


@pytest.mark.parametrize(
    "name",
    [
        "Jane",
        "jane@example.com",
        "shop:reader",
        "reader\nImpersonate-Group: system:masters",
        "reader:",
        "system:serviceaccount:payments:reader",
        "system:serviceaccount:shop:",
        "../reader",
        "*",
        "a" * 254,
        " reader",
    ],
)
def test_an_invalid_account_name_is_refused_unchanged(name: str) -> None:
    assert refusal(SHOP, "shop", name).reason is Reason.INVALID_ACCOUNT_NAME


def test_every_namespace_of_the_connection_counts_because_a_request_does_not_name_its_lattice() -> None:
    link = a_link("shop/default", "till/other")
    assert decision(link, "shop").namespace == "shop"
    assert decision(link, "till").namespace == "till"


@pytest.mark.parametrize("namespace", ["payments", "default", "kube-system", "shop-2"])
def test_another_namespace_is_refused_with_the_grant_to_create(namespace: str) -> None:
    refused = refusal(SHOP, namespace)
    assert named(refused, f"namespace {namespace}", "SecretGrant", "namespace shop") is Reason.NAMESPACE_NOT_GRANTED


def test_a_link_without_groups_is_granted_nothing() -> None:
    assert refusal(a_link(), "shop").reason is Reason.NO_HOST_GROUPS


def test_a_grant_opens_the_namespace_that_it_stands_in_and_no_other() -> None:
    link = a_link("shop/default", grants=(a_grant("payments", serviceAccounts=["reader"]),))
    assert decision(link, "payments", "reader") == Identity(
        "system:serviceaccount:payments:reader", "payments", "SecretGrant payments/shop: serviceAccounts"
    )
    assert named(refusal(link, "ledger", "reader"), "namespace ledger") is Reason.NAMESPACE_NOT_GRANTED
    own = decision(link, "shop", "anybody")
    assert own.user == "system:serviceaccount:shop:anybody", "the own namespace stays open"


def test_an_account_without_a_grant_is_refused_with_the_field_to_edit() -> None:
    link = a_link("shop/default", grants=(a_grant("payments", serviceAccounts=["reader"]),))
    needs = ("SecretGrant payments/shop", "serviceAccounts")
    refused = refusal(link, "payments", "admin")
    assert named(refused, "ServiceAccount payments/admin", *needs) is Reason.ACCOUNT_NOT_GRANTED
    by_default = refusal(link, "payments")
    assert named(by_default, "ServiceAccount payments/wasmcloud-secrets", *needs) is Reason.ACCOUNT_NOT_GRANTED


def test_a_grant_may_have_any_account_but_no_user_by_that() -> None:
    link = a_link("shop/default", grants=(a_grant("payments", serviceAccounts=["*"]),))
    assert decision(link, "payments", "whoever").user == "system:serviceaccount:payments:whoever"
    for user in ("jane@example.com", "*"):
        assert named(refusal(link, "payments", user), user, "namespace payments") is Reason.USER_NOT_GRANTED


@pytest.mark.parametrize(
    ("source", "is_for"),
    [("shop", True), ("shop/default", True), ("shop/other", False), ("till", False), ("till/default", False)],
)
def test_a_grant_is_for_the_groups_that_it_names(source: str, is_for: bool) -> None:
    link = a_link("shop/default", grants=(a_grant("payments", source=source, serviceAccounts=["*"]),))
    if is_for:
        assert decision(link, "payments").namespace == "payments"
    else:
        assert refusal(link, "payments").reason is Reason.NAMESPACE_NOT_GRANTED


def test_lattices_on_one_link_share_what_one_of_them_is_granted() -> None:
    link = a_link("shop/a", "shop/b", grants=(a_grant("payments", source="shop/b", serviceAccounts=["*"]),))
    assert decision(link, "payments").namespace == "payments"


def test_a_grant_in_a_namespace_of_the_link_narrows_what_it_is_given_by_default() -> None:
    link = a_link("shop/default", grants=(a_grant("shop", serviceAccounts=["reader"]),))
    assert decision(link, "shop", "reader").rule == "SecretGrant shop/shop: serviceAccounts"
    refused = refusal(link, "shop", "admin")
    assert named(refused, "shop/admin", "SecretGrant shop/shop") is Reason.ACCOUNT_NOT_GRANTED


def test_a_grant_for_others_narrows_nothing() -> None:
    link = a_link("shop/default", grants=(a_grant("shop", source="till", serviceAccounts=["reader"]),))
    assert decision(link, "shop", "admin").user == "system:serviceaccount:shop:admin"


def test_a_grant_without_accounts_closes_the_namespace() -> None:
    link = a_link("shop/default", grants=(a_grant("shop", serviceAccounts=[]),))
    assert named(refusal(link, "shop", "reader"), "SecretGrant shop/shop") is Reason.ACCOUNT_NOT_GRANTED


def test_any_of_several_grants_permits_and_the_first_by_name_is_reported() -> None:
    grants = (
        a_grant("payments", "c", serviceAccounts=["one", "two"]),
        a_grant("payments", "b", serviceAccounts=["two"]),
        a_grant("payments", "a", source="till", serviceAccounts=["three"]),
    )
    link = a_link("shop/default", grants=grants)
    assert decision(link, "payments", "one").rule == "SecretGrant payments/c: serviceAccounts"
    assert decision(link, "payments", "two").rule == "SecretGrant payments/b: serviceAccounts"
    refused = refusal(link, "payments", "three")
    assert named(refused, "SecretGrant payments/b", "SecretGrant payments/c") is Reason.ACCOUNT_NOT_GRANTED
    assert "payments/a" not in refused.message


USERS = a_link("shop/default", grants=(a_grant("payments", users=["jane", "jane@example.com"]),))


@pytest.mark.parametrize("user", ["jane", "jane@example.com"])
def test_a_user_is_impersonated_as_it_is_if_both_lists_have_it(user: str) -> None:
    assert decision(USERS, "payments", user, users=frozenset({user})) == Identity(
        user, "payments", "SecretGrant payments/shop: users"
    )


def test_a_user_of_the_grant_alone_is_refused_and_the_platforms_list_is_named() -> None:
    refused = refusal(USERS, "payments", "jane", users=frozenset({"john"}))
    assert named(refused, "jane", "SecretGrant payments/shop", "TRELLIS_SECRETS_USERS") is Reason.USER_NOT_ALLOWED


def test_a_user_of_the_platforms_list_alone_is_refused_and_the_grant_is_named() -> None:
    refused = refusal(USERS, "payments", "john", users=frozenset({"john"}))
    assert named(refused, "john", "SecretGrant payments/shop", "TRELLIS_SECRETS_USERS") is Reason.USER_NOT_GRANTED


def test_a_user_of_one_list_alone_is_an_account_of_that_name_where_accounts_are_granted() -> None:
    """Otherwise the platform's list would change whom a namespace's policies mean."""
    link = a_link("shop/default", grants=(a_grant("payments", serviceAccounts=["*"]),))
    assert decision(link, "payments", "john", users=frozenset({"john"})).user == "system:serviceaccount:payments:john"
    assert decision(SHOP, "shop", "john", users=frozenset({"john"})).user == "system:serviceaccount:shop:john"


def test_a_user_needs_a_grant_also_in_ones_own_namespace() -> None:
    refused = refusal(SHOP, "shop", "jane@example.com", users=frozenset({"jane@example.com"}))
    assert named(refused, "SecretGrant", "namespace shop") is Reason.INVALID_ACCOUNT_NAME


def test_an_account_of_another_namespace_is_a_user_like_any_other() -> None:
    user = "system:serviceaccount:ops:reader"
    link = a_link("shop/default", grants=(a_grant("payments", users=[user]),))
    assert decision(link, "payments", user, users=frozenset({user})).user == user
    assert named(refusal(link, "payments", user), "TRELLIS_SECRETS_USERS") is Reason.USER_NOT_ALLOWED


def test_the_account_by_default_is_never_taken_for_a_user() -> None:
    name = "wasmcloud-secrets"
    link = a_link("shop/default", grants=(a_grant("payments", users=[name], serviceAccounts=["*"]),))
    assert decision(link, "payments", users=frozenset({name})).user == f"system:serviceaccount:payments:{name}"
    assert decision(link, "payments", name, users=frozenset({name})).user == name


def test_only_entities_of_the_issuers_that_a_grant_names_are_let_through() -> None:
    link = a_link("shop/default", grants=(a_grant("payments", serviceAccounts=["*"], entityIssuers=[ISSUER]),))
    assert decision(link, "payments").namespace == "payments"
    foreign = Token(issuer=OTHER_ISSUER, subject=ENTITY.subject, name=None)
    refused = refusal(link, "payments", entity=foreign)
    assert named(refused, OTHER_ISSUER, "entityIssuers", "SecretGrant payments/shop") is Reason.ISSUER_NOT_GRANTED


def test_issuers_count_for_users_too() -> None:
    link = a_link("shop/default", grants=(a_grant("payments", users=["jane"], entityIssuers=[ISSUER]),))
    foreign = Token(issuer=OTHER_ISSUER, subject=ENTITY.subject, name=None)
    assert decision(link, "payments", "jane", users=frozenset({"jane"})).user == "jane"
    refused = refusal(link, "payments", "jane", users=frozenset({"jane"}), entity=foreign)
    assert refused.reason is Reason.ISSUER_NOT_GRANTED


def test_each_grant_has_issuers_of_its_own() -> None:
    grants = (
        a_grant("payments", "a", serviceAccounts=["one"], entityIssuers=[ISSUER]),
        a_grant("payments", "b", serviceAccounts=["two"], entityIssuers=[OTHER_ISSUER]),
    )
    link = a_link("shop/default", grants=grants)
    assert decision(link, "payments", "one").rule.startswith("SecretGrant payments/a")
    refused = refusal(link, "payments", "two")
    assert named(refused, "payments/two", "SecretGrant payments/a") is Reason.ACCOUNT_NOT_GRANTED


@pytest.mark.parametrize("spec", [None, {}, {"from": "shop"}, {"from": [{"namespace": "shop"}], "users": [1]}])
def test_a_grant_that_cannot_be_read_closes_its_namespace_rather_than_open_it(spec: Any) -> None:
    unreadable = view_grant({"metadata": {"namespace": "shop", "name": "odd"}, "spec": spec})
    link = a_link("shop/default", grants=(unreadable,))
    assert named(refusal(link, "shop"), "SecretGrant shop/odd") is Reason.GRANT_INVALID
    readable = a_link("shop/default", grants=(unreadable, a_grant("shop", serviceAccounts=["*"])))
    assert decision(readable, "shop").rule == "SecretGrant shop/shop: serviceAccounts"


def test_no_message_grows_with_the_number_of_grants() -> None:
    grants = tuple(a_grant("payments", f"g{number}", serviceAccounts=["reader"]) for number in range(100))
    assert refusal(a_link("shop/default", grants=grants), "payments", "x").message.count("SecretGrant") == 3
    many = a_link(*(f"n{number}/default" for number in range(100)))
    assert refusal(many, "payments").message.count("n") < 40
