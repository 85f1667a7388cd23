"""Injects faults of the bus' servers in a run, and ends each when its time is over.

In: steps of the part ``faults`` on ``nats``. Out: servers that end and start, connections between them, an unreadable
message. Called by ``faults``. Invariant: when ``inject`` returns the fault is over, also when it was cancelled.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import nats
import nats.errors

from chaos.bus_servers import BusServers, quiet
from chaos.fault_plan import Fault
from chaos.steps import Step
from support.suite.tcp_proxy import TcpProxy
from trellis.bus.accounts.permissions import durables
from trellis.bus.consume.message import HEADER_MSG_ID
from trellis.events.subjects import PROVISIONER, STREAM_EVENTS, escape

GARBAGE: Final = b"\xff not json"


@dataclass(frozen=True, slots=True)
class BusFaults:
    """``name``: of the cluster on the bus."""

    servers: BusServers
    name: str

    async def inject(self, step: Step) -> None:
        """Inject one fault for as long as it lasts."""
        fault = Fault(step.act)
        if fault is Fault.GARBAGE:
            await self._publish_garbage(f"garbage at {step.at:g}")
        elif fault is Fault.NATS_ROLL:
            for number in range(len(self.servers.all)):
                await self.servers.stop(number, kill=False)
                await self.servers.start(number)
                await asyncio.sleep(step.seconds / len(self.servers.all))
        elif fault is Fault.NATS_FULL:
            await self.servers.without_room(int(step.value), step.seconds)
        elif fault is Fault.NATS_PARTED:
            await refuse(self.servers.ways_of(int(step.value)), step.seconds)
        elif fault is Fault.NATS_PARTED_SILENTLY:
            await silence(self.servers.ways_of(int(step.value)), step.seconds)
        elif fault is Fault.NATS_FREEZE:
            server = self.servers.all[int(step.value)]
            await asyncio.to_thread(server.pause)
            try:
                await asyncio.sleep(step.seconds)
            finally:
                server.resume()
        else:
            await self.servers.stop(int(step.value), wiped=fault is Fault.NATS_WIPE, kill=fault is not Fault.NATS_STOP)
            try:
                await asyncio.sleep(step.seconds)
            finally:
                await self.servers.start(int(step.value))

    async def _publish_garbage(self, message_id: str) -> None:
        """Publish an unreadable message until a stream has stored it, once also if an acknowledgement was lost.

        It waits for the consumers: earlier messages would not be reported.
        """
        headers = {HEADER_MSG_ID: message_id}
        subject = f"trellis.evt.{self.name}.node.opted_in.{escape('garbage')}"
        while True:
            with contextlib.suppress(nats.errors.Error, OSError):
                client = await nats.connect(self.servers.urls, connect_timeout=2, allow_reconnect=False, error_cb=quiet)
                try:
                    jetstream = client.jetstream(timeout=2)
                    for durable in durables(PROVISIONER, self.name):
                        await jetstream.consumer_info(STREAM_EVENTS, durable)
                    await jetstream.publish(subject, GARBAGE, headers=headers)
                    return
                finally:
                    await client.close()
            await asyncio.sleep(0.5)


async def refuse(proxies: Sequence[TcpProxy], seconds: float) -> None:
    """Refuse connections for so long."""
    for proxy in proxies:
        await proxy.refuse()
    try:
        await asyncio.sleep(seconds)
    finally:
        for proxy in proxies:
            await proxy.open()


async def silence(proxies: Sequence[TcpProxy], seconds: float) -> None:
    """Accept connections and drop all data for so long."""
    for proxy in proxies:
        proxy.silence()
    try:
        await asyncio.sleep(seconds)
    finally:
        for proxy in proxies:
            proxy.resume()
