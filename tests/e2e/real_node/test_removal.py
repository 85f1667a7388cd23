"""A Shim is deleted while a Wasm pod runs with it: refused, drained as far as a budget allows, or forced."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.nodes.busy_wasm import busy_pod
from support.nodes.installer_runs import NODE
from support.nodes.real_nodes import eventually
from support.nodes.rollouts import INSTALLERS, World, events, rollout_world
from trellis import names
from trellis.installer_api.result import InstallResult, Outcome, parse_result
from trellis_dev.localcluster.realnode_faults import run_in

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
    eventually(lambda: world.has(shim, NODE), "the node has the shim")
    world.kubectl.create(busy_pod(POD, NODE, shim))
    eventually(lambda: running(world), "the pod runs", 60)
    restarts = world.node().restarts()
    world.kubectl("delete", "shim", shim, "--wait=false")
    return restarts


def running(world: World) -> bool:
    return not world.deleted("pod", POD) and world.kubectl.phase(POD) == "Running"


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
    eventually(lambda: world.deleted("shim", "refuses"), "the removal goes on", 150)
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
    eventually(lambda: world.deleted("shim", "drains"), "the Shim is gone")
    assert world.deleted("pod", POD)
    assert world.node().restarts() == restarts + 1


def test_forced_although_the_pod_runs_whose_processes_end(world: World, tmp_path: Path) -> None:
    pods = tmp_path / "pods"
    with world.kubectl.watching(pods, "pods", "-n", INSTALLERS):
        restarts = in_use(world, "forces", "Force")
        assert executing(world, "forces")
        eventually(lambda: world.deleted("shim", "forces"), "the Shim is gone")
        assert executing(world, "forces") == set()
        assert world.node().restarts() == restarts + 1
        eventually(lambda: removals(pods), "the installer's last word is told", 20)
    world.kubectl("delete", "pod", POD, "--timeout=60s")
    [result] = removals(pods)
    assert "containerd-shim" in {process.name for process in result.ended}
    # By the runtime, which cleans up behind them then; signals are for what it cannot end.
    assert not any(process.killed for process in result.ended)
    assert f"pid {result.ended[0].pid}" in result.message
    assert result.warnings == ()


def test_a_shim_that_died_does_not_keep_the_runtime_from_coming_up_again(world: World) -> None:
    world.label("dies", NODE)
    world.apply(world.shim("dies", "v1", removalPolicy="Force"))
    eventually(lambda: world.has("dies", NODE), "the node has the shim")
    world.kubectl.create(busy_pod(POD, NODE, "dies"))
    eventually(lambda: running(world), "the pod runs", 60)
    # Right before a restart: containerd then runs the shim's own cleanup as it starts, and waits for it.
    restarts = world.node().restarts()
    world.kubectl("delete", "shim", "dies", "--wait=false")
    run_in(world.info.name, NODE, ["sh", "-c", f"kill -KILL {' '.join(executing(world, 'dies'))}"])
    eventually(lambda: world.deleted("shim", "dies"), "the Shim is gone", 150)
    assert executing(world, "dies") == set()
    assert world.node().restarts() == restarts + 1
    world.kubectl("delete", "pod", POD, "--timeout=60s")


def executing(world: World, shim: str) -> set[str]:
    """Return the pids on the node of what runs a shim, or ran it before its file was removed."""
    listed = run_in(world.info.name, NODE, ["sh", "-c", "ls -l /proc/[0-9]*/exe 2>/dev/null || true"]).stdout
    return set(re.findall(rf"/proc/(\d+)/exe -> \S+/containerd-shim-{shim}\b", listed))


def removals(pods: Path) -> list[InstallResult]:
    """Return the termination messages of the installers that removed something, by a watch of their pods."""
    found: dict[str, InstallResult] = {}
    for event in events(pods):
        for status in event["object"].get("status", {}).get("containerStatuses", []):
            message = (status["state"].get("terminated") or {}).get("message", "")
            result = parse_result(message)
            if result is not None and result.outcome is Outcome.REMOVED:
                found[event["object"]["metadata"]["name"]] = result
    return list(found.values())


def test_a_shim_whose_finalizer_was_taken_goes_from_its_node_all_the_same(world: World) -> None:
    world.label("orphan", NODE)
    world.apply(world.shim("orphan", "v1", runtimeClass={"name": "orphan", "handler": "forgotten"}))
    eventually(lambda: world.has("orphan", NODE), "the node has the shim")
    restarts = world.node().restarts()
    world.kubectl("delete", "shim", "orphan", "--wait=false")
    world.kubectl("patch", "shim", "orphan", "--type=merge", "-p", '{"metadata": {"finalizers": null}}')
    eventually(lambda: world.deleted("shim", "orphan"), "it is gone", 10)
    eventually(lambda: not world.has("orphan", NODE), "its label is gone", 60)
    eventually(lambda: world.node().restarts() == restarts + 1, "containerd has forgotten it", 60)
    eventually(lambda: "forgotten" not in world.kubectl.handlers(NODE), "the node's status, too", 60)

    def labels() -> list[str]:
        annotations = world.kubectl.get("node", NODE)["metadata"]["annotations"]
        return [key for key in annotations if key.startswith("trellis.dev/")]

    eventually(lambda: not labels(), "no mark is left", 60)
