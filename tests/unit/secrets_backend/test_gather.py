"""The grant of a lattice connection: from its groups, its account's other connections, and SecretGrants for them."""

from __future__ import annotations

import pytest

from secrets_backend.domain.decide import Grant
from secrets_backend.gather import Cache
from trellis.crds.secret_grants import SecretGrantSpec
from trellis.lattice.connection.address import NatsAddress
from trellis.lattice.domain.group_views import GroupView, view_group

ONE, TWO, THREE = (NatsAddress(f"nats://{name}:4222") for name in ("one", "two", "three"))


def group(namespace: str, lattice: str = "default") -> GroupView:
    metadata = {"namespace": namespace, "name": "group", "uid": namespace}
    return view_group({"metadata": metadata, "spec": {"lattice": lattice, "version": "1.9.2"}})


def grant(namespace: str, source: str) -> Grant:
    spec = SecretGrantSpec.model_validate({"from": [{"namespace": source}], "serviceAccounts": ["*"]})
    return Grant(namespace, "grant", spec)


@pytest.fixture
def cache() -> Cache:
    groups = {f"{name}/group": group(name) for name in ("shop", "bank", "zoo")}
    made = Cache(groups, {"vault/grant": grant("vault", "shop"), "safe/grant": grant("safe", "zoo")})
    made.addresses = {"shop/group": ONE, "bank/group": TWO, "zoo/group": THREE}
    return made


def homes(cache: Cache, address: NatsAddress) -> set[str]:
    return set(cache.connection_grant(address).home)


def test_a_link_of_which_nothing_is_known_stands_for_itself(cache: Cache) -> None:
    assert homes(cache, ONE) == {"shop"}
    assert cache.connection_grant(ONE).groups == {("shop", "default")}


def test_links_of_one_account_share_what_they_have_and_others_do_not(cache: Cache) -> None:
    assert homes(cache, ONE) == {"shop"}
    cache.record_account(ONE, TWO, yes=True)
    cache.record_account(THREE, TWO, yes=False)
    assert homes(cache, ONE) == homes(cache, TWO) == {"shop", "bank"}
    assert homes(cache, THREE) == {"zoo"}


def test_links_that_are_no_more_one_account_share_nothing_any_more(cache: Cache) -> None:
    for yes in (True, True, False):
        cache.record_account(ONE, TWO, yes=yes)
        assert homes(cache, ONE) == ({"shop", "bank"} if yes else {"shop"})


def test_a_closed_connection_shares_nothing(cache: Cache) -> None:
    cache.record_account(ONE, TWO, yes=True)
    assert homes(cache, ONE) == {"shop", "bank"}
    cache.connection_removed(TWO)
    assert homes(cache, ONE) == {"shop"}


def test_only_the_secret_grants_for_its_groups_are_a_links(cache: Cache) -> None:
    assert [item.namespace for item in cache.connection_grant(ONE).grants] == ["vault"]
    assert [item.namespace for item in cache.connection_grant(TWO).grants] == []


def test_a_link_is_granted_nothing_while_secret_grants_cannot_be_listed(cache: Cache) -> None:
    listed = True
    cache.grants_known = lambda: listed
    assert cache.connection_grant(ONE).known
    listed = False
    assert not cache.connection_grant(ONE).known
    listed = True
    assert cache.connection_grant(ONE).known


def test_host_groups_and_secret_grants_need_each_other(cache: Cache) -> None:
    assert cache.needs_groups() is not None
    assert cache.needs_grants() is not None
    nothing = Cache({}, {})
    assert nothing.needs_groups() is None
    assert nothing.needs_grants() is None


def test_grants_are_whole_once_every_group_was_looked_for_and_every_link_tried(cache: Cache) -> None:
    cache.seen = {"shop/group", "bank/group"}
    cache.tried = {ONE, TWO, THREE}
    assert not cache.settled()
    cache.seen.add("zoo/group")
    assert cache.settled()
    cache.connection_removed(THREE)
    assert not cache.settled()
