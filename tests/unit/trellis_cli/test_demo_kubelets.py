"""The simulated kubelets of the demo: what installers left is listed on nodes of kwok, unless they are faulty."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import yaml

from provisioner.domain.resources import Task, make_installer_job
from provisioner.settings import Settings
from support.cluster.kube_world import until
from trellis import names
from trellis.installer_api.spec import InstallSpec, WantedShim, removal_of, shim_owner
from trellis.kube.resources import JOBS, NAMESPACES, NODES
from trellis.provisioning.nodes_and_jobs import view_node
from trellis.provisioning.shims import view_shim, wanted_shim_for
from trellis.provisioning.views import Target
from trellis.telemetry import setup
from trellis.telemetry.metrics import Metrics
from trellis_dev.demo.kubelets import FAULT, INSTALLER_STAGE, Kubelets
from trellis_dev.demo.shims import NAME, make_shim
from trellis_dev.fakes.fake import FakeKube
from trellis_dev.localcluster.nodes import node_manifest

INSTALLERS = "trellis-installers"
SHIM = view_shim(make_shim() | {"metadata": {"name": NAME, "uid": "u", "resourceVersion": "1"}})


def handlers(kube: FakeKube, name: str = "n") -> list[str]:
    [node] = [node for node in kube.objects(NODES) if node["metadata"]["name"] == name]
    return [runtime_handler["name"] for runtime_handler in node["status"].get("runtimeHandlers", [])]


def install(kube: FakeKube, *, removes: bool = False, job: str = "job") -> None:
    """Have an installer Job on node ``n`` that succeeded."""
    [node] = [view_node(node) for node in kube.objects(NODES) if node["metadata"]["name"] == "n"]
    wanted = wanted_shim_for(SHIM, node.architecture, require_checksum=True)
    assert isinstance(wanted, WantedShim)
    shims = (removal_of(NAME, shim_owner(NAME), NAME),) if removes else (wanted,)
    task = Task(Target(((NAME, wanted.digest),)), handlers=(NAME,), spec=InstallSpec(shims), removes=removes)
    manifest: dict[str, Any] = make_installer_job(Settings().installer(), node, task, 1, None)
    manifest["metadata"] |= {"name": job, "namespace": INSTALLERS}
    kube.put(NAMESPACES, {"metadata": {"name": INSTALLERS}})
    kube.put(JOBS, manifest | {"status": {"succeeded": 1}})


@contextlib.asynccontextmanager
async def running(*nodes: dict[str, Any]) -> AsyncIterator[FakeKube]:
    kube = FakeKube(telemetry=setup("test", metrics=Metrics()))
    for node in nodes:
        kube.put(NODES, node)
    task = asyncio.create_task(Kubelets(kube, INSTALLERS, retry=0.01).run())
    try:
        yield kube
        assert not task.done(), task
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_a_node_lists_the_handlers_that_installers_left() -> None:
    async with running(node_manifest("n")) as kube:
        await until(lambda: handlers(kube) == ["runc"], "a handler of its own")
        install(kube)
        await until(lambda: handlers(kube) == ["runc", NAME], "that of the Shim")
        install(kube, removes=True, job="removal")
        await until(lambda: handlers(kube) == ["runc"], "it was removed")


async def test_a_faulty_node_lists_them_only_once_it_is_repaired() -> None:
    faulty = node_manifest("n")
    faulty["metadata"]["annotations"][FAULT] = "true"
    async with running(faulty, node_manifest("other")) as kube:
        install(kube)
        await until(lambda: handlers(kube, "other") == ["runc"], "the other node")
        await until(lambda: handlers(kube) == ["runc"], "its own handler alone")
        del faulty["metadata"]["annotations"][FAULT]
        kube.put(NODES, faulty | {"status": faulty["status"] | {"runtimeHandlers": [{"name": "runc"}]}})
        await until(lambda: handlers(kube) == ["runc", NAME], "what is on its disk")


async def test_a_real_node_is_left_to_its_kubelet() -> None:
    real = {"metadata": {"name": "real", "labels": {}, "annotations": {}}, "status": {}}
    async with running(node_manifest("n"), real) as kube:
        await until(lambda: handlers(kube) == ["runc"], "the simulated one")
        assert handlers(kube, "real") == []


async def test_a_refused_write_is_repeated() -> None:
    async with running() as kube:
        kube.fail_next(1, when=lambda request: request.method == "PATCH")
        kube.put(NODES, node_manifest("n"))
        await until(lambda: handlers(kube) == ["runc"], "the second attempt")


def test_the_stage_is_for_installers_and_has_precedence_over_those_of_kwok() -> None:
    [stage] = yaml.safe_load_all(INSTALLER_STAGE)
    keys = [match_expression["key"] for match_expression in stage["spec"]["selector"]["matchExpressions"]]
    assert f'.metadata.labels["{names.LABEL_JOB}"]' in keys
    assert stage["spec"]["weight"] > 0
