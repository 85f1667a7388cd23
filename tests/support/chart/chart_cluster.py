"""The chart in a cluster of real nodes: the images on every node, volumes for its claims, what runs and what is left.

In: an empty folder, values. Out: an installation by Helm whose pods run, and everything that there is in the cluster
before and after. Called by tests of the chart. The namespace of the installation is held to Pod Security's
`restricted`, so a pod that asks for more is refused. Nothing is fetched: images are local ones, pulled never.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from support.chart.rendered import CHART, SYSTEM, Manifest, helm
from support.chart.services_image import SERVICES, image_of, services_image
from support.lattices.host_images import NATS, nats_image
from support.nodes.installer_image import INSTALLER, installer_image
from support.nodes.real_nodes import Kubectl, eventually
from trellis_dev.localcluster import ClusterInfo, owned_cluster
from trellis_dev.localcluster.building import How
from trellis_dev.localcluster.progress import Lines
from trellis_dev.localcluster.realnode_faults import load_image, run_in

RELEASE: Final = "trellis"
SECONDS: Final = 420.0
"""In which all pods of an installation are to run: fourteen Python programs start, on what may be two cores."""
NODES: Final = 3
NATS_IMAGE: Final = image_of(NATS)
_QUICK: Final = {"TRELLIS_ALLOW_HTTP": "true", "TRELLIS_RETRY_MIN": "2s", "TRELLIS_RETRY_MAX": "5s"}
_VOLUMES: Final = "/srv/trellis"
_PASSING: Final = frozenset({"events", "events.events.k8s.io", "leases.coordination.k8s.io", "pods.metrics.k8s.io"})
"""Kinds whose objects come and go by themselves."""


@dataclass(frozen=True)
class Inventory:
    """All objects of a cluster, as ``<resource>/<namespace>/<name>``, and labels and annotations of its nodes."""

    objects: frozenset[str]
    nodes: Mapping[str, Mapping[str, str]]

    def new_in(self, later: Inventory) -> list[str]:
        """Return what is there later and was not before."""
        return sorted(later.objects - self.objects)


@dataclass(frozen=True)
class ChartCluster:
    """A cluster of real nodes that have the images, in which the chart can be installed, once at a time."""

    info: ClusterInfo
    kubectl: Kubectl

    def values(self, **more: Any) -> dict[str, Any]:
        """Return values for local images and what a test changes."""
        return {
            "cluster": "lab",
            "image": {**image_of(SERVICES), "pullPolicy": "Never"},
            "installers": {"image": {**image_of(INSTALLER), "pullPolicy": "Never"}},
            "nats": {"image": NATS_IMAGE},
            "services": {"provisioner": {"settings": dict(_QUICK)}, "console": {"enabled": True}},
            **more,
        }

    def prepare(self) -> None:
        """Make the namespace of the installation, and a volume for NATS on each node."""
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        self.kubectl.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM, "labels": labels}})
        for node in self.info.real_nodes:
            run_in(self.info.name, node.name, ["rm", "-rf", _VOLUMES])
            run_in(self.info.name, node.name, ["mkdir", "-p", _VOLUMES])
            self.kubectl.create(volume(node.name))
        eventually(lambda: len(self.listed("serviceaccounts,configmaps", "-n", SYSTEM)) == 2, "the namespace is filled")

    def clean(self) -> None:
        """Take away what the docs leave to people: both namespaces, the kinds, and the volumes of :meth:`prepare`."""
        self.kubectl("delete", "namespace", SYSTEM, "trellis-installers", "--ignore-not-found", "--timeout=120s")
        self.kubectl("delete", "-R", "-f", str(CHART.parents[1] / "crds"), "--ignore-not-found", "--timeout=60s")
        self.kubectl("delete", "persistentvolume", *(node.name for node in self.info.real_nodes), "--timeout=60s")

    def helm(self, *arguments: str, values: Mapping[str, Any] | None = None) -> str:
        """Run Helm in the namespace of the installation."""
        return helm(*arguments, "--namespace", SYSTEM, values=values, kubeconfig=Path(self.info.kubeconfig))

    def install(self, chart: Path = CHART, **values: Any) -> None:
        """Install a version of the chart, or upgrade to it, and wait until everything in it runs."""
        self.helm("upgrade", "--install", RELEASE, str(chart), values=self.values(**values))
        self.until_available()

    def uninstall(self) -> None:
        """Uninstall the chart as its page says, and wait until no pod is left."""
        self.helm("uninstall", RELEASE, "--wait", "--timeout", "110s")
        eventually(lambda: not self.listed("pods", "-n", SYSTEM), "no pod is left")

    def restarted(self) -> list[str]:
        """Return the containers that ended and were started again, with how they ended."""
        return [
            f"{pod['metadata']['name']}: {status['lastState']}"
            for pod in self.listed("pods", "-n", SYSTEM)
            for status in pod["status"].get("containerStatuses", ())
            if status["restartCount"]
        ]

    def workloads(self) -> list[Manifest]:
        """Return the Deployments and StatefulSets of the installation."""
        return self.listed("deployments,statefulsets", "-n", SYSTEM)

    def listed(self, *arguments: str) -> list[Manifest]:
        """Return the objects that ``kubectl get`` finds."""
        return list(json.loads(self.kubectl("get", *arguments, "-o", "json"))["items"])

    def until_available(self) -> None:
        """Wait until each Deployment and StatefulSet has all its pods as they should be, and no others.

        Raises:
            AssertionError: it takes too long; says why.
        """
        deadline = time.monotonic() + SECONDS
        while (late := [workload for workload in self.workloads() if not rolled_out(workload)]) or not self.workloads():
            if time.monotonic() > deadline:
                raise AssertionError(self.trouble([item["metadata"]["name"] for item in late]))
            time.sleep(0.5)

    def trouble(self, late: list[str]) -> str:
        """Return what keeps workloads from being there: pods, Events, and the end of each pod's log."""
        lines = [f"not available after {SECONDS:.0f} s: {', '.join(late) or 'nothing is there'}"]
        lines.append(self.kubectl("get", "pods", "-n", SYSTEM, "-o", "wide"))
        lines.append(self.kubectl("get", "events", "-n", SYSTEM, "--field-selector", "type=Warning"))
        for pod in self.listed("pods", "-n", SYSTEM):
            if not all(status["ready"] for status in pod["status"].get("containerStatuses", [{"ready": False}])):
                name = pod["metadata"]["name"]
                lines.append(f"--- {name}")
                lines.append(self.kubectl("logs", "-n", SYSTEM, name, "--tail=15", "--ignore-errors=true"))
        return "\n".join(lines)

    def inventory(self) -> Inventory:
        """Return all that there is, but for what comes and goes by itself."""
        resources = set(self.kubectl("api-resources", "--verbs=list", "-o", "name").split()) - _PASSING
        objects = set()
        for resource in sorted(resources):
            for item in self.listed(resource, "-A"):
                metadata = item["metadata"]
                objects.add(f"{resource}/{metadata.get('namespace', '')}/{metadata['name']}")
        nodes = {
            item["metadata"]["name"]: {**item["metadata"]["labels"], **item["metadata"].get("annotations", {})}
            for item in self.listed("nodes")
        }
        return Inventory(frozenset(objects), nodes)


def volume(node: str) -> Manifest:
    """Return a volume on a node's disk: no controller creates any here when they are claimed."""
    place = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    spec = {
        "capacity": {"storage": "3Gi"},
        "accessModes": ["ReadWriteOnce"],
        "local": {"path": _VOLUMES},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [place]}]}},
    }
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": node}, "spec": spec}


def rolled_out(workload: Manifest) -> bool:
    """Return whether the pods of a Deployment or StatefulSet have its last template and are ready, without others."""
    wanted, status = workload["spec"]["replicas"], workload.get("status", {})
    counts = [status.get(count, 0) for count in ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")]
    return bool(status.get("observedGeneration") == workload["metadata"]["generation"] and set(counts) == {wanted})


def load_as(info: ClusterInfo, known: str, *others: str) -> None:
    """Have an image that every node has go by the names of published ones, too: no registry is asked for these."""
    for node in info.real_nodes:
        for name in others:
            done = run_in(info.name, node.name, ["ctr", "--namespace", "k8s.io", "images", "tag", known, name])
            assert done.returncode == 0, done.stderr


@contextmanager
def chart_cluster(folder: Path, images: Sequence[Callable[[How], Path]] = ()) -> Iterator[ChartCluster]:
    """Have such a cluster for the time of a block. ``folder``: an empty one; ``images``: what makes more of them."""
    how = How(Lines(), threading.Event())
    archives = [services_image(how), installer_image(how), nats_image(folder / "nats.tar", how)]
    archives += [make(how) for make in images]
    with owned_cluster(real_nodes=NODES) as info:
        for node in info.real_nodes:
            for archive in archives:
                load_image(info.name, node.name, archive)
        yield ChartCluster(info, Kubectl(info))
