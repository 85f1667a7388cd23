"""Full reads of an unchanged host group are rare; the objects that it refers to are read at each interval."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from host_manager import gather, last_read
from host_manager.gather import Cache
from host_manager.lattice_follower import LatticeFollower
from support.lattices.host_groups import MINIMAL
from trellis.kube.resources import CONFIGMAPS, HOST_CONFIGS, NAMESPACES, ROLES, SECRETS, Resource
from trellis.lattice.domain.view import LatticeView
from trellis.telemetry import setup
from trellis.telemetry.metrics import Metrics
from trellis_dev.fakes.fake import FakeKube

KEY = "g/group"
INTERVAL = 60.0
SOON = 1.0


class Unconnected(LatticeFollower):
    """Connects to nothing."""

    def __init__(self) -> None:
        super().__init__(lambda _: None)

    async def follow(self, *_: object) -> None:
        """Connect to nothing."""

    def fill(self, snapshot: Any) -> Any:
        """Return the snapshot with a lattice that is not connected."""
        return replace(snapshot, lattice=LatticeView(None, settled=False))


class World:
    """A host group and its cache; the time passes when a test says so."""

    def __init__(self) -> None:
        self.clock = 1000.0
        self.kube = FakeKube(telemetry=setup("test", metrics=Metrics()))
        self.kube.put(NAMESPACES, {"metadata": {"name": "g"}})
        self.cache = Cache(self.kube, {}, {}, INTERVAL, lattices=Unconnected())

    def create(self, **spec: object) -> None:
        """Create the group."""
        self.kube.put(
            HOST_CONFIGS, {"metadata": {"name": "group", "namespace": "g", "generation": 1}, "spec": MINIMAL | spec}
        )

    def put_secret(self, value: str) -> None:
        """Create or change the Secret of the group."""
        self.kube.put(SECRETS, {"metadata": {"name": "nats", "namespace": "g"}, "data": {"client.creds": value}})

    async def read(self) -> bool:
        """Read the group as a run of its key does; return whether everything was read."""
        snapshot = await self.cache.snapshot(KEY)
        assert snapshot is not None
        if not snapshot.glance:
            self.cache.knows(snapshot)
        return not snapshot.glance

    def reads_of(self, resource: Resource) -> int:
        """Return how often objects of a kind were read so far."""
        return sum(f"/{resource.plural}/" in request.path for request in self.kube.api.requests)

    async def pass_interval(self) -> bool:
        """Let an interval pass, and read; return whether everything was read."""
        self.clock += INTERVAL + SOON
        return await self.read()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    for module in (gather, last_read):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: made.clock))
    monkeypatch.setattr(gather.random, "uniform", lambda _, most: most)
    return made


async def test_an_unchanged_group_is_read_whole_once_in_five_intervals(world: World) -> None:
    world.create()
    assert await world.read()
    before = world.reads_of(ROLES)
    assert [await world.pass_interval() for _ in range(5)] == [False, False, False, False, True]
    assert world.reads_of(ROLES) == before + 1


async def test_the_next_run_of_a_group_that_refers_to_nothing_is_that_of_the_full_read(world: World) -> None:
    world.create()
    await world.read()
    assert world.cache.look_in(KEY) == 5 * INTERVAL


@pytest.mark.parametrize("change", ["changed", "created", "deleted"])
async def test_a_changed_secret_is_found_at_the_next_interval(world: World, change: str) -> None:
    world.create(secretName="nats")
    if change != "created":
        world.put_secret("YQ==")
    await world.read()
    assert world.cache.look_in(KEY) == INTERVAL
    assert not await world.pass_interval()
    assert world.cache.look_in(KEY) == INTERVAL
    if change == "deleted":
        world.kube.remove(SECRETS, "nats", "g")
    else:
        world.put_secret("Yg==")
    assert not await world.read(), "its interval is not over"
    assert await world.pass_interval()
    assert not await world.pass_interval(), "the changed Secret is the last one that was read"


async def test_an_unchanged_secret_causes_no_read_of_the_children(world: World) -> None:
    world.create(secretName="nats")
    world.put_secret("YQ==")
    await world.read()
    before = world.reads_of(CONFIGMAPS), world.reads_of(SECRETS)
    assert not await world.pass_interval()
    assert (world.reads_of(CONFIGMAPS), world.reads_of(SECRETS)) == (before[0], before[1] + 1)


async def test_full_reads_of_groups_that_were_read_together_spread(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.create()
    drawn = iter((0.5, 1.0))
    monkeypatch.setattr(gather.random, "uniform", lambda *_: next(drawn))
    await world.read()
    first = world.cache.look_in(KEY)
    world.cache.invalidate(KEY)
    await world.read()
    assert first is not None
    assert world.cache.look_in(KEY) == 2 * first
