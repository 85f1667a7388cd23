"""When a question is worked on: as soon as it is known by which grant, and not before."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any, cast

from secrets_backend.serving import Environment, Serving
from trellis.bus.connection.user_client import UserClient
from trellis.lattice.connection.address import NatsAddress
from trellis.lattice.connection.requests import IncomingRequest

ADDRESS = NatsAddress("nats://127.0.0.1:4222")


class World:
    """Stands for what links share: records the requests in progress, and looks for accounts on demand."""

    def __init__(self) -> None:
        self.worked: list[bytes] = []
        self.found = asyncio.Event()
        self.accounts = self.answering = self
        self.backend = "kube"

    async def look(self, *_: object) -> None:
        await self.found.wait()

    async def answer(self, incoming: IncomingRequest, _: object) -> None:
        self.worked.append(incoming.payload)


def request(serving: Serving, payload: bytes) -> None:
    subject = "wasmcloud.secrets.v1alpha1.kube.get"
    serving._take(IncomingRequest(subject, payload, None, time.monotonic(), "r", cast("UserClient", SimpleNamespace())))


async def test_requests_over_a_new_connection_wait_until_its_account_is_known() -> None:
    world = World()
    serving = Serving(ADDRESS, cast("Environment", cast("Any", world)))
    for since in (1.0, 2.0):
        world.found.clear()
        world.worked.clear()
        serving._connection.since = since
        looking = asyncio.create_task(serving._know_account())
        for number in range(3):
            request(serving, b"%d" % number)
        for _ in range(10):
            await asyncio.sleep(0)
        assert not world.worked
        world.found.set()
        await looking
        request(serving, b"3")
        await asyncio.gather(*serving._working)
        assert sorted(world.worked) == [b"0", b"1", b"2", b"3"]


async def test_a_request_before_the_connection_exists_waits_for_it() -> None:
    world = World()
    serving = Serving(ADDRESS, cast("Environment", cast("Any", world)))
    request(serving, b"early")
    await asyncio.sleep(0)
    assert (world.worked, serving.in_progress) == ([], 1)
