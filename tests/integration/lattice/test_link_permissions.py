"""A lattice connection whose permissions a reload of its NATS takes, and gives back while the connection stays."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from support.nats.buses import eventually, eventually_async
from support.suite.settling import settle
from support.suite.tiers import first_of
from trellis.lattice.connection.address import NatsAddress
from trellis.lattice.connection.lattice_connection import INBOX, LatticeConnection, NatsUnavailableError
from trellis.lattice.connection.requests import IncomingRequest
from trellis.lattice.timings import ConnectionTimings
from trellis_dev.localcluster.nats import NatsServer

RECOVERS_SECONDS = 30.0
QUICK = ConnectionTimings(look=0.1, backoff_first=0.1, backoff_most=0.5)
EVENTS, QUESTIONS, ECHO = "heard", "asked.>", "echo"
TAKEN = {"events": EVENTS, "questions": QUESTIONS, "answers": f"{INBOX}.>"}


@dataclass
class Permitted:
    """A server with one user that has permissions, and one that has all."""

    server: NatsServer
    config: Path

    def permit(self, *subjects: str) -> None:
        self.config.write_text(permissions(*subjects))
        assert self.server.pid is not None
        os.kill(self.server.pid, signal.SIGHUP)

    def url(self, user: str) -> str:
        return self.server.url.replace("nats://", f"nats://{user}:password@")


def permissions(*subjects: str) -> str:
    allowed = ", ".join(f'"{subject}"' for subject in subjects)
    user = f'{{user: link, password: password, permissions: {{publish: ">", subscribe: [{allowed}]}}}}'
    return f"authorization {{ users: [{user}, {{user: all, password: password}}] }}"


@pytest.fixture
def permitted(tmp_path: Path) -> Iterator[Permitted]:
    config = tmp_path / "nats.conf"
    config.write_text(permissions(*TAKEN.values()))
    with NatsServer(tmp_path / "server", config=config) as server:
        yield Permitted(server, config)


@pytest.fixture
async def other(permitted: Permitted) -> AsyncIterator[Client]:
    """A client that answers with what it is, and may do everything."""
    client = await nats.connect(permitted.url("all"))

    async def echo(message: Msg) -> None:
        await message.respond(b"echo")

    await client.subscribe(ECHO, cb=echo)
    await settle(client)
    yield client
    await client.close()


@dataclass
class Used:
    """A lattice connection that subscribes, responds and requests."""

    link: LatticeConnection
    received: list[bytes] = field(default_factory=list)
    answers: set[asyncio.Task[None]] = field(default_factory=set)

    def take(self, incoming: IncomingRequest) -> None:
        self.answers.add(asyncio.create_task(incoming.answer(b"answer")))

    async def echoes(self) -> bool:
        with contextlib.suppress(NatsUnavailableError):
            return await self.link.ask(ECHO, seconds=1.0) == b"echo"
        return False

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Used]:
        await self.link.listen(EVENTS, lambda _, payload: self.received.append(payload))
        await self.link.serve(QUESTIONS, "group", self.take)
        task = asyncio.create_task(self.link.run())
        try:
            await self.link.there()
            yield self
        finally:
            task.cancel()
            await asyncio.wait({task})


@pytest.mark.parametrize("taken", first_of(TAKEN.values()), ids=TAKEN)
async def test_a_subscription_that_is_denied_and_then_permitted_is_received_within_thirty_seconds(
    permitted: Permitted, other: Client, taken: str
) -> None:
    production = ConnectionTimings()
    assert production.look + production.connect < RECOVERS_SECONDS
    changes: list[str] = []
    link = LatticeConnection(
        NatsAddress(permitted.url("link")), "trellis-test", lambda: changes.append(link.subscription_denied), QUICK
    )
    async with Used(link).running() as used:
        await eventually_async(used.echoes)
        since = link.receiving_since
        permitted.permit(*(subject for subject in TAKEN.values() if subject != taken))
        await eventually(lambda: taken.rstrip(".>").lower() in link.reason.lower())
        assert link.receiving_since is None
        counted = len(changes)
        permitted.permit(*TAKEN.values())
        await eventually(lambda: link.receiving_since is not None, RECOVERS_SECONDS)
        assert link.reason == ""
        assert link.receiving_since != since, "what was said meanwhile is unknown"
        assert len(changes) == counted + 1

        async def works() -> bool:
            payload = secrets.token_bytes(4)
            await other.publish(EVENTS, payload)
            answer = await other.request("asked.x", timeout=20)
            await eventually(lambda: payload in used.received)
            return answer.data == b"answer" and await used.echoes()

        await eventually_async(works)


async def test_a_subscription_that_stays_denied_is_reported_once(permitted: Permitted) -> None:
    permitted.permit(QUESTIONS, f"{INBOX}.>")
    changes: list[str] = []
    link = LatticeConnection(
        NatsAddress(permitted.url("link")), "trellis-test", lambda: changes.append(link.subscription_denied), QUICK
    )
    async with Used(link).running():
        await eventually(lambda: link.subscription_denied)
        assert link._client is not None
        counted = len(changes)
        sent: list[int] = []
        again = link._client.subscribe_again

        async def count(seconds: int) -> None:
            await again(seconds)
            sent.append(1)

        link._client.subscribe_again = count  # type: ignore[method-assign] # seen, not replaced
        await eventually(lambda: len(sent) > 1)
        assert len(changes) == counted


async def test_a_server_without_room_for_a_connection_is_named_and_tried_until_there_is_room(
    permitted: Permitted,
) -> None:
    permitted.config.write_text(f"max_connections: 1\n{permissions(*TAKEN.values())}")
    permitted.server.stop()
    permitted.server.start()
    place = await nats.connect(permitted.url("all"))
    used = Used(LatticeConnection(NatsAddress(permitted.url("link")), "trellis-test", lambda: None, QUICK))
    task = asyncio.create_task(used.link.run())
    try:
        await eventually(lambda: "maximum connections" in used.link.reason, RECOVERS_SECONDS)
        await place.close()
        async with asyncio.timeout(RECOVERS_SECONDS):
            await used.link.there()
    finally:
        task.cancel()
        await asyncio.wait({task})
