"""Connections that are dropped while they are idle, silently or not, and connections that are closed one way only.

With the minutes of NAT and load balancers made seconds: watches notice, and the first request after idling works.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable

import pytest

from support.cluster.kube_world import Watched, configmap, until
from support.suite.tcp_proxy import TcpProxy
from support.suite.tiers import first_of
from trellis.kube.client import Kube
from trellis.kube.resources import CONFIGMAPS
from trellis.kube.timings import ConnectionTimings, KubeTimings
from trellis.kube.transport import HttpTransport
from trellis.kube.watch_timings import WatchTimings

pytestmark = pytest.mark.cluster

KEPT = 0.3
SHORT = WatchTimings(idle=2.0, backoff_first=0.05, backoff_most=0.3)
PROMPT = 12.0
"""Seconds within which a request is answered; one on a connection that is dead would take all of its 15 s."""


@pytest.fixture
def timings() -> KubeTimings:
    return KubeTimings(connection=ConnectionTimings(kept=KEPT))


def forget(proxy: TcpProxy) -> None:
    proxy.forget()


def reset(proxy: TcpProxy) -> None:
    proxy.cut()


def finish_clients(proxy: TcpProxy) -> None:
    proxy.finish(clients=True)


def finish_server(proxy: TcpProxy) -> None:
    proxy.finish(clients=False)


def finish_server_whose_answer_is_lost(proxy: TcpProxy) -> None:
    proxy.finish(clients=False)
    proxy.forget()


WAYS = [forget, reset, finish_clients, finish_server, finish_server_whose_answer_is_lost]


@pytest.mark.parametrize("drop", first_of(WAYS, 2))
async def test_a_watch_whose_connection_is_dropped_shows_what_happened(
    kube: Kube, proxied: Kube, proxy: TcpProxy, namespace: str, drop: Callable[[TcpProxy], None]
) -> None:
    async with Watched(proxied, namespace, timings=SHORT) as watched:
        await kube.create(CONFIGMAPS, configmap(namespace, "before"))
        await until(lambda: f"{namespace}/before" in watched.informer.objects, "the watch is open")
        drop(proxy)
        await kube.create(CONFIGMAPS, configmap(namespace, "meanwhile"))
        await until(lambda: f"{namespace}/meanwhile" in watched.informer.objects, "it is seen")
        assert proxied.health.readiness().ok
        assert proxied.health.liveness().ok


@pytest.mark.parametrize("drop", first_of(WAYS, 2))
async def test_the_first_request_after_idling_works(
    proxied: Kube,
    proxy: TcpProxy,
    namespace: str,
    drop: Callable[[TcpProxy], None],
) -> None:
    assert ConnectionTimings().kept < 30, "less than the least that is in use on the way"
    await asyncio.gather(*(proxied.list(CONFIGMAPS, namespace) for _ in range(4)))
    accepted, idle_since = proxy.accepted, time.monotonic()
    drop(proxy)
    await until(lambda: time.monotonic() - idle_since > 0.5, "they are idle for long enough")
    began = time.monotonic()
    await proxied.create(CONFIGMAPS, configmap(namespace, "a"))
    assert time.monotonic() - began < PROMPT
    assert proxy.accepted > accepted, "a new connection"


async def test_connections_are_probed_before_they_count_as_idle(proxied: Kube, namespace: str) -> None:
    found: list[tuple[int, ...]] = []
    transport = proxied._caller.transport
    assert isinstance(transport, HttpTransport)
    await proxied.list(CONFIGMAPS, namespace)
    connector = transport._session.http.connector
    assert connector is not None
    for connections in connector._conns.values():
        for protocol, _ in connections:
            assert protocol.transport is not None
            item = protocol.transport.get_extra_info("socket")
            options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
            found.append(
                (
                    item.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE),
                    *(item.getsockopt(socket.IPPROTO_TCP, option) for option in options),
                )
            )
    assert found == [(1, 30, 10, 3)]
