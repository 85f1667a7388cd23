"""The endpoints of the kubelet, of Prometheus and of people."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from support.suite.naming import lacking
from trellis.config.settings import SettingsError
from trellis.config.timings import HealthTimings
from trellis.telemetry import Metrics
from trellis.telemetry.health import MOST_CONNECTIONS, Health, HealthServer


class Site:
    """A running server and a client of it."""

    def __init__(self, server: HealthServer, port: int, client: aiohttp.ClientSession) -> None:
        self.server, self.port, self.client = server, port, client

    async def get(self, path: str) -> tuple[int, Any]:
        async with self.client.get(f"http://127.0.0.1:{self.port}{path}") as response:
            assert response.content_type == "application/json"
            return response.status, await response.json()

    async def text(self, path: str) -> str:
        async with self.client.get(f"http://127.0.0.1:{self.port}{path}") as response:
            assert response.status == 200
            return await response.text()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
async def site(metrics: Metrics) -> AsyncIterator[Site]:
    server = HealthServer(metrics)
    port = await server.start(0)
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as client:
        yield Site(server, port, client)
    await server.stop()


async def test_a_process_without_services_is_alive_but_not_ready(site: Site) -> None:
    assert await site.get("/readyz") == (503, {"ok": False, "services": {}})
    assert await site.get("/livez") == (200, {"ok": True, "services": {}})


async def test_metrics_show_the_health_of_components_and_nothing_of_ended_ones(site: Site) -> None:
    health = Health("node_watcher")
    site.server.add(health)
    health.ready("bus")
    health.not_ready("watch nodes", "403")
    text = await site.text("/metrics")
    assert 'trellis_part_ready{part="bus",service="node_watcher"} 1.0' in text
    assert 'trellis_part_ready{part="watch nodes",service="node_watcher"} 0.0' in text
    health.forget("watch nodes")
    text = await site.text("/metrics")
    assert 'part="bus"' in text
    assert 'part="watch nodes"' not in text


async def test_it_is_ready_when_all_services_are_and_names_the_others_with_reasons(site: Site) -> None:
    watcher, provisioner = Health("node_watcher"), Health("provisioner")
    site.server.add(watcher)
    site.server.add(provisioner)
    assert (await site.get("/readyz"))[0] == 200
    watcher.not_ready("kubernetes", "connection refused at https://10.0.0.1:6443")
    assert await site.get("/readyz") == (
        503,
        {
            "ok": False,
            "services": {
                "node_watcher": {
                    "ok": False,
                    "reasons": ["kubernetes: connection refused at https://10.0.0.1:6443"],
                },
                "provisioner": {"ok": True, "reasons": []},
            },
        },
    )
    assert (await site.get("/livez"))[0] == 200
    watcher.ready("kubernetes")
    assert (await site.get("/readyz"))[0] == 200


async def test_healthz_is_livez_with_the_details_of_readiness(site: Site) -> None:
    now = [0.0]
    health = Health("node_watcher", clock=lambda: now[0])
    health.not_ready("bus", "away")
    now[0] = 12.34
    site.server.add(health)
    body = {"ok": True, "reasons": [], "ready": False, "not_ready": ["bus: away"], "not_ready_seconds": 12.3}
    assert await site.get("/healthz") == (200, {"ok": True, "services": {"node_watcher": body}})


@pytest.mark.parametrize("path", ["/livez", "/healthz"])
async def test_a_probe_that_asks_for_a_restart_fails_liveness(site: Site, path: str) -> None:
    health = Health("node_watcher")
    health.add_liveness("watch nodes", lambda: "no progress for 61 s")
    site.server.add(health)
    status, body = await site.get(path)
    assert status == 503
    assert body["services"]["node_watcher"]["reasons"] == ["watch nodes: no progress for 61 s"]


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [("text/plain", "text/plain"), ("application/openmetrics-text", "application/openmetrics-text")],
)
async def test_metrics_are_in_the_form_the_scraper_asks_for(
    site: Site, metrics: Metrics, accept: str, content_type: str
) -> None:
    metrics.leader.labels("node_watcher").set(1)
    url = f"http://127.0.0.1:{site.port}/metrics"
    async with site.client.get(url, headers={"Accept": accept}) as response:
        assert (response.status, response.content_type) == (200, content_type)
        assert 'trellis_leader{service="node_watcher"} 1.0' in await response.text()


async def test_a_blocked_loop_shows_in_the_lag(metrics: Metrics) -> None:
    server = HealthServer(metrics, timings=HealthTimings(beat=0.01))
    await server.start(0)
    time.sleep(0.3)  # noqa: ASYNC251 (blocking the loop is what is tested)
    lag = metrics.registry.get_sample_value("trellis_event_loop_lag_seconds")
    await server.stop()
    assert lag is not None
    assert 0.25 < lag < 5


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_it_listens_on_both_families(site: Site, host: str) -> None:
    if host == "::1" and not _has_ipv6():
        pytest.skip("this machine has no IPv6")
    _, writer = await asyncio.open_connection(host, site.port)
    writer.close()
    await writer.wait_closed()


def _has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


@pytest.mark.parametrize("host", [None, "127.0.0.1"])
async def test_a_port_in_use_names_the_setting_and_the_port(site: Site, host: str | None) -> None:
    with pytest.raises(SettingsError) as caught:
        await HealthServer(Metrics()).start(site.port, host)
    assert lacking(caught.value, f"TRELLIS_HEALTH_PORT: has {site.port}", "0") == []


async def test_a_port_only_ipv4_uses_is_in_use_too() -> None:
    with socket.create_server(("0.0.0.0", 0)) as taken, pytest.raises(SettingsError):
        await HealthServer(Metrics()).start(taken.getsockname()[1])


async def test_an_address_of_another_machine_is_reported() -> None:
    with pytest.raises(SettingsError, match=r"^TRELLIS_HEALTH_PORT: has 0, "):
        await HealthServer(Metrics()).start(0, "192.0.2.1")


async def test_it_stops_at_once_though_a_client_keeps_its_connection(site: Site) -> None:
    await site.get("/livez")
    started = time.monotonic()
    await site.server.stop()
    await site.server.stop()
    assert time.monotonic() - started < 3
    with pytest.raises(aiohttp.ClientConnectionError):
        await site.get("/livez")


async def test_it_stops_though_a_scraper_does_not_read_its_answer(site: Site, metrics: Metrics) -> None:
    for number in range(20_000):
        metrics.leader.labels(f"{number:0200}").set(1)
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(deaf, ("127.0.0.1", site.port))
        await loop.sock_sendall(deaf, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        assert await loop.sock_recv(deaf, 12) == b"HTTP/1.1 200"
        started = time.monotonic()
        await site.server.stop()
        assert time.monotonic() - started < 5


async def test_after_a_stop_the_port_is_free_again(site: Site) -> None:
    await site.server.stop()
    again = HealthServer(Metrics())
    assert await again.start(site.port) == site.port
    await again.stop()


async def test_idle_open_connections_block_no_client_and_use_bounded_files(
    site: Site,
) -> None:
    idle = [await asyncio.open_connection("127.0.0.1", site.port) for _ in range(2 * MOST_CONNECTIONS)]
    half = idle[-1][1]
    half.write(b"GET /livez HTTP/1.1\r\nHost: ")  # and never the rest
    try:
        assert (await site.get("/livez"))[0] == 200
        runner = site.server._runner
        assert runner is not None
        assert runner.server is not None
        async with asyncio.timeout(10):
            while len(runner.server.connections) > MOST_CONNECTIONS:  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0.01)
            assert await idle[0][0].read() == b"", "the oldest had to go"
        assert (await site.get("/livez"))[0] == 200
    finally:
        for _, writer in idle:
            writer.transport.abort()


async def test_a_connection_that_asks_nothing_is_closed() -> None:
    server = HealthServer(Metrics(), timings=HealthTimings(idle=0.2))
    port = await server.start(0)
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /livez HTTP/1.1\r\n")
        assert await asyncio.wait_for(reader.read(), 10) == b""
        writer.transport.abort()
    finally:
        await server.stop()
