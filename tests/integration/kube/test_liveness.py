"""When a process must be restarted: a watch is stuck while the API server answers; never because of an outage.

With the timings of minutes made seconds. The service under test makes no calls of its own: what is known of the API
server comes from the informer's probes.
"""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from support.cluster.kube_world import Watched, configmap, until, watch_of
from support.suite.tcp_proxy import TcpProxy
from support.suite.tiers import first_of
from trellis.kube.client import Kube
from trellis.kube.resources import CONFIGMAPS
from trellis.kube.transport import HttpTransport, Stream
from trellis.kube.watch_timings import WatchTimings
from trellis.telemetry import Metrics
from trellis.telemetry.health import HealthServer

pytestmark = pytest.mark.cluster

SHORT = WatchTimings(idle=1.0, stalled_after=4.0, probe=0.3, backoff_first=0.05, backoff_most=0.3)
LONG_ENOUGH = 2 * (SHORT.idle + SHORT.stalled_after)
"""Seconds of an outage after which a watch counted as deaf, if outages counted."""


@pytest.fixture
async def livez(proxied: Kube) -> AsyncIterator[str]:
    """The address the kubelet asks."""
    server = HealthServer(Metrics(), [proxied.health])
    port = await server.start(0, "127.0.0.1")
    yield f"http://127.0.0.1:{port}/livez"
    await server.stop()


async def get(url: str) -> tuple[int, str]:
    def get() -> tuple[int, str]:
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    return await asyncio.to_thread(get)


@asynccontextmanager
async def stuck(*_: object, **__: object) -> AsyncIterator[Stream]:
    """A watch that waits for ever and notices nothing, as a fault of Trellis would."""
    await asyncio.Event().wait()
    yield Stream(200, {}, nothing())


async def nothing() -> AsyncIterator[bytes]:
    for line in ():
        yield line


async def test_a_stuck_watch_is_a_reason_for_a_restart_only_while_the_server_answers(
    proxied: Kube, proxy: TcpProxy, namespace: str, livez: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HttpTransport, "stream", stuck)
    async with Watched(proxied, namespace, timings=SHORT):
        assert (await get(livez))[0] == 200
        await until(lambda: not proxied.health.liveness().ok, "deafness is noticed, though nobody else makes a call")
        status, body = await get(livez)
        assert status == 503
        assert f"{watch_of(namespace)}: " in body
        proxy.silence()
        await until(lambda: proxied.health.liveness().ok, "the server does not answer either: an outage")
        assert (await get(livez))[0] == 200
        proxy.cut()
        proxy.resume()
        await until(lambda: not proxied.health.liveness().ok, "the server is back, the watch is not")


@pytest.mark.parametrize("outage", first_of(["half-open", "refused"]))
async def test_an_outage_is_never_a_reason_for_a_restart(
    kube: Kube, proxied: Kube, proxy: TcpProxy, namespace: str, outage: str
) -> None:
    loop = asyncio.get_running_loop()
    async with Watched(proxied, namespace, timings=SHORT) as watched:

        def alive() -> bool:
            assert proxied.health.liveness().ok, proxied.health.liveness().reasons
            return True

        if outage == "refused":
            await proxy.refuse()
        else:
            proxy.silence()
        began = loop.time()
        await until(lambda: alive() and loop.time() - began > LONG_ENOUGH, "the outage", LONG_ENOUGH + 10)
        assert not proxied.health.readiness().ok
        await kube.create(CONFIGMAPS, configmap(namespace, "meanwhile"))
        if outage == "refused":
            await proxy.open()
        else:
            proxy.cut()
            proxy.resume()
        await until(lambda: alive() and f"{namespace}/meanwhile" in watched.informer.objects, "it goes on")
        healed = loop.time()
        await until(
            lambda: alive() and loop.time() - healed > SHORT.idle + SHORT.stalled_after, "and stays alive after it"
        )
        assert proxied.health.readiness().ok
