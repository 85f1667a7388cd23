"""A real nats-server with the chart's own configuration lets the services in, each with its own events only."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client

from support.chart.bus_secret import credentials_of, users_of
from support.chart.rendered import bus_server, hooks, of, rendered
from support.nodes.fleet import eventually
from support.suite.settling import settle
from trellis_dev.localcluster.nats import NatsServer

pytestmark = pytest.mark.nats

HOME = "trellis-system"


class ChartBus:
    """A server that runs with the rendered configuration and the keys of the Job, on another port and store."""

    def __init__(self, server: NatsServer, users: dict[str, str], directory: Path) -> None:
        self._server = server
        self._users = users
        self._directory = directory

    @property
    def url(self) -> str:
        """Return the address of the server, without a user."""
        return self._server.url

    async def connected(self, user: str, errors: list[str]) -> Client:
        """Connect as a pod would, with the seed of its user; refusals of the server are recorded."""
        seed = credentials_of(self._users, user, self._directory).path

        async def receive(error: Exception) -> None:
            errors.append(str(error))

        return await nats.connect(self.url, allow_reconnect=False, error_cb=receive, nkeys_seed=str(seed))


@pytest.fixture
def bus(tmp_path: Path) -> Iterator[ChartBus]:
    values: dict[str, Any] = {"cluster": "lab-1", "nats": {"replicas": 1}}
    users = users_of(hooks("pre-install", **values))
    config = of(rendered(**values))["ConfigMap", HOME, "trellis-nats"]["data"]
    with bus_server(config | users, tmp_path) as server:
        yield ChartBus(server, users, tmp_path / "seeds")


async def test_a_service_publishes_its_own_events_in_its_cluster_and_no_others(bus: ChartBus) -> None:
    errors: list[str] = []
    client = await bus.connected("node_watcher.lab-1", errors)
    await client.publish("trellis.evt.lab-1.node.ready.n", b"{}")
    await client.publish("trellis.evt.lab-1.provision.started.n", b"{}")
    await client.publish("trellis.evt.other.node.ready.n", b"{}")
    await settle(client)
    wanted = {"trellis.evt.other.node.ready.n", "trellis.evt.lab-1.provision.started.n"}
    await eventually(lambda: {item for line in errors for item in wanted if item in line.lower()} == wanted, errors)
    assert not any("lab-1.node.ready" in line for line in errors)
    await client.close()


async def test_users_receive_published_events(bus: ChartBus) -> None:
    errors: list[str] = []
    cli_user, service = await bus.connected("cli", errors), await bus.connected("node_watcher.lab-1", errors)
    listening = await cli_user.subscribe("trellis.evt.>")
    await settle(cli_user)
    await service.publish("trellis.evt.lab-1.node.ready.n", b"{}")
    try:
        message = await listening.next_msg(30)
    except TimeoutError:
        states = cli_user.is_connected, service.is_connected, service.stats, cli_user.stats
        pytest.fail(f"nothing was heard; errors: {errors}; connected, and statistics: {states}")
    assert message.subject == "trellis.evt.lab-1.node.ready.n"
    assert errors == []
    await cli_user.close()
    await service.close()


async def test_clients_without_a_key_are_refused(bus: ChartBus) -> None:
    host, _, port = bus.url.removeprefix("nats://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    greeting = await reader.readline()
    assert json.loads(greeting.removeprefix(b"INFO "))["auth_required"] is True
    writer.write(b'CONNECT {"verbose":false}\r\nPING\r\n')
    assert b"Authorization Violation" in await reader.readline()
    writer.close()
    await writer.wait_closed()
