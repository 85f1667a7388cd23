"""A version of a Shim that breaks a workload, on three real nodes: it stops after its first node, and is taken back.

The second version is the shim of this repository without one function of WASI preview 1, as if another release of its
runtime lacked an interface: the module of the workload imports it, the canary does not. A pod keeps the program that
started its sandbox, so the first pod that needs another sandbox on a changed node shows the error. Here a user deletes
the pod of the first node, and after the rollback the one that failed.

A version with other options restarts containerd: nodes that are drained have no pod then, and none is interrupted.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest
from wasmtime import wat2wasm

from node_installer.domain.canary import module as canary
from provisioner.timings import RolloutPodTimings
from support.nodes.real_nodes import eventually
from support.nodes.rollouts import World, events, rollout_world
from support.suite.naming import lacking
from support.wasm_pods.on_a_node import MODULES, image
from trellis import names
from trellis.provisioning.shim_status import Reason
from trellis.read_model.wasm_pods.reasons import Reason as PodReason
from trellis_dev.localcluster.node_images import architecture
from trellis_dev.localcluster.ociarchive import Image, write_image
from trellis_dev.localcluster.realnode_faults import load_image

NODES: Final = ("real-0", "real-1", "real-2")
FIRST, *OTHERS = NODES
MODULE: Final = "sleeps"
FUNCTION: Final = b"poll_oneoff"
BROKEN: Final = "without-poll"
SETTLE: Final = RolloutPodTimings().settle


@pytest.fixture(scope="module")
def world(machine: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Three real nodes that have the image of the workload, and a file server with both versions of the shim."""
    assert machine
    folder = tmp_path_factory.mktemp("world")
    with rollout_world(folder, real_nodes=3) as world:
        works = (world.files.folder / "v1").read_bytes()
        assert FUNCTION in works
        assert FUNCTION not in canary()
        (world.files.folder / BROKEN).write_bytes(works.replace(FUNCTION, FUNCTION.upper()))
        local, archive = folder / "module.wasm", folder / "module.tar"
        local.write_bytes(bytes(wat2wasm(MODULES[MODULE])))
        write_image(archive, Image(image(MODULE), ["/module.wasm"], architecture()), {"module.wasm": local})
        for node in NODES:
            load_image(world.info.name, node, archive)
        yield world


@pytest.fixture(autouse=True)
def undisturbed(world: World) -> Iterator[None]:
    """Each test begins with nodes without a runtime."""
    yield
    world.kubectl("delete", "deployments", "--all", "--cascade=foreground", "--timeout=120s")
    world.kubectl("delete", "shims", "--all", "--timeout=180s")
    world.kubectl("label", "node", *NODES, "wasm-")


def deployment(name: str) -> dict[str, Any]:
    """Return a Deployment with one pod on each of the nodes, of the RuntimeClass with its name."""
    labels = {"app": name}
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": labels},
    }
    spec = {
        "runtimeClassName": name,
        "terminationGracePeriodSeconds": 0,
        "topologySpreadConstraints": [spread],
        "containers": [{"name": "main", "image": image(MODULE), "imagePullPolicy": "Never"}],
    }
    template = {"metadata": {"labels": labels}, "spec": spec}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"replicas": len(NODES), "selector": {"matchLabels": labels}, "template": template},
    }


def pods(world: World, app: str) -> dict[str, dict[str, Any]]:
    """Return the pods of a Deployment by their node."""
    found = json.loads(world.kubectl("get", "pods", "-l", f"app={app}", "-o", "json"))["items"]
    return {item["spec"].get("nodeName", ""): item for item in found}


def ready_on(world: World, app: str, seconds: float) -> list[str]:
    """Return the nodes with a pod that has been ready for so many seconds."""
    now, found = datetime.now(UTC), []
    for node, pod in pods(world, app).items():
        ready = [c for c in pod["status"].get("conditions", []) if c["type"] == "Ready" and c["status"] == "True"]
        if ready and (now - datetime.fromisoformat(ready[0]["lastTransitionTime"])).total_seconds() > seconds:
            found.append(node)
    return sorted(found)


def running_on(world: World, app: str, *nodes: str) -> dict[str, str]:
    """Return the container that runs on each of these nodes: a restart, or another pod, has another one."""
    found = pods(world, app)
    return {node: found[node]["status"]["containerStatuses"][0]["containerID"] for node in nodes}


def has(world: World, shim: str, kind: str, status: str, reason: str) -> bool:
    """Return whether a condition of a Shim has this status and reason."""
    return world.condition(shim, kind).startswith(f"{status} {reason}:")


def replace(world: World, app: str) -> None:
    """Delete the pod of the first node; its successor is placed there, too."""
    world.kubectl("delete", "pod", pods(world, app)[FIRST]["metadata"]["name"], "--timeout=60s")


def undo(world: World, shim: str) -> None:
    """Roll a Shim back as a user does."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("TRELLIS_", "KUBE"))}
    command = [sys.executable, "-m", "trellis_cli", "rollout", "undo", shim]
    environment["TRELLIS_KUBECONFIG"] = str(world.info.kubeconfig)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done


@pytest.mark.parametrize(("shim", "rolling"), [("halts", {"workloads": "Halt"}), ("waits", {"workloadTimeout": "30s"})])
def test_a_version_that_breaks_a_workload_stops_after_its_first_node_and_is_rolled_back(
    world: World, shim: str, rolling: dict[str, str]
) -> None:
    strategy = {"type": "rolling", "rolling": {"maxUpdate": 1, **rolling}}
    world.label(shim, *NODES)
    world.apply(world.shim(shim, "v1", rolloutStrategy=strategy))
    eventually(lambda: world.has(shim, *NODES), "every node has the first version")
    world.kubectl.create(deployment(shim))
    eventually(lambda: ready_on(world, shim, SETTLE) == [*NODES], "a pod is ready on each node, for long enough")
    containers = running_on(world, shim, *OTHERS)

    world.apply(world.shim(shim, BROKEN, rolloutStrategy=strategy))
    broken = world.files.sha256(BROKEN)
    eventually(lambda: world.installed(shim, FIRST) == broken, "the first node has the second version")
    replace(world, shim)
    if "workloads" not in rolling:
        waiting = Reason.WAITING_FOR_PODS.value
        eventually(lambda: has(world, shim, "Progressing", "True", waiting), "further nodes wait for the pod")
    eventually(lambda: has(world, shim, "Degraded", "True", Reason.WORKLOAD_NOT_READY.value), "the rollout halts")
    eventually(lambda: has(world, shim, "Progressing", "False", Reason.HALTED.value), "it makes no progress", 30)
    pod = pods(world, shim)[FIRST]["metadata"]["name"]
    assert not lacking(world.condition(shim, "Degraded"), f"default/{pod}", FIRST, PodReason.SHIM_ERROR.value)
    assert any(event.startswith("RolloutHalted") and pod in event for event in world.events("ConfigMap", names.LEDGER))

    # The canary passed: the first node has the version, verified.
    former = world.files.sha256("v1")
    assert [world.installed(shim, node) for node in NODES] == [broken, former, former]
    assert world.has(shim, FIRST)
    assert ready_on(world, shim, SETTLE) == OTHERS, "a container that always ends is ready for a moment"

    undo(world, shim)
    eventually(lambda: world.installed(shim, FIRST) == former, "the first node has the first version again")
    command = f"kubectl delete pod -n default {pod}"
    shown = ("Progressing", "Degraded")
    eventually(lambda: any(command in world.condition(shim, kind) for kind in shown), "the pod to delete is named", 90)
    assert not ready_on(world, shim, SETTLE).count(FIRST), "the rollback of the node repairs no pod"
    replace(world, shim)
    eventually(lambda: ready_on(world, shim, SETTLE) == [*NODES], "its pod is ready, too")
    eventually(lambda: has(world, shim, "Degraded", "False", Reason.HEALTHY.value), "the halt has ended", 90)
    eventually(lambda: world.condition(shim, "Ready").startswith("True"), "the Shim is ready", 30)
    assert running_on(world, shim, *OTHERS) == containers


def without_label(changes: Path, label: str) -> dict[str, list[tuple[int, int]]]:
    """Return by node the times in which it lacked a label, by the versions of the store, which are one sequence."""
    found: dict[str, list[tuple[int, int]]] = {}
    since: dict[str, int] = {}
    for event in events(changes):
        metadata = event["object"]["metadata"]
        name, version = metadata["name"], int(metadata["resourceVersion"])
        if label not in metadata["labels"]:
            since.setdefault(name, version)
        elif name in since:
            found.setdefault(name, []).append((since.pop(name), version))
    return found


def placed_on(changes: Path) -> list[tuple[str, int]]:
    """Return the node of each pod, and the version of the store in which the scheduler placed the pod there."""
    found: dict[str, tuple[str, int]] = {}
    for event in events(changes):
        metadata, node = event["object"]["metadata"], event["object"]["spec"].get("nodeName")
        if node:
            found.setdefault(metadata["uid"], (node, int(metadata["resourceVersion"])))
    return [*found.values()]


def test_a_node_is_drained_and_no_pod_returns_while_its_containerd_is_restarted(world: World, tmp_path: Path) -> None:
    shim, seen = "drained", (tmp_path / "nodes", tmp_path / "pods")
    strategy = {"type": "rolling", "rolling": {"maxUpdate": 1, "drain": True, "workloadTimeout": "90s"}}
    world.label(shim, *NODES)
    world.apply(world.shim(shim, "v1", rolloutStrategy=strategy))
    eventually(lambda: world.has(shim, *NODES), "every node has the first version")
    world.kubectl.create(deployment(shim))
    eventually(lambda: ready_on(world, shim, SETTLE) == [*NODES], "a pod is ready on each node, for long enough")
    restarts = {node: world.node(node).restarts() for node in NODES}

    options = {"SystemdCgroup": "false"}
    with world.kubectl.watching(seen[0], "nodes"), world.kubectl.watching(seen[1], "pods", "-l", f"app={shim}"):
        world.apply(world.shim(shim, "v2", rolloutStrategy=strategy, containerdRuntimeOptions=options))
        v2 = world.files.sha256("v2")
        eventually(lambda: all(world.installed(shim, node) == v2 for node in NODES), "every node has the second", 300)
        eventually(lambda: world.has(shim, *NODES), "every node has its label again", 60)
        eventually(lambda: has(world, shim, "Progressing", "False", Reason.UPDATED.value), "it is complete", 60)
    assert {node: world.node(node).restarts() - count for node, count in restarts.items()} == dict.fromkeys(NODES, 1)
    changed = without_label(seen[0], shim)
    assert {node: len(times) for node, times in changed.items()} == dict.fromkeys(NODES, 1)
    placed = placed_on(seen[1])
    assert len(placed) > len(NODES), "pods were evicted"
    returned = [(node, at) for node, at in placed if any(begin <= at < end for begin, end in changed[node])]
    assert not returned
    found = json.loads(world.kubectl("get", "pods", "-l", f"app={shim}", "-o", "json"))["items"]
    assert len(found) == len(NODES)
    counts = [status["restartCount"] for pod in found for status in pod["status"]["containerStatuses"]]
    assert counts == [0] * len(NODES)
    assert has(world, shim, "Degraded", "False", Reason.HEALTHY.value)
