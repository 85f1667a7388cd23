"""An application on a real node: what its Service names is what answers, before and after a host's pod is replaced.

The hosts are stubs that listen and answer with their pod's name; the test speaks for wadm. host_manager and
service_reflector are a process beside the cluster.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from support.lattices.host_behaviour import own_lattice
from support.lattices.host_images import NATS, OLD_VERSION, host_image
from support.lattices.lattice_speaker import LatticeSpeaker
from support.lattices.reflected import Wadm
from support.nodes.fleet import eventually
from support.nodes.real_nodes import Kubectl
from support.suite.service_process import running
from support.wadm.manifests import ANY_HOST, capability, link, manifest
from trellis import names
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.realnode_faults import run_in

NODE = "real-0"
PATIENCE = 240.0
PORT = 8123
SERVICES = ("host-manager", "service-reflector")


def group(info: ClusterInfo, name: str, lattice: str, **spec: Any) -> dict[str, Any]:
    """Return a group of stubs that listen on :data:`PORT`."""
    env = [{"name": "STUB_HEARTBEAT", "value": "1"}, {"name": "STUB_HTTP", "value": str(PORT)}]
    spec = {
        "lattice": lattice,
        "version": OLD_VERSION,
        "image": host_image(OLD_VERSION),
        "natsLeafImage": NATS,
        "natsAddress": info.lattice_nats,
        "drainSeconds": 2,
        "schedulingOptions": {"containerTemplateAdditions": {"wasmcloud": {"env": env}}},
        **spec,
    }
    kind = {"apiVersion": "k8s.wasmcloud.dev/v1alpha1", "kind": "WasmCloudHostConfig"}
    return {**kind, "metadata": {"name": name}, "spec": spec}


@contextlib.asynccontextmanager
async def services(info: ClusterInfo, directory: Path) -> AsyncIterator[None]:
    """Run the services as a process of their own, with the cluster's NATS as their bus."""
    log = directory / "services.log"
    settings = {"KUBECONFIG": str(info.kubeconfig), "NATS_URL": info.nats_url, "HEALTH_PORT": "0"}
    settings |= {"NAMESPACE": "trellis-system", "SOURCES_SECONDS": "2"}
    async with running(log, *SERVICES, **{f"TRELLIS_{key}": value for key, value in settings.items()}) as process:
        yield
        assert process.returncode is None, log.read_text()


def endpoints(kubectl: Kubectl, service: str) -> list[tuple[str, str, int, bool]]:
    """Return pod, address, port and readiness of each endpoint in the Service's slices."""
    listed = json.loads(kubectl("get", "endpointslices", "-l", f"{names.LABEL_SERVICE_NAME}={service}", "-o", "json"))
    return [
        (
            endpoint["targetRef"]["name"],
            endpoint["addresses"][0],
            each["ports"][0]["port"],
            endpoint["conditions"]["ready"],
        )
        for each in listed["items"]
        for endpoint in each.get("endpoints") or ()
    ]


def answer(info: ClusterInfo, address: str, port: int) -> str:
    """Return what answers in the node's network, "" while nothing does."""
    url = f"http://{address}:{port}/"
    # `timeout`, because this wget's own -T makes it crash.
    return run_in(info.name, NODE, ["busybox", "timeout", "3", "busybox", "wget", "-qO-", url]).stdout.strip()


async def leads(info: ClusterInfo, service: str, *, without: str = "") -> str:
    """Wait until a Service leads to one pod only, and not to ``without``, and this answers; return the pod's name."""
    kubectl, seen = Kubectl(info), ""

    def one_that_answers() -> bool:
        nonlocal seen
        found = endpoints(kubectl, service)
        answers = [answer(info, address, port) for _, address, port, _ in found]
        seen = f"{found}, which answer {answers}"
        return len(found) == 1 and found[0][3] and found[0][0] != without and answers == [found[0][0]]

    try:
        await eventually(one_that_answers, "one endpoint, which answers", seconds=PATIENCE)
    except AssertionError:
        pytest.fail(f"{service} leads to {seen}\n{kubectl('get', 'pods', '-o', 'wide')}")
    return endpoints(kubectl, service)[0][0]


async def test_a_request_reaches_the_pod_that_the_slice_names(host_cluster: ClusterInfo, tmp_path: Path) -> None:
    lattice, kubectl = own_lattice(), Kubectl(host_cluster)
    async with (
        services(host_cluster, tmp_path),
        LatticeSpeaker(f"{host_cluster.lattice_nats}:4222", lattice) as speaker,
        Wadm(speaker) as wadm,
    ):
        kubectl.create(group(host_cluster, "reached", lattice))
        await wadm.deploy(manifest("greeter", capability("httpserver", link(f"0.0.0.0:{PORT}"), ANY_HOST)))
        first = await leads(host_cluster, "greeter")

        kubectl("delete", "pod", first, "--wait=false")
        second = await leads(host_cluster, "greeter", without=first)

        address = kubectl.get("service", "greeter")["spec"]["clusterIP"]
        await eventually(
            lambda: answer(host_cluster, address, PORT) == second, "kube-proxy leads there, too", seconds=PATIENCE
        )

        await wadm.undeploy("greeter")
        await eventually(
            lambda: not kubectl("get", "service,endpointslice", "-l", f"{names.LABEL_NAME}=greeter", "-o", "name"),
            "the Service is gone",
            seconds=PATIENCE,
        )
        kubectl("delete", "whc", "reached", "--timeout=300s")
