"""A client that tries for as long as it takes, and leaves no socket behind with any server at the address."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlparse

import pytest
from nats.aio.client import Srv

from support.nats.buses import eventually
from trellis.bus.connection.dial import dial
from trellis.bus.connection.transport import NoDelayTransport
from trellis.bus.connection.user_client import UserClient
from trellis.bus.timings import ClientTimings

INFO = {"server_id": "x", "version": "2.15.1", "headers": True, "max_payload": 1024, "nonce": "n"}
ATTEMPTS = 20
"""By each way, before and after there was a connection."""


def info(**more: bool) -> bytes:
    return b"INFO " + json.dumps({**INFO, **more}).encode() + b"\r\n"


@dataclass
class Answering:
    """A server whose answer ``way`` selects."""

    way: str = "as NATS"
    accepted: int = 0
    writers: set[asyncio.StreamWriter] = field(default_factory=set)
    port: int = 0

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        self.writers.add(writer)
        try:
            await self.answer(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client has gone
        finally:
            writer.transport.abort()
            self.writers.discard(writer)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        match self.way:
            case "hangs up at once":
                return
            case "says nothing":
                pass
            case "is no NATS":
                writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            case "stalls in TLS":
                writer.write(info(tls_required=True))
            case "hangs up in TLS":
                writer.write(info(tls_required=True))
                await reader.read(10)
                return
            case "has broken TLS":
                writer.write(info(tls_required=True))
                await reader.read(10)
                writer.write(b"no TLS at all\r\n")
            case "stalls before PONG":
                writer.write(info())
            case "refuses the user":
                writer.write(info(auth_required=True))
                await reader.readuntil(b"PING\r\n")
                writer.write(b"-ERR 'Authorization Violation'\r\n")
            case _:
                await self.serve(reader, writer)
        while await reader.read(65536):
            pass

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(info())
        while line := await reader.readline():
            if line.startswith(b"PING"):
                writer.write(b"PONG\r\n")

    def cut(self) -> None:
        for writer in list(self.writers):
            writer.transport.abort()


WAYS = [
    "hangs up at once",
    "says nothing",
    "is no NATS",
    "stalls in TLS",
    "hangs up in TLS",
    "has broken TLS",
    "stalls before PONG",
    "refuses the user",
]


@pytest.fixture
async def answering() -> AsyncIterator[Answering]:
    made = Answering()
    server = await asyncio.start_server(made.take, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    yield made
    server.close()
    made.cut()
    await server.wait_closed()
    await eventually(lambda: not made.writers)


async def connect(client: UserClient, port: int) -> None:
    async def note(_: Exception) -> None:
        await asyncio.sleep(0)

    await client.connect(
        f"nats://127.0.0.1:{port}",
        max_reconnect_attempts=-1,
        reconnect_time_wait=0,
        connect_timeout=0.02,  # type: ignore[arg-type] # the library takes fractions
        tls=ssl.create_default_context(),
        error_cb=note,
    )


def sockets() -> int:
    """Return how many sockets this process has."""
    found = 0
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # the listing's own
            found += str(path.readlink()).startswith("socket:")
    return found


@pytest.mark.parametrize("before", [False, True], ids=["from the start", "after a connection"])
@pytest.mark.parametrize("way", WAYS)
async def test_connections_are_retried_after_any_answer_and_leave_nothing_open(
    answering: Answering, way: str, before: bool
) -> None:
    had = sockets()
    client = UserClient(None)
    if before:
        await connect(client, answering.port)
    answering.way = way
    answering.cut()
    connecting = None if before else asyncio.create_task(connect(client, answering.port))
    most = 0

    def enough() -> bool:
        nonlocal most
        most = max(most, sockets() - had - len(answering.writers))
        return answering.accepted >= ATTEMPTS

    try:
        await eventually(enough, 60)
    finally:
        if connecting is not None:
            connecting.cancel()
            await asyncio.wait({connecting})
        await client.close_permanently(5.0)
    assert most <= 3, "one, and those that the far side has not accepted or is about to close"
    gc.collect()  # a socket that nobody closed is a warning, and a warning is an error
    await eventually(lambda: sockets() == had)


async def test_a_command_that_is_cancelled_while_it_connects_leaves_nothing_open(answering: Answering) -> None:
    answering.way = "says nothing"
    had = sockets()
    dialling = asyncio.create_task(dial(f"nats://127.0.0.1:{answering.port}", "test"))
    await eventually(lambda: answering.writers)
    dialling.cancel()
    await asyncio.wait({dialling})
    gc.collect()
    await eventually(lambda: sockets() == had)


async def test_a_connection_closed_during_the_tls_handshake_has_failed() -> None:
    requested = asyncio.Event()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        requested.set()
        await reader.read()
        writer.close()

    async with await asyncio.start_server(take, "127.0.0.1", 0) as server:
        transport, address = (
            NoDelayTransport(ClientTimings().goodbye),
            urlparse(f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"),
        )
        await transport.connect(address, 1024, 5)
        agreeing = asyncio.create_task(transport.connect_tls(address, ssl.create_default_context(), 1024, 5))
        await asyncio.wait_for(requested.wait(), 5)
        transport.abort()
        with pytest.raises(ConnectionResetError, match="before TLS"):
            await agreeing
    gc.collect()


def server_at(answering: Answering) -> Srv:
    return Srv(urlparse(f"nats://127.0.0.1:{answering.port}"))


def connecting() -> UserClient:
    client = UserClient(None)
    client.options["connect_timeout"] = 5
    return client


async def test_of_two_attempts_at_once_one_socket_is_left(answering: Answering) -> None:
    client = connecting()
    await asyncio.gather(*(client._connect_to_server(server_at(answering)) for _ in range(2)))
    await eventually(lambda: (answering.accepted, len(answering.writers)) == (2, 1))
    client.hang_up()
    await eventually(lambda: not answering.writers)


async def test_an_attempt_that_succeeds_after_the_goodbye_leaves_no_socket(answering: Answering) -> None:
    client = connecting()
    attempt = asyncio.create_task(client._connect_to_server(server_at(answering)))
    await asyncio.sleep(0)
    await client.close_permanently(1)
    with pytest.raises(asyncio.CancelledError):
        await attempt
    await eventually(lambda: answering.accepted == 1 and not answering.writers)
