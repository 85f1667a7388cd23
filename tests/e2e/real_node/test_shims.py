"""The shims of the installer tests: the working ones run Wasm, the broken ones fail as their names describe."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.nodes.real_nodes import RealNode, eventually, run_wasm_pod, runtime_handlers, wasm_pod, wasm_pod_trouble
from support.nodes.shim_archives import BROKEN, KEEPS_CONTAINERD_DOWN, WORKING, program
from trellis_dev.localcluster import owned_cluster
from trellis_dev.localcluster.building import How
from trellis_dev.localcluster.progress import Lines
from trellis_dev.localcluster.realnode_faults import inspect, load_image, run_in

HOW = How(Lines(), threading.Event())
LISTED = {*WORKING, *BROKEN} - set(KEEPS_CONTAINERD_DOWN)
RUNTIME = """
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.{name}]
runtime_type = '/opt/shims/{name}'
"""


@pytest.fixture(scope="module")
def node(machine: dict[str, str], wasm_images: list[Path]) -> Iterator[RealNode]:
    """A node with every shim, put there by hand."""
    assert machine
    with owned_cluster(real_nodes=1) as info:
        node = RealNode(info)
        load_image(info.name, node.name, wasm_images[1])
        _put_shims(node)
        yield node


def _put_shims(node: RealNode) -> None:
    root = Path(f"/proc/{inspect(node.cluster.name, node.name).pids['init']}/root")
    (root / "opt/shims").mkdir(parents=True)
    for name in (*WORKING, *BROKEN):
        shim = root / "opt/shims" / name
        shim.write_bytes(program(name, HOW))
        shim.chmod(0o755)
    with (root / "etc/containerd/config.toml").open("a") as config:
        for name in LISTED:
            config.write(RUNTIME.format(name=name))
            runtime_class = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name}}
            node.kubectl.create({**runtime_class, "handler": name})
    answer = restart(node)
    assert answer.returncode == 0, answer.stderr
    eventually(lambda: "v1" in runtime_handlers(node), "the node lists the handlers", 60)


def restart(node: RealNode, seconds: int = 60) -> subprocess.CompletedProcess[str]:
    return run_in(node.cluster.name, node.name, ["timeout", str(seconds), "systemctl", "restart", "containerd"])


def test_containerd_lists_the_handler_of_a_shim_however_broken(node: RealNode) -> None:
    assert runtime_handlers(node) >= LISTED


@pytest.mark.parametrize("name", WORKING)
def test_a_shim_that_works_runs_wasm_and_states_its_version(node: RealNode, name: str) -> None:
    assert run_wasm_pod(node, name) == "hello from wasm\n"
    output = run_in(node.cluster.name, node.name, [f"/opt/shims/{name}", "-v"]).stdout
    assert f"Version: {WORKING[name]}\n" in output


@pytest.mark.parametrize(
    ("name", "argument", "code", "output"),
    [
        ("exits", "-v", 1, "this shim is broken"),
        ("hangs", "-v", 124, ""),
        ("hangs-at-info", "-v", 0, "Version: 0.3.0"),
        ("hangs-at-info", "-info", 124, ""),
        ("exits-in-use", "-info", 0, "Version: 0.3.0"),
        ("exits-in-use", "start", 1, "this shim is broken"),
        ("hangs-in-use", "-v", 0, "Version: 0.3.0"),
        ("hangs-in-use", "start", 124, ""),
    ],
)
def test_a_broken_shim_breaks_at_its_declared_step(
    node: RealNode, name: str, argument: str, code: int, output: str
) -> None:
    answer = run_in(node.cluster.name, node.name, ["timeout", "2", f"/opt/shims/{name}", argument])
    assert answer.returncode == code
    assert output in answer.stdout + answer.stderr


@pytest.mark.parametrize(
    ("name", "output"),
    [
        ("exits", "this shim is broken"),
        ("exits-in-use", "this shim is broken"),
        ("other-architecture", "exec format error"),
    ],
)
def test_a_shim_that_ends_with_an_error_reports_it_on_the_pod(node: RealNode, name: str, output: str) -> None:
    trouble = wasm_pod_trouble(node, name)
    assert trouble.startswith("FailedCreatePodSandBox: ")
    assert output in trouble


def test_a_pod_waits_for_a_shim_that_hangs(node: RealNode) -> None:
    node.kubectl.create(wasm_pod("waits-for-shim", node.name, "hangs-in-use"))
    command = ["sh", "-c", "grep -lsaE 'shims/hangs-in-use' /proc/[0-9]*/cmdline"]
    eventually(lambda: run_in(node.cluster.name, node.name, command).stdout, "containerd has called the shim", 60)
    assert node.kubectl.phase("waits-for-shim") == "Pending ContainerCreating"
    node.kubectl("delete", "pod", "waits-for-shim", "--force", "--grace-period=0", "--wait=false")


@pytest.mark.parametrize("name", KEEPS_CONTAINERD_DOWN)
def test_a_shim_that_hangs_on_the_info_command_blocks_containerd(node: RealNode, name: str) -> None:
    root = Path(f"/proc/{inspect(node.cluster.name, node.name).pids['init']}/root")
    config = root / "etc/containerd/config.toml"
    good = config.read_text()
    config.write_text(good + RUNTIME.format(name=name))
    try:
        assert restart(node, 10).returncode == 124
    finally:
        config.write_text(good)
    assert restart(node).returncode == 0
    assert run_wasm_pod(node, "v1") == "hello from wasm\n"
