"""The whole of it on a real node: a Shim is applied, the node runs Wasm, rolls on, and is as it was before."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.nodes.installer_runs import NODE
from support.nodes.real_nodes import eventually, fingerprint, wasm_pod
from support.nodes.rollouts import World, rollout_world
from trellis import names


@pytest.fixture(scope="module")
def world(machine: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One real node."""
    assert machine
    with rollout_world(tmp_path_factory.mktemp("world"), real_nodes=1) as world:
        yield world


def test_a_shim_is_applied_runs_wasm_rolls_and_leaves_no_trace(world: World, machine: dict[str, str]) -> None:
    kubectl, node = world.kubectl, world.node()
    before, restarts = node.tree(), node.restarts()
    world.label("wasi", NODE)

    world.apply(world.shim("wasi", "v1"))
    eventually(lambda: world.has("wasi", NODE), "the node has the shim")
    assert "wasi" in kubectl.handlers(NODE)
    assert node.restarts() == restarts + 1
    eventually(lambda: world.condition("wasi", "Available").startswith("True"), "the Shim says so", 30)
    assert world.labels()[names.LABEL_WASM_READY] == "ready"
    hello = wasm_pod("hello", NODE, "wasi")
    del hello["spec"]["nodeName"]  # the RuntimeClass leads it there
    kubectl.create(hello)
    assert kubectl.ended("hello") == "hello from wasm\n"
    kubectl("delete", "pod", "hello", "--now")

    world.apply(world.shim("wasi", "v2"))
    v2 = world.files.sha256("v2")
    eventually(lambda: world.installed("wasi", NODE) == v2, "the second version is there")
    eventually(lambda: world.condition("wasi", "Progressing").startswith("False Updated"), "and said to be", 60)
    assert node.restarts() == restarts + 1, "another program behind the same entry needs no restart"

    kubectl("delete", "shim", "wasi", "--timeout=180s")
    eventually(lambda: world.deleted("runtimeclass", "wasi"), "the RuntimeClass is gone", 30)
    assert "wasi" not in kubectl.handlers(NODE)
    assert not {"wasi", names.LABEL_WASM_READY} & set(world.labels())
    assert node.restarts() == restarts + 2
    assert node.tree() == before
    assert fingerprint("/etc", "/opt") == machine


def test_a_program_that_is_no_shim_is_reported_on_shim_and_node_and_changes_nothing(world: World) -> None:
    kubectl, node = world.kubectl, world.node()
    before, restarts = node.tree(), node.restarts()
    world.label("broken", NODE)
    world.apply(world.shim("broken", "no-shim"))
    eventually(lambda: world.condition("broken", "Degraded").startswith("True"), "the Shim says that it fails")
    assert NODE in world.condition("broken", "Degraded")
    eventually(
        lambda: any("ShimNotExecutable" in event for event in world.events("Node", NODE)), "an Event of the Node", 30
    )
    assert not {"broken", names.LABEL_WASM_READY} & set(world.labels())
    kubectl("delete", "shim", "broken", "--timeout=300s")
    assert node.tree() == before
    assert node.restarts() == restarts
    eventually(lambda: not world.jobs(), "no Job is left", 60)


def test_a_shim_whose_object_was_deleted_by_force_is_removed_all_the_same(world: World) -> None:
    kubectl, node = world.kubectl, world.node()
    before = node.tree()
    world.label("orphan", NODE)
    world.apply(world.shim("orphan", "v1"))
    eventually(lambda: world.has("orphan", NODE), "the node has the shim")
    kubectl("delete", "shim", "orphan", "--wait=false")
    kubectl("patch", "shim", "orphan", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    eventually(lambda: not world.jobs() and "orphan" not in world.labels(), "nothing is left to do")
    eventually(lambda: "orphan" not in kubectl.handlers(NODE), "the node has forgotten the handler", 60)
    assert names.ANNOTATION_SHIMS not in kubectl.get("node", NODE)["metadata"]["annotations"]
    assert node.tree() == before
