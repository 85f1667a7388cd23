"""Our installer fetches archives from this machine by https, with a CA of its own in a ConfigMap, as its users do."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from support.nodes.https_files import HttpsFiles, https_files
from support.nodes.installer_image import installer_image
from support.nodes.installer_runs import Ended, InstallerJobs, installer_job
from support.nodes.node_trees import tree, tree_hash
from support.nodes.real_nodes import RUNTIME_CLASS, RealNode, containerd_restarts, run_wasm_pod, wasm_pod_trouble
from support.nodes.shim_archives import WORKING, write_archives
from trellis.installer_api.result import FailureReason, Outcome
from trellis_dev.localcluster import owned_cluster
from trellis_dev.localcluster.building import How
from trellis_dev.localcluster.node_images import architecture, hello_wasm_image
from trellis_dev.localcluster.progress import Lines
from trellis_dev.localcluster.realnode_faults import load_image, run_in
from trellis_dev.localcluster.wasmshim import hello_module

HOW = How(Lines(), threading.Event())
CA = "/etc/trellis/ca"


@dataclass(frozen=True)
class World:
    """A real node, and the archives this machine serves to it."""

    node: RealNode
    archives: HttpsFiles

    def run(self, name: str, operation: str, archive: str, *arguments: str, trusting: bool = True) -> Ended:
        """Run the installer to its end; ``archive`` is the version that is wished for."""
        file = f"{archive}.tar.gz"
        source = {"location": self.archives.url(file), "arch": architecture(), "sha256": self.archives.sha256(file)}
        wanted = {"name": "wasi", "handler": "wasi", "digest": archive, "owner": "shim/wasi", "sources": [source]}
        job = installer_job(name, [operation, *arguments], {"shims": [wanted]})
        if trusting:
            _trust(job["spec"]["template"]["spec"])
        self.node.kubectl.create(job)
        ended = InstallerJobs(self.node).ended(name)
        self.node.kubectl("delete", "job", name, "--wait=false")
        return ended

    def version(self) -> str:
        """Return what the installed shim says of itself on the node."""
        script = "find /opt -name 'containerd-shim-wasi*' -exec {} -v \\;"
        return run_in(self.node.cluster.name, self.node.name, ["sh", "-c", script]).stdout


def _trust(pod: dict[str, Any]) -> None:
    pod["volumes"].append({"name": "ca", "configMap": {"name": "ca"}})
    (container,) = pod["containers"]
    container["volumeMounts"].append({"name": "ca", "mountPath": CA, "readOnly": True})
    container["env"].append({"name": "TRELLIS_INSTALLER_CA_FILE", "value": f"{CA}/ca.pem"})


@pytest.fixture(scope="module")
def world(machine: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    assert machine
    folder, images = tmp_path_factory.mktemp("archives"), [installer_image(HOW)]
    write_archives(folder, HOW)
    images.append(hello_wasm_image(hello_module(HOW), HOW))
    with owned_cluster(real_nodes=1) as info, https_files(info, folder, tmp_path_factory.mktemp("keys")) as archives:
        node = RealNode(info)
        for archive in images:
            load_image(info.name, node.name, archive)
        node.kubectl.create(RUNTIME_CLASS)
        ca = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ca"}}
        node.kubectl.create({**ca, "data": {"ca.pem": archives.authority}})
        yield World(node, archives)


def test_two_versions_come_by_https_run_wasm_and_go_without_a_trace(world: World) -> None:
    before, digest, restarts = tree(world.node), tree_hash(world.node), containerd_restarts(world.node)
    for name, version in WORKING.items():
        ended = world.run(name, "install", name)
        assert ended.result.outcome is Outcome.INSTALLED, ended.log
        assert f"Version: {version}\n" in world.version()
        assert run_wasm_pod(world.node, "wasi") == "hello from wasm\n"
        assert containerd_restarts(world.node) == restarts + 1
    assert tree_hash(world.node) != digest
    ended = world.run("away", "uninstall", "v2")
    assert ended.result.outcome is Outcome.REMOVED, ended.log
    assert containerd_restarts(world.node) == restarts + 2
    assert tree(world.node) == before
    assert tree_hash(world.node) == digest


def test_without_the_ca_nothing_is_fetched(world: World) -> None:
    digest, requested = tree_hash(world.node), len(world.archives.requested)
    ended = world.run("distrusts", "install", "v1", trusting=False)
    assert ended.result.reason is FailureReason.DOWNLOAD_FAILED, ended.log
    assert "CA" in ended.result.message
    assert len(world.archives.requested) == requested
    assert tree_hash(world.node) == digest


@pytest.mark.parametrize("name", ["exits", "hangs", "other-architecture", "hangs-at-info"])
def test_a_shim_that_is_broken_leaves_the_node_as_it_was(world: World, name: str) -> None:
    before, restarts = tree(world.node), containerd_restarts(world.node)
    ended = world.run(name, "install", name)
    assert ended.result.outcome is Outcome.FAILED, ended.log
    assert (tree(world.node), containerd_restarts(world.node)) == (before, restarts)


def test_only_a_pod_finds_out_a_shim_that_breaks_in_use(world: World) -> None:
    before = tree(world.node)
    ended = world.run("breaks", "install", "exits-in-use")
    assert ended.result.outcome is Outcome.INSTALLED, ended.log
    assert "this shim is broken" in wasm_pod_trouble(world.node, "wasi")
    ended = world.run("forced-away", "uninstall", "exits-in-use", "--force")
    assert ended.result.outcome is Outcome.REMOVED, ended.log
    assert tree(world.node) == before
