"""A real nats-server with the chart's own configuration lets the services in, each with its own facts only."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import nats
import pytest
from nats.aio.client import Client

from support.chart.rendered import Manifest, bus_server, of, rendered
from support.nodes.fleet import eventually
from support.suite.settling import settle
from trellis_dev.localcluster.nats import NatsServer

pytestmark = pytest.mark.nats

HOME = "trellis-system"


class ChartBus:
    """A server that runs with the rendered configuration, on another port and store."""

    def __init__(self, server: NatsServer, objects: dict[tuple[str, str, str], Manifest]) -> None:
        self._server = server
        self._objects = objects

    @property
    def url(self) -> str:
        """Where it is, without a user."""
        return self._server.url

    async def connected(self, component: str, heard: list[str]) -> Client:
        """Connect as a pod would, with the URL of its Secret; what the server refuses is heard."""
        url = self._objects["Secret", HOME, f"trellis-nats-{component}"]["stringData"]["url"]
        url = url.replace("trellis-nats.trellis-system:4222", self._server.url.removeprefix("nats://"))

        async def hear(error: Exception) -> None:
            heard.append(str(error))

        return await nats.connect(url, allow_reconnect=False, error_cb=hear)


@pytest.fixture(params=["services", "bundle"])
def bus(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, ChartBus]]:
    objects = of(rendered(mode=request.param, cluster="lab-1", nats={"replicas": 1}))
    with bus_server(objects["Secret", HOME, "trellis-nats-server"]["stringData"], tmp_path) as server:
        yield request.param, ChartBus(server, objects)


async def test_a_service_says_its_own_facts_of_its_cluster_and_no_others(bus: tuple[str, ChartBus]) -> None:
    mode, server = bus
    heard: list[str] = []
    client = await server.connected("node-watcher" if mode == "services" else "bundle", heard)
    await client.publish("trellis.evt.lab-1.node.ready.n", b"{}")
    await client.publish("trellis.evt.lab-1.provision.started.n", b"{}")
    await client.publish("trellis.evt.other.node.ready.n", b"{}")
    await settle(client)
    wanted = {"trellis.evt.other.node.ready.n"}
    if mode == "services":
        wanted.add("trellis.evt.lab-1.provision.started.n")
    await eventually(lambda: {one for line in heard for one in wanted if one in line.lower()} == wanted, heard)
    assert not any("lab-1.node.ready" in line for line in heard)
    await client.close()


async def test_people_hear_what_is_said(bus: tuple[str, ChartBus]) -> None:
    mode, server = bus
    heard: list[str] = []
    people, service = (
        await server.connected("cli", heard),
        await server.connected("node-watcher" if mode == "services" else "bundle", heard),
    )
    listening = await people.subscribe("trellis.evt.>")
    await settle(people)
    await service.publish("trellis.evt.lab-1.node.ready.n", b"{}")
    try:
        message = await listening.next_msg(30)
    except TimeoutError:
        states = people.is_connected, service.is_connected, service.stats, people.stats
        pytest.fail(f"nothing was heard; errors: {heard}; connected, and statistics: {states}")
    assert message.subject == "trellis.evt.lab-1.node.ready.n"
    assert heard == []
    await people.close()
    await service.close()


async def test_without_a_password_nobody_is_let_in(bus: tuple[str, ChartBus]) -> None:
    _, server = bus
    host, _, port = server.url.removeprefix("nats://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    greeting = await reader.readline()
    assert json.loads(greeting.removeprefix(b"INFO "))["auth_required"] is True
    writer.write(b'CONNECT {"verbose":false}\r\nPING\r\n')
    assert b"Authorization Violation" in await reader.readline()
    writer.close()
    await writer.wait_closed()
