"""The behaviour of a wasmCloud host in its lattice, written once and run against the stub and the real host.

A subclass provides the fixtures ``url`` (of a nats-server), ``lattice`` (a name of the test's own) and ``new_host``
(starts a host in that lattice, with labels and seconds between heartbeats).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import nats
import pytest
from nats.aio.client import Client

from support.suite.settling import settle

SECONDS = 60.0
EVENT_KEYS = {"specversion", "id", "type", "source", "datacontenttype", "time", "data"}
INVENTORY_KEYS = {
    "components",
    "providers",
    "host_id",
    "friendly_name",
    "labels",
    "version",
    "uptime_human",
    "uptime_seconds",
}


@dataclass(frozen=True)
class Running:
    """A host that runs: its id; ``terminate`` is SIGTERM, ``kill`` SIGKILL, ``ended`` returns when it has ended."""

    id: str
    terminate: Callable[[], Awaitable[None]]
    kill: Callable[[], Awaitable[None]]
    ended: Callable[[], Awaitable[None]]


NewHost = Callable[[Mapping[str, str], float], Awaitable[Running]]


class Lattice:
    """A lattice as a client sees it: requests to hosts, and every event since the client came."""

    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self._events: list[tuple[str, dict[str, Any]]] = []
        self._changed = asyncio.Event()
        self.name = name

    @classmethod
    @contextlib.asynccontextmanager
    async def of(cls, url: str, name: str) -> AsyncIterator[Lattice]:
        """Watch a lattice for the time of a block."""
        client = await nats.connect(url)
        lattice = cls(client, name)

        async def on_message(message: Any) -> None:
            lattice._events.append((message.subject, json.loads(message.data)))
            lattice._changed.set()

        await client.subscribe(f"wasmbus.evt.{name}.*", cb=on_message)
        await settle(client)
        try:
            yield lattice
        finally:
            await client.close()

    async def request(self, operation: str, body: object = None, *, raw: bytes | None = None) -> dict[str, Any]:
        """Return the reply to one request of the control interface."""
        given = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
        reply = await self._client.request(f"wasmbus.ctl.v1.{self.name}.{operation}", given, timeout=SECONDS)
        found: dict[str, Any] = json.loads(reply.data)
        return found

    async def has_no_responder(self, operation: str) -> None:
        """Wait until the server has noticed that a host ended: until then it sends requests to nobody."""
        async with asyncio.timeout(SECONDS):
            while True:
                with contextlib.suppress(nats.errors.TimeoutError):
                    try:
                        await self._client.request(f"wasmbus.ctl.v1.{self.name}.{operation}", b"", timeout=0.5)
                    except nats.errors.NoRespondersError:
                        return

    async def pings(self, count: int) -> list[dict[str, Any]]:
        """Return what ``count`` hosts answer to one ping; fails if they are fewer."""
        inbox = self._client.new_inbox()
        replies = await self._client.subscribe(inbox)
        await self._client.publish(f"wasmbus.ctl.v1.{self.name}.host.ping", b"", reply=inbox)
        found = [json.loads((await replies.next_msg(timeout=SECONDS)).data) for _ in range(count)]
        await replies.unsubscribe()
        return found

    async def event(self, kind: str, host: str, nth: int = 1) -> dict[str, Any]:
        """Wait for the nth event of a kind that a host sent; return the whole of it."""
        async with asyncio.timeout(SECONDS):
            while True:
                self._changed.clear()
                found = self.seen(kind, host)
                if len(found) >= nth:
                    return found[nth - 1]
                await self._changed.wait()

    def seen(self, kind: str, host: str) -> list[dict[str, Any]]:
        """Return the events of a kind that a host sent so far."""
        subject = f"wasmbus.evt.{self.name}.{kind}"
        return [event for where, event in self._events if where == subject and event["source"] == host]


class HostBehaviour:
    """The suite."""

    @pytest.fixture
    async def watched(self, url: str, lattice: str) -> AsyncIterator[Lattice]:
        async with Lattice.of(url, lattice) as watched:
            yield watched

    async def test_a_host_publishes_its_start_and_identity(self, watched: Lattice, new_host: NewHost) -> None:
        host = await new_host({"zone": "a"}, 30)
        event = await watched.event("host_started", host.id)
        assert set(event) == EVENT_KEYS
        assert event["type"] == "com.wasmcloud.lattice.host_started"
        assert (event["specversion"], event["datacontenttype"]) == ("1.0", "application/json")
        data = event["data"]
        assert set(data) == {"friendly_name", "labels", "uptime_seconds", "version"}
        assert data["labels"]["zone"] == "a"
        assert set(data["labels"]) == {"zone", "hostcore.arch", "hostcore.os", "hostcore.osfamily"}
        assert data["version"] == "1.9.2"
        assert re.fullmatch("N[A-Z2-7]{55}", host.id)

    async def test_every_host_of_a_lattice_answers_a_ping(self, watched: Lattice, new_host: NewHost) -> None:
        hosts = {(await new_host({"number": str(number)}, 30)).id: str(number) for number in range(2)}
        replies = await watched.pings(2)
        assert {reply["response"]["id"]: reply["response"]["labels"]["number"] for reply in replies} == hosts
        for reply in replies:
            response = reply["response"]
            assert (reply["success"], reply["message"]) == (True, "")
            assert set(response) == {"ctl_host", "friendly_name", "id", "labels", "lattice", "rpc_host"} | {
                "uptime_human",
                "uptime_seconds",
                "version",
            }
            assert response["lattice"] == watched.name

    async def test_its_inventory_matches_its_heartbeats(self, watched: Lattice, new_host: NewHost) -> None:
        host = await new_host({}, 1)
        requested = (await watched.request(f"host.get.{host.id}"))["response"]
        heartbeat = (await watched.event("host_heartbeat", host.id, nth=2))["data"]
        changing = {"uptime_human", "uptime_seconds"}
        assert set(requested) == set(heartbeat) == INVENTORY_KEYS
        assert {key: requested[key] for key in INVENTORY_KEYS - changing} == {
            key: heartbeat[key] for key in INVENTORY_KEYS - changing
        }
        assert heartbeat["host_id"] == host.id
        assert (heartbeat["components"], heartbeat["providers"]) == ([], [])
        assert heartbeat["uptime_seconds"] >= 1
        assert re.fullmatch(r"(\d+m )?\d+s", heartbeat["uptime_human"])

    async def test_labels_are_set_and_deleted_and_published(self, watched: Lattice, new_host: NewHost) -> None:
        host = await new_host({"kept": "yes"}, 30)
        put = await watched.request(f"label.put.{host.id}", {"key": "tier", "value": "gold"})
        assert put == {"success": True, "message": "successfully put label"}
        changed = (await watched.event("labels_changed", host.id))["data"]
        assert changed["host_id"] == host.id
        assert (changed["labels"]["tier"], changed["labels"]["kept"]) == ("gold", "yes")
        deleted = await watched.request(f"label.del.{host.id}", {"key": "tier"})
        assert deleted == {"success": True, "message": "successfully deleted label"}
        assert "tier" not in (await watched.event("labels_changed", host.id, nth=2))["data"]["labels"]
        again = await watched.request(f"label.del.{host.id}", {"key": "tier"})
        assert again == {"success": True, "message": "successfully deleted label (no such label)"}
        assert "tier" not in (await watched.request(f"host.get.{host.id}"))["response"]["labels"]

    @pytest.mark.parametrize(
        ("operation", "body", "message"),
        [
            ("label.put", b'{"key": "hostcore.os", "value": "x"}', "hostcore.* labels cannot be set dynamically"),
            ("label.put", b"no JSON", "failed to deserialize put label request"),
            ("label.put", b'{"key": "alone"}', "failed to deserialize put label request"),
            ("label.del", b"[]", "failed to deserialize delete label request"),
            ("host.stop", b"{", "failed to deserialize stop command"),
            ("host.stop", b'{"host_id": "NOTHIS"}', "invalid host_id [NOTHIS]"),
            ("host.explode", b"", "unsupported subject"),
        ],
    )
    async def test_an_unsupported_operation_is_refused_and_the_host_lives_on(
        self, watched: Lattice, new_host: NewHost, operation: str, body: bytes, message: str
    ) -> None:
        host = await new_host({}, 30)
        assert await watched.request(f"{operation}.{host.id}", raw=body) == {"success": False, "message": message}
        assert (await watched.request(f"host.get.{host.id}"))["success"] is True

    @pytest.mark.parametrize("named", [False, True], ids=["without a body", "with its id and a timeout"])
    async def test_a_stopped_host_publishes_its_stop_and_ends(
        self, watched: Lattice, new_host: NewHost, named: bool
    ) -> None:
        host = await new_host({"zone": "a"}, 1)
        reply = await watched.request(
            f"host.stop.{host.id}", {"host_id": host.id, "timeout": 20_000} if named else None
        )
        assert reply == {"success": True, "message": "successfully handled stop host"}
        event = await watched.event("host_stopped", host.id)
        assert set(event["data"]) == {"labels"}
        assert event["data"]["labels"]["zone"] == "a"
        await host.ended()
        await watched.has_no_responder(f"host.get.{host.id}")

    async def test_a_terminated_host_publishes_its_stop(self, watched: Lattice, new_host: NewHost) -> None:
        host = await new_host({}, 1)
        await host.terminate()
        await watched.event("host_stopped", host.id)
        await host.ended()

    async def test_a_killed_host_publishes_nothing(self, watched: Lattice, new_host: NewHost) -> None:
        host = await new_host({}, 1)
        await watched.event("host_heartbeat", host.id)
        await host.kill()
        await host.ended()
        witness = await new_host({}, 30)
        await watched.event("host_started", witness.id)  # what the other had said would be here by now
        assert watched.seen("host_stopped", host.id) == []


def own_lattice() -> str:
    """Return a name for a lattice that no other test has."""
    return f"t-{secrets.token_hex(5)}"
