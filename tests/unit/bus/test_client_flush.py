"""Data that the NATS client flushes has arrived, and a late answer to a flush does not stop any subscription."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator

import nats.errors
import pytest
from nats.aio.msg import Msg

from trellis.bus.connection.client import RobustNatsClient

INFO = {"server_id": "x", "version": "2.15.1", "headers": True, "max_payload": 1024}
SECONDS = 5


class Server:
    """A server that records the lines of a client; it answers to the greeting, and otherwise as configured."""

    def __init__(self) -> None:
        self.client = RobustNatsClient()

    async def until(self, expected: bytes) -> list[bytes]:
        """Return the first words of the lines up to one that begins with ``word``."""
        lines: list[bytes] = []
        async with asyncio.timeout(SECONDS):
            while not lines or lines[-1] != expected:
                lines.append((await self.reader.readline()).partition(b" ")[0].strip())
        return lines

    @contextlib.asynccontextmanager
    async def connected(self) -> AsyncIterator[Server]:
        here = asyncio.Event()

        async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.reader, self.writer = reader, writer
            writer.write(b"INFO " + json.dumps(INFO).encode() + b"\r\n")
            await self.until(b"PING")
            writer.write(b"PONG\r\n")
            here.set()

        server = await asyncio.start_server(greet, "127.0.0.1", 0)
        await self.client.connect(
            f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}", allow_reconnect=False, ping_interval=600
        )
        await here.wait()
        try:
            yield self
        finally:
            await self.client.close()
            self.writer.close()
            server.close()
            await server.wait_closed()


async def ignore(_: Msg) -> None:
    """Do nothing."""


async def test_a_flush_covers_everything_published_before() -> None:
    async with Server().connected() as server:

        async def publish_all() -> None:
            await server.client.subscribe("a", cb=ignore)
            await server.client.publish("b")
            await server.client.flush(SECONDS)

        publishing = asyncio.create_task(publish_all())
        assert await server.until(b"PING") == [b"SUB", b"PUB", b"", b"PING"]
        server.writer.write(b"PONG\r\n")
        await publishing


async def test_the_end_of_a_subscription_is_known_to_the_server_before_it_is_believed() -> None:
    """Else what the server sends after its answer, and before it knows, is dropped."""
    async with Server().connected() as server:
        received: list[bytes] = []

        async def receive(message: Msg) -> None:
            received.append(message.data)

        subscription = await server.client.subscribe("a", cb=receive)
        assert await server.until(b"SUB") == [b"SUB"]
        draining = asyncio.create_task(subscription.drain())  # type: ignore[no-untyped-call]
        assert await server.until(b"PING") == [b"UNSUB", b"PING"]
        server.writer.write(b"MSG a 1 1\r\nx\r\nPONG\r\n")
        await draining
        assert received == [b"x"]


async def test_an_answer_to_a_cancelled_flush_ends_no_subscription() -> None:
    async with Server().connected() as server:
        received = asyncio.Event()

        async def receive(_: Msg) -> None:
            received.set()

        await server.client.subscribe("a", cb=receive)
        with pytest.raises(nats.errors.FlushTimeoutError):
            await server.client.flush(0.05)  # type: ignore[arg-type] # it takes any number
        server.writer.write(b"PONG\r\nMSG a 1 1\r\nx\r\n")
        async with asyncio.timeout(SECONDS):
            await received.wait()
