"""Registries with and without TLS, and the hosts that receive a login."""

from __future__ import annotations

import ipaddress
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from trellis.oci.references import parse_image
from trellis.registries.domain.errors import SourceError, SourceReason, TlsProblem, TransportError
from trellis.registries.registry import Registry
from trellis.registries.timings import FetchTimings
from trellis.registries.transfers import Transfers
from trellis.registries.web import Client, Web, host_of
from unit.node_installer import servers
from unit.node_installer.servers import Answer, Request, certificates, serving

WASM = b"\0asm\x01\0\0\0" + b"\0" * 100
LOGIN = "me:hunter2"
LOOPBACK = [ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1/128")]
TIMINGS = FetchTimings(connect=5.0, patience=10.0)


@dataclass
class Asking:
    """A user who asks: the CA that they trust, the hosts that they named as insecure, their login."""

    ca: Path | None = None
    insecure: frozenset[str] = frozenset()
    login: str | None = LOGIN
    plain: bool | None = field(default=None, init=False)

    async def module(self, image: str) -> bytes:
        tls = ssl.create_default_context(cafile=self.ca / "ca.pem") if self.ca else None
        web = Web(LOOPBACK, tls, TIMINGS, Client(insecure=self.insecure))
        try:
            async with Transfers(web, TIMINGS).begin("team") as transfer:
                registry = Registry(transfer, parse_image(image), self.login, self.insecure)
                async with transfer.in_time(image):
                    await registry.confirm()
                    found = await registry.module()
                self.plain = registry.plain
                return found
        finally:
            await web.close()

    async def refusal(self, image: str) -> SourceError:
        with pytest.raises(SourceError) as caught:
            await self.module(image)
        assert "hunter2" not in str(caught.value)
        return caught.value


def image(host: str) -> str:
    return f"{host}/team/shim:1"


def registry(login: str | None = LOGIN) -> servers.Registry:
    made = servers.Registry(login=login)
    made.manifest("1", made.blob(WASM, "application/wasm"))
    return made


@contextmanager
def private(
    tls: Path | None, change: Callable[[Request, Answer], Answer] = lambda _, answer: answer
) -> Iterator[tuple[servers.Registry, servers.Server]]:
    """Serve a registry that requires a login; ``change`` its answers."""
    made = registry()
    with serving(lambda request: change(request, made.respond(request)), tls) as server:
        made.url = server.url
        yield made, server


def logins(server: servers.Server) -> list[str]:
    """Return what requests had as their authorization."""
    return [value for request in server.requests if (value := request.headers.get("authorization"))]


async def test_a_registry_without_tls_is_recognised_and_gets_no_login() -> None:
    with private(None) as (_, server):
        refused = await Asking().refusal(image(server.host))
        assert isinstance(refused, TransportError)
        assert (refused.reason, refused.tls, refused.host) == (
            SourceReason.UNAVAILABLE,
            TlsProblem.PLAIN_HTTP,
            server.host,
        )
        assert [(request.method, request.path) for request in server.requests] == [("HEAD", "/")]
        assert logins(server) == []


async def test_a_registry_that_the_user_named_as_insecure_is_asked_over_plain_http_with_the_login() -> None:
    with private(None) as (_, server):
        user = Asking(insecure=frozenset({server.host}))
        assert await user.module(image(server.host)) == WASM
        assert user.plain
        assert {value.partition(" ")[0] for value in logins(server)} == {"Basic", "Bearer"}


async def test_a_registry_with_tls_is_asked_over_https_also_if_it_was_named_as_insecure(tls: Path) -> None:
    with private(tls) as (_, server):
        user = Asking(tls, frozenset({server.host}))
        assert await user.module(image(server.host)) == WASM
        assert user.plain is False


@pytest.mark.parametrize("named", [True, False])
async def test_a_registry_whose_ca_is_not_trusted_gets_no_request(tls: Path, named: bool) -> None:
    with private(tls) as (_, server):
        user = Asking(None, frozenset({server.host}) if named else frozenset())
        refused = await user.refusal(image(server.host))
        assert isinstance(refused, TransportError)
        assert (refused.tls, refused.host) == (TlsProblem.ISSUER_UNKNOWN, server.host)
        assert server.requests == []


async def test_a_ca_of_the_same_name_is_not_the_ca(tls: Path, tmp_path: Path) -> None:
    with private(tls) as (_, server):
        refused = await Asking(certificates(tmp_path / "tls")).refusal(image(server.host))
        assert getattr(refused, "tls", None) is TlsProblem.ISSUER_UNKNOWN


async def test_a_certificate_for_another_name_is_no_unknown_ca(tls: Path) -> None:
    with private(tls) as (_, server):
        place = server.host.replace("127.0.0.1", "localhost")
        refused = await Asking(tls).refusal(image(place))
        assert isinstance(refused, TransportError)
        assert (refused.tls, refused.host) == (TlsProblem.CERTIFICATE_INVALID, place)


@pytest.mark.parametrize("reply", [b"", b"SSH-2.0-x\r\n", b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"])
async def test_a_server_that_speaks_neither_is_not_called_one_of_plain_http(reply: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(65536)
                    connection.sendall(reply)

        threading.Thread(target=answer, daemon=True).start()
        host = f"127.0.0.1:{listener.getsockname()[1]}"
        refused = await Asking().refusal(image(host))
        listener.shutdown(socket.SHUT_RDWR)
    assert isinstance(refused, TransportError)
    assert (refused.reason, refused.tls) == (SourceReason.UNAVAILABLE, None)


async def test_a_registry_that_is_unavailable_is_so_over_plain_http_too() -> None:
    with serving(lambda _: Answer(404)) as server:
        host = server.host
    refused = await Asking(insecure=frozenset({host})).refusal(image(host))
    assert (refused.reason, getattr(refused, "tls", "")) == (SourceReason.UNAVAILABLE, None)


@pytest.mark.parametrize("host", ["-r.invalid", "r-.invalid", ".", "r.invalid:99999", "r.invalid:123456", "a..invalid"])
async def test_a_registry_that_cannot_exist_is_an_error_of_its_source(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", Mock(side_effect=socket.gaierror(socket.EAI_NONAME, "unknown")))
    refused = await Asking(insecure=frozenset({host})).refusal(image(host))
    assert refused.reason in {SourceReason.UNAVAILABLE, SourceReason.NOT_ALLOWED}


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("https://R.example/v2/", "r.example"),
        ("http://r.example:80/", "r.example"),
        ("https://r.example:443/", "r.example"),
        ("http://r.example:5000", "r.example:5000"),
        ("https://[::1]:5000/", "[::1]:5000"),
        ("https://r.example:99999/", ""),
        ("nonsense", ""),
    ],
)
def test_the_host_of_an_address_is_that_of_a_registry(address: str, host: str) -> None:
    assert host_of(address) == host


@contextmanager
def token_server(tls: Path | None, address: str = "127.0.0.2") -> Iterator[servers.Server]:
    with serving(lambda _: Answer(body=b'{"token": "let-me-in"}'), tls, address) as server:
        yield server


async def test_a_token_server_on_another_host_that_the_registry_names_over_https_gets_the_login(tmp_path: Path) -> None:
    both = certificates(tmp_path / "tls", "127.0.0.1", "127.0.0.2")
    with token_server(both) as tokens, private(both) as (made, server):
        made.url = tokens.url
        assert await Asking(both).module(image(server.host)) == WASM
        assert [value.partition(" ")[0] for value in logins(tokens)] == ["Basic"]


async def test_a_token_server_without_tls_gets_no_login(tls: Path) -> None:
    with token_server(None) as tokens, private(tls) as (made, server):
        made.url = tokens.url
        refused = await Asking(tls).refusal(image(server.host))
        assert isinstance(refused, TransportError)
        assert (refused.tls, refused.host) == (TlsProblem.PLAIN_HTTP, tokens.host)
        assert tokens.requests == []


async def test_over_plain_http_a_token_server_on_another_host_gets_no_login_unless_the_user_named_it() -> None:
    with token_server(None) as tokens, private(None) as (made, server):
        made.url = tokens.url
        refused = await Asking(insecure=frozenset({server.host})).refusal(image(server.host))
        assert isinstance(refused, TransportError)
        assert (refused.tls, refused.host) == (TlsProblem.PLAIN_HTTP, tokens.host)
        assert tokens.requests == []
        assert await Asking(insecure=frozenset({server.host, tokens.host})).module(image(server.host)) == WASM
        assert [value.partition(" ")[0] for value in logins(tokens)] == ["Basic"]


async def test_over_plain_http_a_token_server_with_tls_on_another_host_gets_no_login(tls: Path) -> None:
    other = certificates(tls / "other", "127.0.0.2")
    with token_server(other) as tokens, private(None) as (made, server):
        made.url = tokens.url
        refused = await Asking(other, frozenset({server.host})).refusal(image(server.host))
        assert getattr(refused, "host", "") == tokens.host
        assert tokens.requests == []


@pytest.mark.parametrize("scheme", ["Basic", "Bearer"])
async def test_a_challenge_of_another_host_that_the_registry_redirects_to_gets_no_login(tls: Path, scheme: str) -> None:
    with token_server(tls, "127.0.0.1") as tokens:
        challenge = f'{scheme} realm="{tokens.url}/token"'
        with serving(lambda _: Answer(401, headers={"WWW-Authenticate": challenge}), tls) as store:

            def move(request: Request, _: Answer) -> Answer:
                return Answer(307, headers={"Location": f"{store.url}{request.path}"})

            with private(tls, move) as (_, server):
                refused = await Asking(tls).refusal(image(server.host))
                assert refused.reason is SourceReason.UNAVAILABLE
                assert (logins(store), logins(server), tokens.requests) == ([], [], [])


async def test_a_redirect_to_a_host_without_tls_carries_no_login_and_needs_permission(tls: Path) -> None:
    with serving(lambda _: Answer(body=WASM)) as store:

        def move(request: Request, answer: Answer) -> Answer:
            moved = "/blobs/" in request.path and answer.status == 200
            return Answer(307, headers={"Location": f"{store.url}/blob"}) if moved else answer

        with private(tls, move) as (_, server):
            refused = await Asking(tls).refusal(image(server.host))
            assert (refused.reason, store.requests) == (SourceReason.NOT_ALLOWED, [])
            assert await Asking(tls, frozenset({store.host})).module(image(server.host)) == WASM
            assert logins(store) == []


@pytest.mark.parametrize("answer", [Answer(401), Answer(200, b"{}"), Answer(500, b"hunter2")])
async def test_a_token_server_that_gives_no_token_is_an_error_without_its_answer(tls: Path, answer: Any) -> None:
    with serving(lambda _: answer, tls) as tokens, private(tls) as (made, server):
        made.url = tokens.url
        await Asking(tls).refusal(image(server.host))
