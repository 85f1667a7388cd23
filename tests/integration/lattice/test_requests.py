"""Questions over a link to a real nats-server: queue groups, outages, the end, and what no client library sends."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import nats
import pytest

from support.nats.buses import eventually
from support.nats.raw_nats import raw_publish
from support.suite.settling import settle
from trellis.lattice.connection.address import NatsAddress
from trellis.lattice.connection.lattice_connection import LatticeConnection
from trellis.lattice.connection.requests import IncomingRequest
from trellis.lattice.domain.errors import TooLargeError
from trellis_dev.localcluster.nats import NatsServer


class Responder:
    """A link at which questions are taken; each is answered with ``name``."""

    def __init__(self, url: str, subject: str, name: str) -> None:
        self.requests: list[IncomingRequest] = []
        self.subject, self.name = subject, name
        self.link = LatticeConnection(NatsAddress(url), "trellis-test", lambda: None)
        self._answers: set[asyncio.Task[None]] = set()

    def take(self, incoming: IncomingRequest) -> None:
        self.requests.append(incoming)
        task = asyncio.create_task(incoming.answer(self.name.encode()))
        self._answers.add(task)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Responder]:
        await self.link.serve(f"{self.subject}.>", "group", self.take)
        task = asyncio.create_task(self.link.run())
        try:
            await self.link.there()
            yield self
        finally:
            task.cancel()
            await asyncio.wait({task})


@pytest.fixture
def subject() -> str:
    return f"asked-{secrets.token_hex(4)}"


async def test_one_of_a_queue_group_is_asked_with_headers_and_its_answer_arrives(
    nats_server: NatsServer, subject: str
) -> None:
    client = await nats.connect(nats_server.url)
    async with (
        Responder(nats_server.url, subject, "a").running() as a,
        Responder(nats_server.url, subject, "b").running() as b,
    ):
        answers = {
            (await client.request(f"{subject}.x", b"?", timeout=20, headers={"Who": "me"})).data for _ in range(50)
        }
        assert answers == {b"a", b"b"}
        assert len(a.requests) + len(b.requests) == 50
        assert (a.requests[0].payload, a.requests[0].headers) == (b"?", {"Who": "me"})
    await client.close()


async def test_questions_are_taken_again_after_an_outage(tmp_path: Path, subject: str) -> None:
    with NatsServer(tmp_path / "own") as server:
        async with Responder(server.url, subject, "a").running() as responder:
            server.stop()
            await eventually(lambda: responder.link.since is None)
            server.start()
            await eventually(lambda: responder.link.since is not None)
            client = await nats.connect(server.url)
            assert (await client.request(f"{subject}.x", timeout=20)).data == b"a"
            await client.close()


async def test_after_the_end_no_question_is_taken_and_those_before_were(nats_server: NatsServer, subject: str) -> None:
    client = await nats.connect(nats_server.url)
    async with Responder(nats_server.url, subject, "a").running() as responder:
        inbox = await client.subscribe(inbox_name := client.new_inbox())
        for _ in range(20):
            await client.publish(f"{subject}.x", reply=inbox_name)
        await settle(client)
        await responder.link.close(f"{subject}.>", 5)
        assert len(responder.requests) == 20
        for _ in range(20):
            assert (await inbox.next_msg(5)).data == b"a"
        with pytest.raises(nats.errors.NoRespondersError):
            await client.request(f"{subject}.x", timeout=20)
    await client.close()


@pytest.mark.parametrize(
    "headers",
    {
        "a status that is no UTF-8": b" \xff\xfe\r\nA: b\r\n",
        "a description that is no UTF-8": b" 503 \xff\xfe\r\n",
        "nothing behind the version": b"\r\n",
        "a name that is no ASCII": b"\r\n\xc3\xa9: b\r\n",
        "a value that is no UTF-8": b"\r\nA: \xff\r\n",
        "no colon": b"\r\nA\r\n",
    }.items(),
    ids=lambda pair: pair[0],
)
async def test_messages_without_headers_do_not_end_the_subscription(
    nats_server: NatsServer, subject: str, headers: tuple[str, bytes]
) -> None:
    client = await nats.connect(nats_server.url)
    async with Responder(nats_server.url, subject, "a").running() as responder:
        await asyncio.to_thread(raw_publish, nats_server.port, f"{subject}.odd".encode(), b"?", headers[1])
        assert (await client.request(f"{subject}.x", timeout=20)).data == b"a"
        assert [incoming.payload for incoming in responder.requests] == [b"?", b""]
    await client.close()


async def test_an_answer_refused_by_nats_is_reported(nats_server: NatsServer, subject: str) -> None:
    client = await nats.connect(nats_server.url)
    async with Responder(nats_server.url, subject, "a").running() as responder:
        await client.request(f"{subject}.x", timeout=20)
        with pytest.raises(TooLargeError, match="1,048,576"):
            await responder.requests[0].answer(b"x" * (2**20 - 5), {"with": "headers"})
        assert responder.link.since is not None
    await client.close()
