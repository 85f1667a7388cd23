"""Real servers in this process: https with a CA of its own, a forward proxy, a registry."""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import http.server
import ipaddress
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass
class Request:
    """The request of a client."""

    path: str
    headers: dict[str, str]
    body: bytes = b""
    method: str = "GET"


@dataclass
class Answer:
    """The answer of a server. ``cut``: so many bytes of the body, then the connection is closed, or ``held`` is
    awaited.
    """

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    cut: int | None = None
    held: threading.Event | None = None


Respond = Callable[[Request], Answer]


@dataclass
class Server:
    """A running server and what it was asked."""

    url: str
    host: str
    requests: list[Request]


@contextmanager
def serving(respond: Respond, tls: Path | None = None, address: str = "127.0.0.1") -> Iterator[Server]:
    """Serve on a free port of an address of this machine. ``tls``: a directory made by :func:`certificates`.

    Without it, the server answers the first bytes of TLS as registries do: with an error, in plain http.
    """
    requests: list[Request] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def handle_one_request(self) -> None:
            if tls is None and self.rfile.peek(1)[:1] == b"\x16":  # type: ignore[attr-defined]  # buffered
                self.wfile.write(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n400 Bad Request")
                self.close_connection = True
                return
            super().handle_one_request()

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            request = Request(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
            request.method = self.command
            requests.append(request)
            answer = respond(request)
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(answer.body)))
            self.send_header("Connection", "close")
            self.end_headers()
            if self.command == "HEAD":
                return
            with suppress(ConnectionError, ssl.SSLError):  # who asked may be gone by then
                self.wfile.write(answer.body if answer.cut is None else answer.body[: answer.cut])
                if answer.held is not None:
                    self.wfile.flush()
                    answer.held.wait()
                    self.wfile.write(answer.body[answer.cut :])

        do_POST = do_GET  # noqa: N815 (http.server looks for this name)
        do_HEAD = do_GET  # noqa: N815 (as above)

        def do_CONNECT(self) -> None:
            requests.append(Request(f"CONNECT {self.path}", {k.lower(): v for k, v in self.headers.items()}))
            host, _, port = self.path.partition(":")
            with socket.create_connection((host, int(port)), timeout=10) as far:
                self.send_response(200)
                self.end_headers()
                pump = threading.Thread(target=_pump, args=(self.connection, far), daemon=True)
                pump.start()
                _pump(far, self.connection)

        def log_message(self, *args: Any) -> None:
            del args

    server = http.server.ThreadingHTTPServer((address, 0), Handler)
    if tls is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tls / "server.pem")
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    host = f"{address}:{server.server_address[1]}"
    try:
        yield Server(f"{'https' if tls else 'http'}://{host}", host, requests)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _pump(origin: socket.socket, target: socket.socket) -> None:
    try:
        while data := origin.recv(65536):
            target.sendall(data)
    except OSError:
        pass


def certificates(folder: Path, *addresses: str) -> Path:
    """Make a CA (``ca.pem``), and a server's key and certificate (``server.pem``) for addresses, else 127.0.0.1."""
    folder.mkdir(parents=True, exist_ok=True)
    now = dt.datetime.now(dt.UTC)
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a CA of one's own")])

    def build(subject: x509.Name, public: ec.EllipticCurvePublicKey, *, ca: bool) -> x509.Certificate:
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(ca_name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(hours=1))
            .not_valid_after(now + dt.timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        )
        if not ca:
            names = [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses or ("127.0.0.1",)]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(ca_key, hashes.SHA256())

    server = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "server")])
    pem = serialization.Encoding.PEM
    (folder / "ca.pem").write_bytes(build(ca_name, ca_key.public_key(), ca=True).public_bytes(pem))
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "server.pem").write_bytes(private + build(server, key.public_key(), ca=False).public_bytes(pem))
    return folder


class Registry:
    """A small OCI registry: blobs and manifests by digest, tags; token authentication if it has a password."""

    def __init__(self, *, login: str | None = None) -> None:
        self.documents: dict[str, tuple[str, bytes]] = {}
        self.blobs: dict[str, bytes] = {}
        self.login = login
        self.url = ""

    def blob(self, content: bytes, kind: str = "application/octet-stream", title: str | None = None) -> dict[str, Any]:
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        self.blobs[digest] = content
        annotations = {"annotations": {"org.opencontainers.image.title": title}} if title else {}
        return {"mediaType": kind, "digest": digest, "size": len(content), **annotations}

    def manifest(self, tag: str | None, *layers: dict[str, Any]) -> str:
        kind = "application/vnd.oci.image.manifest.v1+json"
        return self._document(tag, kind, {"schemaVersion": 2, "mediaType": kind, "layers": list(layers)})

    def index(self, tag: str, digests: dict[str, str]) -> str:
        kind = "application/vnd.oci.image.index.v1+json"
        manifests = [
            {"digest": digest, "platform": {"os": "linux", "architecture": arch}} for arch, digest in digests.items()
        ]
        return self._document(tag, kind, {"schemaVersion": 2, "mediaType": kind, "manifests": manifests})

    def _document(self, tag: str | None, kind: str, value: dict[str, Any]) -> str:
        body = json.dumps(value).encode()
        digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
        for name in filter(None, (tag, digest)):
            self.documents[name] = (kind, body)
        return digest

    def respond(self, request: Request) -> Answer:
        if request.path.startswith("/token"):
            wanted = "Basic " + base64.b64encode((self.login or "").encode()).decode()
            if request.headers.get("authorization") != wanted:
                return Answer(401, b"{}")
            return Answer(body=b'{"token": "let-me-in"}')
        if self.login and request.headers.get("authorization") != "Bearer let-me-in":
            challenge = f'Bearer realm="{self.url}/token",service="registry",scope="repository:team/shim:pull"'
            return Answer(401, headers={"WWW-Authenticate": challenge})
        kind, name = request.path.removeprefix("/v2/team/shim/").split("/", 1)
        if kind == "manifests" and name in self.documents:
            media, body = self.documents[name]
            return Answer(body=body, headers={"Content-Type": media})
        if kind == "blobs" and name in self.blobs:
            return Answer(body=self.blobs[name])
        return Answer(404)
