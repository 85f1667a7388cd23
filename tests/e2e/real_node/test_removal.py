"""A Shim is deleted while a Wasm pod runs with it: refused, drained as far as a budget allows, or forced."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.busy_wasm import busy_pod
from support.installer_runs import NODE
from support.real_nodes import eventually
from support.rollouts import World, rollout_world
from trellis import names
from trellis.localcluster.realnode_faults import run_in

POD = "busy"


@pytest.fixture(scope="module")
def world(machine: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One real node."""
    assert machine
    with rollout_world(tmp_path_factory.mktemp("world"), real_nodes=1) as world:
        yield world


@pytest.fixture(autouse=True)
def undisturbed(world: World) -> Iterator[None]:
    """Each test leaves the node as it was."""
    before = world.node().tree()
    yield
    eventually(lambda: not world.jobs(), "no Job is left", 60)
    assert world.node().tree() == before
    assert not {names.LABEL_WASM_READY, names.LABEL_PROVISIONED} & set(world.labels())


def in_use(world: World, shim: str, policy: str | None) -> int:
    """Install a Shim, run a pod with it, ask for its deletion; return how often containerd had come up before that."""
    world.label(shim, NODE)
    world.apply(world.shim(shim, "v1", **({"removalPolicy": policy} if policy else {})))
    eventually(lambda: world.has(shim, NODE), "the node has the shim", 120)
    world.kubectl.create(busy_pod(POD, NODE, shim))
    eventually(lambda: running(world), "the pod runs", 60)
    restarts = world.node().restarts()
    world.kubectl("delete", "shim", shim, "--wait=false")
    return restarts


def running(world: World) -> bool:
    return not world.gone("pod", POD) and world.kubectl.phase(POD) == "Running"


def test_refused_by_default_until_the_pod_has_ended(world: World) -> None:
    restarts = in_use(world, "refuses", None)
    eventually(lambda: any(event.startswith("RuntimeInUse") for event in world.events("Node", NODE)), "an Event", 60)
    [event] = [event for event in world.events("Node", NODE) if event.startswith("RuntimeInUse")]
    assert f"default/{POD}" in event
    assert not world.has("refuses", NODE)  # no further pod comes
    assert running(world)
    assert "refuses" in world.kubectl.handlers(NODE)
    assert world.node().restarts() == restarts
    world.kubectl("delete", "pod", POD, "--now")
    eventually(lambda: world.gone("shim", "refuses"), "the removal goes on", 150)
    assert world.node().restarts() == restarts + 1


def test_drained_as_its_disruption_budget_allows(world: World) -> None:
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": POD}}
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": POD}}}
    world.kubectl.create(budget | {"spec": spec})
    restarts = in_use(world, "drains", "Drain")
    eventually(lambda: any(event.startswith("DrainBlocked") for event in world.events("Node", NODE)), "an Event", 60)
    [event] = [event for event in world.events("Node", NODE) if event.startswith("DrainBlocked")]
    assert f"default/{POD}" in event
    assert running(world)
    assert world.node().restarts() == restarts
    world.kubectl("delete", "pdb", POD)
    eventually(lambda: world.gone("shim", "drains"), "the Shim is gone", 120)
    assert world.gone("pod", POD)
    assert world.node().restarts() == restarts + 1


def test_forced_although_the_pod_runs(world: World) -> None:
    restarts = in_use(world, "forces", "Force")
    eventually(lambda: world.gone("shim", "forces"), "the Shim is gone", 120)
    assert world.node().restarts() == restarts + 1
    # containerd loses a pod whose shim it finds no more: it can be deleted, but what it ran is for whoever forced it.
    world.kubectl("delete", "pod", POD, "--timeout=60s")
    run_in(world.info.name, NODE, ["busybox", "pkill", "-9", "-f", "containerd-shim-forces"])


def test_a_shim_whose_finalizer_was_taken_goes_from_its_node_all_the_same(world: World) -> None:
    world.label("orphan", NODE)
    world.apply(world.shim("orphan", "v1", runtimeClass={"name": "orphan", "handler": "forgotten"}))
    eventually(lambda: world.has("orphan", NODE), "the node has the shim", 120)
    restarts = world.node().restarts()
    world.kubectl("delete", "shim", "orphan", "--wait=false")
    world.kubectl("patch", "shim", "orphan", "--type=merge", "-p", '{"metadata": {"finalizers": null}}')
    eventually(lambda: world.gone("shim", "orphan"), "it is gone", 10)
    eventually(lambda: not world.has("orphan", NODE), "its label is gone", 60)
    eventually(lambda: world.node().restarts() == restarts + 1, "containerd has forgotten it", 60)
    eventually(lambda: "forgotten" not in world.kubectl.handlers(NODE), "the node's status, too", 60)

    def marks() -> list[str]:
        annotations = world.kubectl.get("node", NODE)["metadata"]["annotations"]
        return [key for key in annotations if key.startswith("trellis.dev/")]

    eventually(lambda: not marks(), "no mark is left", 60)
