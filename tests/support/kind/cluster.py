"""A cluster that the command of kind makes, on a real Docker engine, for the walk-through of docs/clusters.md.

In: an empty folder. Out: the cluster, and access to its API server. Called by tests of clusters. The image of the node
is made here (see ``node_image``). Needs the same as real nodes.
"""

from __future__ import annotations

import secrets
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from support.engine.engine import Engine, engine
from support.kind.node_image import IMAGE, write_node_image
from support.nodes.real_nodes import Kubectl
from trellis_dev.localcluster import ClusterInfo, tools
from trellis_dev.localcluster.building import How
from trellis_dev.localcluster.guard import guard
from trellis_dev.localcluster.realnode_network import start_network

NODE: Final = "kind-control-plane"
_START: Final = ('ENTRYPOINT ["/usr/local/bin/entrypoint", "/sbin/init"]', "ENV container=docker")
_PATCH: Final = {"kind": "KubeletConfiguration", "failCgroupV1": False}
"""The machine can have cgroup v1, which the kubelet otherwise refuses."""


@dataclass(frozen=True)
class KindCluster:
    """The cluster. ``program``: kind; ``info``: as far as ``kubectl`` and ``trellis`` need it."""

    engine: Engine
    program: Path
    info: ClusterInfo

    @property
    def name(self) -> str:
        """Name of the node."""
        return NODE

    @property
    def kubectl(self) -> Kubectl:
        """Commands for the cluster."""
        return Kubectl(self.info)

    def kind(self, *arguments: str | Path) -> str:
        """Run kind."""
        return self.engine.run(self.program, *arguments)

    def load(self, archive: Path) -> None:
        """Import an image as docs/clusters.md does."""
        self.kind("load", "image-archive", archive)

    def run(self, *argv: str) -> str:
        """Run a program as root on the node; return its standard output."""
        return self.engine.run("docker", "exec", NODE, *argv)


@contextmanager
def kind_cluster(folder: Path, how: How) -> Iterator[KindCluster]:
    """Have a cluster for the time of a block. ``folder``: an empty one."""
    programs = tools.ensure_all(["kind", "kubectl"], how.progress, how.abort)
    token, home = secrets.token_hex(16), folder / "network"
    for name in ("image", "engine", "bin", "network"):
        (folder / name).mkdir()
    (folder / "bin/kubectl").symlink_to(programs["kubectl"])
    watcher = guard(home, token)
    try:
        hub, addresses = start_network(token, home / "network.log")
        with engine(folder / "engine", how) as made:
            _plug(made, hub.pid, addresses.node(0))
            changes = [word for change in _START for word in ("--change", change)]
            made.run("docker", "import", *changes, write_node_image(folder / "image", how), IMAGE)
            shutil.rmtree(folder / "image")
            configuration = folder / "kind.yaml"
            configuration.write_text(yaml.safe_dump(_configuration(addresses.node(0))), encoding="utf-8")
            cluster = KindCluster(made, programs["kind"], _info(folder))
            cluster.kind("create", "cluster", "--image", IMAGE, "--config", configuration, "--wait", "300s")
            yield cluster
    finally:
        watcher.abandon()


def _plug(made: Engine, hub: int, address: str) -> None:
    """Connect the engine to the network of this machine's tests, so that ports it publishes are reached from here."""
    link = f"link add port0 type veth peer name outside netns {made.holder}\nlink set port0 master bridge up\n"
    subprocess.run(["nsenter", f"--net=/proc/{hub}/ns/net", "ip", "-batch", "-"], input=link, text=True, check=True)
    made.run("ip", "address", "add", f"{address}/24", "dev", "outside")
    made.run("ip", "link", "set", "outside", "up")


def _configuration(address: str) -> dict[str, Any]:
    """Return what differs from ``kind create cluster`` without options; the network of pods is in the image."""
    return {
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "networking": {"disableDefaultCNI": True, "apiServerAddress": address},
        "kubeadmConfigPatches": [yaml.safe_dump(_PATCH)],
    }


def _info(folder: Path) -> ClusterInfo:
    return ClusterInfo(
        name="kind",
        kubeconfig=folder / "engine/.kube/config",
        nats_url="",
        jaeger_url=None,
        otlp_endpoint=None,
        bin_dir=folder / "bin",
        pids={},
    )
