"""The Secrets that each host was given, and changes of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from secrets_backend.changes import MOST_HOLDERS, MOST_SECRETS, MOST_VERSIONS, Changes
from secrets_backend.timings import Timings
from trellis.bus.bus import Bus, BusUnavailable
from trellis.events.secrets import SecretChanged, SecretGranted
from trellis.kube.client import Kube
from trellis.kube.errors import Call, NotFound
from trellis.telemetry import Metrics, setup

QUICK = Timings(changes=0.01)
GROUPS = [("shop", "default")]


class World:
    """A Secret ``shop/db`` in some version, a bus, and what was given."""

    def __init__(self) -> None:
        self.version: tuple[str, str] | None = ("u", "1")
        self.events: list[tuple[SecretChanged, str]] = []
        self.unavailable = False
        self.looks = 0
        self.changes = Changes(
            cast("Kube", self), cast("Bus", self), setup("secrets_backend", metrics=Metrics()), QUICK
        )

    def acting_as(self, user: str) -> World:
        assert user == "reader"
        return self

    async def get(self, _: object, name: str, namespace: str, *, metadata: bool, **__: object) -> Any:
        assert metadata, "the values are nothing to us"
        place = (namespace, name)
        self.looks += 1
        if self.version is None:
            raise NotFound(Call("GET", "Secret", "secrets", *place), status=404, reason="NotFound", message="none")
        return {"metadata": {"uid": self.version[0], "resourceVersion": self.version[1]}}

    async def publish(self, event: SecretChanged, *, dedup: str) -> None:
        if self.unavailable:
            raise BusUnavailable("away")
        self.events.append((event, dedup))

    def give(self, host: str = "N1", version: str = "1", application: str | None = "app", name: str = "db") -> None:
        about = {"namespace": "shop", "name": name, "field": "f", "entity": "M", "issuer": "A", "backend": "kube"}
        event = SecretGranted(
            **about, host=host, application=application, user="reader", uid="u", resource_version=version, rule="r"
        )
        self.changes.remember(event, GROUPS)

    async def look(self, times: int = 2) -> None:
        """Wait until everything was looked at."""
        until = self.looks + times * max(1, len(self.changes))
        async with asyncio.timeout(10):
            while self.looks < until:  # noqa: ASYNC110 - what is waited for has no event
                await asyncio.sleep(0.001)


@pytest.fixture
def world() -> World:
    return World()


@asynccontextmanager
async def running(world: World) -> AsyncIterator[None]:
    task = asyncio.create_task(world.changes.run())
    yield
    task.cancel()
    await asyncio.wait({task})


async def test_a_secret_equal_to_the_given_one_is_no_change(world: World) -> None:
    world.give()
    async with running(world):
        await world.look()
    assert world.events == []


async def test_a_change_is_published_once_with_all_holders_of_older_versions(world: World) -> None:
    world.give("N1", "1", "shop")
    world.give("N2", "2", "bank")
    world.give("N3", "3", "new")
    world.version = ("u", "3")
    async with running(world):
        await world.look(4)
    [(event, _)] = world.events
    assert (event.hosts, event.applications, event.resource_version) == (["N1", "N2"], ["bank", "shop"], "3")
    assert [(group.namespace, group.lattice) for group in event.groups] == GROUPS


async def test_a_recreated_secret_is_a_different_one(world: World) -> None:
    world.give()
    world.version = ("other", "1")
    async with running(world):
        await world.look()
    assert [event.uid for event, _ in world.events] == ["other"]


async def test_a_deleted_secret_is_published_when_it_returns(world: World) -> None:
    world.give()
    world.version = None
    async with running(world):
        await world.look()
        assert world.events == []
        world.version = ("u", "9")
        await world.look()
    assert len(world.events) == 1


async def test_an_unpublished_change_is_published_again(world: World) -> None:
    world.give()
    world.version, world.unavailable = ("u", "2"), True
    async with running(world):
        await world.look()
        world.unavailable = False
        await world.look()
    assert len(world.events) == 1


async def test_replicas_with_equal_knowledge_publish_under_one_dedup_id_and_others_under_another() -> None:
    marks = []
    for hosts in (["N1"], ["N1"], ["N2"]):
        world = World()
        for host in hosts:
            world.give(host)
        world.version = ("u", "2")
        async with running(world):
            await world.look()
        marks.append(world.events[0][1])
    assert marks[0] == marks[1] != marks[2]


async def test_remembered_versions_are_bounded(world: World) -> None:
    for number in range(MOST_SECRETS + 10):
        world.give(name=f"s{number}")
    assert len(world.changes) == MOST_SECRETS
    for number in range(3 * MOST_HOLDERS):
        world.give(f"N{number}", str(number), f"app{number}", "hot")
        world.give(f"N{number}", "1", f"app{number}", "hot")
    given = world.changes._given[("shop", "hot")]
    assert len(given.versions) <= MOST_VERSIONS
    assert all(len(holders.hosts) <= MOST_HOLDERS for holders in given.versions.values())


async def test_a_holder_of_a_very_old_version_is_reported_too(world: World) -> None:
    for number in range(3 * MOST_VERSIONS):
        world.give(f"N{number}", version=str(number))
    world.version = ("u", "new")
    async with running(world):
        await world.look()
    assert set(world.events[0][0].hosts) == {f"N{number}" for number in range(3 * MOST_VERSIONS)}
