"""The finalizer of a deleted host group is removed only when each of its hosts may be deleted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from host_manager.apply import Effects
from host_manager.domain.pods import PodView
from host_manager.domain.views import view_group
from host_manager.finalizer_release import HOSTS, FinalizerRelease, hosts_removed_with
from host_manager.gather import Cache
from host_manager.lattice_follower import LatticeFollower
from host_manager.reconciler import Reconciler
from support.lattices.host_groups import MINIMAL
from trellis import names
from trellis.bus.bus import Bus
from trellis.config.timings import DeletionTimings
from trellis.kube.breaker import Breaker, Scope
from trellis.kube.mass_deletions import Deletions
from trellis.kube.permissions import MissingPermissions
from trellis.kube.recorder import EventRecorder
from trellis.kube.resources import DEFINITIONS, HOST_CONFIGS, NAMESPACES
from trellis.limits.breaker import Limits
from trellis.provisioning.other_controllers import Controller, Peer
from trellis.telemetry import TraceSpans, setup
from trellis.telemetry.health import Health
from trellis.telemetry.metrics import Metrics
from trellis_dev.fakes.fake import FakeKube

KEY = "g/group"
ALLOWED = Limits().objects
DELETED = "2026-01-01T00:05:00Z"
OPERATOR = Controller(Peer.WASMCLOUD_OPERATOR, "ns", "operator", "u9")


class Quiet:
    """A bus that accepts every event."""

    async def publish(self, *_: object, **__: object) -> None:
        """Say nothing."""


class WithoutEvents(LatticeFollower):
    """Connects to no lattice."""

    async def unfollow(self, *_: object) -> None:
        """Do nothing."""


class World:
    """A group that is being deleted, with its CRD or by itself, and its pods."""

    def __init__(self, finalizer: str, pods: int, *, with_crd: bool, other: Controller | None = None) -> None:
        self.kube = FakeKube()
        self.kube.put(NAMESPACES, {"metadata": {"name": "g"}})
        metadata: dict[str, Any] = {"name": HOST_CONFIGS.definition}
        self.kube.put(DEFINITIONS, {"metadata": metadata | ({"deletionTimestamp": DELETED} if with_crd else {})})
        metadata = {"name": "group", "namespace": "g", "finalizers": [finalizer], "deletionTimestamp": DELETED}
        groups = {KEY: view_group(self.kube.put(HOST_CONFIGS, {"metadata": metadata, "spec": MINIMAL}))}
        cache = Cache(self.kube, groups, {}, 60.0, controller=other, lattices=WithoutEvents(lambda _: None))
        cache.by_group[KEY] = {
            name: PodView("g", name, f"uid-{name}", "1", "group", ready=True) for name in map(str, range(pods))
        }
        recorder = EventRecorder(self.kube, component="test")
        breaker = Breaker(self.kube, recorder, Scope("host_manager", "g", {HOSTS: lambda: pods}, {}), lambda: None)
        self.deletions = Deletions(self.kube, HOST_CONFIGS, DeletionTimings(settle=0.0))
        self.reconcile = Reconciler(
            cache,
            Effects(self.kube, recorder, cache),
            cast("Bus", Quiet()),
            TraceSpans(setup("test", metrics=Metrics())),
            lambda _: True,
            MissingPermissions(Health("test"), lambda _: ""),
            FinalizerRelease(groups, self.deletions, breaker),
        )

    async def finalizers_left(self) -> list[str]:
        """Look at the group; return the finalizers that it has then."""
        await self.reconcile.run(KEY, None)
        return [
            finalizer
            for found in self.kube.objects(HOST_CONFIGS)
            for finalizer in found["metadata"].get("finalizers") or ()
        ]

    def degraded(self) -> str:
        """Return the reason of the condition."""
        [found] = self.kube.objects(HOST_CONFIGS)
        [reason] = [
            condition["reason"] for condition in found["status"]["conditions"] if condition["type"] == "Degraded"
        ]
        return str(reason)


@pytest.mark.parametrize("finalizer", [names.FINALIZER_HOSTS, names.WASMCLOUD_OPERATOR])
async def test_a_group_with_more_hosts_than_may_go_stays_when_its_crd_is_deleted(finalizer: str) -> None:
    world = World(finalizer, ALLOWED + 1, with_crd=True)
    assert await world.finalizers_left() == [finalizer]
    assert world.degraded() == "MassDeletion"
    [found] = world.kube.objects(HOST_CONFIGS)
    assert found["status"]["observedGeneration"] == found["metadata"]["generation"]


async def test_it_stays_beside_the_other_operator_as_well() -> None:
    world = World(names.FINALIZER_HOSTS, ALLOWED + 1, with_crd=True, other=OPERATOR)
    assert await world.finalizers_left() == [names.FINALIZER_HOSTS]
    assert world.degraded() == "MassDeletion"


async def test_a_crd_that_may_not_be_read_counts_as_one_that_is_being_deleted() -> None:
    world = World(names.FINALIZER_HOSTS, ALLOWED + 1, with_crd=False)
    world.deletions.kind = None
    assert await world.finalizers_left() == [names.FINALIZER_HOSTS]


@pytest.mark.parametrize(("pods", "with_crd"), [(ALLOWED, True), (ALLOWED + 1, False)])
async def test_a_group_goes_with_few_hosts_or_if_it_was_deleted_by_itself(pods: int, with_crd: bool) -> None:
    world = World(names.FINALIZER_HOSTS, pods, with_crd=with_crd)
    assert await world.finalizers_left() == []


def test_only_hosts_of_deleted_groups_can_be_retained() -> None:
    world = World(names.FINALIZER_HOSTS, 2, with_crd=True)
    groups = world.reconcile.finalizer_release.groups
    pods = {f"g/{name}": pod for name, pod in world.reconcile.cache.by_group[KEY].items()}
    left = PodView("g", "left", "uid-left", "1", "former", ready=True)
    assert hosts_removed_with(groups, pods | {"g/left": left}) == {"uid-0": "0", "uid-1": "1"}
    assert hosts_removed_with({KEY: replace(groups[KEY], deleting=False)}, pods) == {}, "created again"
