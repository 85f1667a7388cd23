"""Three servers with TLS as the chart has it: nobody is let in unheard, and renewed certificates need no restart."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.chart.bus_secret import certificates_of
from support.chart.chart_nats import ChartServers
from support.chart.rendered import hooks, rendered
from support.nats.buses import Buses, Listener, eventually, eventually_async, opted_out
from support.suite.settling import settle
from trellis.bus.accounts.reloader import Reloader
from trellis.bus.connection.dial import dial
from trellis.bus.errors import BusUnavailable
from trellis.bus.streams.streams import limits_with
from trellis.events.node import NodeOptedOut
from trellis.events.subjects import NODE_WATCHER, PROVISIONER
from trellis_dev.localcluster.nats import NatsServer
from trellis_dev.localcluster.ports import LOOPBACK

pytestmark = [pytest.mark.nats, pytest.mark.timeout(300)]

CLUSTER = "trellis"
TLS = {"tls": {"enabled": True}}


@pytest.fixture
async def servers(tmp_path: Path) -> AsyncIterator[ChartServers]:
    with ChartServers(tmp_path / "servers", rendered(nats=TLS), hooks("pre-install", nats=TLS)).running() as made:
        await made.ready()
        yield made


@pytest.fixture
def authority(servers: ChartServers, tmp_path: Path) -> Path:
    path = tmp_path / "ca.crt"
    path.write_text(servers.certificates["ca.crt"], encoding="utf-8")
    return path


@pytest.mark.thorough
async def test_services_and_servers_know_each_other_by_the_authority(servers: ChartServers, authority: Path) -> None:
    buses, listener = Buses("", CLUSTER), Listener()
    made = {}
    for service in (NODE_WATCHER, PROVISIONER):
        buses.url = servers.url()
        made[service] = buses.new(service, credentials=servers.credentials(service, authority), limits=limits_with(3))
    made[PROVISIONER].subscribe("nodes", [NodeOptedOut], listener)
    for bus in made.values():
        await asyncio.wait_for(bus.connect(), 60)
        await bus.start()
    await made[NODE_WATCHER].publish(opted_out("n"), dedup="n")
    await eventually(lambda: listener.names == ["n"])
    await buses.close()


@pytest.mark.thorough
async def test_a_server_of_another_authority_is_not_believed(servers: ChartServers, tmp_path: Path) -> None:
    other = tmp_path / "other.crt"
    replace(other, certificates_of(hooks("pre-install", nats=TLS))["ca.crt"])
    for authority in (other, None):
        with pytest.raises(BusUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
            await dial(servers.url(servers.pods[0]), "test", servers.credentials("cli", authority))


@pytest.mark.thorough
async def test_a_server_without_tls_gets_no_tls_options(
    nats_server: NatsServer, servers: ChartServers, authority: Path
) -> None:
    """As an attacker between the service and the server, who claims that there is no TLS."""
    with pytest.raises(BusUnavailable, match="TRELLIS_NATS_CA_FILE"):
        await dial(nats_server.url, "test", servers.credentials("cli", authority))


async def test_clients_without_tls_and_clients_posing_as_servers_are_refused(servers: ChartServers) -> None:
    context = ssl.create_default_context(cadata=servers.certificates["ca.crt"])
    pod = servers.pods[0]
    reader, writer = await asyncio.open_connection(LOOPBACK, pod.server.port)
    assert b'"tls_required":true' in await reader.readline()
    writer.write(b'CONNECT {"verbose":false}\r\nPING\r\n')
    assert b"PONG" not in await reader.read()
    writer.close()
    with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):  # a certificate is asked for
        await first_byte(pod.route, context)


async def first_byte(port: int, context: ssl.SSLContext) -> None:
    """Wait for the first line of the server."""
    reader, writer = await asyncio.open_connection(LOOPBACK, port, ssl=context)
    try:
        await reader.readexactly(1)
    finally:
        writer.transport.abort()


async def others(servers: ChartServers, before: bytes) -> bool:
    return all([await pod.shown() != before for pod in servers.pods])


def replace(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


@pytest.mark.thorough
async def test_renewed_certificates_are_shown_without_a_restart_and_believed(
    servers: ChartServers, authority: Path
) -> None:
    """Of another authority even: the servers stay with each other, a client comes back with the file of then."""
    renewed = certificates_of(hooks("pre-install", nats=TLS))
    client = await dial(servers.url(), "test", servers.credentials("cli", authority))
    before, pids = await servers.pods[0].shown(), [pod.server.pid for pod in servers.pods]
    reloaders = [Reloader(pod.certificates, pod.directory / "nats.pid") for pod in servers.pods]
    assert all(reloader.look() for reloader in reloaders), "each tells its server"
    assert {reloader.look() for reloader in reloaders} == {""}
    for pod in servers.pods:
        pod.renew(renewed)
    replace(authority, renewed["ca.crt"])
    for reloader in reloaders:
        assert reloader.look()
    await eventually_async(lambda: others(servers, before))
    assert [pod.server.pid for pod in servers.pods] == pids
    await settle(client)
    servers.pods[0].server.kill()  # every connection of it has to be made again, with the new certificates
    await servers.pods[0].started()
    await eventually(lambda: client.is_connected)
    await settle(client)
    fresh = await dial(servers.url(servers.pods[0]), "test", servers.credentials("cli", authority))
    await fresh.close()
    await client.close()
