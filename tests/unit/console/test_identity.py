"""Identities of viewers: the owner of a token, or a user that a proxy names; never a header alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.access.identity import Proxy, Viewer, by_proxy, by_token, token_of
from console.http.refusals import RefusedError

SECRET = b"s" * 40
PROXY = Proxy("X-Forwarded-User", "X-Forwarded-Groups", SECRET)


def headers(user: str = "jane", groups: str = "dev", secret: str = SECRET.decode()) -> dict[str, Sequence[str]]:
    return {"x-forwarded-user": [user], "x-forwarded-groups": [groups], "x-trellis-proxy-secret": [secret]}


def test_the_proxy_names_a_viewer_and_their_groups() -> None:
    viewer = by_proxy(PROXY, headers("jane", "dev, ops,dev"))
    assert (viewer.user, viewer.groups, viewer.token) == ("jane", ("dev", "ops"), "")


@pytest.mark.parametrize(
    "without",
    [
        headers(secret="x" * 40),
        headers(secret=""),
        {"x-forwarded-user": ["jane"]},
        headers() | {"x-trellis-proxy-secret": [SECRET.decode(), SECRET.decode()]},
        headers(secret=SECRET.decode() + "s"),
        headers(secret="\udcff" * 40),
    ],
    ids=["wrong secret", "empty secret", "no secret", "two secrets", "longer secret", "bytes that are no text"],
)
def test_a_header_without_the_proxys_secret_is_no_identity(without: Mapping[str, Sequence[str]]) -> None:
    with pytest.raises(RefusedError) as refused:
        by_proxy(PROXY, without)
    assert refused.value.status == 403
    assert "jane" not in refused.value.what


def test_a_proxy_without_a_secret_is_believed_by_its_certificate_alone() -> None:
    proxy = Proxy("X-Forwarded-User", "X-Forwarded-Groups", names=frozenset({"front"}))
    assert by_proxy(proxy, headers(), frozenset({"front", "other"})).user == "jane"
    for certificate in (frozenset[str](), frozenset({"other"})):
        with pytest.raises(RefusedError):
            by_proxy(proxy, headers(secret=""), certificate)


@pytest.mark.parametrize(
    ("user", "groups"), [("system:admin", "dev"), ("jane", "dev,system:masters"), ("system:serviceaccount:a:b", "")]
)
def test_system_identities_are_refused_unless_a_setting_permits_them(user: str, groups: str) -> None:
    with pytest.raises(RefusedError, match="system:"):
        by_proxy(PROXY, headers(user, groups))
    allowed = Proxy("X-Forwarded-User", "X-Forwarded-Groups", SECRET, system=True)
    assert by_proxy(allowed, headers(user, groups)).user == user


@pytest.mark.parametrize("user", ["", " ", "a\nb", "a\x00b", "x" * 2000])
def test_a_name_that_is_none_is_refused(user: str) -> None:
    with pytest.raises(RefusedError):
        by_proxy(PROXY, headers(user))


def test_two_users_are_one_too_many() -> None:
    with pytest.raises(RefusedError):
        by_proxy(PROXY, headers() | {"x-forwarded-user": ["jane", "root"]})


NAMES = st.lists(st.text("abc,:\u00e9", min_size=1, max_size=4).filter(str.strip), max_size=4)


@given(NAMES, NAMES)
def test_two_viewers_are_equal_only_if_the_api_server_cannot_distinguish_them(one: list[str], two: list[str]) -> None:
    def of(names: list[str]) -> Viewer:
        user, *groups = names or ["u"]
        return by_proxy(PROXY, headers("u" + user) | {"x-forwarded-groups": ["g" + g for g in groups]})

    first, second = of(one), of(two)
    assert (first.key == second.key) == ((first.user, first.groups) == (second.user, second.groups))


@pytest.mark.parametrize("given_text", ["", "  ", "a b", "a\nb", "tök", "x" * 20_000, None, 7, ["a"]])
def test_text_that_cannot_be_a_token_is_not_sent_anywhere(given_text: object) -> None:
    with pytest.raises(RefusedError):
        token_of(given_text)


def test_a_token_is_taken_as_it_is_copied() -> None:
    assert token_of("  Bearer abc.def-_~+/= \n") == "abc.def-_~+/="


@pytest.mark.parametrize("review", [{}, {"status": {"userInfo": {"username": "system:anonymous"}}}])
def test_an_invalid_token_is_refused(review: dict[str, object]) -> None:
    with pytest.raises(RefusedError) as refused:
        by_token("t", review)
    assert refused.value.status == 401


def test_a_token_is_in_nothing_that_is_shown() -> None:
    viewer = by_token("s3cret-token", {"status": {"userInfo": {"username": "jane", "groups": ["b", "a"]}}})
    assert "s3cret-token" not in repr(viewer)
    assert "s3cret-token" not in viewer.key
    assert viewer.groups == ("a", "b")
