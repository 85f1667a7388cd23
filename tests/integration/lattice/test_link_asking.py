"""Requests over a lattice connection to a real nats-server: without a responder or an answer, or too large to send."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import nats
import pytest

from support.nats.buses import eventually
from support.suite.settling import settle
from trellis.lattice.connection.address import NatsAddress
from trellis.lattice.connection.lattice_connection import (
    LatticeConnection,
    NatsUnavailableError,
    NoLatticeRespondersError,
    SilenceError,
    TooLargeError,
)
from trellis_dev.localcluster.nats import NatsServer

pytestmark = [pytest.mark.nats]

HEADERS = {"Content-Type": "application/json"}
LIMIT = 2**20
"""What a nats-server takes unless it is told otherwise, headers and payload together."""
HEADERS_SIZE = len("NATS/1.0\r\nContent-Type: application/json\r\n\r\n")


@contextlib.asynccontextmanager
async def linked(server: NatsServer) -> AsyncIterator[LatticeConnection]:
    link = LatticeConnection(NatsAddress(server.url), "test", lambda: None)
    task = asyncio.create_task(link.run())
    try:
        await eventually(lambda: link.since is not None)
        yield link
    finally:
        task.cancel()
        await asyncio.wait({task})


async def test_the_largest_message_that_the_server_takes_is_sent(nats_server: NatsServer) -> None:
    async with linked(nats_server) as link:
        since = link.since
        for size, headers in ((LIMIT, None), (LIMIT - HEADERS_SIZE, HEADERS)):
            with pytest.raises(NatsUnavailableError, match="no responders"):
                await link.ask("to.nobody", b"x" * size, seconds=10, headers=headers)
        assert link.since == since


async def test_a_larger_one_is_refused_with_both_sizes_and_costs_no_connection(nats_server: NatsServer) -> None:
    async with linked(nats_server) as link:
        since = link.since
        for size, headers in ((LIMIT + 1, None), (LIMIT - HEADERS_SIZE + 1, HEADERS), (LIMIT, HEADERS)):
            whole = size + (HEADERS_SIZE if headers else 0)
            with pytest.raises(TooLargeError, match=f"to.nobody of {whole:,} bytes, .* {LIMIT:,}: "):
                await link.ask("to.nobody", b"x" * size, seconds=10, headers=headers)
        with pytest.raises(NatsUnavailableError, match="no responders"):
            await link.ask("to.nobody", seconds=10)
        assert link.since == since


async def test_silence_is_distinguished_from_an_outage(nats_server: NatsServer) -> None:
    client = await nats.connect(nats_server.url)
    try:
        await client.subscribe("asked.without.answer")
        await settle(client)
        async with linked(nats_server) as link:
            with pytest.raises(SilenceError) as silent:
                await link.ask("asked.without.answer", seconds=0.2)
            assert not isinstance(silent.value, NoLatticeRespondersError)
            with pytest.raises(NoLatticeRespondersError):
                await link.ask("to.nobody", seconds=10)
    finally:
        await client.close()
    with pytest.raises(NatsUnavailableError) as unavailable:
        await link.ask("to.nobody", seconds=10)
    assert not isinstance(unavailable.value, SilenceError)
