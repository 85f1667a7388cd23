"""One connection as several people: whose words reach the server, and whose never do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from multidict import CIMultiDict

from trellis.kube.access import Access, AccessError, Credentials
from trellis.kube.calls import Caller
from trellis.kube.client import Kube
from trellis.kube.resources import NODES
from trellis.telemetry import setup
from trellis.telemetry.health import Health
from trellis_dev.fakes.server import FakeApiServer

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: c
contexts: [{{name: c, context: {{cluster: k, user: u}}}}]
clusters: [{{name: k, cluster: {{server: "{server}"}}}}]
users: [{{name: u, user: {{token: ours, client-certificate: {junk}, client-key: {junk}}}}}]
"""


class Server:
    """A server that answers with a Node, and keeps the headers of each request."""

    def __init__(self) -> None:
        self.headers: list[CIMultiDict[str]] = []
        application = web.Application()
        application.router.add_get("/{path:.*}", self.answer)
        self.http = TestServer(application)

    async def answer(self, request: web.Request) -> web.Response:
        self.headers.append(CIMultiDict(request.headers))
        return web.json_response({"kind": "Node", "metadata": {"name": "a"}})


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server()
    await server.http.start_server()
    yield server
    await server.http.close()


def write_kubeconfig(directory: Path, server: str) -> Path:
    junk, path = directory / "junk", directory / "kubeconfig"
    junk.write_text("neither a certificate nor a key", encoding="utf-8")
    path.write_text(KUBECONFIG.format(server=server, junk=junk), encoding="utf-8")
    return path


async def connect(directory: Path, server: Server, *, without_identity: bool = False) -> Kube:
    path = write_kubeconfig(directory, str(server.http.make_url("")).rstrip("/"))
    access = Access(path, without_identity=without_identity)
    return await Kube.connect(access, telemetry=setup("test"), health=Health("test"))


async def test_each_group_is_sent_separately_so_that_names_stay_distinct(tmp_path: Path, server: Server) -> None:
    kube = await connect(tmp_path, server, without_identity=True)
    await kube.acting_as("jane", ["dev", "a,b"]).get(NODES, "a")
    assert server.headers[0].getall("Impersonate-Group") == ["dev", "a,b"]
    assert server.headers[0]["Impersonate-User"] == "jane"
    await kube.get(NODES, "a")
    assert "Impersonate-Group" not in server.headers[1]
    await kube.close()


async def test_without_an_identity_no_credentials_of_trellis_are_sent(tmp_path: Path, server: Server) -> None:
    kube = await connect(tmp_path, server, without_identity=True)
    await kube.get(NODES, "a")
    assert "Authorization" not in server.headers[0]
    await kube.with_token("theirs").get(NODES, "a")
    assert server.headers[1]["Authorization"] == "Bearer theirs"
    await kube.close()


async def test_a_client_certificate_of_trellis_is_not_even_loaded(tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path, "https://127.0.0.1:1")
    ours, nobodys = Credentials(Access(path)), Credentials(Access(path, without_identity=True))
    await ours.load()
    await nobodys.load()
    with pytest.raises(AccessError):
        ours.open_session()
    await nobodys.open_session().close()


async def test_a_viewer_has_a_health_and_connections_of_its_own(tmp_path: Path, server: Server) -> None:
    kube = await connect(tmp_path, server, without_identity=True)
    viewer = kube.for_viewer(2, Health("viewer"))
    viewer.health.not_ready("watch nodes", "forbidden")
    await viewer.close()
    await kube.get(NODES, "a")
    assert kube.health.readiness().ok
    await kube.close()


def test_a_token_is_not_shown() -> None:

    assert "s3cret" not in repr(Caller(FakeApiServer(), setup("test"), token="s3cret"))
