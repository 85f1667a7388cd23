"""A server that a group of hosts named may say anything: it gets no more of us than the end of its own connection."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import nats.errors
import pytest
from nats.aio.client import Srv

from trellis.lattice.connection.address import NatsAddress
from trellis.lattice.connection.client import LARGEST, LONGEST
from trellis.lattice.connection.lattice_connection import LatticeConnection
from trellis.lattice.timings import ConnectionTimings

INFO: dict[str, Any] = {"server_id": "N", "version": "2.11.0", "max_payload": 1_048_576, "headers": True, "proto": 1}
VIOLATION = b"-ERR 'Permissions Violation for Subscription to \"a\"'\r\n"


class LyingServer:
    """A server that says ``info`` first, is a good one for as long as a client connects, and then says ``sent``."""

    def __init__(self, sent: bytes, times: int = 1, info: object = INFO) -> None:
        self.sent, self.times, self.info = sent, times, info
        self.published_at = asyncio.Event()
        self.disconnected = asyncio.Event()
        self.ponged = asyncio.Event()
        self.meetings: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    def meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.meetings[asyncio.create_task(self._meet(reader, writer))] = writer

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"INFO " + json.dumps(self.info).encode() + b"\r\n")
        pings = 0
        try:
            while line := await reader.readline():
                if line.startswith(b"PONG"):
                    self.ponged.set()
                if line.startswith(b"PING"):
                    writer.write(b"PONG\r\n")
                    pings += 1
                    if pings == 2:  # of the library's connect, and of ours
                        await self._lie(writer)
        except OSError:
            pass
        finally:
            self.disconnected.set()
            writer.close()

    async def _lie(self, writer: asyncio.StreamWriter) -> None:
        for _ in range(self.times):
            writer.write(self.sent)
            await writer.drain()
        writer.write(b"PING\r\n")
        self.published_at.set()


@asynccontextmanager
async def met(lying: LyingServer, timings: ConnectionTimings = ConnectionTimings()) -> AsyncIterator[LatticeConnection]:
    server = await asyncio.start_server(lying.meet, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    link = LatticeConnection(NatsAddress(f"nats://127.0.0.1:{port}"), "test", lambda: None, timings)
    task = asyncio.create_task(link.run())
    try:
        yield link
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        server.close()
        for meeting, writer in lying.meetings.items():
            meeting.cancel()
            writer.transport.abort()
        await asyncio.gather(*lying.meetings, return_exceptions=True)
        await asyncio.gather(*(writer.wait_closed() for writer in lying.meetings.values()), return_exceptions=True)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(15):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.01)


def complaints() -> list[object]:
    return [item for item in gc.get_objects() if isinstance(item, nats.errors.Error) and 'to "a"' in str(item)]


@pytest.mark.parametrize(
    ("sent", "times", "reason"),
    [
        (b"MSG a 1 %d\r\n" % (LARGEST + 1), 1, str(LARGEST)),
        (b"HMSG a 1 12 %d\r\n" % 10**12, 1, str(LARGEST)),
        (b"HMSG a 1 %d 12\r\n" % 10**12, 1, str(LARGEST)),
        (b"x" * 2**16, LONGEST // 2**16 + 1, f"{LONGEST} bytes"),
        (b"INFO " + b"{" * 2**16, LONGEST // 2**16 + 1, f"{LONGEST} bytes"),
    ],
    ids=["message", "with headers", "headers larger than it", "line without an end", "INFO without an end"],
)
async def test_an_oversized_message_ends_the_connection_and_is_reported(sent: bytes, times: int, reason: str) -> None:
    lying = LyingServer(sent, times)
    async with met(lying) as link:
        await asyncio.wait_for(lying.disconnected.wait(), 15)
        await until(lambda: reason in link.reason)


async def test_complaints_without_an_end_are_not_kept() -> None:
    lying = LyingServer(VIOLATION * 100, 100)
    async with met(lying) as link:
        await until(lambda: link.subscription_denied)
        await asyncio.wait_for(lying.published_at.wait(), 15)
        await until(lambda: len(complaints()) < 10)


@pytest.mark.parametrize("at", ["first", "later"])
async def test_addresses_of_other_servers_are_not_kept(at: str) -> None:
    lie = INFO | {"connect_urls": [f"10.0.{number}.1:4222" for number in range(200)]}
    sent = b"INFO " + json.dumps(lie).encode() + b"\r\n" if at == "later" else b""
    lying = LyingServer(sent, info=lie if at == "first" else INFO)
    async with met(lying) as link:
        await link.there()
        await asyncio.wait_for(lying.published_at.wait(), 15)
        await asyncio.wait_for(lying.ponged.wait(), 15)  # all messages before it were read
        assert not [item for item in gc.get_objects() if isinstance(item, Srv) and item.discovered]


@pytest.mark.parametrize(
    "info", [[], None, "x", INFO | {"max_payload": "many"}, INFO | {"max_payload": -1}, INFO | {"nonce": 5}]
)
async def test_an_info_that_is_none_makes_no_connection(info: object) -> None:
    async with met(LyingServer(b"", info=info)) as link:
        await until(lambda: link.tried)
        if link.since is None:
            assert "INFO" in link.reason
        else:
            assert info == INFO | {"nonce": 5}  # who has no key signs none
