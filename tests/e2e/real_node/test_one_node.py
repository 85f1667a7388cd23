"""One real node: an installer changes it and nothing else, and what it installed runs Wasm."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.nodes.real_nodes import (
    RUNTIME_CLASS,
    Kubectl,
    eventually,
    fingerprint,
    installer_job,
    shim_job,
    wasm_pod,
)
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.realnode_faults import inspect, run_in

CLUSTER = "one_node"
NODE = "real-0"


def test_the_node_is_described_by_what_a_test_needs(one_node: ClusterInfo) -> None:
    (node,) = one_node.real_nodes
    assert node.name == NODE
    assert set(node.pids) == {"init", "containerd", "kubelet", "kube-proxy"}
    assert node.containerd_socket.is_socket()
    assert (node.root / "etc/hostname").read_text() == "real-0\n"


def test_an_installer_changes_its_node_and_nothing_else(
    one_node: ClusterInfo, kubectl: Kubectl, machine: dict[str, str]
) -> None:
    script = """
    mkdir -p /mnt/node-root/opt/kwasm && echo by-path > /mnt/node-root/opt/kwasm/marker
    nsenter -t 1 -m -u -i -n -p -- sh -c 'hostname; echo by-nsenter > /etc/kwasm-marker; echo x > /dev/shm/marker'
    nsenter -t 1 -m -- sysctl -n kernel.panic
    """
    kubectl.create(installer_job("marks", script, NODE))
    eventually(lambda: kubectl.succeeded("marks"), "the Job is done")
    assert kubectl("logs", "job/marks").split() == ["real-0", "10"]
    root = one_node.real_nodes[0].root
    assert (root / "opt/kwasm/marker").read_text() == "by-path\n"
    assert (root / "etc/kwasm-marker").read_text() == "by-nsenter\n"
    assert not Path("/dev/shm/marker").exists()
    assert os.uname().nodename != "real-0"
    assert fingerprint("/etc", "/opt") == machine


def test_a_runtime_an_installer_adds_is_listed_and_runs_wasm(one_node: ClusterInfo, kubectl: Kubectl) -> None:
    assert kubectl.handlers(NODE) >= {"runc"}
    assert "wasi" not in kubectl.handlers(NODE)
    before = inspect(one_node.name, NODE).pids
    kubectl.create(shim_job(NODE, "io.containerd.cri.v1.runtime"))
    eventually(lambda: kubectl.succeeded("install"), "the Job survives the restart of containerd, and is done")
    eventually(lambda: "wasi" in kubectl.handlers(NODE), "the node lists the handler", 60)
    after = inspect(one_node.name, NODE).pids
    assert after["containerd"] != before["containerd"]
    assert after["kubelet"] == before["kubelet"]

    kubectl.create(RUNTIME_CLASS)
    kubectl.create(wasm_pod("hello", NODE, "wasi"))
    assert kubectl.ended("hello") == "hello from wasm\n"


def test_without_the_runtime_a_wasm_image_does_not_run(kubectl: Kubectl) -> None:
    kubectl.create(wasm_pod("no-wasm", NODE))
    eventually(lambda: kubectl.phase("no-wasm").startswith("Failed"), "runc refuses it")


@pytest.mark.parametrize(
    ("arguments", "status", "output"),
    [
        ("is-active containerd.service", 0, "active\n"),
        ("is-active -q kubelet", 0, ""),
        ("is-active docker", 5, ""),
        ("restart docker", 5, ""),
        ("daemon-reload", 0, ""),
    ],
)
def test_systemctl_answers_as_installers_expect(
    one_node: ClusterInfo, arguments: str, status: int, output: str
) -> None:
    answer = run_in(one_node.name, NODE, ["systemctl", *arguments.split()])
    assert (answer.returncode, answer.stdout) == (status, output)


def test_output_of_a_node_need_not_be_text(one_node: ClusterInfo) -> None:
    assert run_in(one_node.name, NODE, ["printf", r"a\377b"]).stdout == "a\ufffdb"


def test_a_containerd_that_cannot_start_fails_the_restart_and_can_be_repaired(one_node: ClusterInfo) -> None:
    name = one_node.name
    config = "/etc/containerd/config.toml"
    run_in(name, NODE, ["sh", "-c", f"cp {config} /tmp/good && echo 'not toml' >> {config}"])
    broken = run_in(name, NODE, ["systemctl", "restart", "containerd"])
    assert broken.returncode == 1
    assert "Job for containerd.service failed" in broken.stderr
    run_in(name, NODE, ["cp", "/tmp/good", config])
    mended = run_in(name, NODE, ["systemctl", "restart", "containerd"])
    assert mended.returncode == 0, mended.stderr
    assert run_in(name, NODE, ["ctr", "version"]).returncode == 0
