"""Chaos faults that separate one server of NATS from the two others: it is separated both ways, and then rejoined.

With three real nats-servers. What a server has is read from its own disk: no report of another server counts.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import nats
import nats.errors
import nats.js.errors
import pytest
from nats.aio.client import Client
from nats.js.api import StreamConfig

from chaos import fault_plan
from chaos.bus_faults import BusFaults
from chaos.bus_servers import BusServers, quiet
from chaos.fault_plan import Fault
from chaos.steps import Step
from support.nodes.fleet import eventually

pytestmark = [pytest.mark.nats, pytest.mark.thorough]
STREAM: Final = "PARTED"
SUBJECT: Final = "parted.said"
BEFORE, ALONE, MEANWHILE, AFTER = b"said-before", b"said-alone", b"said-meanwhile", b"said-after"
_SECONDS: Final = 60.0
"""Elections take up to nine seconds when there is nothing else to do."""


@dataclass
class Bus:
    """Three servers that have a stream, and a client at each, which stays there. ``leader``: whose the stream is."""

    directory: Path
    servers: BusServers
    clients: list[Client]
    leader: int

    async def published(self, at: int, message: bytes) -> None:
        """Say something through one server until it is acknowledged."""
        async with asyncio.timeout(_SECONDS):
            while not await self._acknowledged(at, message):
                pass

    async def _acknowledged(self, at: int, message: bytes) -> bool:
        with contextlib.suppress(nats.errors.Error):
            await self.clients[at].jetstream(timeout=2).publish(SUBJECT, message)
            return True
        await asyncio.sleep(0.1)
        return False

    def have(self, message: bytes) -> set[int]:
        """Return which servers have a message in their stream; not one that only waits in its log for the others."""
        return {number for number in range(len(self.servers.all)) if message in self._kept(number)}

    def _kept(self, number: int) -> bytes:
        # Blocks come and go while a server catches up.
        kept = b""
        for path in sorted(self.directory.glob(f"{number}/store/jetstream/*/streams/{STREAM}/msgs/*.blk")):
            with contextlib.suppress(FileNotFoundError):
                kept += path.read_bytes()
        return kept


@contextlib.asynccontextmanager
async def three_servers(directory: Path) -> AsyncIterator[Bus]:
    """Have a bus whose stream all servers have, with one message in it."""
    async with contextlib.AsyncExitStack() as stack:
        servers = await stack.enter_async_context(BusServers(directory, 3).running())
        clients = []
        for url in servers.urls:
            client = await nats.connect(url, allow_reconnect=False, error_cb=quiet)
            stack.push_async_callback(client.close)
            clients.append(client)
        bus = Bus(directory, servers, clients, 0)
        async with asyncio.timeout(_SECONDS):
            while not await made(clients[0]):
                pass
            await bus.published(0, BEFORE)
            info = await clients[0].jetstream(timeout=10).stream_info(STREAM)
        assert info.cluster is not None
        bus.leader = int(str(info.cluster.leader).removeprefix("chaos-"))
        await eventually(lambda: bus.have(BEFORE) == {0, 1, 2}, "all have the first message", seconds=_SECONDS)
        yield bus


async def made(client: Client) -> bool:
    """Ask for the stream; servers that do not know each other yet say no."""
    with contextlib.suppress(nats.errors.Error, nats.js.errors.APIError):
        await client.jetstream(timeout=5).add_stream(StreamConfig(STREAM, subjects=[SUBJECT], num_replicas=3))
        return True
    await asyncio.sleep(0.1)
    return False


@contextlib.asynccontextmanager
async def injected(bus: Bus, fault: Fault, number: int) -> AsyncIterator[None]:
    """Have a fault for the time of a block, much shorter than it would last."""
    step = Step(0.0, fault_plan.PART, fault, "nats", str(number), 10 * _SECONDS)
    task = asyncio.create_task(BusFaults(bus.servers, "c").inject(step))
    await asyncio.sleep(0)
    try:
        yield
        assert not task.done(), "it is over too early"
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@pytest.mark.parametrize("whom", ["leader", "other"])
@pytest.mark.parametrize(
    "fault", [Fault.NATS_PARTED, pytest.param(Fault.NATS_PARTED_SILENTLY, marks=pytest.mark.thorough)]
)
async def test_a_parted_server_takes_nothing_that_is_acknowledged_and_has_all_afterwards(
    tmp_path: Path, fault: Fault, whom: str
) -> None:
    async with three_servers(tmp_path / "bus") as bus:
        parted = bus.leader if whom == "leader" else (bus.leader + 1) % 3
        others = {0, 1, 2} - {parted}
        async with injected(bus, fault, parted):
            alone = asyncio.create_task(bus.clients[parted].jetstream(timeout=_SECONDS).publish(SUBJECT, ALONE))
            # The other two have a leader, and say so by an acknowledgement; whoever asked the parted one has none.
            await bus.published(max(others), MEANWHILE)
            await eventually(lambda: others <= bus.have(MEANWHILE), "both others have it", seconds=_SECONDS)
            assert not alone.done() or isinstance(alone.exception(), nats.errors.Error)
            await bus.clients[parted].flush()  # its clients still have it
            assert bus.have(MEANWHILE) == others
            assert not bus.have(ALONE)
        await eventually(lambda: bus.have(MEANWHILE) == {0, 1, 2}, "the parted one has it, too", seconds=_SECONDS)
        await bus.published(parted, AFTER)
        await eventually(lambda: bus.have(AFTER) == {0, 1, 2}, "all hear of it again", seconds=_SECONDS)
        alone.cancel()
        await asyncio.wait([alone])
        await eventually(agreed(bus), "what was said to the parted one alone is with all, or with none")


def agreed(bus: Bus) -> Callable[[], bool]:
    """Return what says whether all servers have the message that nobody acknowledged, or none has."""
    return lambda: bus.have(ALONE) in (set(), {0, 1, 2})
