"""A bus per test, on the real nats-server: its own cluster name, so that tests share the streams in peace."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator

import pytest
from nats.aio.client import Client
from nats.js import JetStreamContext

from support.nats.buses import Buses
from support.nats.reconnecting import left, reconnecting
from trellis_dev.localcluster.nats import NatsServer


@pytest.fixture
async def buses(nats_server: NatsServer) -> AsyncIterator[Buses]:
    made = Buses(nats_server.url, f"c-{secrets.token_hex(4)}")
    yield made
    nats_server.resume()
    nats_server.start()
    await made.close()


@pytest.fixture
async def client(nats_server: NatsServer) -> AsyncIterator[Client]:
    connection = await reconnecting(nats_server.url)
    yield connection
    await left(connection)


@pytest.fixture
def jetstream(client: Client) -> JetStreamContext:
    return client.jetstream()
