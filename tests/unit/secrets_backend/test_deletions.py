"""When the deletion of a SecretGrant takes effect: once its CRD is known to stand, and to be the same one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from secrets_backend.deletions import GRANT_DEFINITION, GrantDeletions
from secrets_backend.domain.decide import Grant
from secrets_backend.gather import Cache
from secrets_backend.timings import Timings
from trellis import names
from trellis.crds.secret_grants import SecretGrantSpec
from trellis.kube.changes import Change, ChangeKind
from trellis.kube.errors import Call, Unavailable
from trellis.kube.resources import DEFINITIONS, SECRETS, Resource
from trellis.lattice.connection.address import NatsAddress
from trellis.lattice.domain.group_views import view_group
from trellis_dev.fakes.fake import FakeKube

LINK = NatsAddress("nats://one:4222")
GRANT = Grant(
    "shop", "closes", SecretGrantSpec.model_validate({"from": [{"namespace": "shop"}], "serviceAccounts": []})
)
GRACE = 300.0
WALL = 1_800_000_000.0
READ_KEY = Call("GET", "Secret", "secrets", "default", names.SECRETS_KEY)


class World:
    """One group, one SecretGrant for it, and the CRD."""

    def __init__(self) -> None:
        self.kube = FakeKube()
        self.now = 0.0
        self.grants = {"shop/closes": GRANT}
        spec = {"lattice": "default", "version": "1.9.2"}
        group = view_group({"metadata": {"namespace": "shop", "name": "group", "uid": "1"}, "spec": spec})
        self.cache = Cache({"shop/group": group}, self.grants, {"shop/group": LINK})
        timings = Timings(definition=5.0, grants=GRACE)
        self.deletions = GrantDeletions(
            self.kube,
            self.cache,
            self.kube.health,
            timings,
            "default",
            clock=lambda: self.now,
            wall=lambda: WALL + self.now,
        )

    async def define(self) -> dict[str, Any]:
        manifest = {"apiVersion": DEFINITIONS.api_version, "kind": DEFINITIONS.kind, "spec": {}}
        return await self.kube.create(DEFINITIONS, manifest | {"metadata": {"name": GRANT_DEFINITION}})

    def stands_since(self, seconds: float, key: float | None) -> None:
        """Have a CRD of that age, and a key of that age from an earlier start; None for none."""
        self.kube.put(DEFINITIONS, {"metadata": {"name": GRANT_DEFINITION}})
        self.set_age(DEFINITIONS, seconds)
        if key is not None:
            self.kube.put(SECRETS, {"metadata": {"name": names.SECRETS_KEY, "namespace": "default"}})
            self.set_age(SECRETS, key)

    def set_age(self, res: Resource, seconds: float) -> None:
        """Have the objects of a kind created so many seconds ago."""
        at = f"{datetime.fromtimestamp(WALL - seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"
        for item in self.kube.api.store.tables[res].objects.values():
            item["metadata"]["creationTimestamp"] = at

    async def undefine(self, made: dict[str, Any]) -> None:
        await self.kube.delete(DEFINITIONS, GRANT_DEFINITION, uid=made["metadata"]["uid"])

    def lose(self) -> None:
        self.grants.clear()
        self.deletions.take(Change(ChangeKind.DELETED, "shop/closes", GRANT, None))

    def write(self) -> None:
        self.grants["shop/closes"] = GRANT
        self.deletions.take(Change(ChangeKind.ADDED, "shop/closes", None, GRANT))

    @property
    def unsure(self) -> set[str]:
        return set(self.cache.connection_grant(LINK).unsure)


@pytest.fixture
async def world() -> World:
    return World()


async def test_a_deletion_takes_effect_when_a_later_read_shows_that_the_crd_stands(world: World) -> None:
    await world.define()
    assert not world.deletions.stands
    assert await world.deletions.look() is None
    assert world.deletions.stands
    world.lose()
    assert world.unsure == {"shop"}
    assert await world.deletions.look() is None
    assert world.unsure == set()


async def test_a_grant_that_is_deleted_while_the_crd_is_read_waits_for_the_next_read(world: World) -> None:
    await world.define()
    await world.deletions.look()
    get = world.kube.get

    async def lose_and_get(*arguments: Any, **options: Any) -> Any:
        found = await get(*arguments, **options)
        world.lose()
        return found

    world.kube.get = lose_and_get  # type: ignore[method-assign]
    await world.deletions.look()
    assert world.unsure == {"shop"}
    world.kube.get = get  # type: ignore[method-assign]
    await world.deletions.look()
    assert world.unsure == set()


async def test_grants_that_went_with_their_crd_close_their_namespaces_for_a_grace(world: World) -> None:
    made = await world.define()
    await world.deletions.look()
    await world.undefine(made)
    world.lose()
    assert await world.deletions.look() == 5.0
    assert not world.deletions.stands
    assert not world.kube.health.readiness().ok
    await world.define()
    assert await world.deletions.look() == GRACE
    assert world.deletions.stands
    assert world.kube.health.readiness().ok
    assert world.unsure == {"shop"}
    world.now = GRACE
    assert await world.deletions.look() is None
    assert world.unsure == set()


async def test_a_crd_that_was_replaced_between_two_reads_counts_as_deleted(world: World) -> None:
    made = await world.define()
    await world.deletions.look()
    await world.undefine(made)
    await world.define()
    world.lose()
    assert await world.deletions.look() == GRACE
    assert world.unsure == {"shop"}


async def test_a_grant_that_is_created_again_counts_at_once(world: World) -> None:
    await world.define()
    await world.deletions.look()
    world.lose()
    world.write()
    assert world.unsure == set()
    assert world.cache.connection_grant(LINK).grants == (GRANT,)


@pytest.mark.parametrize("ago", [100.0, -50.0], ids=["by this clock", "in the future of this clock"])
async def test_a_start_after_the_crd_was_created_again_closes_namespaces_without_a_grant(
    world: World, ago: float
) -> None:
    """The former grants are unknown to this process; the key is older, so there was a backend."""
    world.stands_since(ago, key=7000.0)
    world.grants.clear()
    wait = await world.deletions.look()
    assert wait == GRACE - max(ago, 0.0)
    assert world.deletions.stands
    assert world.unsure == {"shop"}
    assert world.kube.health.readiness().ok
    assert any(GRANT_DEFINITION in note for note in world.kube.health.notes())
    world.write()
    assert world.unsure == set(), "a grant that was created again counts at once"
    world.lose()
    assert world.unsure == {"shop"}
    world.now = wait
    assert await world.deletions.look() is None
    assert world.unsure == set()
    assert not world.kube.health.notes()


@pytest.mark.parametrize(
    ("crd", "key"), [(100.0, None), (100.0, 99.0), (100.0, 100.0), (GRACE, 7000.0)],
    ids=["first start", "key made after the CRD", "key made in the same second", "CRD is an old one"],
)  # fmt: skip
async def test_a_start_beside_a_crd_that_was_not_created_again_closes_nothing(
    world: World, crd: float, key: float | None
) -> None:
    world.stands_since(crd, key=key)
    world.grants.clear()
    assert await world.deletions.look() is None
    assert world.deletions.stands
    assert world.unsure == set()


async def test_a_key_that_cannot_be_read_leaves_grants_unknown(world: World) -> None:
    world.stands_since(100.0, key=7000.0)
    world.grants.clear()
    get = world.kube.get

    async def refuse(res: Any, *arguments: Any, **options: Any) -> Any:
        if res is SECRETS:
            raise Unavailable(READ_KEY, status=0, reason="Unavailable", message="no answer")
        return await get(res, *arguments, **options)

    world.kube.get = refuse  # type: ignore[method-assign]
    assert await world.deletions.look() == 5.0
    assert not world.deletions.stands
    world.kube.get = get  # type: ignore[method-assign]
    assert await world.deletions.look() == 200.0
    assert world.unsure == {"shop"}
