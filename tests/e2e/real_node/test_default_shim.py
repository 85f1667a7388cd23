"""The default Shim on real nodes: after an installation of the chart, the annotation is all that a node needs."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from support.chart.chart_cluster import NATS_IMAGE, chart_cluster
from support.nodes.installer_image import INSTALLER
from support.nodes.real_nodes import Kubectl, eventually, wasm_pod
from trellis import names
from trellis.provisioning.views import VerifiedBy
from trellis_dev.commands.images import chart_values
from trellis_dev.localcluster.building import How
from trellis_dev.localcluster.node_images import hello_wasm_image
from trellis_dev.localcluster.wasmshim import IN_IMAGE, SHIM, hello_module, shim

NODE, OTHER = "real-1", "real-0"


def labels(kubectl: Kubectl, node: str) -> dict[str, str]:
    return dict(kubectl.get("node", node)["metadata"]["labels"])


def test_an_annotated_node_runs_wasm_with_the_runtime_of_the_installers_image(
    machine: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert machine
    sums: list[str] = []

    def hello(how: How) -> Path:
        sums.append(hashlib.sha256(shim(how).read_bytes()).hexdigest())
        return hello_wasm_image(hello_module(how), how)

    with chart_cluster(tmp_path_factory.mktemp("default"), (hello,)) as cluster:
        kubectl = cluster.kubectl
        cluster.prepare()
        default = chart_values(sums[0])["defaultShim"]
        cluster.install(mode="bundle", nats={"image": NATS_IMAGE, "replicas": 1}, defaultShim=default)
        eventually(lambda: "wasi" in kubectl("get", "shims", "-o", "name"), "the Job has applied the Shim")
        [source] = kubectl.get("shim", "wasi")["spec"]["fetchStrategy"]["platforms"]
        assert source["location"] == f"{IN_IMAGE}/{SHIM}"

        kubectl("annotate", "node", NODE, f"{names.ANNOTATION_OPT_IN}=true")
        eventually(lambda: labels(kubectl, NODE).get("wasi") == names.SHIM_PROVISIONED, "the node has the runtime")
        annotations = kubectl.get("node", NODE)["metadata"]["annotations"]
        assert annotations[names.ANNOTATION_VERIFIED] == VerifiedBy.CANARY
        assert "wasi" in kubectl.handlers(NODE)
        assert "wasi" not in labels(kubectl, OTHER), "a node without the annotation is left alone"
        [image] = {
            container["image"]
            for job in cluster.listed("jobs", "-n", "trellis-installers")
            for container in job["spec"]["template"]["spec"]["containers"]
        } or {INSTALLER}
        assert image == INSTALLER

        pod = wasm_pod("hello", NODE, "wasi")
        del pod["spec"]["nodeName"]  # the RuntimeClass leads it there
        kubectl.create(pod)
        assert kubectl.ended("hello") == "hello from wasm\n"
        kubectl("delete", "pod", "hello", "--now")

        kubectl("annotate", "node", NODE, f"{names.ANNOTATION_OPT_IN}-")
        eventually(lambda: "wasi" not in labels(kubectl, NODE), "the runtime is taken away again")
        eventually(lambda: "wasi" not in kubectl.handlers(NODE), "the node does not list it any more")
        kubectl("delete", "shim", "wasi", "--timeout=180s")
        cluster.uninstall()
        cluster.clean()
