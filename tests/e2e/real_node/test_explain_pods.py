"""Pods that are broken for real, on a kubelet and containerd: the page of ``trellis explain`` has their first cause."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.nodes.real_nodes import Kubectl, RealNode
from support.wasm_pods.on_a_node import NODE, PLUGINS, create_class, image, load_images, put_shims, registry, wasm
from trellis.kube.access import Access
from trellis.kube.client import Kube
from trellis.read_model.explain.page import Explanation
from trellis.read_model.reading.cluster import Reading
from trellis.read_model.reading.explained_pods import pods_page
from trellis.read_model.wasm_pods.reasons import Reason
from trellis.telemetry import setup
from trellis.telemetry.health import Health
from trellis_dev.definitions import define_kinds
from trellis_dev.localcluster import owned_cluster
from trellis_dev.localcluster.building import How
from trellis_dev.localcluster.node_images import HELLO_WASM
from trellis_dev.localcluster.progress import Lines, Quiet
from trellis_dev.localcluster.realnode_faults import load_image

HOW = How(Lines(), threading.Event())
PATIENCE = 120.0
PROBE = {"periodSeconds": 1, "failureThreshold": 1, "tcpSocket": {"port": 8080}}
FROM = {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "nothing", "key": "a"}}}


@dataclass(frozen=True)
class World:
    """The cluster, and the host of the registry."""

    kubectl: Kubectl
    kubeconfig: Path
    images: str

    def finds(self, reason: Reason | None, kind: str, name: str) -> Explanation:
        """Wait until the page of an object has this cause, or none; return it."""

        async def look() -> Explanation:
            access = Access(self.kubeconfig)
            kube = await Kube.connect(access, telemetry=setup("explain"), health=Health("explain"))
            deadline = time.monotonic() + PATIENCE
            try:
                while True:
                    page = await pods_page(Reading(kube, "trellis-system"), kind, name, "default")
                    if (page.cause.reason if page.cause else None) == reason:
                        return page
                    assert time.monotonic() < deadline, f"{page.verdict.reason}: {page.headline}"
                    await asyncio.sleep(0.5)
            finally:
                await kube.close()
                # aiohttp closes TLS connections a moment after its session.
                await asyncio.sleep(0.25)

        return asyncio.run(look())


@pytest.fixture(scope="module", params=PLUGINS)
def world(
    machine: dict[str, str],
    wasm_images: list[Path],
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Iterator[World]:
    """A real node with containerd 2, then one with containerd 1.6, which lists no handlers."""
    assert machine
    with owned_cluster(real_nodes=1, containerd=request.param) as info:
        node = RealNode(info)
        define_kinds(info, Quiet())
        load_image(info.name, NODE, wasm_images[1])
        load_images(info, tmp_path_factory.mktemp("odd"), HOW)
        put_shims(node, HOW, request.param)
        create_class(node.kubectl, "no-handler", "nothing")
        create_class(node.kubectl, "no-label", "wasi", nodeSelector={"runtime": "none"})
        create_class(node.kubectl, "on-node", "wasi", nodeSelector={"kubernetes.io/hostname": NODE})
        with registry(node) as host:
            yield World(node.kubectl, Path(info.kubeconfig), host)


PODS: dict[str, tuple[dict[str, Any], Reason | None, tuple[str, ...]]] = {
    "works": (wasm("works", image=HELLO_WASM), None, ()),
    "no-node": (wasm("no-node", "sleeps", "no-label", node=""), Reason.NO_NODE_WITH_LABEL, ("runtime=none",)),
    "no-handler": (wasm("no-handler", "sleeps", "no-handler"), Reason.HANDLER_NOT_CONFIGURED, ("nothing", NODE)),
    "shim-exits": (wasm("shim-exits", "sleeps", "exits"), Reason.SANDBOX_FAILED, (NODE,)),
    "shim-of-another": (wasm("shim-of-another", "sleeps", "other"), Reason.SHIM_NOT_EXECUTABLE, (NODE,)),
    "not-on-node": (
        wasm("not-on-node", image="trellis.local/none:1"),
        Reason.IMAGE_NOT_FOUND,
        ("trellis.local/none:1",),
    ),
    "no-wasm": (wasm("no-wasm", "text"), Reason.IMAGE_NOT_ACCEPTED, ("main",)),
    "no-entrypoint": (
        wasm("no-entrypoint", "sleeps", command=["/nothing.wasm"]),
        Reason.IMAGE_NOT_ACCEPTED,
        ("main",),
    ),
    "no-class": (wasm("no-class", "sleeps", runtime_class=""), Reason.RUNTIME_CLASS_NOT_SET, ("main",)),
    "imports": (wasm("imports"), Reason.INTERFACE_MISSING, ("wasi:nothing/at-all",)),
    "traps": (wasm("traps"), Reason.SHIM_ERROR, ("137", "unreachable", NODE)),
    "program": (wasm("program"), Reason.SHIM_ERROR, ("255", NODE)),
    "exits": (wasm("exits"), Reason.EXITED, ("status 3",)),
    "config": (wasm("config", "sleeps", env=[FROM]), Reason.CONFIG_MISSING, ("nothing",)),
    "probe": (wasm("probe", "sleeps", readinessProbe=PROBE), Reason.PROBE_FAILED, ("8080",)),
    "liveness": (wasm("liveness", "sleeps", livenessProbe=PROBE), Reason.PROBE_FAILED, ("8080", "Liveness")),
}


@pytest.fixture(scope="module")
def pods(world: World) -> World:
    """All pods at once, so that the slow ones do not wait for each other."""
    for manifest, _, _ in PODS.values():
        world.kubectl.create(manifest)
    return world


@pytest.mark.parametrize("name", PODS)
def test_a_pod_that_is_broken_has_its_cause(pods: World, name: str) -> None:
    _, reason, named = PODS[name]
    page = pods.finds(reason, "pod", name)
    assert all(item in page.headline for item in named), page.headline
    pods.kubectl("delete", "pod", name, "--force", "--grace-period=0", "--wait=false")


def test_the_log_of_a_container_has_the_error_of_the_runtime(world: World) -> None:
    world.kubectl.create(wasm("logged", "imports"))
    world.finds(Reason.INTERFACE_MISSING, "pod", "logged")
    assert "wasi:nothing/at-all" in world.kubectl("logs", "logged")
    world.kubectl("delete", "pod", "logged", "--force", "--grace-period=0", "--wait=false")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("wrong", Reason.IMAGE_FOR_ANOTHER_PLATFORM),
        ("private", Reason.REGISTRY_DENIED),
        ("missing", Reason.IMAGE_NOT_FOUND),
    ],
)
def test_an_image_that_cannot_be_pulled_has_its_cause(world: World, name: str, reason: Reason) -> None:
    of = f"{world.images}/{name}:1"
    world.kubectl.create(wasm(f"image-{name}", image=of, imagePullPolicy="IfNotPresent"))
    page = world.finds(reason, "pod", f"image-{name}")
    assert of in page.headline
    world.kubectl("delete", "pod", f"image-{name}", "--force", "--grace-period=0", "--wait=false")


def test_a_volume_that_cannot_be_mounted_has_its_cause(world: World) -> None:
    manifest = wasm("volume", "sleeps")
    manifest["spec"]["volumes"] = [{"name": "v", "secret": {"secretName": "nothing"}}]
    manifest["spec"]["containers"][0]["volumeMounts"] = [{"name": "v", "mountPath": "/v"}]
    world.kubectl.create(manifest)
    assert "nothing" in world.finds(Reason.VOLUME_NOT_MOUNTED, "pod", "volume").headline


def test_a_taint_keeps_a_pod_from_its_node_until_it_is_tolerated(world: World) -> None:
    world.kubectl("taint", "node", NODE, "gpu=yes:NoSchedule")
    try:
        world.kubectl.create(wasm("tainted", "sleeps", "on-node", node=""))
        assert "gpu=yes:NoSchedule" in world.finds(Reason.TAINT_NOT_TOLERATED, "pod", "tainted").headline
    finally:
        world.kubectl("taint", "node", NODE, "gpu-")
    world.finds(None, "pod", "tainted")
    world.kubectl("delete", "pod", "tainted", "--force", "--grace-period=0", "--wait=false")


def test_a_runtime_class_that_is_missing_is_the_cause_of_a_pod_and_of_a_deployment_without_pods(world: World) -> None:
    create_class(world.kubectl, "fleeting", "wasi", nodeSelector={"runtime": "none"})
    world.kubectl.create(wasm("fleeting", "sleeps", "fleeting", node=""))
    world.kubectl("delete", "runtimeclass", "fleeting")
    assert "fleeting" in world.finds(Reason.RUNTIME_CLASS_MISSING, "pod", "fleeting").headline
    spec = {"containers": [{"name": "main", "image": image("sleeps"), "imagePullPolicy": "Never"}]}
    template = {"metadata": {"labels": {"app": "none"}}, "spec": spec | {"runtimeClassName": "fleeting"}}
    deployment = {"replicas": 1, "selector": {"matchLabels": {"app": "none"}}, "template": template}
    world.kubectl.create(
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "none"}, "spec": deployment}
    )
    world.finds(Reason.RUNTIME_CLASS_MISSING, "deployment", "none")
    world.kubectl("patch", "deployment", "none", "-p", '{"spec":{"template":{"spec":{"runtimeClassName":"wasi"}}}}')
    world.finds(None, "deployment", "none")
