"""Access reviews: sent as the viewer, cached for a while, never more than the API server grants."""

from __future__ import annotations

import asyncio

import pytest

from console.access.permissions import GROUP, MESSAGES, TRACES, Permission, ReviewedPermissions, lattice_permission
from console.domain.limits import PERMISSIONS_KEPT
from console.timings import Timings
from support.console.viewers import Users, may
from trellis_dev.fakes.fake import FakeKube


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def world(*rules: object) -> tuple[ReviewedPermissions, Users, FakeKube, Clock]:
    kube, clock = FakeKube(), Clock()
    users = Users({"t": ("dev", ())}, list(rules))  # type: ignore[arg-type]
    kube.api.fault = users
    return ReviewedPermissions(kube.with_token("t"), clock=clock), users, kube, clock


NODE, POD = Permission("", "nodes", "", "n1"), Permission("", "pods", "team", "p")


@pytest.mark.parametrize(
    ("rule", "permission", "allowed"),
    [
        (may("dev"), NODE, True),
        (may("dev", "pods"), NODE, False),
        (may("dev", "pods", "team"), POD, True),
        (may("dev", "pods", "other"), POD, False),
        (may("dev", "pods", "team", name="p"), POD, True),
        (may("dev", "pods", "team", name="q"), POD, False),
        (may("dev", "pods", verbs="list,watch"), POD, False),
        (may("dev", f"lattices.{GROUP}", name="prod"), lattice_permission("prod"), True),
        (may("dev", f"lattices.{GROUP}", name="prod"), lattice_permission("test"), False),
        (may("dev", f"traces.{GROUP}"), TRACES, True),
        (may("dev", f"traces.{GROUP}"), MESSAGES, False),
        (may("somebody"), NODE, False),
    ],
)
async def test_a_viewer_may_see_objects_that_they_may_get(rule: object, permission: Permission, allowed: bool) -> None:
    permissions, *_ = world(rule)
    assert await permissions.allowed(permission) is allowed


async def test_a_viewer_with_cluster_wide_permission_is_reviewed_once() -> None:
    permissions, users, *_ = world(may("dev"))
    assert all([await permissions.allowed(Permission("", "pods", "team", f"p{number}")) for number in range(50)])
    assert len(users.seen) == 1


async def test_an_answer_is_believed_for_some_seconds_and_no_longer() -> None:
    permissions, users, _, clock = world(may("dev"))
    assert await permissions.allowed(NODE)
    users.rules.clear()
    clock.now += Timings().permissions - 0.1
    assert await permissions.allowed(NODE)
    clock.now += 0.2
    assert not await permissions.allowed(NODE)
    users.rules.append(may("dev"))
    clock.now += Timings().permissions
    assert await permissions.allowed(NODE)


async def test_an_api_server_that_does_not_answer_allows_nothing_and_is_asked_again() -> None:
    permissions, users, kube, _ = world(may("dev"))
    kube.fail_next(100)
    assert not await permissions.allowed(NODE)
    kube.api.fault = users
    assert await permissions.allowed(NODE)


async def test_concurrent_reviews_share_a_request() -> None:
    permissions, users, *_ = world(may("dev"))
    assert all(await asyncio.gather(*(permissions.allowed(NODE) for _ in range(20))))
    assert len(users.seen) == 1


async def test_cached_permissions_are_bounded() -> None:
    permissions, *_ = world()
    for number in range(PERMISSIONS_KEPT + 50):
        await permissions.allowed(Permission("", "nodes", "", f"n{number}"))
    assert len(permissions._known) <= PERMISSIONS_KEPT
