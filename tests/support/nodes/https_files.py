"""A small server, with HTTPS and a CA of its own or without, where the real nodes of a cluster and their pods reach it.

In: a cluster with real nodes and a folder. Out: the folder's files under the address of this machine on the nodes'
network, which has no other way out. It runs in this process, outlives any node, and ends with its block.
"""

from __future__ import annotations

import hashlib
import http.server
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from ipaddress import ip_interface
from pathlib import Path
from typing import Any

from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.certs import write_pki


@dataclass(frozen=True)
class Hold:
    """A file of which half is given. ``waiting``: set when someone has that half; ``end``: when all get the rest."""

    waiting: threading.Event = field(default_factory=threading.Event)
    end: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True)
class HttpsFiles:
    """The running server. ``authority``: certificate of its CA (PEM), "" without; ``requested``: paths of requests."""

    origin: str
    folder: Path
    authority: str
    requested: list[str] = field(default_factory=list)
    held: dict[str, Hold] = field(default_factory=dict)

    def url(self, name: str) -> str:
        """Return the address of a file."""
        return f"{self.origin}/{name}"

    def sha256(self, name: str) -> str:
        """Return the checksum of a file, in hexadecimal."""
        return hashlib.sha256((self.folder / name).read_bytes()).hexdigest()

    @contextmanager
    def holding(self, name: str) -> Iterator[Hold]:
        """Give only half of a file while the block runs, so that something can be done to a node in mid-download."""
        hold = self.held[name] = Hold()
        try:
            yield hold
        finally:
            del self.held[name]
            hold.end.set()


@contextmanager
def https_files(cluster: ClusterInfo, folder: Path, own: Path) -> Iterator[HttpsFiles]:
    """Serve the files of a folder, no others, to a cluster's real nodes; ``own`` is an empty folder for the keys."""
    write_pki(
        own, machine_address(cluster)
    )  # what an API server has is what any server needs: a CA, a certificate, a key
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own / "kube-apiserver.crt", own / "kube-apiserver.key")
    with _serving(cluster, folder, context, (own / "ca.crt").read_text()) as files:
        yield files


@contextmanager
def http_files(cluster: ClusterInfo, folder: Path) -> Iterator[HttpsFiles]:
    """Do the same without TLS."""
    with _serving(cluster, folder, None, "") as files:
        yield files


@contextmanager
def _serving(
    cluster: ClusterInfo, folder: Path, context: ssl.SSLContext | None, authority: str
) -> Iterator[HttpsFiles]:
    server = http.server.ThreadingHTTPServer((machine_address(cluster), 0), http.server.BaseHTTPRequestHandler)
    scheme = "http" if context is None else "https"
    files = HttpsFiles(f"{scheme}://{server.server_address[0]!s}:{server.server_port}", folder, authority)
    server.RequestHandlerClass = _handler(files)
    if context is not None:
        # The handshake belongs to the request's thread: one client that says nothing must not keep out the others.
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield files
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def machine_address(cluster: ClusterInfo) -> str:
    """Return this machine's address on the nodes' network."""
    return str(ip_interface(f"{cluster.real_nodes[0].address}/24").network[1])


def _handler(files: HttpsFiles) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.removeprefix("/")
            files.requested.append(name)
            if name not in {path.name for path in files.folder.iterdir()}:
                self.send_error(HTTPStatus.NOT_FOUND)
                return
            content, hold = (files.folder / name).read_bytes(), files.held.get(name)
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: len(content) // 2])
            if hold is not None:
                hold.waiting.set()
                hold.end.wait()
            self.wfile.write(content[len(content) // 2 :])

        def handle(self) -> None:
            with suppress(OSError):  # who asked is gone: a node was turned off, a certificate refused
                super().handle()

        def log_message(self, *args: Any) -> None:
            del args

    return Handler
