"""docs/clusters.md on one node: the images, the chart, an annotated node, a Wasm pod, the removal.

In: a cluster without Trellis. Out: each step of the page, with what it leads to. Called by tests of k3s and kind.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, Protocol, TypeVar

from support.chart.chart_cluster import RELEASE, ChartCluster
from support.chart.forwarded import Outside
from support.chart.rendered import CHART
from support.chart.services_image import image_of, services_image
from support.nodes.installer_image import installer_image
from support.nodes.real_nodes import Kubectl, wasm_pod
from trellis import names
from trellis_dev.commands.images import chart_values
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.building import How
from trellis_dev.localcluster.node_images import NATS, hello_wasm_image, nats_image
from trellis_dev.localcluster.wasmshim import hello_module, shim

SHIM: Final = "wasi"
"""The default Shim, and the handler of its runtime."""
SECONDS: Final = 600.0
"""A restart of k3s is part of most steps."""
BASE: Final = "opt/trellis"
"""Directory of Trellis on the node, below its root."""


class OneNode(Protocol):
    """A cluster of one node, as the steps need it; ``load`` imports an image from a file, as the page says."""

    @property
    def info(self) -> ClusterInfo: ...

    @property
    def name(self) -> str: ...

    @property
    def kubectl(self) -> Kubectl: ...

    def load(self, archive: Path) -> None: ...


C = TypeVar("C", bound=OneNode)


@dataclass(frozen=True)
class WalkThrough(Generic[C]):
    """The steps. ``runtime``: SHA-256 of the runtime in the image of the installer."""

    cluster: C
    runtime: str

    @property
    def name(self) -> str:
        """Name of the node."""
        return self.cluster.name

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
        values: dict[str, Any] = {**chart_values(self.runtime), "nats": {"image": image_of(NATS)}}
        small = ("--create-namespace", "--values", str(CHART / "values-small.yaml"))
        self.chart.helm("install", RELEASE, str(CHART), *small, values=values)
        self.chart.until_available()

    def annotate(self) -> None:
        """Opt the node in."""
        self.kubectl("annotate", "node", self.name, f"{names.ANNOTATION_OPT_IN}=true")

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
        pod = wasm_pod("hello", self.name, SHIM)
        del pod["spec"]["nodeName"]  # the RuntimeClass leads it there
        self.kubectl.create(pod)
        output = self.kubectl.ended("hello")
        explained = self.outside.trellis("explain", "pod", "hello", "-n", "default", "-o", "json")
        assert json.loads(explained)["ok"], explained
        self.kubectl("delete", "pod", "hello", "--now")
        return output

    def withdraw(self) -> None:
        """Take the opt-in of the node away."""
        self.kubectl("annotate", "node", self.name, f"{names.ANNOTATION_OPT_IN}-")

    def is_clean(self) -> bool:
        """Return whether the node has neither label nor handler."""
        return not {SHIM, names.LABEL_WASM_READY} & set(self._labels()) and SHIM not in self.kubectl.handlers(self.name)

    def _labels(self) -> dict[str, str]:
        return dict(self.kubectl.get("node", self.name)["metadata"]["labels"])

    def delete_shim(self) -> None:
        """Delete the Shim, without the wait that ends with the API server."""
        self.kubectl("delete", "shim", SHIM, "--wait=false")

    def is_deleted(self) -> bool:
        """Return whether the Shim is gone."""
        return not self.kubectl("get", "shims", "-o", "name")


def walk_through(cluster: C, how: How) -> WalkThrough[C]:
    """Import the images as the page says, and the image of a Wasm pod."""
    for archive in (services_image(how), installer_image(how), nats_image(how)):
        cluster.load(archive)
    cluster.load(hello_wasm_image(hello_module(how), how))
    return WalkThrough(cluster, hashlib.sha256(shim(how).read_bytes()).hexdigest())
