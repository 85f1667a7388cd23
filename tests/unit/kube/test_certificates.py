"""Certificates that rotate in their files are followed when a connection fails, without a restart or a refusal."""

from __future__ import annotations

import shutil
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from support.cluster.kube_world import configmap
from trellis.kube.access import Access
from trellis.kube.client import Kube
from trellis.kube.errors import Unavailable
from trellis.kube.network_errors import NOT_TRUSTED
from trellis.kube.resources import CONFIGMAPS, NODES
from trellis.kube.transport import HttpTransport
from trellis.telemetry import setup
from trellis.telemetry.health import Health
from trellis_dev.localcluster.certs import write_pki

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: c
contexts: [{{name: c, context: {{cluster: k, user: u}}}}]
clusters: [{{name: k, cluster: {{server: "{server}", certificate-authority: "{authority}"}}}}]
users: [{{name: u, user: {{token: s3cret}}}}]
"""


class Server:
    """An HTTPS server on one port, whose certificate can be replaced by one of another authority."""

    def __init__(self, pki: Path) -> None:
        self.pki = pki
        self.authority = pki / "ca.crt"
        self.port = 0
        self.requests: list[str] = []
        self.http: TestServer | None = None

    async def answer(self, request: web.Request) -> web.Response:
        self.requests.append(request.method)
        return web.json_response({"kind": "Node", "metadata": {"name": "a"}})

    async def start(self, issuer: str) -> None:
        directory = self.pki / issuer
        if not directory.exists():
            directory.mkdir()
            write_pki(directory)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(directory / "kube-apiserver.crt", directory / "kube-apiserver.key")
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self.answer)
        self.http = TestServer(application, host="127.0.0.1", port=self.port, scheme="https")
        await self.http.start_server(ssl=context)
        self.port = self.http.port or 0

    async def rotate(self, issuer: str) -> None:
        await self.stop()
        await self.start(issuer)

    async def stop(self) -> None:
        assert self.http is not None
        await self.http.close()


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    running = Server(tmp_path)
    await running.start("first")
    yield running
    await running.stop()


@pytest.fixture
async def trusted(server: Server) -> Callable[[str], None]:
    """Puts an authority into the file that the kubeconfig names."""

    def put(issuer: str) -> None:
        shutil.copyfile(server.pki / issuer / "ca.crt", server.authority)

    return put


@pytest.fixture
async def kube(server: Server, trusted: Callable[[str], None], tmp_path: Path) -> AsyncIterator[Kube]:
    trusted("first")
    path = tmp_path / "kubeconfig"
    path.write_text(KUBECONFIG.format(server=f"https://127.0.0.1:{server.port}", authority=server.authority))
    connection = await Kube.connect(Access(path), telemetry=setup("test"), health=Health("test"))
    yield connection
    await connection.close()


async def test_an_authority_that_rotated_in_its_file_is_followed(
    kube: Kube, server: Server, trusted: Callable[[str], None]
) -> None:
    await kube.get(NODES, "a")
    await server.rotate("second")
    trusted("second")
    server.requests.clear()
    await kube.create(CONFIGMAPS, configmap("default", "a"))
    assert server.requests == ["POST"], "a write goes out once: the failed connection carried nothing"


async def test_an_untrusted_certificate_is_named_and_accepted_once_trusted(
    kube: Kube, server: Server, trusted: Callable[[str], None]
) -> None:
    await kube.get(NODES, "a")
    await server.rotate("second")
    server.requests.clear()
    transport = kube._caller.transport
    assert isinstance(transport, HttpTransport)
    session = transport._session
    with pytest.raises(Unavailable, match=rf"https://127\.0\.0\.1:\d+ .*{NOT_TRUSTED}"):
        await kube.create(CONFIGMAPS, configmap("default", "a"))
    assert server.requests == []
    assert transport._session is session, "nothing new to read, no new session"
    trusted("second")
    await kube.get(NODES, "a")
    assert session.http.closed


async def test_an_authority_file_in_the_middle_of_being_written_is_no_end(
    kube: Kube, server: Server, trusted: Callable[[str], None]
) -> None:
    await server.rotate("second")
    server.authority.write_text("-----BEGIN CERTIFICATE-----\nMII")
    with pytest.raises(Unavailable, match="https://127"):
        await kube.get(NODES, "a", timeout=2)
    trusted("second")
    await kube.get(NODES, "a")
