"""A small HTTPS server in this process that stands in for what the API server asks: a kubelet, a metrics API.

In: what it answers. Out: its port on the loopback. It ends with its block.
"""

from __future__ import annotations

import http.server
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from trellis_dev.localcluster.certs import write_pki

Answer = Callable[[str, dict[str, str]], Any]
"""Path and query in; text or JSON out, None for 404."""


class _Handler(http.server.BaseHTTPRequestHandler):
    # One request a connection: then every thread ends by itself, and what it opened is closed.
    protocol_version = "HTTP/1.0"
    timeout = 5.0

    def do_GET(self) -> None:
        assert isinstance(self.server, _Server)
        parts = urlsplit(self.path)
        found = self.server.answer(parts.path, dict(parse_qsl(parts.query)))
        body = (found if isinstance(found, str) else json.dumps(found)).encode()
        self.send_response(HTTPStatus.NOT_FOUND if found is None else HTTPStatus.OK)
        self.send_header("Content-Type", "text/plain" if isinstance(found, str) else "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name it has there
        """Say nothing."""


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = False

    def __init__(self, directory: Path, answer: Answer) -> None:
        self.answer = answer
        super().__init__(("127.0.0.1", 0), _Handler)
        directory.mkdir()
        write_pki(directory)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(directory / "kube-apiserver.crt", directory / "kube-apiserver.key")
        # The handshake is made by the thread of the connection, so that nobody can hold up the others.
        self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)


@contextmanager
def answering(directory: Path, answer: Answer) -> Iterator[int]:
    """Answer for the time of a block; yields the port. ``directory`` is made, for certificates."""
    server = _Server(directory, answer)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
