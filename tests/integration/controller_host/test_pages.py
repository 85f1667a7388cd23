"""The commands of docs/controllers-writing.md, given as they stand there, end in controllers that run."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.guests.built import PREBUILT
from support.guests.controllers_world import Host, Tenant, until
from support.suite.pages import DOCS, blocks
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.api import Api

pytestmark = [pytest.mark.cluster, pytest.mark.nats, pytest.mark.thorough]

PAGE = DOCS / "controllers-writing.md"
NAMESPACES = ("team-a", "copies")
PREFIX = "kubectl "
Kubectl = Callable[[str], str]


@pytest.fixture
def kubectl(cluster: ClusterInfo, cluster_api: Api, tmp_path: Path) -> Iterator[Kubectl]:
    """Gives a line that begins with kubectl, where the page says that one is: in sdk/c, of a clone."""
    place = tmp_path / "clone" / "sdk" / "c"
    place.mkdir(parents=True)
    examples = tmp_path / "clone" / "deploy" / "examples"
    examples.mkdir(parents=True)
    (examples / "controllers").symlink_to(PREBUILT)
    for module in ("mirror", "ttl"):
        (place / f"{module}.wasm").write_bytes((PREBUILT / f"{module}.wasm").read_bytes())
    environment = os.environ | {"KUBECONFIG": str(cluster.kubeconfig)}

    def give(line: str) -> str:
        assert line.startswith(PREFIX), line
        command = [f"{cluster.bin_dir}/kubectl", *line.removeprefix(PREFIX).split()]
        done = subprocess.run(
            command, cwd=place, env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    yield give
    for namespace in NAMESPACES:
        for name in ("mirror", "ttl"):
            cluster_api.call("DELETE", f"/apis/trellis.dev/v1alpha1/namespaces/{namespace}/wasmcontrollers/{name}")
        cluster_api.call("DELETE", f"/api/v1/namespaces/{namespace}")


async def test_its_commands_install_a_controller_that_behaves_as_documented(
    host: Host, cluster_api: Api, kubectl: Kubectl
) -> None:
    team, copies = (Tenant(cluster_api, name) for name in NAMESPACES)
    async with host.serving():
        for line in blocks(PAGE)["sh", "install"].splitlines():
            await asyncio.to_thread(kubectl, line)
        await until(lambda: team.condition("mirror", "Ready") == ("True", "Running"), "the example is ready")
        create, label, show, delete = blocks(PAGE)["sh", "try"].splitlines()
        await asyncio.to_thread(kubectl, create)
        await asyncio.to_thread(kubectl, label)
        await until(lambda: copies.data("settings") == {"colour": "blue"}, "it is in the other namespace")
        assert "colour: blue" in await asyncio.to_thread(kubectl, show)
        await asyncio.to_thread(kubectl, delete)
        await until(lambda: copies.data("settings") is None, "it is gone there")

        commands = [
            line for line in (PREBUILT / "ttl.yaml").read_text().splitlines() if "kubectl create configmap" in line
        ]
        await asyncio.to_thread(kubectl, commands[0][commands[0].index(PREFIX) :])
        await asyncio.to_thread(kubectl, "kubectl apply -f ../../deploy/examples/controllers/ttl.yaml")
        await until(lambda: team.condition("ttl", "Ready") == ("True", "Running"), "the other example is ready")
        assert "True" in await asyncio.to_thread(kubectl, "kubectl get wasmcontrollers -n team-a")
