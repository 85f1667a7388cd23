"""Simulated nodes are created by several threads, each with a connection of its own."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from trellis_dev.localcluster.api import Api
from trellis_dev.localcluster.certs import write_pki
from trellis_dev.localcluster.nodes import create_nodes

_DEADLINE = 20.0


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_POST(self) -> None:
        node = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.created.add(node["metadata"]["name"])
        self.send_response(http.HTTPStatus.CREATED)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def finish(self) -> None:
        super().finish()
        self.server.left.set()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        pass


class _Server(ThreadingHTTPServer):
    def __init__(self, pki: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(pki / "kube-apiserver.crt", pki / "kube-apiserver.key")
        self.socket = tls.wrap_socket(self.socket, server_side=True)
        self.created: set[str] = set()
        self.left = threading.Event()
        """Set when a client has closed its connection."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[_Server]:
    write_pki(tmp_path)
    with _Server(tmp_path) as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def test_a_thread_that_is_done_leaves_the_connections_of_the_others(
    server: _Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = http.client.HTTPSConnection.request

    def request(
        connection: http.client.HTTPSConnection, method: str, url: str, body: str, headers: dict[str, str]
    ) -> None:
        """Between request and answer the second node's thread sees the first one's end."""
        send(connection, method, url, body, headers)
        if json.loads(body)["metadata"]["name"] == "second":
            assert server.left.wait(_DEADLINE)

    monkeypatch.setattr(http.client.HTTPSConnection, "request", request)
    api = Api.of_pki(server.server_address[1], tmp_path)
    try:
        create_nodes(api, ["first", "second"])
    finally:
        api.close()
    assert server.created == {"first", "second"}
