"""docs/clusters.md on a node of k3s: the images, the chart, an annotated node, a Wasm pod, the removal.

In: a node without Trellis. Out: each step of the page, with what it leads to. Called by tests of k3s.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any, Final

from support.chart.chart_cluster import RELEASE, ChartCluster, volume
from support.chart.forwarded import Outside
from support.chart.rendered import CHART
from support.chart.services_image import image_of, services_image
from support.k3s.cluster import K3sCluster
from support.k3s.node import NODE, K3sNode
from support.nodes.installer_image import installer_image
from support.nodes.real_nodes import Kubectl, wasm_pod
from trellis import names
from trellis_dev.commands.images import chart_values
from trellis_dev.localcluster.building import How
from trellis_dev.localcluster.node_images import NATS, hello_wasm_image, nats_image
from trellis_dev.localcluster.wasmshim import hello_module, shim

SHIM: Final = "wasi"
"""The default Shim, and the handler of its runtime."""
SECONDS: Final = 600.0
"""A restart of k3s is part of most steps."""
BASE: Final = "opt/trellis"
"""Directory of Trellis on the node, below its root."""


@dataclass(frozen=True)
class WalkThrough:
    """The steps. ``runtime``: SHA-256 of the runtime in the image of the installer."""

    cluster: K3sCluster
    runtime: str

    @property
    def node(self) -> K3sNode:
        """The node of the cluster."""
        return self.cluster.node

    @property
    def kubectl(self) -> Kubectl:
        """Commands for the cluster."""
        return self.cluster.kubectl

    @property
    def chart(self) -> ChartCluster:
        """The installation."""
        return ChartCluster(self.cluster.info, self.kubectl)

    @property
    def outside(self) -> Outside:
        """The command line of a user."""
        return Outside(self.cluster.info, SECONDS)

    def install(self) -> None:
        """Install the chart with the values for one node, and wait until its pods run."""
        # The provisioner of local volumes, which k3s comes with, is not here.
        self.cluster.node.run("mkdir", "-p", "/srv/trellis")
        self.kubectl.create(volume(NODE))
        values: dict[str, Any] = {**chart_values(self.runtime), "nats": {"image": image_of(NATS)}}
        small = ("--create-namespace", "--values", str(CHART / "values-small.yaml"))
        self.chart.helm("install", RELEASE, str(CHART), *small, values=values)
        self.chart.until_available()

    def annotate(self) -> None:
        """Opt the node in."""
        self.kubectl("annotate", "node", NODE, f"{names.ANNOTATION_OPT_IN}=true")

    def is_rolled_out(self) -> bool:
        """Watch the rollout to its end; False if the command ends before, as the API server restarts with k3s."""
        try:
            self.outside.trellis("rollout", "status", SHIM, "--watch")
        except AssertionError:
            return False
        return True

    def is_provisioned(self) -> bool:
        """Return whether the node has the label of the runtime."""
        return bool(self._labels().get(SHIM) == names.SHIM_PROVISIONED)

    def wasm_pod(self) -> str:
        """Run a Wasm pod and return its output."""
        pod = wasm_pod("hello", NODE, SHIM)
        del pod["spec"]["nodeName"]  # the RuntimeClass leads it there
        self.kubectl.create(pod)
        output = self.kubectl.ended("hello")
        explained = self.outside.trellis("explain", "pod", "hello", "-n", "default", "-o", "json")
        assert json.loads(explained)["ok"], explained
        self.kubectl("delete", "pod", "hello", "--now")
        return output

    def withdraw(self) -> None:
        """Take the opt-in of the node away."""
        self.kubectl("annotate", "node", NODE, f"{names.ANNOTATION_OPT_IN}-")

    def is_clean(self) -> bool:
        """Return whether the node has neither label nor handler."""
        return not {SHIM, names.LABEL_WASM_READY} & set(self._labels()) and SHIM not in self.kubectl.handlers(NODE)

    def _labels(self) -> dict[str, str]:
        return dict(self.kubectl.get("node", NODE)["metadata"]["labels"])

    def delete_shim(self) -> None:
        """Delete the Shim, without the wait that ends with the API server."""
        self.kubectl("delete", "shim", SHIM, "--wait=false")

    def is_deleted(self) -> bool:
        """Return whether the Shim is gone."""
        return not self.kubectl("get", "shims", "-o", "name")


def walk_through(cluster: K3sCluster, how: How) -> WalkThrough:
    """Import the images as the page says, and the image of a Wasm pod."""
    for archive in (services_image(how), installer_image(how), nats_image(how)):
        cluster.load(archive)
    cluster.load(hello_wasm_image(hello_module(how), how))
    return WalkThrough(cluster, hashlib.sha256(shim(how).read_bytes()).hexdigest())
