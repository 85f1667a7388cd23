"""Shims that only a pod tests, and nodes that only a pod verifies: broken shims, and containerd 1.6."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.nodes.installer_runs import NODE
from support.nodes.real_nodes import eventually, fingerprint, wasm_pod
from support.nodes.rollouts import World, rollout_world
from support.nodes.shim_archives import BROKEN
from trellis import names
from trellis_dev.localcluster.realnode_faults import run_in

VERIFY = {"canary": True, "timeout": "30s"}
FOUND_BY_A_POD = ("exits-in-use", "hangs-in-use")
MARKS = {names.LABEL_WASM_READY, names.LABEL_PROVISIONED, "broken"}


@pytest.fixture(scope="module")
def world(machine: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One real node with containerd 2."""
    assert machine
    with rollout_world(tmp_path_factory.mktemp("world"), real_nodes=1, retry_min="600s", retry_max="600s") as world:
        yield world


@pytest.fixture(scope="module")
def old_world(machine: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One real node with containerd 1.6."""
    assert machine
    with rollout_world(tmp_path_factory.mktemp("old"), real_nodes=1, containerd="1.6") as world:
        yield world


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_shim_leaves_the_node_as_it_was_and_is_reported_on_shim_and_node(world: World, how: str) -> None:
    kubectl, node = world.kubectl, world.node()
    before, restarts = node.tree(), node.restarts()
    world.label("broken", NODE)
    world.apply(world.shim("broken", how, verify=VERIFY))
    eventually(lambda: world.condition("broken", "Degraded").startswith("True"), "the Shim says that it fails", 240)
    reason = "CanaryFailed" if how in FOUND_BY_A_POD else _refusal(how)
    reported = world.condition("broken", "Degraded")
    assert NODE in reported
    assert reason in reported
    eventually(lambda: any(reason in event for event in world.events("Node", NODE)), "an Event of the Node", 30)
    assert not MARKS & set(world.labels())
    eventually(lambda: "broken" not in kubectl.handlers(NODE), "the kubelet has noticed", 60)
    assert node.tree() == before
    # Installed and taken back, or never touched.
    assert node.restarts() == restarts + (2 if how in FOUND_BY_A_POD else 0)
    eventually(lambda: "broken" not in _programs(world), "no process of the shim is left", 60)
    kubectl("delete", "shim", "broken", "--timeout=300s")
    eventually(lambda: not world.jobs(), "no Job is left", 60)
    assert node.tree() == before
    kubectl("delete", "events", "--all", "-A")


def test_a_later_version_that_is_broken_gives_way_to_the_one_before(world: World) -> None:
    kubectl, node = world.kubectl, world.node()
    before = node.tree()
    world.label("wasi", NODE)
    world.apply(world.shim("wasi", "v1"))
    eventually(lambda: world.condition("wasi", "Available").startswith("True"), "the node has the first version")
    assert world.annotations()[names.ANNOTATION_VERIFIED] == "canary"
    restarts = node.restarts()
    world.apply(world.shim("wasi", "exits-in-use"))
    eventually(lambda: "CanaryFailed" in world.condition("wasi", "Degraded"), "the Shim says that it fails", 240)
    assert world.installed("wasi", NODE) == world.files.sha256("v1")
    assert node.restarts() == restarts
    kubectl.create(wasm_pod("hello", NODE, "wasi"))
    assert kubectl.ended("hello") == "hello from wasm\n"
    kubectl("delete", "pod", "hello", "--now")
    kubectl("delete", "shim", "wasi", "--timeout=180s")
    assert node.tree() == before


def test_on_containerd_16_a_pod_verifies_what_no_list_shows(old_world: World, machine: dict[str, str]) -> None:
    kubectl, node = old_world.kubectl, old_world.node()
    before, restarts = node.tree(), node.restarts()
    old_world.label("wasi", NODE)
    old_world.apply(old_world.shim("wasi", "v1"))
    eventually(lambda: old_world.has("wasi", NODE), "the node has the shim")
    assert kubectl.handlers(NODE) == set()
    assert old_world.annotations()[names.ANNOTATION_VERIFIED] == "canary"
    assert node.restarts() == restarts + 1
    hello = wasm_pod("hello", NODE, "wasi")
    del hello["spec"]["nodeName"]  # the RuntimeClass leads it there
    kubectl.create(hello)
    assert kubectl.ended("hello") == "hello from wasm\n"
    kubectl("delete", "pod", "hello", "--now")
    old_world.apply(old_world.shim("wasi", "v2"))
    v2 = old_world.files.sha256("v2")
    eventually(lambda: old_world.installed("wasi", NODE) == v2, "the second version is there")
    eventually(lambda: old_world.condition("wasi", "Progressing").startswith("False Updated"), "and said to be", 60)
    kubectl("delete", "shim", "wasi", "--timeout=180s")
    assert not {"wasi", names.LABEL_WASM_READY} & set(old_world.labels())
    assert node.restarts() == restarts + 2
    assert node.tree() == before
    assert fingerprint("/etc", "/opt") == machine


def test_on_containerd_16_a_shim_that_cannot_be_verified_names_the_remedy(old_world: World) -> None:
    node = old_world.node()
    before = node.tree()
    old_world.label("untried", NODE)
    old_world.apply(old_world.shim("untried", "v1", verify={"canary": False, "timeout": "5s"}))
    eventually(lambda: "canaryImage" in old_world.condition("untried", "Degraded"), "the Shim says what to do")
    assert node.tree() == before
    old_world.kubectl("delete", "shim", "untried", "--timeout=300s")


def _refusal(how: str) -> str:
    return "WrongArchitecture" if how == "other-architecture" else "ShimNotExecutable"


def _programs(world: World) -> str:
    """Return the command lines of the node's processes."""
    return run_in(world.info.name, NODE, ["ps", "-o", "args"]).stdout
