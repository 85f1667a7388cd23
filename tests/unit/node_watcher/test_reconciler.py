"""One run labels a Node and publishes that; a change that arrives meanwhile gets its own run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from node_watcher.apply import Effects
from node_watcher.domain.actions import PublishedState
from node_watcher.gather import Cache
from node_watcher.reconciler import Reconciler
from support.nodes.withdrawals import PausingBreaker
from trellis.bus.consume.queue import KeyedQueue
from trellis.config.timings import DeletionTimings
from trellis.events.node import NodeReady
from trellis.kube.mass_deletions import Deletions
from trellis.kube.resources import SHIMS
from trellis.provisioning.shim_references import ShimReferences
from trellis.provisioning.views import JobState, NodeView
from trellis.telemetry import Metrics, setup
from trellis_dev.fakes.fake import FakeKube
from trellis_dev.testing.builders import a_job, a_node, opted_in, verified_node

NODE = opted_in(a_node())
IN = PublishedState(NODE.uid, opted_in=True)
LABELLED = replace(verified_node(NODE), resource_version="8")


class World:
    """A node whose Job has succeeded. ``patched``: the Node as the API server returns it; ``patches``: of each run."""

    def __init__(self, patched: Callable[[], NodeView] = lambda: LABELLED) -> None:
        self.kube, self.bus, self.patches = AsyncMock(), AsyncMock(), list[int]()
        telemetry = setup("node_watcher", metrics=Metrics())
        self.queue = KeyedQueue[str](workers=1, name="nodes", telemetry=telemetry)
        deletions = Deletions(FakeKube(), SHIMS, DeletionTimings())
        self.cache = Cache({NODE.name: NODE}, {}, False, deletions, ShimReferences(lambda: True))
        self.cache.jobs.change(None, a_job(NODE, JobState.COMPLETE))
        self.cache.remember(NODE.name, IN)

        def wrote(*_: object) -> None:
            self.cache.nodes[NODE.name] = patched()
            self.queue.add(NODE.name)

        breaker: Any = PausingBreaker()
        effects = Effects(self.kube, self.bus, AsyncMock(), self.cache, breaker, wrote)
        self.reconciler = Reconciler(self.cache, effects, telemetry, self.queue)

    async def run(self, name: str, trace: Any) -> float | None:
        before = self.kube.json_patch.await_count
        again = await self.reconciler.run(name, trace)
        self.patches.append(self.kube.json_patch.await_count - before)
        return again

    def published(self) -> list[Any]:
        return [call.args[0] for call in self.bus.publish.await_args_list]


@pytest.fixture
async def running() -> AsyncIterator[Callable[[World], Any]]:
    tasks: list[asyncio.Task[None]] = []

    async def run(world: World) -> None:
        tasks.append(asyncio.create_task(world.queue.work(world.run)))
        world.queue.add(NODE.name)
        await world.queue.wait_idle()

    yield run
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def test_one_run_labels_a_node_and_publishes_that_it_is_ready(running: Callable[[World], Any]) -> None:
    world = World()
    await running(world)
    assert world.patches == [1]
    [event] = world.published()
    assert isinstance(event, NodeReady)
    assert (event.uid, event.resource_version) == (LABELLED.uid, LABELLED.resource_version)


async def test_work_other_than_events_is_left_to_the_next_run(running: Callable[[World], Any]) -> None:
    states = iter([replace(LABELLED, provisioned=None), LABELLED])
    world = World(lambda: next(states))
    await running(world)
    assert world.patches == [1, 1], "one write per run"
    assert [type(event) for event in world.published()] == [NodeReady]
