"""The status of a SecretGrant: what keeps it from having an effect, and when it is written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from secrets_backend.domain.decide import Grant, view_grant
from secrets_backend.domain.grant_status import Access, Reason, health_of, status_of
from secrets_backend.gather import Cache
from secrets_backend.grant_statuses import GrantStatuses
from secrets_backend.timings import Timings
from trellis.crds.conditions import MESSAGE_MAX, State, Verdict
from trellis.crds.secret_grants import SecretGrant
from trellis.kube.changes import Change, ChangeKind
from trellis.kube.resources import NAMESPACES, SECRET_GRANTS, SERVICE_ACCOUNTS
from trellis.kube.transport import HttpRequest, Reply
from trellis.lattice.domain.group_views import GroupView, view_group
from trellis_dev.fakes.fake import FakeKube, status_reply

NOW = "2026-01-01T00:00:00Z"
SPEC: dict[str, Any] = {"from": [{"namespace": "shop", "lattice": "default"}], "serviceAccounts": ["reader"]}
GROUPS = frozenset({("shop", "default"), ("shop", "test")})
RECHECK, CONFIRM = Timings().recheck, Timings().confirm


def a_grant(spec: Any = SPEC) -> dict[str, Any]:
    metadata = {"namespace": "vault", "name": "grant", "uid": "u1", "generation": 3}
    return {"apiVersion": "trellis.dev/v1alpha1", "kind": "SecretGrant", "metadata": metadata, "spec": spec}


def judged(status: dict[str, Any]) -> tuple[State, str]:
    """Return the health of a status, which has to be one that the schema takes."""
    SecretGrant.model_validate({"spec": SPEC, "status": status})
    summed = {"Ready", "Reconciling", "Stalled"}
    own = [condition for condition in status["conditions"] if condition["type"] not in summed]
    health = health_of(Verdict(item["type"], item["status"], item["reason"], item["message"]) for item in own)
    ready = status["conditions"][0]
    assert (ready["type"], ready["reason"], ready["observedGeneration"]) == ("Ready", health.reason, 3)
    assert all(
        len(condition["message"]) <= MESSAGE_MAX for condition in status["conditions"] if condition["type"] in summed
    )
    return health.state, health.reason


@pytest.mark.parametrize(
    ("spec", "groups", "accounts", "expected"),
    [
        pytest.param(SPEC, GROUPS, [Access("a")], (State.READY, "AccountsUsable"), id="in effect"),
        pytest.param({}, GROUPS, [], (State.STALLED, "InvalidSpec"), id="invalid"),
        pytest.param(SPEC, frozenset(), [Access("a")], (State.RECONCILING, "HostGroupMissing"), id="no host group"),
        pytest.param(
            SPEC, frozenset({("shop", "test")}), [Access("a")], (State.RECONCILING, "HostGroupMissing"), id="no lattice"
        ),
        pytest.param(
            SPEC | {"from": [{"namespace": "shop"}]},
            frozenset({("shop", "test")}),
            [Access("a")],
            (State.READY, "AccountsUsable"),
            id="any lattice",
        ),
        pytest.param(SPEC | {"serviceAccounts": []}, GROUPS, [], (State.READY, "NoAccounts"), id="denies all"),
        pytest.param(
            SPEC, GROUPS, [Access("a", Reason.NO_ACCOUNT)], (State.RECONCILING, "ServiceAccountMissing"), id="missing"
        ),
        pytest.param(
            SPEC,
            GROUPS,
            [Access("a"), Access("b", Reason.NOT_PERMITTED)],
            (State.RECONCILING, "ImpersonationNotPermitted"),
            id="not permitted",
        ),
        pytest.param(
            SPEC, GROUPS, [Access("a", Reason.NOT_ALLOWED)], (State.STALLED, "UserNotAllowed"), id="user not listed"
        ),
        pytest.param(
            SPEC, GROUPS, [Access("a", Reason.NOT_CHECKED)], (State.UNKNOWN, "AccessNotChecked"), id="not checked"
        ),
    ],
)
def test_the_reason_that_a_grant_has_no_effect_is_reported(
    spec: dict[str, Any], groups: frozenset[tuple[str, str]], accounts: list[Access], expected: tuple[State, str]
) -> None:
    assert judged(status_of(view_grant(a_grant(spec)), groups, accounts, {}, (3, NOW))) == expected


class World:
    """One SecretGrant and one host group.

    ``permitted``: users and accounts that the service may impersonate; ``refused``: part of a request that is refused.
    """

    def __init__(self, spec: dict[str, Any] = SPEC) -> None:
        self.kube = FakeKube()
        self.kube.put(NAMESPACES, {"metadata": {"name": "vault"}})
        self.kube.put(SECRET_GRANTS, a_grant(spec))
        self.group = view_group(
            {
                "metadata": {"namespace": "shop", "name": "group", "uid": "1"},
                "spec": {"lattice": "default", "version": "1.9.2"},
            }
        )
        self.cache = Cache({"shop/group": self.group}, {"vault/grant": view_grant(a_grant(spec))})
        self.permitted: set[str] = set()
        self.refused = ""
        self.queued: list[str] = []
        self.statuses = GrantStatuses(
            self.kube,
            self.cache,
            self.kube.health,
            frozenset({"jane"}),
            self.queued.append,
            clock=lambda: datetime(2026, 1, 1, tzinfo=UTC),
        )

    def _answer(self, request: HttpRequest) -> Reply | None:
        if self.refused and self.refused in f"{request.method} {request.path}":
            return status_reply(403, "Forbidden", "no")
        if not request.path.endswith("selfsubjectaccessreviews"):
            return None
        requested = json.loads(request.body or b"")["spec"]["resourceAttributes"]
        assert requested["verb"] == "impersonate"
        return Reply(200, json.dumps({"status": {"allowed": requested["name"] in self.permitted}}).encode(), {})

    async def run(self) -> tuple[float | None, str]:
        """Run the key once; return when it is due again and the reason of Ready."""
        self.kube.api.fault = self._answer
        again = await self.statuses.run("vault/grant", None)
        status = (await self.kube.get(SECRET_GRANTS, "grant", "vault")).get("status") or {}
        return again, next((condition["reason"] for condition in status.get("conditions") or ()), "")

    def writes(self) -> int:
        return sum(request.method == "PATCH" for request in self.kube.writes)


async def test_a_grant_comes_into_effect_step_by_step() -> None:
    world = World()
    assert await world.run() == (RECHECK, "ServiceAccountMissing")
    world.kube.put(SERVICE_ACCOUNTS, {"metadata": {"namespace": "vault", "name": "reader"}})
    assert await world.run() == (RECHECK, "ImpersonationNotPermitted")
    world.permitted.add("reader")
    assert await world.run() == (CONFIRM, "AccountsUsable")
    written = world.writes()
    assert await world.run() == (CONFIRM, "AccountsUsable")
    assert world.writes() == written, "no news, no write: the other replicas have nothing to write either"


async def test_a_grant_in_effect_follows_its_accounts_and_its_host_group() -> None:
    world = World()
    reader = {"metadata": {"namespace": "vault", "name": "reader"}}
    world.kube.put(SERVICE_ACCOUNTS, reader)
    world.permitted.add("reader")
    assert await world.run() == (CONFIRM, "AccountsUsable")
    world.permitted.clear()
    assert await world.run() == (RECHECK, "ImpersonationNotPermitted")
    world.permitted.add("reader")
    world.kube.remove(SERVICE_ACCOUNTS, "reader", "vault")
    assert await world.run() == (RECHECK, "ServiceAccountMissing")
    world.kube.put(SERVICE_ACCOUNTS, reader)
    world.cache.groups.clear()
    assert (await world.run())[1] == "HostGroupMissing"


async def test_a_grant_that_names_no_account_needs_no_further_check() -> None:
    for accounts in (["*"], []):
        world = World({"from": [{"namespace": "shop"}], "serviceAccounts": accounts})
        assert (await world.run())[0] is None


async def test_a_user_has_to_be_in_the_setting_and_may_be_a_service_account() -> None:
    world = World({"from": [{"namespace": "shop"}], "users": ["jane"]})
    assert (await world.run())[1] == "ImpersonationNotPermitted"
    world.permitted.add("jane")
    assert (await world.run())[1] == "AccountsUsable"
    assert (await World({"from": [{"namespace": "shop"}], "users": ["joe"]}).run())[1] == "UserNotAllowed"


async def test_an_unreadable_account_is_unknown_and_a_forbidden_write_changes_no_readiness() -> None:
    world = World()
    world.refused = "/serviceaccounts/reader"
    assert (await world.run())[1] == "AccessNotChecked"
    world.refused = "PATCH"
    assert (await world.run())[0] == RECHECK
    assert world.kube.health.notes()
    world.refused = ""
    assert (await world.run())[1] == "ServiceAccountMissing"
    assert not world.kube.health.notes()


async def test_nothing_is_written_while_grants_are_unknown_or_deleted() -> None:
    world = World()
    world.cache.grants_known = lambda: False
    assert await world.run() == (RECHECK, "")
    world.cache.grants_known = lambda: True
    world.cache.grants.clear()
    assert await world.run() == (None, "")
    assert world.writes() == 0


@contextmanager
def queued(world: World, count: int) -> Iterator[None]:
    before = len(world.queued)
    yield
    assert len(world.queued) == before + count


def test_a_grant_is_checked_when_it_or_a_host_group_of_its_namespaces_changes() -> None:
    world = World()
    grant = world.cache.grants["vault/grant"]
    moved = view_group(
        {
            "metadata": {"namespace": "shop", "name": "group", "uid": "1"},
            "spec": {"lattice": "test", "version": "1.9.2"},
        }
    )

    def group(key: str, old: GroupView | None, new: GroupView | None) -> None:
        world.statuses.on_group(Change(ChangeKind.MODIFIED, key, old, new))

    def changed(old: Grant | None, new: Grant | None) -> None:
        world.statuses.on_grant(Change(ChangeKind.MODIFIED, "vault/grant", old, new))

    with queued(world, 1):
        changed(None, grant)
    with queued(world, 0):
        changed(grant, None)
    for old, new in ((None, world.group), (world.group, None), (world.group, moved)):
        with queued(world, 1):
            group("shop/group", old, new)
    with queued(world, 0):
        group("shop/group", world.group, world.group)
    with queued(world, 0):
        group("zoo/group", None, world.group)
