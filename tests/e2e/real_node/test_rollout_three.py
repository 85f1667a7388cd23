"""Shims on three real nodes: in order, in one restart, through a reboot, and past a node that is cut off."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from support.nodes.real_nodes import eventually, wasm_pod
from support.nodes.rollouts import World, rollout_world
from trellis_dev.localcluster.realnode_faults import cut_off, heal, power_off, power_on, run_in

NODES = ("real-0", "real-1", "real-2")
FIRST, *OTHERS = NODES
JOURNAL = "opt/trellis/installer/journal.json"


@pytest.fixture(scope="module")
def world(machine: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Three real nodes; an attempt may take 90 s, so that one on a node that is gone ends in a test's time."""
    assert machine
    with rollout_world(tmp_path_factory.mktemp("world"), real_nodes=3, job_deadline="90s") as world:
        yield world


@pytest.fixture(autouse=True)
def undisturbed(world: World) -> Iterator[dict[str, object]]:
    """Each test begins with nodes on which nothing is, and leaves them as they were."""
    before: dict[str, object] = {node: world.node(node).tree() for node in NODES}
    yield before
    for shim in world.kubectl("get", "shims", "-o", "name").split():
        world.kubectl("delete", shim, "--timeout=180s")
    eventually(lambda: not world.jobs(), "no Job is left", 60)
    world.kubectl("label", "node", *NODES, "wasm-")
    assert {node: world.node(node).tree() for node in NODES} == before


def restarts(world: World) -> dict[str, int]:
    return {node: world.node(node).restarts() for node in NODES}


def more(counts: dict[str, int], by: int) -> dict[str, int]:
    return {node: count + by for node, count in counts.items()}


def updated(world: World, shim: str, nodes: int = 3) -> Callable[[], bool]:
    """Return a check that this many nodes run the version of the spec, and that the Shim says that it is done."""
    return lambda: world.condition(shim, "Progressing").startswith(f"False Updated: {nodes} of {nodes}")


def entries(world: World, node: str, shim: str) -> int:
    """Return how many entries for a shim stand in containerd's configuration."""
    found = run_in(world.info.name, node, ["grep", "-rhc", f"runtimes.{shim}\\]", "/etc/containerd"]).stdout
    return sum(map(int, found.split()))


def hello(world: World, node: str, shim: str) -> str:
    """Return what a Wasm pod says on a node."""
    name = f"hello-{shim}-{node}"
    world.kubectl.create(wasm_pod(name, node, shim))
    output = world.kubectl.ended(name)
    world.kubectl("delete", "pod", name, "--now")
    return output


def test_nodes_are_worked_on_one_after_another_and_a_new_version_restarts_nothing(world: World) -> None:
    world.label("rolling", *NODES)
    counts = restarts(world)
    with world.recorded() as record:
        world.apply(world.shim("rolling", "v1"))
        eventually(updated(world, "rolling"), "every node has the first version")
        assert world.has("rolling", *NODES)
        assert restarts(world) == more(counts, 1)
        world.apply(world.shim("rolling", "v2"))
        v2 = world.files.sha256("v2")
        eventually(lambda: all(world.installed("rolling", node) == v2 for node in NODES), "the second is there")
        eventually(updated(world, "rolling"), "and said to be")
        assert restarts(world) == more(counts, 1)
        assert record.most_in_progress() == (1, 1)
        assert record.created() == [*NODES, *NODES]
    assert [hello(world, node, "rolling") for node in NODES] == ["hello from wasm\n"] * 3


def test_shims_that_are_applied_together_cost_each_node_one_restart(world: World) -> None:
    shims = ("first", "second", "third")
    world.label("together", *NODES)
    counts = restarts(world)
    with world.recorded() as record:
        world.apply(*(world.shim(name, "v1", max_update=3, nodeSelector={"wasm": "together"}) for name in shims))
        for name in shims:
            eventually(updated(world, name), f"every node has {name}")
        assert restarts(world) == more(counts, 1)
        assert sorted(record.created()) == sorted(NODES)
    for node in NODES:
        assert set(shims) <= world.kubectl.handlers(node)
    world.kubectl("delete", "shim", *shims, "--timeout=180s")
    assert restarts(world) == more(counts, 2)


@pytest.mark.parametrize("moment", ["download", "restart"])
def test_a_node_that_reboots_in_mid_install_is_finished_by_the_rollout_itself(world: World, moment: str) -> None:
    world.label(moment, *NODES)
    journal = next(node.root for node in world.info.real_nodes if node.name == FIRST) / JOURNAL

    def restarting() -> bool:
        try:
            return bool(json.loads(journal.read_bytes())["phase"] == "restarting")
        except (OSError, ValueError):
            return False

    with world.recorded() as record:
        if moment == "download":
            with world.files.holding("v1") as hold:
                world.apply(world.shim(moment, "v1"))
                assert hold.waiting.wait(60)
                power_off(world.info.name, FIRST)
        else:
            world.apply(world.shim(moment, "v1"))
            eventually(restarting, "the installer restarts containerd", 60)
            power_off(world.info.name, FIRST)
            assert restarting()
        power_on(world.info.name, FIRST)
        eventually(updated(world, moment), "every node has it", 300)
        assert record.most_in_progress() == (1, 1)
    assert not journal.exists()
    assert [entries(world, node, moment) for node in NODES] == [1, 1, 1]
    assert [hello(world, node, moment) for node in NODES] == ["hello from wasm\n"] * 3


def test_a_node_that_is_cut_off_is_named_and_passed_by_and_gets_it_when_it_is_back(world: World) -> None:
    world.label("past", *NODES)
    cut_off(world.info.name, FIRST)
    try:
        eventually(lambda: world.kubectl.ready(FIRST) == "Unknown", "the cut node is Unknown", 150)
        world.apply(world.shim("past", "v1"))
        eventually(lambda: world.has("past", *OTHERS), "the others have it")
        eventually(lambda: FIRST in str(world.conditions("past")), "the Shim names the node that is away", 30)
    finally:
        heal(world.info.name, FIRST)
    eventually(updated(world, "past"), "the node that was away has it, too")


def test_a_node_that_is_cut_off_in_mid_install_keeps_no_other_from_it(world: World) -> None:
    world.label("during", *NODES)
    with world.files.holding("v1") as hold:
        world.apply(world.shim("during", "v1", max_update=1))
        assert hold.waiting.wait(60)
        cut_off(world.info.name, FIRST)
    try:
        eventually(lambda: world.has("during", *OTHERS), "the others have it", 240)
        eventually(lambda: FIRST in str(world.conditions("during")), "the Shim names the node that is away", 30)
    finally:
        heal(world.info.name, FIRST)
    eventually(updated(world, "during"), "the node that was away has it, too", 240)
    assert entries(world, FIRST, "during") == 1
