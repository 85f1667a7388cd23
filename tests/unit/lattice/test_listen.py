"""A command that listens for a bounded time: it publishes nothing, and says why it received nothing."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import certifi
import pytest

from support.suite.naming import lacking
from trellis.lattice.connection.address import NatsAddress
from trellis.lattice.connection.listen import Listened, listen
from trellis.lattice.timings import ListenTimings
from unit.lattice.test_lying_servers import INFO
from unit.node_installer.servers import certificates

AUTHORITIES = Path(certifi.where()).read_text(encoding="ascii", errors="ignore")
SHORT = ListenTimings(listen=0.4, look=0.01, connect=2, goodbye=0.2)
BEAT = b"MSG beats.a 1 2\r\n{}\r\n"


class Server:
    """A server that sends ``sent`` once the client has subscribed, and keeps what the client sent."""

    def __init__(self, sent: bytes = b"", *, hangs_up: bool = False) -> None:
        self.sent, self.hangs_up = sent, hangs_up
        self.lines: list[str] = []

    async def meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"INFO " + json.dumps(INFO).encode() + b"\r\n")
        try:
            while line := await reader.readline():
                self.lines.append(line.decode().strip())
                if line.startswith(b"PING"):
                    writer.write(b"PONG\r\n")
                    if any(item.startswith("SUB") for item in self.lines):
                        writer.write(self.sent)
                        self.sent = b""
                        if self.hangs_up:
                            break
        except OSError:
            pass
        finally:
            writer.close()


@asynccontextmanager
async def serving(server: Server) -> AsyncIterator[NatsAddress]:
    listener = await asyncio.start_server(server.meet, "127.0.0.1", 0)
    try:
        yield NatsAddress(f"nats://127.0.0.1:{listener.sockets[0].getsockname()[1]}")
    finally:
        listener.close()
        await listener.wait_closed()
        await asyncio.sleep(0.01)


class Subscriber:
    def __init__(self, enough: int = 10**9) -> None:
        self.received: list[tuple[str, bytes]] = []
        self.enough = enough

    def take(self, subject: str, payload: bytes) -> None:
        self.received.append((subject, payload))

    async def listen(self, address: NatsAddress, timings: ListenTimings = SHORT) -> Listened:
        handlers = {"beats.>": self.take}
        return await listen(address, "test", handlers, lambda: len(self.received) >= self.enough, timings)


async def test_messages_are_received_and_nothing_is_published() -> None:
    server, subscriber = Server(BEAT * 3), Subscriber()
    async with serving(server) as address:
        found = await subscriber.listen(address)
    assert subscriber.received == [("beats.a", b"{}")] * 3
    assert (found.error, found.dropped) == ("", 0)
    assert found.seconds == pytest.approx(SHORT.listen, abs=0.3)
    [sent] = [line.split() for line in server.lines if line.split()[0] not in {"CONNECT", "PING", "PONG"}]
    assert (sent[:2], len(sent)) == (["SUB", "beats.>"], 3), (
        "without a queue group: each listener receives all messages"
    )


async def test_it_ends_as_soon_as_enough_was_received() -> None:
    subscriber = Subscriber(enough=2)
    async with serving(Server(BEAT * 2)) as address:
        found = await subscriber.listen(address, ListenTimings(listen=60, look=0.01, connect=2, goodbye=0.2))
    assert found.seconds < 30
    assert not found.error


async def test_ten_thousand_messages_are_received_to_the_last() -> None:
    subscriber = Subscriber(enough=10_000)
    async with serving(Server(BEAT * 10_000)) as address:
        found = await subscriber.listen(address, ListenTimings(listen=60, look=0.01, connect=2, goodbye=0.2))
    assert len(subscriber.received) == 10_000
    assert (found.error, found.dropped) == ("", 0)


async def test_a_server_that_is_not_there_is_named_without_a_password() -> None:
    found = await Subscriber().listen(NatsAddress("nats://user:secret@127.0.0.1:1"))
    assert found.seconds == 0
    assert lacking(found.error, "127.0.0.1:1") == []
    assert "secret" not in found.error
    assert not found.untrusted


@pytest.mark.parametrize("url", ["nats://", "not a url", "nats://127.0.0.1:99999"])
async def test_an_invalid_address_is_an_error_and_no_exception(url: str) -> None:
    assert (await Subscriber().listen(NatsAddress(url))).error


async def test_a_denied_subscription_is_the_error() -> None:
    denial = b"-ERR 'Permissions Violation for Subscription to \"beats.>\"'\r\n"
    async with serving(Server(denial)) as address:
        found = await Subscriber().listen(address)
    assert (found.seconds, found.refused) == (0, True)
    assert "beats.>" in found.error


async def test_one_denied_subscription_of_two_is_named_as_written_and_the_other_one_is_received() -> None:
    """The server names the subject as the client wrote it, and the library changes it to lower case."""
    denial = b"-ERR 'Permissions Violation for Subscription to \"_INBOX.>\"'\r\n"
    subscriber = Subscriber()
    async with serving(Server(denial + BEAT)) as address:
        handlers = {"beats.>": subscriber.take, "_INBOX.>": subscriber.take}
        found = await listen(address, "test", handlers, lambda: False, SHORT)
    assert subscriber.received == [("beats.a", b"{}")]
    assert (found.error, found.refused) == ("", False)
    assert [*found.denied] == ["_INBOX.>"]
    assert "_INBOX.>" in found.denied["_INBOX.>"]


async def test_a_server_without_tls_gets_nothing_if_the_address_requires_it() -> None:
    server = Server(BEAT)
    async with serving(server) as address:
        secure = NatsAddress(address.url.replace("nats://", "tls://user:secret@"))
        with_ca = replace(address, authorities=AUTHORITIES)
        for required in (secure, with_ca):
            found = await Subscriber().listen(required)
            assert lacking(found.error, "TLS") == []
            assert "secret" not in found.error
    assert not any(line.startswith("CONNECT") for line in server.lines)


async def test_a_certificate_of_another_ca_is_distinguished_from_other_errors(tmp_path: Path) -> None:
    """The client has a valid CA, which did not sign the certificate of the server."""
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificates(tmp_path / "server") / "server.pem")
    certificates(tmp_path / "other")
    lines: list[bytes] = []

    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"INFO " + json.dumps(INFO | {"tls_required": True}).encode() + b"\r\n")
        with contextlib.suppress(OSError):
            await writer.start_tls(tls)
            lines.append(await reader.readline())
        writer.close()

    listener = await asyncio.start_server(meet, "127.0.0.1", 0)
    try:
        url = f"tls://user:secret@127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        found = await Subscriber().listen(NatsAddress(url, authorities=(tmp_path / "other" / "ca.pem").read_text()))
    finally:
        listener.close()
        await listener.wait_closed()
    assert found.untrusted
    assert lacking(found.error, "127.0.0.1", "CERTIFICATE_VERIFY_FAILED") == []
    assert "secret" not in found.error
    assert not any(lines)


async def test_a_lost_connection_is_the_error_and_its_time_is_kept() -> None:
    async with serving(Server(BEAT, hangs_up=True)) as address:
        found = await Subscriber().listen(address, ListenTimings(listen=60, look=0.01, connect=2, goodbye=0.2))
    assert found.error
    assert found.seconds < 30


async def test_certificates_that_cannot_be_used_are_named_without_their_content() -> None:
    found = await Subscriber().listen(NatsAddress("nats://127.0.0.1:1", certificate="hunter2"))
    assert "PEM" in found.error
    assert "hunter2" not in found.error
