"""The chart as the API server has it after `helm install`, and its Deployments as processes: no kubelet runs them here.

The kubeconfig stands for a pod's token, a port for its address, and the address of the bus is that of a test's server.
Files of Secrets are where the test puts them. All else is what the chart said.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import http
import os
import sys
import time
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from support.chart.bus_secret import job_of
from support.chart.rendered import Manifest
from support.cluster.grants import RBAC_KINDS, SYSTEM, granted
from support.suite.service_process import free_port, get_status
from trellis.kube.resources import CONFIGMAPS, DEPLOYMENTS, SECRETS
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.api import Api

READY_SECONDS = 120.0
OURS = "?labelSelector=app.kubernetes.io%2Fname%3Dtrellis"
BUS_SECRET = "trellis-bus"
SEEDS = "/etc/trellis/nats"
"""Where a pod has them."""


class Installation:
    """The objects that Helm has applied."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def secret(self, name: str) -> dict[str, str]:
        status, found = self._api.call("GET", SECRETS.path(SYSTEM, name))
        assert status == http.HTTPStatus.OK, found
        return {key: base64.b64decode(value).decode() for key, value in found["data"].items()}

    def deployments(self) -> list[Manifest]:
        return list(self._api.call("GET", DEPLOYMENTS.path(SYSTEM) + OURS)[1]["items"])

    def bus_files(self) -> dict[str, str]:
        """Return what the NATS servers of the bus read, and the seeds of the users."""
        status, found = self._api.call("GET", CONFIGMAPS.path(SYSTEM, "trellis-nats"))
        assert status == http.HTTPStatus.OK, found
        return found["data"] | self.secret(BUS_SECRET)

    def seeds(self, pod: Manifest, directory: Path) -> dict[str, str]:
        """Write the seeds that a pod has into a directory, and return the variable that names them there, if any."""
        for volume in pod["volumes"]:
            if volume["name"] == "seeds":
                directory.mkdir(parents=True, exist_ok=True)
                texts = self.secret(volume["secret"]["secretName"])
                for item in volume["secret"]["items"]:
                    (directory / item["path"]).write_text(texts[item["key"]], encoding="utf-8")
        environment = variables(pod["containers"][0])
        name = "TRELLIS_NATS_NKEY_FILE"
        return {name: environment[name].replace(SEEDS, str(directory))} if name in environment else {}


def variables(container: Manifest) -> dict[str, str]:
    """Return a container's variables as its process would have them; none is from a Secret."""
    return {item["name"]: item["value"] for item in container.get("env", ())}


@dataclass
class Running:
    """One Deployment's process. ``changed``: variables that are other than the chart says, as of ``processes``."""

    deployment: str
    component: str
    port: int
    log: Path
    process: asyncio.subprocess.Process

    def output(self) -> str:
        """Return the end of its log."""
        return self.log.read_text(encoding="utf-8")[-4000:]

    async def ready(self) -> None:
        """Wait until it is ready; fail with its reasons."""
        deadline = time.monotonic() + READY_SECONDS
        status, body = await get_status(self.port, "/readyz")
        while status != http.HTTPStatus.OK:
            assert time.monotonic() < deadline, f"{body}\n{self.output()}"
            await asyncio.sleep(0.2)
            status, body = await get_status(self.port, "/readyz")

    async def end(self) -> None:
        """Stop it as its kubelet would."""
        if self.process.returncode is None:
            self.process.terminate()
            await asyncio.wait_for(self.process.wait(), 60)


@dataclass
class Where:
    """The addresses of servers that the chart names otherwise. ``bus``: host and port of the server."""

    cluster: ClusterInfo
    api: Api
    directory: Path
    bus: str
    more: dict[str, str] = field(default_factory=dict)


@contextlib.asynccontextmanager
async def processes(where: Where, deployments: Iterable[Manifest]) -> AsyncIterator[list[Running]]:
    """Run the Deployments' commands for the time of a block, each as its account."""
    installation = Installation(where.api)
    async with contextlib.AsyncExitStack() as stack:
        started = []
        for deployment in deployments:
            pod, name = deployment["spec"]["template"]["spec"], deployment["metadata"]["name"]
            account = stack.enter_context(granted(where.cluster, where.api, pod["serviceAccountName"], where.directory))
            account.log_in()
            [container] = pod["containers"]
            environment = variables(container)
            changed = {
                "TRELLIS_NATS_URL": environment["TRELLIS_NATS_URL"].replace(
                    "trellis-nats.trellis-system:4222", where.bus
                ),
                **installation.seeds(pod, where.directory / "seeds"),
                "TRELLIS_KUBECONFIG": str(account.kubeconfig),
                "TRELLIS_HEALTH_PORT": str(free_port()),
                **where.more,
            }
            if "TRELLIS_CONSOLE_AUTH" in environment:
                changed["TRELLIS_CONSOLE_PORT"] = "0"
            if "TRELLIS_CONTROLLER_DATA_DIR" in environment:
                changed["TRELLIS_CONTROLLER_DATA_DIR"] = str(where.directory / "state")
            log = where.directory / f"{name}.log"
            made = await process(container["command"], environment | changed, log)
            component = deployment["metadata"]["labels"]["app.kubernetes.io/component"]
            running = Running(name, component, int(changed["TRELLIS_HEALTH_PORT"]), log, made)
            stack.push_async_callback(running.end)
            started.append(running)
        yield started


async def make_keys(where: Where, found: list[Manifest]) -> None:
    """Do what the Job in the hooks before an installation does, as its account. ``found``: these hooks."""
    job = job_of(found)
    pod = job["spec"]["template"]["spec"]
    [container] = pod["containers"]
    with granted(where.cluster, where.api, pod["serviceAccountName"], where.directory) as account:
        account.apply(item for item in found if item["kind"] in RBAC_KINDS)
        log = where.directory / f"{job['metadata']['name']}.log"
        environment = variables(container) | {"TRELLIS_KUBECONFIG": str(account.kubeconfig)}
        done = await process(container["command"], environment, log)
        assert await asyncio.wait_for(done.wait(), READY_SECONDS) == 0, log.read_text(encoding="utf-8")


@contextlib.asynccontextmanager
async def bus_keys(where: Where, found: list[Manifest]) -> AsyncIterator[dict[str, str]]:
    """Have the Secret of the bus for the time of a block; return what its servers read, and the seeds."""
    await make_keys(where, found)
    try:
        yield Installation(where.api).bus_files()
    finally:
        where.api.call("DELETE", SECRETS.path(SYSTEM, BUS_SECRET))


async def process(command: list[str], environment: dict[str, str], log: Path) -> asyncio.subprocess.Process:
    """Start a command of Trellis with these variables and no others of Trellis."""
    program = Path(sys.executable).parent / command[0]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TRELLIS_")}
    with log.open("wb") as output:
        return await asyncio.create_subprocess_exec(
            str(program), *command[1:], env=clean | environment, stdout=output, stderr=output
        )
