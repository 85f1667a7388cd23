"""What deploy/examples shows happens: each is applied as it stands, by the real kubectl, while the services run.

Nodes are simulated, so no image is fetched. The lattice's address is the one thing that is changed, by a kustomization
over the example: its NATS is the test's.
"""

from __future__ import annotations

import asyncio
import contextlib
import http
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from support.examples import EXAMPLES, manifest
from support.fleet import Fleet, eventually
from support.host_world import PATIENCE, HostWorld, host_world
from support.kept import KeptWorld, kept_world
from support.kubelets import kubelets
from support.reflected import ReflectedWorld
from support.shims import Shim
from support.wadm_stand_in import WadmStandIn
from trellis.kube.resources import APPLICATIONS, DEPLOYMENTS, HOST_CONFIGS, PODS, SERVICES, Resource
from trellis.localcluster import ClusterInfo
from trellis.localcluster.api import Api
from trellis.localcluster.nats import NatsServer

pytestmark = [pytest.mark.cluster, pytest.mark.nats, pytest.mark.xdist_group("cluster")]

AUTOSCALERS = Resource("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", namespaced=True)
HELLO = "hello"
LET_GO = (HOST_CONFIGS, APPLICATIONS, SERVICES)
SCALING_SECONDS = 120.0
"""The autoscaler of Kubernetes looks every 15 s, and learns of new kinds every 30 s."""
Kubectl = Callable[..., str]


@pytest.fixture
def kubectl(cluster: ClusterInfo) -> Kubectl:
    """The real one; it has to succeed."""
    environment = os.environ | {"KUBECONFIG": str(cluster.kubeconfig)}

    def run(*words: str) -> str:
        command = [str(cluster.bin_dir / "kubectl"), *words]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@contextlib.contextmanager
def free(api: Api, *namespaces: str) -> Iterator[None]:
    """Have namespaces that examples name for the time of a block: other tests of this cluster may use them, too."""
    await_gone(api, *namespaces)
    yield
    for name in namespaces:
        api.call("DELETE", f"/api/v1/namespaces/{name}")
        deadline = time.monotonic() + PATIENCE
        while api.call("GET", f"/api/v1/namespaces/{name}")[0] != http.HTTPStatus.NOT_FOUND:
            let_go(api, name)
            assert time.monotonic() < deadline, f"namespace {name} does not go"
            time.sleep(0.2)


def let_go(api: Api, namespace: str) -> None:
    """Do what nobody is there any more to do: take finalizers, and end pods whose node is gone."""
    for kind in LET_GO:
        for one in api.call("GET", kind.path(namespace))[1].get("items") or ():
            api.call("PATCH", kind.path(namespace, one["metadata"]["name"]), {"metadata": {"finalizers": None}})
    for one in api.call("GET", PODS.path(namespace))[1].get("items") or ():
        api.call("DELETE", PODS.path(namespace, one["metadata"]["name"]), {"gracePeriodSeconds": 0})


def await_gone(api: Api, *namespaces: str) -> None:
    """Wait until nobody has these namespaces."""
    deadline = time.monotonic() + PATIENCE
    for name in namespaces:
        while api.call("GET", f"/api/v1/namespaces/{name}")[0] != http.HTTPStatus.NOT_FOUND:
            assert time.monotonic() < deadline, f"namespace {name} does not go"
            time.sleep(0.1)


@pytest.fixture
def hello(fleet: Fleet, kubectl: Kubectl) -> Iterator[HostWorld]:
    """The namespace of the lattice."""
    with free(fleet.api, HELLO):
        kubectl("apply", "-f", str(EXAMPLES / "host-group/namespace.yaml"))
        with host_world(fleet, HELLO) as made:
            yield made


@pytest.fixture
def elsewhere(hello: HostWorld, kubectl: Kubectl, nats_server: NatsServer, tmp_path: Path) -> HostWorld:
    """The group of the example on the test's NATS, by a kustomization over it."""
    address = {"natsAddress": "nats://127.0.0.1", "natsClientPort": nats_server.port}
    patch = [{"op": "add", "path": f"/spec/{field}", "value": value} for field, value in address.items()]
    over = {
        "resources": [os.path.relpath(EXAMPLES / "host-group", tmp_path.resolve())],
        "patches": [{"target": {"kind": HOST_CONFIGS.kind}, "patch": yaml.safe_dump(patch)}],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(over))
    kubectl("apply", "-k", str(tmp_path))
    return hello


async def test_the_shim_goes_to_nodes_with_the_label(fleet: Fleet, shim: Shim, kubectl: Kubectl) -> None:
    shim.name = str(manifest("shim", "Shim")["metadata"]["name"])
    labelled, other = fleet.add("node", "node", opted_in=False)
    kubectl("label", "node", labelled, "wasm=true")
    async with fleet.services(), kubelets(fleet):
        kubectl("apply", "-k", str(EXAMPLES / "shim"))
        await eventually(
            lambda: shim.condition("Available") == ("True", "AllNodesReady"), "available", seconds=PATIENCE
        )
        assert shim.has(labelled)
        assert not shim.has(other)
        assert (shim.runtime_class() or {})["handler"] == "spin"
        await asyncio.to_thread(kubectl, "delete", "-k", str(EXAMPLES / "shim"), "--timeout=50s")
        assert not shim.has(labelled)


async def test_the_host_group_has_its_host_beside_nats_and_wadm(hello: HostWorld, kubectl: Kubectl) -> None:
    async with hello.service():
        kubectl("apply", "-k", str(EXAMPLES / "host-group"))
        await hello.settled(HELLO)
        assert hello.status(HELLO)["readyReplicas"] == 1

        def available() -> set[str]:
            found = hello.call("GET", DEPLOYMENTS)["items"]
            return {one["metadata"]["name"] for one in found if one["status"].get("availableReplicas") == 1}

        await eventually(lambda: available() == {"nats", "wadm", HELLO}, "all are available", seconds=PATIENCE)


async def test_the_autoscaler_of_kubernetes_changes_the_number_of_hosts_and_argo_cd_leaves_it(
    hello: HostWorld, kubectl: Kubectl
) -> None:
    """Without metrics it still holds the group between its two numbers."""
    least, most = (manifest("hpa", "HorizontalPodAutoscaler")["spec"][f"{one}Replicas"] for one in ("min", "max"))
    argo = ("apply", "--server-side", "--field-manager=argocd-controller", "-k", str(EXAMPLES / "host-group"))

    def ready(count: int) -> Callable[[], bool]:
        return lambda: bool(hello.status(HELLO).get("readyReplicas", 0) == count)

    async with hello.service():
        kubectl(*argo)
        await hello.settled(HELLO)
        kubectl("apply", "-k", str(EXAMPLES / "hpa"))
        await eventually(ready(least), "as many as the least", seconds=SCALING_SECONDS)
        kubectl(*argo)
        assert hello.call("GET", HOST_CONFIGS, HELLO)["spec"]["hostReplicas"] == least
        kubectl("scale", "whc", HELLO, "-n", HELLO, f"--replicas={most + 2}")
        await eventually(ready(most), "as many as the most", seconds=SCALING_SECONDS)
        said = {one["type"]: one["status"] for one in hello.call("GET", AUTOSCALERS, HELLO)["status"]["conditions"]}
        assert said["AbleToScale"] == "True", said


async def test_a_target_of_keda_is_scaled_to_none_and_back(hello: HostWorld, kubectl: Kubectl) -> None:
    """KEDA itself writes /scale between none and one; from there on an autoscaler of Kubernetes does."""
    target = manifest("keda", "ScaledObject")["spec"]["scaleTargetRef"]
    assert (target["kind"], target["name"]) == (HOST_CONFIGS.kind, HELLO)

    async def scaled(count: int) -> None:
        scale = hello.call("GET", HOST_CONFIGS, HELLO, sub="scale")
        hello.call("PUT", HOST_CONFIGS, HELLO, scale | {"spec": {"replicas": count}}, sub="scale")
        await hello.settled(HELLO)
        await eventually(lambda: hello.status(HELLO).get("readyReplicas", 0) == count, f"{count}", seconds=PATIENCE)

    async with hello.service():
        kubectl("apply", "-k", str(EXAMPLES / "host-group"))
        await hello.settled(HELLO)
        await scaled(0)
        await scaled(1)


@pytest.fixture
def kept(elsewhere: HostWorld, nats_server: NatsServer) -> Iterator[KeptWorld]:
    with kept_world(elsewhere, nats_server.port, HELLO) as made:
        yield made


async def test_the_application_is_in_wadm_and_has_its_service(
    kept: KeptWorld, kubectl: Kubectl, nats_server: NatsServer
) -> None:
    world = ReflectedWorld(kept.hosts, nats_server)
    async with WadmStandIn(nats_server.url, HELLO):
        async with kept.manager():
            kubectl("apply", "-k", str(EXAMPLES / HELLO))
            await kept.synced(HELLO)
        async with world.reflector():
            await world.has_service(HELLO, 8080)
        world.clean_up()
        async with kept.manager():
            await asyncio.to_thread(kubectl, "delete", "-k", str(EXAMPLES / HELLO), "--timeout=50s")
            await kept.gone(HELLO)
