"""A node with cgroup v2 and the systemd cgroup driver: Wasm pods are in the cgroups of their pods, as all pods are.

The tests are steps of one story, in their order.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from wasmtime import wat2wasm

from support.nodes.installer_image import installer_image
from support.nodes.real_nodes import Kubectl, eventually, pod, wasm_pod
from support.nodes.rollouts import World, rollout_world
from support.systemd.node import NODE, SystemdNode, start_node
from support.wasm_pods.on_a_node import MODULES
from trellis_dev.localcluster.building import How
from trellis_dev.localcluster.node_images import architecture
from trellis_dev.localcluster.ociarchive import Image, write_image
from trellis_dev.localcluster.progress import Lines

HOW = How(Lines(), threading.Event())
SECONDS = 900.0
"""The processor of the node can be emulated."""
SHIM = "wasi"
LIMIT = 64 << 20
CONFIG = "/etc/containerd/config.toml"
GROWS = """(module (memory (export "memory") 1)
    (func (export "_start")
      (loop $more
        (memory.fill (i32.shl (memory.grow (i32.const 16)) (i32.const 16)) (i32.const 1) (i32.const 0x100000))
        (br $more))))"""
"""Takes another MiB of memory until it is ended."""
PRINTS = """(module
    (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
    (memory (export "memory") 1)
    (data (i32.const 0) "\\08\\00\\00\\00\\06\\00\\00\\00inside")
    (func (export "_start") (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 16)))))"""
"""Prints a word. It is small: an emulated processor compiles a module of Go for minutes."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with rollout_world(tmp_path_factory.mktemp("world"), real_nodes=1) as world:
        yield world


@pytest.fixture(scope="module")
def node(world: World, tmp_path_factory: pytest.TempPathFactory) -> SystemdNode:
    folder = tmp_path_factory.mktemp("systemd")
    images = {"installer": installer_image(HOW)}
    for name, text in {"sleeps": MODULES["sleeps"], "grows": GROWS, "prints": PRINTS}.items():
        images[name] = image(folder, name, text)
    made = start_node(folder, world.info, images, HOW)
    eventually(lambda: is_ready(world.kubectl), "the node is Ready", SECONDS)
    return made


def image(folder: Path, name: str, text: str) -> Path:
    """Write the image ``trellis.local/<name>-wasm:1`` of a module."""
    module, archive = folder / f"{name}.wasm", folder / f"{name}.tar"
    module.write_bytes(bytes(wat2wasm(text)))
    write_image(
        archive, Image(f"trellis.local/{name}-wasm:1", ["/module.wasm"], architecture()), {"module.wasm": module}
    )
    return archive


def is_ready(kubectl: Kubectl) -> bool:
    """Return whether the node exists and is Ready."""
    with suppress(AssertionError, StopIteration):
        return kubectl.ready(NODE) == "True"
    return False


def limited(name: str, of: str) -> dict[str, Any]:
    """Return a Wasm pod with limits of memory and CPU."""
    manifest = wasm_pod(name, NODE, SHIM)
    container = manifest["spec"]["containers"][0]
    container["image"] = f"trellis.local/{of}-wasm:1"
    container["resources"] = {"limits": {"memory": str(LIMIT), "cpu": "500m"}}
    return manifest


def cgroup_of(world: World, name: str) -> str:
    """Return where the kubelet expects the container of a guaranteed pod, below the root of cgroups."""
    found = world.kubectl.get("pod", name)
    uid = found["metadata"]["uid"].replace("-", "_")
    container = found["status"]["containerStatuses"][0]["containerID"].removeprefix("containerd://")
    return f"/kubepods.slice/kubepods-pod{uid}.slice/cri-containerd-{container}.scope"


def test_the_node_uses_the_systemd_driver(world: World, node: SystemdNode) -> None:
    assert node.run("cat /proc/1/comm").strip() == "systemd"
    assert node.run("stat -f -c %T /sys/fs/cgroup").strip() == "cgroup2fs"
    world.kubectl.create(pod("runc", "cat /proc/self/cgroup", NODE))
    assert world.kubectl.ended("runc").startswith("0::/")
    assert node.run("systemctl is-active kubepods.slice").strip() == "active"


def test_the_installer_has_the_shim_use_systemd(world: World, node: SystemdNode) -> None:
    world.label(SHIM, NODE)
    world.apply(world.shim(SHIM, "v1"))
    eventually(lambda: world.has(SHIM, NODE), "the node has the shim", SECONDS)
    assert "SystemdCgroup = true" in node.run("grep -r -A3 'runtimes.wasi' /etc/containerd")


def test_a_wasm_pod_is_in_the_cgroup_of_its_pod_with_its_limits(world: World, node: SystemdNode) -> None:
    world.kubectl.create(limited("sleeps", "sleeps"))
    world.kubectl.running("sleeps")
    group = cgroup_of(world, "sleeps")
    pids = node.run(f"cat /sys/fs/cgroup{group}/cgroup.procs").split()
    assert len(pids) == 1
    assert node.run(f"cat /sys/fs/cgroup{group}/memory.max").strip() == str(LIMIT)
    assert node.run(f"cat /sys/fs/cgroup{group}/cpu.max").split() == ["50000", "100000"]
    node.run("systemctl daemon-reload")
    assert node.run(f"cat /sys/fs/cgroup{group}/memory.max").strip() == str(LIMIT)
    assert node.run(f"cat /sys/fs/cgroup{group}/cpu.max").split() == ["50000", "100000"]


def test_the_kubelet_reports_the_memory_of_a_wasm_pod(world: World, node: SystemdNode) -> None:
    def used() -> int:
        summary = json.loads(world.kubectl("get", "--raw", f"/api/v1/nodes/{node.name}/proxy/stats/summary"))
        pods = [item for item in summary["pods"] if item["podRef"]["name"] == "sleeps"]
        return sum(item["memory"].get("workingSetBytes", 0) for found in pods for item in found.get("containers", []))

    eventually(lambda: 0 < used() < LIMIT, "the summary has the memory of the pod", SECONDS)


def test_a_deleted_wasm_pod_leaves_no_cgroup(world: World, node: SystemdNode) -> None:
    group = cgroup_of(world, "sleeps")
    world.kubectl("delete", "pod", "sleeps", "--timeout=300s")
    slice_ = group.rpartition("/")[0]
    eventually(
        lambda: node.run(f"test ! -e /sys/fs/cgroup{slice_} && echo gone || true"), "the cgroup is gone", SECONDS
    )
    assert not node.run("systemctl list-units --all --no-legend 'cri-containerd-*'").strip()


def test_a_wasm_pod_prints_and_ends(world: World) -> None:
    world.kubectl.create(limited("prints", "prints"))
    eventually(lambda: world.kubectl.phase("prints").startswith(("Succeeded", "Failed")), "the pod ends", SECONDS)
    assert world.kubectl("logs", "prints") == "inside"
    assert world.kubectl.phase("prints") == "Succeeded"


def test_a_wasm_pod_over_its_limit_is_ended(world: World) -> None:
    world.kubectl.create(limited("grows", "grows"))
    eventually(lambda: world.kubectl.phase("grows").startswith("Failed"), "the pod is ended", SECONDS)
    ended = world.kubectl.get("pod", "grows")["status"]["containerStatuses"][0]["state"]["terminated"]
    assert ended["exitCode"] == 137, "SIGKILL; shims of runwasi do not report the reason"


def test_the_removal_leaves_the_former_configuration(world: World, node: SystemdNode) -> None:
    world.kubectl("delete", "shim", SHIM, "--timeout=600s")
    assert "wasi" not in node.run(f"cat {CONFIG}")
    world.kubectl.create(pod("after", "echo runs", NODE))
    assert world.kubectl.ended("after") == "runs\n"
