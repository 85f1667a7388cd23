"""Credential plugins of a kubeconfig: each failure of one is named, bounded and retried."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from support.cluster.kube_world import until
from trellis.kube.access import Access
from trellis.kube.client import Kube
from trellis.kube.errors import Unavailable
from trellis.kube.exec_plugin import PluginFailed, run_plugin
from trellis.kube.resources import NODES
from trellis.kube.timings import ConnectionTimings, KubeTimings, PluginTimings
from trellis.kube.transport import HttpTransport
from trellis.telemetry import setup
from trellis.telemetry.health import Health

QUICK = KubeTimings(connection=ConnectionTimings(plugin=PluginTimings(pause=0.3)))
CAUSE = "no session, log in"
API_VERSION = "client.authentication.k8s.io/v1"
KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: c
contexts: [{{name: c, context: {{cluster: k, user: u}}}}]
clusters: [{{name: k, cluster: {{server: "{server}"}}}}]
users: [{{name: u, user: {{exec: {{apiVersion: {version}, command: "{command}", interactiveMode: Never}}}}}}]
"""


class Plugin:
    """A program that a test can change between two runs. ``runs``: how often it was run."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "get-token"
        self.log = directory / "runs"

    @property
    def runs(self) -> int:
        return len(self.log.read_text()) if self.log.exists() else 0

    def does(self, script: str) -> None:
        self.path.write_text(f"#!/bin/sh\nprintf x >> {self.log}\n{script}\n")
        self.path.chmod(0o755)

    def prints(self, status: object, version: str = API_VERSION) -> None:
        document = {"apiVersion": version, "kind": "ExecCredential", "status": status}
        self.does(f"cat <<'END'\n{json.dumps(document)}\nEND")


@pytest.fixture
def plugin(tmp_path: Path) -> Plugin:
    return Plugin(tmp_path)


@pytest.fixture
async def server() -> AsyncIterator[TestServer]:
    async def answer(request: web.Request) -> web.Response:
        if request.headers.get("Authorization") == "Bearer good":
            return web.json_response({"kind": "Node", "metadata": {"name": "a"}})
        refusal = {"kind": "Status", "reason": "Unauthorized", "message": "Unauthorized"}
        return web.json_response(refusal, status=401)

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answer)
    running = TestServer(application)
    await running.start_server()
    yield running
    await running.close()


@pytest.fixture
async def kube(
    plugin: Plugin,
    server: TestServer,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> AsyncIterator[Kube]:
    """A connection whose plugin does at first what the test's parameter says; runs that failed are not waited for."""
    plugin.does(getattr(request, "param", "exit 1"))
    path = tmp_path / "kubeconfig"
    path.write_text(KUBECONFIG.format(server=server.make_url(""), version=API_VERSION, command=plugin.path))
    connection = await Kube.connect(Access(path), telemetry=setup("test"), health=Health("test"), timings=QUICK)
    await until(due_of(connection), "it may be run again")
    yield connection
    await connection.close()


@pytest.fixture
def user() -> Iterator[None]:
    """A user who types a line at this process."""
    reading, writing = os.pipe()
    os.write(writing, b"yes\n")
    former = os.dup(0)
    os.dup2(reading, 0)
    yield
    os.dup2(former, 0)
    for item in (reading, writing, former):
        os.close(item)


def due_of(kube: Kube) -> Callable[[], bool]:
    transport = kube._caller.transport
    assert isinstance(transport, HttpTransport)
    return transport._credentials.due


def entry(command: object, **more: object) -> dict[str, object]:
    return {"apiVersion": API_VERSION, "command": str(command), **more}


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (f"echo '{CAUSE}' >&2; exit 3", f"status 3: {CAUSE}"),
        ("kill -9 $$", "status -9"),
        ("echo s3cret", "ExecCredential"),
        ("printf '\\377s3cret'", "ExecCredential"),
        ("echo '[\"s3cret\"]'", "ExecCredential"),
        ("exit 0", "ExecCredential"),
        ("yes s3cret", "1048576 bytes"),
        ("yes s3cret >&2", "1048576 bytes"),
    ],
)
async def test_a_plugin_that_fails_is_named_with_its_cause(plugin: Plugin, script: str, reason: str) -> None:
    plugin.does(script)
    with pytest.raises(PluginFailed, match=reason) as caught:
        await run_plugin(entry(plugin.path))
    assert str(plugin.path) in str(caught.value)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "status",
    [
        {},
        None,
        {"token": ""},
        {"token": 5},
        {"clientCertificateData": "x"},
        {"token": "s3cret", "expirationTimestamp": "x"},
    ],
)
async def test_credentials_that_are_none_are_refused(plugin: Plugin, status: object) -> None:
    plugin.prints(status)
    with pytest.raises(PluginFailed, match="ExecCredential") as caught:
        await run_plugin(entry(plugin.path))
    assert "s3cret" not in str(caught.value)


async def test_a_program_that_is_not_there_is_named_with_the_hint_of_the_kubeconfig(tmp_path: Path) -> None:
    with pytest.raises(PluginFailed, match=r"/nothing\b.*No such file or directory; install it"):
        await run_plugin(entry(tmp_path / "nothing", installHint="install it"))


async def test_a_plugin_that_hangs_is_ended_with_what_it_started(plugin: Plugin, tmp_path: Path) -> None:
    plugin.does(f"sleep 600 & echo $! > {tmp_path}/child; wait")
    began = time.monotonic()
    with pytest.raises(PluginFailed, match=r"\b0\.5 s"):
        await run_plugin(entry(plugin.path), PluginTimings(run=0.5))
    assert time.monotonic() - began < 5
    child = Path("/proc", (tmp_path / "child").read_text().strip(), "stat")
    await until(lambda: not child.exists() or child.read_text().split()[2] == "Z", "its child is gone")


@pytest.mark.usefixtures("user")
async def test_the_plugin_gets_its_arguments_and_variables_and_no_terminal(plugin: Plugin) -> None:
    plugin.does(
        'read line && exit 9\nprintf \'{"apiVersion":"%s","kind":"ExecCredential","status":{"token":"%s-%s"}}\' '
        f'{API_VERSION} "$1" "$WHO"'
    )
    found = await run_plugin(entry(plugin.path, args=["a"], env=[{"name": "WHO", "value": "me"}]))
    assert found.token == "a-me"


@pytest.mark.parametrize("kube", ["echo 'log in' >&2; exit 1", "echo garbage"], indirect=True)
async def test_a_failure_is_in_readiness_and_a_plugin_that_works_again_is_used(kube: Kube, plugin: Plugin) -> None:
    waiting = asyncio.create_task(kube.wait_available())
    await until(lambda: str(plugin.path) in str(kube.health.readiness().reasons), "it is named")
    assert kube.health.liveness().ok
    plugin.prints({"token": "good"})
    await asyncio.wait_for(waiting, 15)
    assert kube.health.readiness().ok
    runs = plugin.runs
    await kube.get(NODES, "a")
    assert plugin.runs == runs, "what it printed is kept"


async def test_credentials_that_are_over_are_not_waited_for_until_they_are_refused(kube: Kube, plugin: Plugin) -> None:
    soon = datetime.now(UTC) + timedelta(seconds=0.5)
    plugin.prints({"token": "good", "expirationTimestamp": soon.isoformat()})
    await kube.get(NODES, "a")
    plugin.prints({"token": "good"})
    runs = plugin.runs
    await until(lambda: datetime.now(UTC) > soon, "they are over")
    await kube.get(NODES, "a")
    assert plugin.runs == runs + 1


async def test_expired_credentials_are_named_once_they_are_refused(kube: Kube, plugin: Plugin) -> None:
    plugin.prints({"token": "bad", "expirationTimestamp": "2020-01-01T00:00:00Z"})
    with pytest.raises(Unavailable, match="2020-01-01"):
        await kube.get(NODES, "a")
    plugin.prints({"token": "good"})
    await until(due_of(kube), "it may be run again")
    await kube.get(NODES, "a")


async def test_credentials_that_are_over_by_this_clock_alone_are_good(kube: Kube, plugin: Plugin) -> None:
    plugin.prints({"token": "good", "expirationTimestamp": "2020-01-01T00:00:00Z"})
    await kube.get(NODES, "a")
    runs = plugin.runs
    await kube.get(NODES, "a")
    assert plugin.runs == runs


async def test_a_plugin_that_fails_is_not_run_for_each_call(plugin: Plugin, server: TestServer, tmp_path: Path) -> None:
    plugin.does("exit 1")
    path = tmp_path / "kubeconfig"
    path.write_text(KUBECONFIG.format(server=server.make_url(""), version=API_VERSION, command=plugin.path))
    kube = await Kube.connect(Access(path), telemetry=setup("test"), health=Health("test"))
    await asyncio.gather(*(kube.get(NODES, "a") for _ in range(20)), return_exceptions=True)
    assert plugin.runs == 1
    await kube.close()


async def test_a_token_that_no_header_can_have_is_no_crash(kube: Kube, plugin: Plugin, server: TestServer) -> None:
    plugin.prints({"token": "go\nod"})
    with pytest.raises(Unavailable) as refused:
        await kube.get(NODES, "a")
    assert str(server.make_url("")).rstrip("/") in str(refused.value)
