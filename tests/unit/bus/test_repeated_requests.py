"""A question about a stream that got lost is asked again; one that changes something is not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from support.nats.buses import eventually
from trellis.bus.connection.user_client import UserClient

INFO = {"server_id": "x", "version": "2.15.1", "headers": True, "max_payload": 1024}
READING = "$JS.API.STREAM.INFO.TRELLIS_EVENTS"


@dataclass
class Server:
    """Records the reply subjects of its requests, and answers on demand."""

    requested: list[str] = field(default_factory=list)
    port: int = 0
    writer: asyncio.StreamWriter | None = None

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        writer.write(b"INFO " + json.dumps(INFO).encode() + b"\r\n")
        while line := (await reader.readline()).split():
            if line[0] == b"PING":
                writer.write(b"PONG\r\n")
            elif line[0] == b"PUB":
                self.requested.append(line[2].decode())
                await reader.readline()
        writer.close()

    def answer(self, which: int) -> None:
        assert self.writer is not None
        self.writer.write(f"MSG {self.requested[which]} 1 2\r\nok\r\n".encode())


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    made = Server()
    listening = await asyncio.start_server(made.take, "127.0.0.1", 0)
    made.port = listening.sockets[0].getsockname()[1]
    yield made
    listening.close()
    await listening.wait_closed()


@pytest.fixture
async def client(server: Server) -> AsyncIterator[UserClient]:
    made = UserClient(None)
    await made.connect(f"nats://127.0.0.1:{server.port}")
    yield made
    await made.close()


@pytest.mark.parametrize("which", [0, 1], ids=["the first is answered late", "the first got lost"])
@pytest.mark.parametrize("subject", [READING, READING.replace("$JS", "$JS.hub")], ids=["no domain", "of a domain"])
async def test_a_question_that_changes_nothing_is_asked_again_and_any_answer_counts(
    server: Server, client: UserClient, subject: str, which: int
) -> None:
    asking = asyncio.create_task(client.request(subject, timeout=60))
    await eventually(lambda: len(server.requested) == 2)
    server.answer(which)
    assert (await asking).data == b"ok"
    assert not client._asking, "nobody waits for the other answer"


async def test_a_question_without_an_answer_ends_in_its_time(client: UserClient) -> None:
    with pytest.raises(TimeoutError):
        await client.request(READING, timeout=1.2)
    assert not client._asking


async def test_a_request_that_is_cancelled_is_not_repeated(server: Server, client: UserClient) -> None:
    asking = asyncio.create_task(client.request(READING, timeout=60))
    await eventually(lambda: server.requested)
    asking.cancel()
    await asyncio.wait({asking})
    assert not client._asking


async def test_a_request_that_changes_something_is_sent_once(server: Server, client: UserClient) -> None:
    changing = asyncio.create_task(client.request("$JS.API.CONSUMER.CREATE.TRELLIS_EVENTS.x", timeout=60))
    reading = asyncio.create_task(client.request(READING, timeout=60))
    await eventually(lambda: len(server.requested) == 3)
    server.answer(0)
    server.answer(1)
    assert (await changing).data == b"ok"
    assert (await reading).data == b"ok"
