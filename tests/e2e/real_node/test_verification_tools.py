"""Tools of the installer tests: files by HTTPS, changes of a node, counted restarts, shims that do not work."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.nodes.https_files import HttpsFiles, https_files
from support.nodes.node_trees import tree, tree_hash
from support.nodes.real_nodes import (
    RealNode,
    containerd_restarts,
    eventually,
    pod,
)
from support.nodes.shim_archives import write_archives
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.building import How
from trellis_dev.localcluster.node_images import PYTHON, python_image
from trellis_dev.localcluster.progress import Lines
from trellis_dev.localcluster.realnode_faults import inspect, load_image, power_off, power_on, run_in

HOW = How(Lines(), threading.Event())
FETCH = """
import hashlib, os, ssl, sys, urllib.request
context = ssl.create_default_context(cadata=os.environ.get("CA"))
print(hashlib.sha256(urllib.request.urlopen(sys.argv[1], timeout=20, context=context).read()).hexdigest())
"""


@pytest.fixture(scope="module")
def node(one_node: ClusterInfo) -> RealNode:
    return RealNode(one_node)


@pytest.fixture(scope="module")
def archives(one_node: ClusterInfo, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpsFiles]:
    folder = tmp_path_factory.mktemp("archives")
    write_archives(folder, HOW)
    with https_files(one_node, folder, tmp_path_factory.mktemp("keys")) as served:
        yield served


@pytest.fixture(scope="module")
def python(one_node: ClusterInfo) -> str:
    load_image(one_node.name, "real-0", python_image(HOW))
    return PYTHON


@pytest.mark.parametrize("host_network", [False, True], ids=["pod-network", "node-network"])
def test_a_pod_fetches_an_archive_by_https(
    node: RealNode, archives: HttpsFiles, python: str, host_network: bool
) -> None:
    name = f"fetches-{host_network}".lower()
    ca = [{"name": "CA", "value": archives.authority}]
    command = ["python3", "-c", FETCH, archives.url("v2.tar.gz")]
    manifest = pod(name, "", node.name, image=python, command=command, env=ca)
    manifest["spec"]["hostNetwork"] = host_network
    node.kubectl.create(manifest)
    assert node.kubectl.ended(name).strip() == archives.sha256("v2.tar.gz")
    assert "v2.tar.gz" in archives.requested


def test_a_client_without_the_ca_refuses_the_server(node: RealNode, archives: HttpsFiles, python: str) -> None:
    command = ["python3", "-c", FETCH, archives.url("v1.tar.gz")]
    node.kubectl.create(pod("distrusts", "", node.name, image=python, command=command))
    eventually(lambda: node.kubectl.phase("distrusts").startswith("Failed"), "it refuses the certificate", 60)
    assert "CERTIFICATE_VERIFY_FAILED" in node.kubectl("logs", "distrusts")
    assert "v1.tar.gz" not in archives.requested


def test_a_download_can_be_paused_in_the_middle(node: RealNode, archives: HttpsFiles, python: str) -> None:
    command = ["python3", "-c", FETCH, archives.url("exits.tar.gz")]
    env = [{"name": "CA", "value": archives.authority}]
    with archives.holding("exits.tar.gz") as hold:
        node.kubectl.create(pod("waits", "", node.name, image=python, command=command, env=env))
        assert hold.waiting.wait(60)
        assert node.kubectl.phase("waits") == "Running"
    assert node.kubectl.ended("waits").strip() == archives.sha256("exits.tar.gz")


@pytest.mark.parametrize(
    ("change", "back", "path"),
    [
        ("echo more >> /etc/containerd/config.toml", "sed -i '$d' /etc/containerd/config.toml",
         "/etc/containerd/config.toml"),
        ("chmod 600 /etc/hosts", "chmod 644 /etc/hosts", "/etc/hosts"),
        ("chown 1:0 /etc/fstab", "chown 0:0 /etc/fstab", "/etc/fstab"),
        ("mkdir -p /opt/empty", "rmdir /opt/empty", "/opt/empty"),
        ("ln -s a /usr/local/bin/link", "rm /usr/local/bin/link", "/usr/local/bin/link"),
        ("cp -a /etc/issue /tmp/ && rm /etc/issue", "cp -a /tmp/issue /etc/", "/etc/issue"),
        ("chmod 700 /etc/kubernetes", "chmod 755 /etc/kubernetes", "/etc/kubernetes"),
    ],
    ids=["content", "mode", "owner", "empty-directory", "link", "deleted", "mode-of-a-directory"],
)  # fmt: skip
def test_a_nodes_tree_shows_a_change_and_forgets_one_that_was_undone(
    node: RealNode, change: str, back: str, path: str
) -> None:
    before, digest = tree(node), tree_hash(node)
    assert run_in(node.cluster.name, node.name, ["sh", "-ec", change]).returncode == 0
    assert {name for name, events in tree(node).items() if before.get(name) != events} == {path}
    assert tree_hash(node) != digest
    assert run_in(node.cluster.name, node.name, ["sh", "-ec", back]).returncode == 0
    assert tree(node) == before
    assert tree_hash(node) == digest


def test_a_nodes_tree_shows_extended_attributes(node: RealNode) -> None:
    before = tree(node)
    root = Path(f"/proc/{inspect(node.cluster.name, node.name).pids['init']}/root")
    os.setxattr(root / "etc/passwd", "trusted.owner", b"someone")
    assert set(tree(node)) - set(before) == {"/etc/passwd"}
    os.removexattr(root / "etc/passwd", "trusted.owner")
    assert tree(node) == before


def test_a_node_that_works_and_reboots_keeps_its_tree(node: RealNode) -> None:
    before = tree(node)
    node.kubectl.create(pod("worked", "echo done", node.name))
    assert node.kubectl.ended("worked") == "done\n"
    boot = node.kubectl.get("node", node.name)["status"]["nodeInfo"]["bootID"]
    power_off(node.cluster.name, node.name)
    assert tree(node) == before
    power_on(node.cluster.name, node.name)
    eventually(lambda: node.kubectl.get("node", node.name)["status"]["nodeInfo"]["bootID"] != boot, "it has booted")
    eventually(lambda: node.kubectl.ready(node.name) == "True", "the node is Ready")
    assert tree(node) == before


def test_each_restart_of_containerd_is_counted_once(node: RealNode) -> None:
    before = containerd_restarts(node)
    for count in (1, 2):
        assert run_in(node.cluster.name, node.name, ["systemctl", "restart", "containerd"]).returncode == 0
        assert containerd_restarts(node) == before + count
