"""A lattice on a NATS of the test's: hosts that answer and send heartbeats on demand, and a wadm with a list.

It says what was recorded of real ones, under ids and names of the test's.
"""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass, field
from typing import Any, Self

from nats.aio.msg import Msg

from support.lattices.lattice_recordings import messages
from support.nats.reconnecting import left, reconnecting
from support.suite.settling import settle


@dataclass
class LatticeSpeaker:
    """A context manager. ``hosts`` maps ids to what each reports; ``models`` is wadm's list, None for no wadm."""

    url: str
    lattice: str
    hosts: dict[str, dict[str, Any]] = field(default_factory=dict)
    models: list[dict[str, Any]] | None = None
    requested: list[str] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)

    async def __aenter__(self) -> Self:
        self.client = await reconnecting(self.url, **self.options)
        control = f"wasmbus.ctl.v1.{self.lattice}"
        await self.client.subscribe(f"{control}.host.ping", cb=self._ping)
        await self.client.subscribe(f"{control}.host.get.*", cb=self._get)
        if self.models is not None:
            await self.client.subscribe(f"wadm.api.{self.lattice}.model.list", cb=self._list)
        await settle(self.client)
        return self

    async def __aexit__(self, *_: object) -> None:
        await left(self.client)

    def add(self, host_id: str, **changed: Any) -> None:
        """Let there be a host; it says nothing by itself."""
        recorded = next(m["data"]["data"] for m in messages("host_heartbeat") if m["data"]["data"]["components"])
        self.hosts[host_id] = {**copy.deepcopy(recorded), "host_id": host_id, **changed}

    async def beat(self, host_id: str) -> None:
        """Send one heartbeat."""
        await self.publish_event("host_heartbeat", self.hosts[host_id])

    async def stop(self, host_id: str) -> None:
        """Let a host say that it stops."""
        del self.hosts[host_id]
        await self.publish_event("host_stopped", {"labels": {}}, host_id)

    async def start(self, host_id: str) -> None:
        """Let a host that was added say that it starts: with less content than a heartbeat."""
        host = self.hosts[host_id]
        described = {name: host[name] for name in ("friendly_name", "labels", "version")}
        await self.publish_event("host_started", described | {"uptime_seconds": 0}, host_id)

    async def publish_event(self, event: str, data: object, source: str = "") -> None:
        """Send an event of a host."""
        envelope = {"specversion": "1.0", "source": source, "data": data}
        await self.raw(f"wasmbus.evt.{self.lattice}.{event}", json.dumps(envelope).encode())

    async def publish(self, models: list[dict[str, Any]]) -> None:
        """Change wadm's list, and let wadm say that something was published."""
        self.models = models
        await self.raw(f"wadm.evt.{self.lattice}.manifest_published", b"{}")

    async def raw(self, subject: str, payload: bytes) -> None:
        """Send anything."""
        await self.client.publish(subject, payload)
        await settle(self.client)

    async def _ping(self, message: Msg) -> None:
        self.requested.append(message.subject)
        for host_id in self.hosts:
            await message.respond(json.dumps({"success": True, "message": "", "response": {"id": host_id}}).encode())

    async def _get(self, message: Msg) -> None:
        self.requested.append(message.subject)
        host = self.hosts.get(message.subject.rsplit(".", 1)[1])
        if host is not None:
            await message.respond(json.dumps({"success": True, "message": "", "response": host}).encode())

    async def _list(self, message: Msg) -> None:
        self.requested.append(message.subject)
        await message.respond(json.dumps(self.models).encode())
