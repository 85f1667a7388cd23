"""Data that a tenant nests too deep is refused and affects no other tenant."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from support.guests.controllers_world import CONFIG_MAPS, Host, Tenant, prebuilt, until

pytestmark = [pytest.mark.cluster, pytest.mark.nats, pytest.mark.thorough]


@pytest.fixture
def deep() -> Iterator[None]:
    """Let this process write JSON as deep as the API server takes it."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(40_000)
    yield
    sys.setrecursionlimit(before)


def nested(levels: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for _ in range(levels):
        found = {"a": found}
    return found


@pytest.mark.usefixtures("deep")
@pytest.mark.parametrize("levels", [300, 5000], ids=["deeper than is written", "deeper than is read"])
async def test_a_spec_that_is_nested_too_deep_is_refused_and_others_are_served(
    host: Host, tenant: Tenant, target: Tenant, levels: int
) -> None:
    for item in (tenant, target):
        item.account("mirror", CONFIG_MAPS)
        item.module("mirror", prebuilt("mirror"))
    tenant.controller("listed", "mirror", serviceAccountName="mirror", config=nested(levels))
    async with host.serving():
        target.controller("mirror", config={"targetNamespace": target.name})
        await until(lambda: target.condition("mirror", "Ready") == ("True", "Running"), "served beside what is listed")
        tenant.controller("watched", "mirror", serviceAccountName="mirror", config=nested(levels))
        target.controller("later", "mirror", serviceAccountName="mirror", config={"targetNamespace": target.name})
        await until(lambda: target.condition("later", "Ready") == ("True", "Running"), "served beside what is watched")
        refused = ("False", "InvalidSpec")
        await until(lambda: tenant.condition("listed", "Accepted") == refused, "its author is told")
        await until(lambda: tenant.condition("watched", "Accepted") == refused, "its author is told")
