"""Credentials: clear words about what is wrong, tokens that rotate, little memory."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from trellis.config.errors import SettingsError
from trellis.kube.access import Access, AccessError, Credentials
from trellis.kube.client import Kube
from trellis.kube.errors import Unauthorized, Unavailable
from trellis.kube.resources import CONFIGMAPS, NODES
from trellis.kube.transport import HttpRequest, HttpTransport
from trellis.telemetry import setup
from trellis.telemetry.health import Health

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: c
contexts: [{{name: c, context: {{cluster: k, user: u}}}}]
clusters: [{{name: k, cluster: {{server: "{server}"}}}}]
users: [{{name: u, user: {{{user}}}}}]
"""


def write_kubeconfig(directory: Path, server: str, user: str = "token: s3cret") -> Path:
    path = directory / "kubeconfig"
    path.write_text(KUBECONFIG.format(server=server, user=user), encoding="utf-8")
    return path


async def connect(kubeconfig: Path | None, context: str | None = None) -> Kube:
    return await Kube.connect(Access(kubeconfig, context), telemetry=setup("test"), health=Health("test"))


class Server:
    """An HTTP server that accepts one token, and notes who asked."""

    def __init__(self) -> None:
        self.token = "s3cret"
        self.seen: list[str] = []
        self.agents: list[str] = []
        self.encodings: list[str] = []
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self.answer)
        self.http = TestServer(application)

    async def answer(self, request: web.Request) -> web.Response:
        self.seen.append(request.headers.get("Authorization", ""))
        self.agents.append(request.headers["User-Agent"])
        self.encodings.append(request.headers["Accept-Encoding"])
        if request.path.endswith("/html"):
            return web.Response(text="<html>")
        if self.seen[-1] != f"Bearer {self.token}":
            return web.json_response(
                {"kind": "Status", "reason": "Unauthorized", "message": "Unauthorized"}, status=401
            )
        return web.json_response({"kind": "Node", "metadata": {"name": request.path}})


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    running = Server()
    await running.http.start_server()
    yield running
    await running.http.close()


@pytest.mark.parametrize(
    ("content", "context", "reason"),
    [
        ("{", None, r"\bYAML\b.*\b1\b"),
        ("{}", None, "kubeconfig"),
        ("token: s3cret: x", None, r"\bYAML\b.*\b1\b"),
        (KUBECONFIG.format(server="http://x", user="token: s3cret"), "nope", r'"nope"'),
        (KUBECONFIG.format(server="https://x", user="client-certificate: /no/such.crt"), None, "/no/such.crt"),
    ],
)
async def test_a_kubeconfig_that_cannot_be_used_is_named(
    tmp_path: Path, content: str, context: str | None, reason: str
) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(AccessError, match=reason) as caught:
        await connect(path, context)
    assert str(path) in str(caught.value)
    assert "s3cret" not in str(caught.value)
    assert "contexts list" not in str(caught.value)
    assert isinstance(caught.value, SettingsError)


async def test_a_kubeconfig_that_does_not_exist_is_named_with_its_variable(tmp_path: Path) -> None:
    with pytest.raises(AccessError, match=r"/nothing\b.*\bTRELLIS_KUBECONFIG\b"):
        await connect(tmp_path / "nothing")


async def test_outside_of_a_pod_a_kubeconfig_is_required(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(AccessError, match="set KUBECONFIG"):
        await connect(None)


async def test_of_several_kubeconfigs_the_existing_ones_are_merged(tmp_path: Path, server: Server) -> None:
    path = write_kubeconfig(tmp_path, str(server.http.make_url("")))
    kube = await connect(Path(f"{tmp_path}/absent{os.pathsep}{path}"))
    await kube.get(NODES, "a")
    await kube.close()


async def test_a_rotated_token_is_reread_for_all_waiters(tmp_path: Path, server: Server) -> None:
    token = tmp_path / "token"
    token.write_text("old\n")
    kube = await connect(write_kubeconfig(tmp_path, str(server.http.make_url("")), f"tokenFile: {token}"))
    token.write_text("s3cret\n")
    await asyncio.gather(*(kube.get(NODES, f"n{number}") for number in range(5)))
    assert set(server.seen) == {"Bearer old", "Bearer s3cret"}
    token.write_text("wrong")
    server.token = "another"
    with pytest.raises(Unauthorized) as caught:
        await kube.get(NODES, "a")
    assert "wrong" not in str(caught.value)
    await kube.close()


async def test_a_kubeconfig_with_another_address_is_followed_after_a_refusal(tmp_path: Path, server: Server) -> None:
    former = Server()
    former.token = "none is right"
    await former.http.start_server()
    kube = await connect(write_kubeconfig(tmp_path, str(former.http.make_url(""))))
    write_kubeconfig(tmp_path, str(server.http.make_url("")))
    transport = kube._caller.transport
    assert isinstance(transport, HttpTransport)
    session = transport._session
    await kube.get(NODES, "a")
    assert session.http.closed, "certificates belong to a session"
    assert (len(former.seen), len(server.seen)) == (1, 1)
    assert kube.server == str(server.http.make_url("")).rstrip("/")
    await kube.close()
    await former.http.close()


async def test_an_answer_that_is_no_json_is_no_crash(tmp_path: Path, server: Server) -> None:
    kube = await connect(write_kubeconfig(tmp_path, str(server.http.make_url(""))))
    with pytest.raises(Unavailable, match=r"\bJSON\b"):
        await kube.get(NODES, "html")
    await kube.close()


async def test_the_audit_log_shows_which_service_asked(tmp_path: Path, server: Server) -> None:
    telemetry = setup("node_watcher")
    kubeconfig = write_kubeconfig(tmp_path, str(server.http.make_url("")))
    kube = await Kube.connect(Access(kubeconfig), telemetry=telemetry, health=Health("node_watcher"))
    await kube.get(NODES, "a")
    assert server.agents[0].startswith("trellis-node-watcher/")
    await kube.close()


async def test_the_audit_log_shows_which_replica_asked(tmp_path: Path, server: Server) -> None:
    kubeconfig = write_kubeconfig(tmp_path, str(server.http.make_url("")))
    kube = await Kube.connect(
        Access(kubeconfig), telemetry=setup("x"), health=Health("x"), identity="pod-1_7\r\nEvil: (yes)"
    )
    await kube.get(NODES, "a")
    assert server.agents[0].endswith(" (pod-1_7--Evil:--yes-)"), "no line break, no bracket: it is a comment"
    await kube.close()


async def test_answers_from_nearby_are_not_compressed(tmp_path: Path, server: Server) -> None:
    kube = await connect(write_kubeconfig(tmp_path, str(server.http.make_url(""))))
    await kube.get(NODES, "a")
    assert server.encodings == ["identity"]
    await kube.close()


async def test_answers_from_a_remote_server_are_compressed(tmp_path: Path, server: Server) -> None:
    far = Credentials(Access(write_kubeconfig(tmp_path, "https://api.example.com")))
    await far.load()
    assert not far.nearby
    far._configuration.host = str(server.http.make_url("")).rstrip("/")
    transport = HttpTransport(far, "test")
    await transport.send(HttpRequest("GET", "/api/v1/nodes/a"))
    assert "gzip" in server.encodings[0]
    await transport.close()


async def test_a_pod_uses_its_service_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token, ca = tmp_path / "token", tmp_path / "ca.crt"
    token.write_text("s3cret\n")
    ca.write_text("anchor")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setattr("trellis.kube.access.SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr("kubernetes.aio.config.incluster_config.SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr("kubernetes.aio.config.incluster_config.SERVICE_CERT_FILENAME", str(ca))
    with pytest.raises(AccessError, match=r"https://\[fd00::1\]:443"):
        await connect(None)


@pytest.mark.parametrize(("host", "url"), [("fd00::1", "https://[fd00::1]:443"), ("10.0.0.1", "https://10.0.0.1:443")])
async def test_a_pod_without_a_service_account_needs_no_token(
    host: str, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ca = tmp_path / "ca.crt"
    ca.write_text("anchor")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setattr("trellis.kube.access.SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr("trellis.kube.access.SERVICE_CERT_FILENAME", str(ca))
    credentials = Credentials(Access(without_identity=True))
    await credentials.load()
    assert credentials.server == url
    assert credentials.nearby
    assert await credentials.authorization() is None
    with pytest.raises(AccessError, match=re.escape(url)):
        credentials.open_session()  # the anchor, which is none, is what the server would be known by
    monkeypatch.delenv("KUBERNETES_SERVICE_PORT")
    with pytest.raises(AccessError, match="KUBERNETES_SERVICE_PORT"):
        await credentials.load()


async def test_a_server_that_is_unavailable_is_named(tmp_path: Path, unused_tcp_port: int) -> None:
    kube = await connect(write_kubeconfig(tmp_path, f"http://127.0.0.1:{unused_tcp_port}"))
    with pytest.raises(Unavailable, match=rf"cannot LIST ConfigMap: Unavailable: http://127.0.0.1:{unused_tcp_port}"):
        await kube.list(CONFIGMAPS)
    await kube.close()


async def test_names_are_escaped_in_paths(tmp_path: Path, server: Server) -> None:
    kube = await connect(write_kubeconfig(tmp_path, str(server.http.make_url(""))))
    found = await kube.get(NODES, "a/../b c?x#y")
    assert found["metadata"]["name"] == "/api/v1/nodes/a/../b c?x#y"
    await kube.close()


def test_connecting_loads_no_models_and_little_memory() -> None:
    """Creating one typed API class costs 108 MiB; the whole client has to stay near 55."""
    program = (
        "import sys, trellis.kube.client, trellis.kube.informer, trellis.kube.leader\n"
        "pages = int(open('/proc/self/statm').read().split()[1])\n"
        "models = [name for name in sys.modules if name.startswith('kubernetes.aio.client.models.')]\n"
        "others = ('kubernetes.client', 'kubernetes.aio.dynamic', 'requests', 'oauthlib', 'urllib3', 'yaml')\n"
        "print(pages * 4096 // 2**20, len(models), len([name for name in others if name in sys.modules]))\n"
        "import kubernetes.config.config_exception as part\n"
        "assert part.ConfigException"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    mebibytes, models, others = map(int, result.stdout.split())
    assert (models, others) == (0, 0)
    assert mebibytes < 80
