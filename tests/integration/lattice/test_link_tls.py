"""Links to a real nats-server by TLS: certificates of Trellis, and how a connection ends when the far side does not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from cryptography.hazmat.primitives import serialization

from support.nats.buses import eventually
from support.suite.tcp_proxy import TcpProxy
from support.suite.tiers import first_of
from trellis.lattice.connection.address import LatticeAddress, NatsAddress
from trellis.lattice.connection.tls import NOT_LET_IN
from trellis.lattice.domain.view import LatticeView
from trellis.lattice.follow.lattice_watches import LatticeWatches
from trellis.lattice.timings import ConnectionTimings, LatticeTimings
from trellis_dev.localcluster.certs import KUBELET_CLIENT, write_pki
from trellis_dev.localcluster.nats import NatsServer

SERVER = "kube-apiserver"


class Watched:
    """One lattice in use, at an address that may change."""

    def __init__(self, lattices: LatticeWatches[str]) -> None:
        self.lattices = lattices

    async def at(self, link: NatsAddress) -> None:
        await self.lattices.need("group", LatticeAddress(link, "default"))

    @property
    def view(self) -> LatticeView:
        view = self.lattices.view("group")
        assert view is not None
        return view

    async def linked(self) -> None:
        await eventually(lambda: self.view.connected_since is not None)

    async def unavailable(self, expected_text: str) -> str:
        await eventually(lambda: self.view.connected_since is None and expected_text in self.view.reason)
        return self.view.reason


@pytest.fixture
async def watched() -> AsyncIterator[Watched]:
    timings = LatticeTimings(connection=ConnectionTimings(backoff_first=0.1, backoff_most=0.5))
    lattices: LatticeWatches[str] = LatticeWatches("trellis-test", lambda _: None, timings=timings)
    async with lattices:
        yield Watched(lattices)


@pytest.fixture
def pki(tmp_path: Path) -> Path:
    return authority(tmp_path / "pki")


def authority(directory: Path) -> Path:
    """Make an authority, with the certificates of a server and of a client."""
    directory.mkdir()
    write_pki(directory, nodes=["any"])
    return directory


def certificate(pki: Path, name: str = KUBELET_CLIENT) -> str:
    """Return a certificate and its key, as a Secret would have them."""
    return "\n".join((pki / f"{name}.{end}").read_text() for end in ("crt", "key"))


def to(port: int, pki: Path, certificate: str = "") -> NatsAddress:
    return NatsAddress(f"nats://127.0.0.1:{port}", authorities=(pki / "ca.crt").read_text(), certificate=certificate)


@contextmanager
def demanding(directory: Path, pki: Path, *, of: Path | None = None) -> Iterator[NatsServer]:
    """Run a nats-server that demands a certificate of its clients; ``of``: of which authority, if not its own."""
    config = directory / "nats.conf"
    write_config(config, pki, of or pki)
    with NatsServer(directory / "nats", config=config) as server:
        yield server


def write_config(config: Path, pki: Path, of: Path) -> None:
    files = f'cert_file: "{pki / SERVER}.crt", key_file: "{pki / SERVER}.key", ca_file: "{of / "ca.crt"}"'
    config.write_text(f"tls {{ {files}, verify: true }}\n")


def sockets_to(port: int) -> int:
    """Return how many of this process lead to a port."""
    return sum(
        1
        for net_connection in psutil.Process().net_connections("tcp")
        if net_connection.raddr and net_connection.raddr[1] == port
    )


async def test_a_server_that_requires_client_certificates_accepts_a_valid_one(
    tmp_path: Path, pki: Path, watched: Watched
) -> None:
    with demanding(tmp_path, pki) as server:
        await watched.at(to(server.port, pki))
        await watched.unavailable(NOT_LET_IN)
        await watched.at(to(server.port, pki, certificate(pki)))
        await watched.linked()
        assert watched.lattices.connections == 1, "the one without it has ended"


@pytest.mark.thorough
async def test_a_rotated_certificate_is_shown_at_the_next_connect(tmp_path: Path, pki: Path, watched: Watched) -> None:
    other = authority(tmp_path / "other")
    with demanding(tmp_path, pki, of=other) as server:
        await watched.at(to(server.port, pki, certificate(pki)))
        await watched.unavailable("tls.crt")
        await watched.at(to(server.port, pki, certificate(other)))
        await watched.linked()
        # The servers' authority goes back: who is connected stays, until the server starts again.
        write_config(tmp_path / "nats.conf", pki, pki)
        server.stop()
        server.start()
        await watched.unavailable("tls.crt")
        await watched.at(to(server.port, pki, certificate(pki)))
        await watched.linked()


def locked(pki: Path) -> str:
    """Return the certificate with its key under a password."""
    key = serialization.load_pem_private_key((pki / f"{KUBELET_CLIENT}.key").read_bytes(), None)
    under = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"password"),
    )
    return (pki / f"{KUBELET_CLIENT}.crt").read_text() + under.decode()


def of_another(pki: Path) -> str:
    """Return a certificate with the key of another."""
    return (pki / f"{KUBELET_CLIENT}.crt").read_text() + (pki / f"{SERVER}.key").read_text()


def without_key(pki: Path) -> str:
    return (pki / f"{KUBELET_CLIENT}.crt").read_text() + "garbage-that-is-secret\n"


@pytest.mark.parametrize("made", first_of([locked, of_another, without_key]), ids=lambda made: made.__name__)
async def test_an_unusable_certificate_is_reported_and_no_password_is_sent(
    tmp_path: Path, pki: Path, watched: Watched, made: Callable[[Path], str]
) -> None:
    with demanding(tmp_path, pki) as server:
        text = made(pki)
        await watched.at(to(server.port, pki, text))
        reason = await watched.unavailable("leafTls")
        assert NOT_LET_IN not in reason
        assert not [line for line in text.splitlines() if line and line in reason]
        await watched.at(to(server.port, pki, certificate(pki)))
        await watched.linked()


async def test_a_tls_connection_closes_although_the_server_does_not_answer_the_shutdown(
    tmp_path: Path, pki: Path, watched: Watched
) -> None:
    """TLS by itself waits 30 s for that; a process that ends meanwhile leaves the socket to the garbage collector."""
    with demanding(tmp_path, pki) as server:
        async with TcpProxy("127.0.0.1", server.port) as proxy:
            await watched.at(to(proxy.port, pki, certificate(pki)))
            await watched.linked()
            assert sockets_to(proxy.port) == 1
            proxy.silence()
            await watched.lattices.need("group", None)
            await eventually(lambda: sockets_to(proxy.port) == 0)


async def test_a_link_that_ends_in_the_middle_of_a_handshake_leaves_nothing_open(pki: Path, watched: Watched) -> None:
    shaken, done = asyncio.Event(), asyncio.Event()

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        info = {"server_id": "x", "version": "2.15.1", "headers": True, "max_payload": 1024, "tls_required": True}
        writer.write(b"INFO " + json.dumps(info).encode() + b"\r\n")
        await reader.readexactly(5)  # the first of the client's part
        shaken.set()
        await done.wait()
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        await watched.at(to(port, pki, certificate(pki)))
        async with asyncio.timeout(30):
            await shaken.wait()
        await watched.lattices.need("group", None)
        await eventually(lambda: sockets_to(port) == 0)
    finally:
        done.set()
        server.close()
        await server.wait_closed()
