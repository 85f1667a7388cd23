"""Clusters with real nodes, one of each kind for the whole run; what they need is built before the first test."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.lattices.host_images import host_images, nats_image
from support.nodes.real_nodes import SHIM_IMAGE, Kubectl, eventually, fingerprint
from trellis.crds.host_config import WasmCloudHostConfig
from trellis.crds.kinds import KINDS, make_definition
from trellis_dev.localcluster import ClusterInfo, debian, owned_cluster
from trellis_dev.localcluster.building import How
from trellis_dev.localcluster.node_images import architecture, hello_wasm_image
from trellis_dev.localcluster.ociarchive import Image, write_image
from trellis_dev.localcluster.progress import Lines
from trellis_dev.localcluster.realnode_faults import load_image
from trellis_dev.localcluster.wasmshim import SHIM, hello_module, shim


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(1800))  # the first one builds


@pytest.fixture(scope="session")
def machine() -> dict[str, str]:
    """Return the contents of /etc and /opt of this machine before any node exists."""
    return fingerprint("/etc", "/opt")


@pytest.fixture(scope="session")
def wasm_images(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """An image that carries a real shim, with a shell to install it, and one that needs the shim to run."""
    how = How(Lines(), threading.Event())
    files = {"bin/busybox": debian.tree("node", how) / "bin/busybox", SHIM: shim(how)}
    archive = tmp_path_factory.mktemp("images") / "shim.tar"
    links = {f"bin/{name}": "busybox" for name in ("sh", "cp", "mkdir", "nsenter", "cat", "mv", "chmod")}
    write_image(archive, Image(SHIM_IMAGE, ["/bin/sh"], architecture(), links=links), files)
    return [archive, hello_wasm_image(hello_module(how), how)]


@pytest.fixture(scope="session")
def one_node(machine: dict[str, str], wasm_images: list[Path]) -> Iterator[ClusterInfo]:
    """A cluster of one real node with containerd 2."""
    assert machine
    with owned_cluster(real_nodes=1) as info:
        for archive in wasm_images:
            load_image(info.name, "real-0", archive)
        yield info


@pytest.fixture(scope="session")
def old_node(machine: dict[str, str], wasm_images: list[Path]) -> Iterator[ClusterInfo]:
    """A cluster of one real node with containerd 1.6."""
    assert machine
    with owned_cluster(real_nodes=1, containerd="1.6") as info:
        for archive in wasm_images:
            load_image(info.name, "real-0", archive)
        yield info


@pytest.fixture(scope="session")
def three_nodes(machine: dict[str, str]) -> Iterator[ClusterInfo]:
    """A cluster of three real nodes."""
    assert machine
    with owned_cluster(real_nodes=3) as info:
        yield info


@pytest.fixture(scope="module")
def host_cluster(machine: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterInfo]:
    """A cluster of one real node that knows groups of hosts, has their images, and reaches the cluster's lattices."""
    assert machine
    how = How(Lines(), threading.Event())
    images = [*host_images(how), nats_image(tmp_path_factory.mktemp("images") / "nats.tar", how)]
    with owned_cluster(real_nodes=1, lattice_nats=True) as info:
        for archive in images:
            load_image(info.name, "real-0", archive)
        kubectl = Kubectl(info)
        kubectl.create(make_definition(next(kind for kind in KINDS if kind.model is WasmCloudHostConfig)))
        eventually(lambda: "whc" in kubectl("api-resources", "--api-group=k8s.wasmcloud.dev"), "the kind is served")
        yield info


@pytest.fixture
def kubectl(request: pytest.FixtureRequest) -> Kubectl:
    """Commands for the cluster that the test's module names in ``CLUSTER``."""
    return Kubectl(request.getfixturevalue(request.module.CLUSTER))
