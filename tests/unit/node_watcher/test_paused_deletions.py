"""A paused deletion is withdrawn once the object is no longer to be deleted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from node_watcher.apply import Effects
from node_watcher.gather import Cache
from node_watcher.reconciler import Reconciler
from support.nodes.withdrawals import PausingBreaker
from trellis import names
from trellis.bus.consume.queue import KeyedQueue
from trellis.config.timings import DeletionTimings
from trellis.kube.mass_deletions import Deletions
from trellis.kube.resources import SHIMS
from trellis.provisioning.shim_references import ShimReferences
from trellis.provisioning.shims import ShimView
from trellis.provisioning.views import Target, encode_digests
from trellis.telemetry import Metrics, setup
from trellis_dev.fakes.fake import FakeKube
from trellis_dev.testing.builders import a_node, a_shim, verified_node

SPIN, OTHER = a_shim(), a_shim("other")
DIGESTS = {"spin": "1"}
NODE = replace(
    verified_node(a_node(), Target(tuple(DIGESTS.items())).digest, "handler"),
    shims=encode_digests(DIGESTS),
    labels=((names.shim_label("spin"), names.SHIM_PROVISIONED),),
    handlers=frozenset({"runc", "spin"}),
)


class Watcher:
    """One node that has a Shim which was deleted together with another one."""

    def __init__(self) -> None:
        self.shims = {item.name: replace(item, deleting=True, deleted_at=1000) for item in (SPIN, OTHER)}
        self.known = True
        deletions = Deletions(FakeKube(), SHIMS, DeletionTimings(settle=0.0))
        deletions.seen = {shim.uid: 0.0 for shim in self.shims.values()}
        shim_references = ShimReferences(lambda: self.known)
        shim_references.take_node(NODE.name, NODE)
        self.breaker = PausingBreaker()
        cache = Cache({NODE.name: NODE}, self.shims, False, deletions, shim_references)
        breaker: Any = self.breaker
        effects = Effects(AsyncMock(), AsyncMock(), AsyncMock(), cache, breaker, lambda *_: None)
        telemetry = setup("node_watcher", metrics=Metrics())
        queue = KeyedQueue[str](workers=1, name="nodes", telemetry=telemetry)
        self.reconcile = Reconciler(cache, effects, telemetry, queue)

    async def paused(self) -> set[str]:
        await self.reconcile.run(NODE.name, None)
        return self.breaker.paused


@pytest.fixture
async def watcher() -> Watcher:
    found = Watcher()
    assert await found.paused() == {NODE.uid}
    return found


def again(shim: ShimView) -> ShimView:
    """Return a Shim that was created again."""
    return replace(shim, uid=f"{shim.uid}-2")


async def test_a_node_is_no_longer_paused_once_its_shim_was_created_again(watcher: Watcher) -> None:
    watcher.shims["spin"] = again(SPIN)
    del watcher.shims["other"]
    assert await watcher.paused() == set()


async def test_a_node_stays_paused_while_shims_cannot_be_listed(watcher: Watcher) -> None:
    watcher.shims.clear()
    watcher.known = False
    assert await watcher.paused() == {NODE.uid}


async def test_a_node_stays_paused_while_its_shim_may_be_created_again(watcher: Watcher) -> None:
    watcher.shims.clear()
    assert await watcher.paused() == {NODE.uid}
