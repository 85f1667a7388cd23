"""A cluster of one node that runs a real k3s, for the walk-through of docs/clusters.md.

In: an empty folder, the program of k3s. Out: the node, and access to its API server. Called by tests of clusters.
k3s is configured for a machine without a registry: its images are made here, so it runs without those that are not
(Traefik, the load balancer, metrics-server, the provisioner of local volumes).
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from support.chart.chart_cluster import volume
from support.k3s.node import K3S, NODE, K3sNode, k3s_node
from support.nodes.real_nodes import Kubectl
from trellis_dev.localcluster import ClusterInfo, requirements, tools
from trellis_dev.localcluster.building import How
from trellis_dev.localcluster.node_images import PAUSE, coredns_image, node_images
from trellis_dev.localcluster.paths import cache_root

CONFIGURATION: Final[dict[str, Any]] = {
    "node-name": NODE,
    "node-ip": "{address}",
    "flannel-iface": "eth0",
    "pause-image": PAUSE,
    # Their images are not made here; network policies need ipset, which the tree of the node has not.
    "disable": ["traefik", "servicelb", "metrics-server", "local-storage"],
    "disable-helm-controller": True,
    "disable-network-policy": True,
    # The machine can have cgroup v1, and its other files fill the disk.
    "kubelet-arg": [
        "fail-cgroupv1=false",
        "eviction-hard=memory.available<50Mi,nodefs.available<1%,imagefs.available<1%",
        "image-gc-high-threshold=100",
    ],
    # The connection tracking table has one size for the whole machine.
    "kube-proxy-arg": [
        "conntrack-max-per-core=0",
        "conntrack-min=0",
        "conntrack-tcp-timeout-established=0",
        "conntrack-tcp-timeout-close-wait=0",
    ],
}

_RESTARTING: Final = ("Unable to connect to the server", "connection refused", "was refused", "(ServiceUnavailable)")
"""Parts of what kubectl prints without an API server, or with one that starts."""
_SECONDS: Final = 300.0
_POLL: Final = 0.5


def program() -> Path | None:
    """Return the program of k3s: on the PATH, else in the cache of built tools. None if there is none."""
    kept = cache_root() / "bin" / "k3s"
    found = shutil.which("k3s") or (str(kept) if os.access(kept, os.X_OK) else None)
    return Path(found).resolve() if found else None


def missing() -> str | None:
    """Return in one line why this machine cannot run k3s; None if it can."""
    if program() is None:
        return (
            "k3s is missing, which is not built here: put the program of a release of https://github.com/k3s-io/k3s "
            f"on the PATH, or into {cache_root() / 'bin'}"
        )
    return requirements.missing()


class PatientKubectl(Kubectl):
    """Commands for a cluster whose API server restarts with k3s: each waits until it is there."""

    def __call__(self, *arguments: str, given: Mapping[str, Any] | None = None) -> str:
        """Run kubectl; return its standard output."""
        deadline = time.monotonic() + _SECONDS
        while True:
            try:
                return super().__call__(*arguments, given=given)
            except AssertionError as error:
                if not any(text in str(error) for text in _RESTARTING) or time.monotonic() > deadline:
                    raise
            time.sleep(_POLL)


@dataclass(frozen=True)
class K3sCluster:
    """The cluster. ``info``: as far as ``kubectl`` and ``trellis`` need it."""

    node: K3sNode
    info: ClusterInfo

    @property
    def name(self) -> str:
        """Name of the node."""
        return NODE

    @property
    def kubectl(self) -> Kubectl:
        """Commands for the cluster."""
        return PatientKubectl(self.info)

    def load(self, archive: Path) -> None:
        """Import an image as docs/clusters.md does: from a file on the node."""
        self.node.run("sh", "-c", "cat >/root/image.tar", stdin=archive)
        self.node.run("k3s", "ctr", "images", "import", "/root/image.tar")
        self.node.run("rm", "/root/image.tar")

    def until_ready(self) -> None:
        """Wait until the API server reports the node as Ready."""
        kubeconfig = self.node.upper / "etc/rancher/k3s/k3s.yaml"
        self.node.until(lambda: "server:" in kubeconfig.read_text(), "k3s writes its kubeconfig")
        text = kubeconfig.read_text(encoding="utf-8").replace("127.0.0.1", self.node.start.network["ADDRESS"])
        self.info.kubeconfig.write_text(text, encoding="utf-8")
        self.info.kubeconfig.chmod(0o600)
        self.node.until(lambda: self.kubectl.ready(NODE) == "True", f"node {NODE} is Ready")


@contextmanager
def k3s_cluster(folder: Path, how: How, kind: str) -> Iterator[K3sCluster]:
    """Have a cluster for the time of a block, with the images of its system, and DNS. ``folder``: an empty one."""
    found = program()
    assert found is not None
    bins = folder / "bin"
    bins.mkdir()
    (bins / "kubectl").symlink_to(tools.ensure("kubectl", how.progress))
    images = node_images(tools.ensure_all(["coredns"], how.progress)["coredns"], how)
    files: dict[str, Path | str] = {K3S[kind]: found, "etc/rancher/k3s/config.yaml": yaml.safe_dump(CONFIGURATION)}
    info = ClusterInfo(
        name="k3s",
        kubeconfig=folder / "kubeconfig",
        nats_url="",
        jaeger_url=None,
        otlp_endpoint=None,
        bin_dir=bins,
        pids={},
    )
    with k3s_node(folder, how, kind, files) as node:
        made = K3sCluster(node, info)
        made.until_ready()
        for archive in images.values():
            made.load(archive)
        _tag_coredns(made)
        # In place of the provisioner of local volumes.
        node.run("mkdir", "-p", "/srv/trellis")
        made.kubectl.create(volume(NODE))
        yield made


def _tag_coredns(cluster: K3sCluster) -> None:
    """Have CoreDNS go by the name that the manifest of k3s has."""
    path = "jsonpath={.spec.template.spec.containers[0].image}"

    def image() -> str:
        return cluster.kubectl("get", "deployment", "coredns", "-n", "kube-system", "-o", path)

    cluster.node.until(lambda: bool(image()), "k3s applies CoreDNS")
    name = image()
    known = name if name.count("/") > 1 else f"docker.io/{name}"
    cluster.node.run("k3s", "ctr", "images", "tag", coredns_image(), known)
