"""What the installed Deployments say is enough: their commands, with their variables, accounts and users, become ready.

As processes, since no kubelet runs here: the kubeconfig stands for the pod's token, a port for its address, and the
address of the bus is the test server's. All else is as the API server has it after `helm install`.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import http
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from support.applications_kind import ApplicationsKind
from support.chart import CHART, Manifest, bus_server, helm
from support.grants import SYSTEM, granted
from support.service_process import ask, free_port
from support.shims import Shim
from trellis.kube.resources import DEPLOYMENTS, NAMESPACES, SECRETS
from trellis.localcluster import ClusterInfo
from trellis.localcluster.api import Api

pytestmark = [pytest.mark.cluster, pytest.mark.nats, pytest.mark.xdist_group("cluster")]

RELEASE = "running"
READY_SECONDS = 120.0


class Installation:
    """The chart as the API server has it."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def secret(self, name: str) -> dict[str, str]:
        status, found = self._api.call("GET", SECRETS.path(SYSTEM, name))
        assert status == http.HTTPStatus.OK, found
        return {key: base64.b64decode(value).decode() for key, value in found["data"].items()}

    def deployments(self) -> list[Manifest]:
        query = "?labelSelector=app.kubernetes.io%2Fname%3Dtrellis"
        return list(self._api.call("GET", DEPLOYMENTS.path(SYSTEM) + query)[1]["items"])

    def environment(self, container: Manifest) -> dict[str, str]:
        """Return a container's variables as its process would have them."""
        found = {}
        for one in container["env"]:
            ref = one.get("valueFrom", {}).get("secretKeyRef")
            found[one["name"]] = self.secret(ref["name"])[ref["key"]] if ref else one["value"]
        return found


@contextlib.asynccontextmanager
async def process(command: list[str], environment: dict[str, str], log: Path) -> Any:
    program = Path(sys.executable).parent / command[0]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TRELLIS_")}
    with log.open("wb") as output:
        started = await asyncio.create_subprocess_exec(
            str(program), *command[1:], env=clean | environment, stdout=output, stderr=output
        )
    try:
        yield started
    finally:
        if started.returncode is None:
            started.terminate()
            await asyncio.wait_for(started.wait(), 60)


def said(log: Path) -> str:
    return log.read_text(encoding="utf-8")[-4000:]


async def ready(port: int, log: Path) -> None:
    """Wait until a process is ready; fail with its reasons."""
    deadline = time.monotonic() + READY_SECONDS
    status, body = await ask(port, "/readyz")
    while status != http.HTTPStatus.OK:
        assert time.monotonic() < deadline, f"{body}\n{said(log)}"
        await asyncio.sleep(0.2)
        status, body = await ask(port, "/readyz")


@pytest.mark.timeout(420)
@pytest.mark.parametrize("mode", ["services", "bundle"])
async def test_what_is_deployed_becomes_ready(
    cluster: ClusterInfo, cluster_api: Api, shim: Shim, tmp_path: Path, mode: str
) -> None:
    installers, kubeconfig = shim.fleet.installers, Path(cluster.kubeconfig)
    values = {
        "mode": mode,
        "cluster": "lab-1",
        "installers": {"namespace": installers},
        "crds": {"install": False},
        "secrets": {"accounts": [{"namespace": "default", "serviceAccount": "reader", "secrets": ["db"]}]},
    }
    applications = ApplicationsKind(cluster_api)
    made = applications.ensure()
    cluster_api.call("POST", NAMESPACES.path(), {"metadata": {"name": SYSTEM}})
    try:
        helm("install", RELEASE, str(CHART), "--namespace", SYSTEM, values=values, kubeconfig=kubeconfig)
        installation = Installation(cluster_api)
        with bus_server(installation.secret("trellis-nats-server"), tmp_path) as server:
            async with contextlib.AsyncExitStack() as stack:
                asked = {}
                for one in installation.deployments():
                    pod, name = one["spec"]["template"]["spec"], one["metadata"]["name"]
                    account = stack.enter_context(granted(cluster, cluster_api, pod["serviceAccountName"], tmp_path))
                    account.log_in()
                    [container] = pod["containers"]
                    told = installation.environment(container)
                    bus = told["TRELLIS_NATS_URL"].replace(
                        "trellis-nats.trellis-system:4222", server.url.split("//")[1]
                    )
                    changed = {"TRELLIS_NATS_URL": bus, "TRELLIS_KUBECONFIG": str(account.kubeconfig)}
                    if "TRELLIS_CONTROLLER_DATA_DIR" in told:
                        changed["TRELLIS_CONTROLLER_DATA_DIR"] = str(tmp_path / "state")
                    port, log = free_port(), tmp_path / f"{name}.log"
                    changed["TRELLIS_HEALTH_PORT"] = str(port)
                    await stack.enter_async_context(process(container["command"], told | changed, log))
                    asked[port] = log
                assert len(asked) == (7 if mode == "services" else 1)
                for port, log in asked.items():
                    await ready(port, log)
                for log in asked.values():
                    assert "ermission" not in said(log), said(log)
    finally:
        helm("uninstall", RELEASE, "--namespace", SYSTEM, "--ignore-not-found", kubeconfig=kubeconfig)
        if made:
            applications.clear()
