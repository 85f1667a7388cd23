"""A Shim is deleted, or a node stops being one of its nodes, while its rollout is somewhere in the middle.

At any point, it is deleted within seconds, and nothing of it stays behind.
"""

from __future__ import annotations

import contextlib
import http
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from support.nodes.fleet import Fleet, eventually
from support.nodes.kubelets import Disks, kubelets
from support.nodes.shims import SHIMS, Shim
from trellis import names
from trellis.provisioning.views import REMOVE, Target

pytestmark = [pytest.mark.cluster, pytest.mark.thorough]

SECONDS = 60
"""What is allowed a loaded machine; on a quiet one it is five. The deadline of a Job that hangs is 600 s."""
NEW = "cd" * 32


@dataclass
class Scene:
    """One test's Shim on three nodes. ``services`` starts what runs, once or again."""

    fleet: Fleet
    shim: Shim
    nodes: list[str]
    before: dict[str, dict[str, str]]
    running: contextlib.AsyncExitStack
    disks: Disks = field(default_factory=Disks)

    async def start(self, *, with_kubelets: bool = True) -> None:
        if with_kubelets:
            await self.running.enter_async_context(kubelets(self.fleet, self.disks))
        await self.running.enter_async_context(self.fleet.services())

    async def stop(self) -> None:
        await self.running.aclose()

    async def installed(self) -> None:
        """Bring the first version to every node."""
        self.shim.apply(max_update=3)
        await eventually(lambda: self.shim.counts() == (3, 3, 3), "every node has it", seconds=60)
        await self.fleet.quiet()

    async def in_progress(self, count: int = 1) -> None:
        await eventually(lambda: len(self.fleet.ledger()) == len(self.fleet.jobs()) == count, f"{count} in work")

    def uid(self, node: str) -> str:
        return str(self.fleet.node(node)["metadata"]["uid"])

    def removals(self, offset: int) -> set[str]:
        """Return the nodes on which a removal of everything was begun since an audit offset."""
        created = {
            (write.get("objectRef") or {}).get("name", "")
            for write in self.fleet.writes(offset)
            if write["verb"] == "create"
        }
        digest = Target(()).digest
        return {
            node for node in self.nodes if names.installer_job_name(node, self.uid(node), digest, REMOVE, 1) in created
        }


@pytest.fixture
async def scene(fleet: Fleet, shim: Shim) -> AsyncIterator[Scene]:
    nodes = shim.add_nodes(3)
    async with contextlib.AsyncExitStack() as running:
        yield Scene(fleet, shim, nodes, {node: fleet.labels(node) for node in nodes}, running)


# --- where a rollout may be; each returns the nodes on which something is installed ---


async def nothing_is_started(scene: Scene) -> set[str]:
    await scene.start()
    scene.shim.apply(paused=True)
    await eventually(lambda: scene.shim.condition("Progressing") == ("False", "Paused"), "paused")
    return set()


async def some_wait_for_a_slot(scene: Scene) -> set[str]:
    await scene.start()
    scene.shim.apply(path="hang-here")
    await scene.in_progress()
    return set()


async def a_node_is_claimed_and_has_no_job(scene: Scene) -> set[str]:
    """Claim a node without a Job: it is unknown if a former leader created one, so remains are assumed."""
    await scene.start()
    scene.shim.apply(paused=True)
    await eventually(lambda: scene.shim.condition("Progressing") == ("False", "Paused"), "paused")
    await scene.stop()
    ledger = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": names.LEDGER, "namespace": scene.fleet.system},
        "data": {scene.uid(scene.nodes[0]): f"{'ab' * 8}/1/1000/{scene.shim.name}"},
    }
    path = f"/api/v1/namespaces/{scene.fleet.system}/configmaps"
    assert scene.fleet.api.call("POST", path, ledger)[0] == http.HTTPStatus.CREATED
    return {scene.nodes[0]}


async def the_first_installers_run(scene: Scene) -> set[str]:
    await scene.start()
    scene.shim.apply(path="hang-here", max_update=3)
    await scene.in_progress(3)
    return set()


async def the_first_installers_ended_and_nothing_is_verified(scene: Scene) -> set[str]:
    await scene.start(with_kubelets=False)
    scene.shim.apply(max_update=3)
    await eventually(lambda: sum(map(ended, scene.fleet.jobs())) == 3, "three ended")
    return set(scene.nodes)


async def the_first_installers_ended_unseen(scene: Scene) -> set[str]:
    await scene.start()
    scene.shim.apply(path="take-5s", max_update=3)
    await scene.in_progress(3)
    await scene.stop()
    await eventually(lambda: sum(map(ended, scene.fleet.jobs())) == 3, "three ended")
    return set(scene.nodes)


async def the_first_installers_ended_unseen_and_their_jobs_are_deleted(scene: Scene) -> set[str]:
    installed = await the_first_installers_ended_unseen(scene)
    for job in scene.fleet.jobs():
        scene.fleet.delete_job(job["metadata"]["name"])
    await eventually(lambda: not scene.fleet.jobs(), "no Job is left to know of it")
    return installed


async def the_first_installers_failed(scene: Scene) -> set[str]:
    await scene.start()
    scene.shim.apply(path="fail-here", max_update=3)
    await eventually(lambda: scene.shim.condition("Degraded") == ("True", "NodesFailing"), "failing")
    return set()


async def it_is_halted(scene: Scene) -> set[str]:
    await scene.start()
    await scene.installed()
    rolling = {"type": "rolling", "rolling": {"maxUpdate": 1, "pauseOnFailures": 1}}
    scene.shim.apply(path="fail-here", sha256=NEW, rolloutStrategy=rolling)
    await eventually(lambda: scene.shim.condition("Progressing") == ("False", "RolloutHalted"), "halted")
    return set(scene.nodes)


async def it_is_paused_between_versions(scene: Scene) -> set[str]:
    await scene.start()
    await scene.installed()
    scene.shim.apply(sha256=NEW, paused=True)
    await eventually(lambda: scene.shim.condition("Progressing") == ("False", "Paused"), "paused")
    return set(scene.nodes)


async def installers_of_the_next_version_run(scene: Scene) -> set[str]:
    await scene.start()
    await scene.installed()
    scene.shim.apply(path="hang-here", sha256=NEW, max_update=2)
    await scene.in_progress(2)
    return set(scene.nodes)


async def installers_of_the_next_version_ended_unseen(scene: Scene) -> set[str]:
    await scene.start()
    await scene.installed()
    scene.shim.apply(path="take-5s", sha256=NEW, max_update=2)
    await scene.in_progress(2)
    await scene.stop()
    await eventually(lambda: sum(map(ended, scene.fleet.jobs())) == 2, "two ended")
    return set(scene.nodes)


def ended(job: dict[str, object]) -> bool:
    status = job.get("status")
    return isinstance(status, dict) and bool(status.get("succeeded"))


Point = Callable[[Scene], Awaitable[set[str]]]
POINTS: list[Point] = [
    nothing_is_started,
    some_wait_for_a_slot,
    a_node_is_claimed_and_has_no_job,
    the_first_installers_run,
    the_first_installers_ended_and_nothing_is_verified,
    the_first_installers_ended_unseen,
    the_first_installers_ended_unseen_and_their_jobs_are_deleted,
    the_first_installers_failed,
    it_is_halted,
    it_is_paused_between_versions,
    installers_of_the_next_version_run,
    installers_of_the_next_version_ended_unseen,
]


OF_DELETION = {nothing_is_started, the_first_installers_run, installers_of_the_next_version_ended_unseen}
OF_OPTING_OUT = {a_node_is_claimed_and_has_no_job, it_is_halted}


def cases(points: list[Point], always: set[Point]) -> list[Any]:
    """Return the points as parameters; those that are not tried always are thorough tests."""
    thorough = pytest.mark.thorough
    return [pytest.param(point, id=point.__name__, marks=() if point in always else thorough) for point in points]


async def clean(scene: Scene, offset: int, nodes: list[str], installed: set[str]) -> None:
    """Wait until nothing of the Shim is left on nodes, and see that it was removed from where it was, nowhere else."""

    def labels() -> dict[str, list[str]]:
        found = {
            node: [key for key in scene.fleet.annotations(node) if key.startswith("trellis.dev/")] for node in nodes
        }
        return {node: keys for node, keys in found.items() if keys}

    await eventually(lambda: not labels() and not scene.fleet.jobs(), "no mark and no Job is left", seconds=SECONDS)
    await eventually(lambda: not scene.fleet.ledger(), "no slot is left")
    assert {node: scene.fleet.labels(node) for node in nodes} == {node: scene.before[node] for node in nodes}
    assert scene.removals(offset) == installed & set(nodes)
    for node in nodes:
        shown = {item["name"] for item in scene.fleet.node(node)["status"].get("runtimeHandlers") or []}
        assert scene.shim.handler not in shown


@pytest.mark.parametrize("point", cases(POINTS, OF_DELETION))
async def test_a_shim_deleted_during_work_is_removed_within_seconds(scene: Scene, point: Point) -> None:
    installed = await point(scene)
    offset = scene.fleet.audit_offset()
    scene.shim.delete()
    with contextlib.suppress(KeyError):
        if "unseen" in point.__name__ or "claimed" in point.__name__:
            await scene.start()
    await eventually(lambda: scene.shim.found() is None, "the Shim is gone", seconds=SECONDS)
    await clean(scene, offset, scene.nodes, installed)


@pytest.mark.parametrize("point", cases(POINTS[2:], OF_OPTING_OUT))
async def test_a_node_that_is_no_longer_meant_in_the_middle_is_clean_within_seconds(scene: Scene, point: Point) -> None:
    installed = await point(scene)
    offset = scene.fleet.audit_offset()
    left = scene.nodes[0]
    scene.fleet.patch(left, {"metadata": {"labels": {"test": None}}})
    scene.before[left].pop("test")
    if "unseen" in point.__name__ or "claimed" in point.__name__:
        await scene.start()

    def marked() -> list[str]:
        of_node = [job for job in scene.fleet.jobs() if job["metadata"]["annotations"][names.ANNOTATION_NODE] == left]
        keys = [key for key in scene.fleet.annotations(left) if key.startswith("trellis.dev/")]
        return [*keys, *(job["metadata"]["name"] for job in of_node)]

    await eventually(lambda: not marked(), "the node is clean", seconds=SECONDS)
    await eventually(lambda: scene.uid(left) not in scene.fleet.ledger(), "its slot is free")
    assert scene.fleet.labels(left) == scene.before[left]
    assert (left in scene.removals(offset)) == (left in installed)
    assert scene.shim.found() is not None
    scene.fleet.api.call("PATCH", f"{SHIMS}/{scene.shim.name}", {"spec": {"paused": False}})
    scene.shim.delete()
    await eventually(lambda: scene.shim.found() is None, "the Shim is gone", seconds=SECONDS)


async def test_a_shim_that_comes_back_while_it_is_being_removed_is_installed_again(scene: Scene) -> None:
    await scene.start()
    await scene.installed()
    scene.shim.delete()
    await eventually(lambda: any(map(removes, scene.fleet.jobs())), "a removal has begun")
    await eventually(lambda: scene.shim.found() is None, "the Shim is gone", seconds=60)
    scene.shim.apply(max_update=3)
    await eventually(lambda: scene.shim.counts() == (3, 3, 3), "every node has it again", seconds=60)
    scene.shim.delete()
    await eventually(lambda: scene.shim.found() is None, "the Shim is gone", seconds=60)


async def test_a_node_that_is_meant_again_while_it_is_cleared_gets_the_shim_back(scene: Scene) -> None:
    await scene.start()
    await scene.installed()
    node = scene.nodes[0]
    scene.fleet.patch(node, {"metadata": {"labels": {"test": None}}})
    await eventually(lambda: any(map(removes, scene.fleet.jobs())), "its removal has begun")
    scene.fleet.patch(node, {"metadata": {"labels": {"test": scene.fleet.id}}})
    await eventually(lambda: scene.shim.has(node) and not scene.fleet.jobs(), "it has it again", seconds=60)
    await scene.fleet.quiet()
    scene.shim.delete()
    await eventually(lambda: scene.shim.found() is None, "the Shim is gone", seconds=60)


def removes(job: dict[str, dict[str, dict[str, str]]]) -> bool:
    return job["metadata"]["labels"][names.LABEL_OPERATION] == REMOVE
