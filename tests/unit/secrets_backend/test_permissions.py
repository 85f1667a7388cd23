"""The command that grants a missing permission."""

from __future__ import annotations

import pytest

from secrets_backend.domain.decide import Identity
from secrets_backend.permissions import roles_hint


@pytest.mark.parametrize(
    ("user", "who"),
    [
        ("system:serviceaccount:shop:reader", "-a reader"),
        ("system:serviceaccount:ops:reader", "--user system:serviceaccount:ops:reader"),
        ("jane", "--user jane"),
        ("https://login.example.com#jane", "--user 'https://login.example.com#jane'"),
    ],
)
def test_a_missing_permission_is_granted_by_one_command(user: str, who: str) -> None:
    hint = roles_hint(Identity(user, "shop", ""), "db")
    assert hint == f"`trellis secrets roles -n shop {who} -s db | kubectl apply -f -`"


def test_permissions_never_suggest_to_impersonate_a_system_user() -> None:
    hint = roles_hint(Identity("system:admin", "shop", ""))
    assert "ClusterRole" in hint
    assert "`" not in hint
