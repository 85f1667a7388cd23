"""Heartbeats of a recorded situation for pages, without a NATS. Called by tests."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from support.v2.recordings import recording
from trellis.lattice.connection.address import NatsAddress
from trellis.lattice.follow.heartbeats import Heartbeats
from trellis.v2.host_messages import HostMessages


class Received(Heartbeats):
    """The heartbeats of a situation, as if the last ones had just arrived."""

    def __init__(self, situation: str, at: float) -> None:
        super().__init__(lambda: NatsAddress("nats://unused:4222"), "test")
        self._found = recording(situation).messages(at - 35, at)

    def messages(self, now: float) -> HostMessages:
        return replace(self._found, hosts={id_: replace(last, at=now) for id_, last in self._found.hosts.items()})

    async def run(self) -> None:
        await asyncio.Event().wait()
