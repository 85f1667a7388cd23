"""The first status of a new group with late inputs: its own turn, its pods' controller, its lattice."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from host_manager import gather, last_read
from host_manager.apply import Effects
from host_manager.domain.decide import Action
from host_manager.domain.snapshot import Snapshot
from host_manager.finalizer_release import FinalizerRelease
from host_manager.gather import Cache
from host_manager.lattice_follower import LatticeFollower
from host_manager.reconciler import Reconciler
from host_manager.timings import Timings
from support.lattices.host_groups import MINIMAL
from trellis.bus.bus import Bus
from trellis.kube.permissions import MissingPermissions
from trellis.kube.recorder import EventRecorder
from trellis.kube.resources import DEPLOYMENTS, HOST_CONFIGS, NAMESPACES
from trellis.lattice.domain.view import LatticeView
from trellis.telemetry import TraceSpans, setup
from trellis.telemetry.health import Health
from trellis.telemetry.metrics import Metrics
from trellis_dev.fakes.fake import FakeKube

KEY = "g/group"
SELDOM = 600.0
AT_ONCE = 0.1
FIRST_STATUS = Timings().first_status
CONNECTING = LatticeView(None, settled=False)
UNAVAILABLE = LatticeView(None, reason="connection refused (nats://nats:4222)", settled=True)


class Quiet:
    """A bus that accepts every event."""

    async def publish(self, *_: object, **__: object) -> None:
        """Say nothing."""


class Followed(LatticeFollower):
    """Connects to nothing: a test says what is known of the lattice."""

    def __init__(self) -> None:
        super().__init__(lambda _: None)
        self.view = CONNECTING

    async def follow(self, *_: object) -> None:
        """Connect to nothing."""

    def fill(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot with what the test says."""
        return replace(snapshot, lattice=self.view, clock=time.monotonic())


class Slow(Effects):
    """Writes whose time is over when they are done: meanwhile the pods' controller has seen them."""

    after: Any = None

    async def apply(self, key: str, actions: Sequence[Action]) -> None:
        """Write, and let time pass."""
        await Effects.apply(self, key, actions)
        Slow.after()


@dataclass
class World:
    """One group without children yet; time passes when a test says so."""

    kube: FakeKube
    followed: Followed = field(default_factory=Followed)
    clock: float = 1000.0
    writing: float = 0.0
    seen: bool = False

    def __post_init__(self) -> None:
        self.kube.put(NAMESPACES, {"metadata": {"name": "g"}})
        self.kube.put(HOST_CONFIGS, {"metadata": {"name": "group", "namespace": "g"}, "spec": MINIMAL})
        cache = Cache(self.kube, {}, {}, SELDOM, lattices=self.followed)
        effects = Slow(self.kube, EventRecorder(self.kube, component="test"), cache)
        refusals = MissingPermissions(Health("test"), lambda _: "")
        traces: TraceSpans[str] = TraceSpans(setup("test", metrics=Metrics()))
        never = cast("FinalizerRelease", None)  # no group is deleted here
        self.reconcile = Reconciler(*(cache, effects, cast("Bus", Quiet()), traces, lambda _: True, refusals, never))

    def written(self) -> None:
        """Let the time pass that writing takes."""
        self.clock += self.writing
        if self.seen:
            self.see()

    def see(self) -> None:
        """Have the pods' controller see the Deployment."""
        for found in self.kube.objects(DEPLOYMENTS):
            if not found.get("status"):
                self.kube.put(DEPLOYMENTS, {**found, "status": {"observedGeneration": found["metadata"]["generation"]}})

    async def run(self) -> float:
        """Look at the group; return when to look again."""
        again = await self.reconcile.run(KEY, None)
        assert again is not None
        return again

    def condition(self, kind: str) -> str:
        """Return the reason of a condition, "" if there is none."""
        [group] = self.kube.objects(HOST_CONFIGS)
        conditions = (group.get("status") or {}).get("conditions") or ()
        return next((str(item["reason"]) for item in conditions if item["type"] == kind), "")


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(FakeKube(telemetry=setup("test", metrics=Metrics())))
    for module in (gather, last_read):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: made.clock))
    monkeypatch.setattr(Slow, "after", made.written)
    return made


async def test_a_group_whose_children_took_longer_than_its_status_may_wait_is_looked_at_at_once(world: World) -> None:
    world.writing, world.seen = FIRST_STATUS + 1, True
    again = await world.run()
    assert world.condition("Available") == "", "nothing was known when its children were written"
    assert again <= AT_ONCE, "and nothing will wake it: what it waits for is there"
    await world.run()
    assert world.condition("Available") == "HostsNotReady"


async def test_a_group_without_observed_pods_has_a_status_after_the_maximum_delay(world: World) -> None:
    again = await world.run()
    assert AT_ONCE < again <= FIRST_STATUS + AT_ONCE
    world.clock += again
    await world.run()
    assert world.condition("Progressing") == "Updating"


async def test_a_group_reconciled_before_its_lattice_was_known_reports_it_and_then_the_lattice(world: World) -> None:
    await world.run()
    world.see()
    await world.run()
    assert (world.condition("Available"), world.condition("HostsReporting")) == ("HostsNotReady", "LatticeNotConnected")
    before = len(world.kube.writes)
    await world.run()
    assert len(world.kube.writes) == before, "no news, no write"

    world.followed.view = UNAVAILABLE
    await world.run()
    assert (world.condition("HostsReporting"), world.condition("ApplicationsKnown")) == (
        "LatticeUnreachable",
        "LatticeUnreachable",
    )
    assert [write.path for write in world.kube.writes[before:]] == [HOST_CONFIGS.path("g", "group", "status")]
