"""Calls over a connection that is dead and does not say so: each ends within its budget, no write is sent twice."""

from __future__ import annotations

import asyncio
import time

import psutil
import pytest

from support.cluster.kube_world import MANAGER, configmap, eventually, until
from support.suite.tcp_proxy import TcpProxy
from trellis.kube.client import Kube
from trellis.kube.errors import AlreadyExists, KubeError, NotFound, Unavailable
from trellis.kube.resources import CONFIGMAPS
from trellis.kube.timings import KubeTimings

pytestmark = pytest.mark.cluster

BUDGET = 3.0
BRIEF = 0.3
"""Of a call that reaches nobody."""
GENEROUS = 40.0
"""What a call of ``BUDGET`` may take on a machine with much else to do; without an end it would take minutes."""


@pytest.mark.parametrize("timings", [KubeTimings(call=2 * BUDGET)], ids=["short"])
async def test_calls_end_within_their_budget_and_work_again_at_once(
    kube: Kube, proxied: Kube, proxy: TcpProxy, namespace: str
) -> None:
    made = await kube.create(CONFIGMAPS, configmap(namespace, "a"))
    uid = made["metadata"]["uid"]
    await proxied.get(CONFIGMAPS, "a", namespace, timeout=GENEROUS)  # the silence finds its connection idle
    proxy.silence()
    calls = {
        "GET": proxied.get(CONFIGMAPS, "a", namespace, timeout=BRIEF),
        "LIST": proxied.list(CONFIGMAPS, namespace),
        "CREATE": proxied.create(CONFIGMAPS, configmap(namespace, "b"), timeout=BRIEF),
        "PUT": proxied.replace(CONFIGMAPS, made | {"data": {"x": "1"}}, timeout=BRIEF),
    }
    for verb, call in calls.items():
        began = time.monotonic()
        with pytest.raises(Unavailable, match=f"cannot {verb} ConfigMap .*https://127"):
            await call
        assert time.monotonic() - began < GENEROUS, verb
    proxy.cut()  # what was never delivered is lost for good
    proxy.resume()
    await proxied.delete(CONFIGMAPS, "a", namespace, uid=uid)
    with pytest.raises(NotFound):
        await kube.get(CONFIGMAPS, "b", namespace)


async def test_a_write_whose_answer_got_lost_is_reported_as_uncertain_and_not_sent_again(
    kube: Kube, proxied: Kube, proxy: TcpProxy, namespace: str
) -> None:
    await kube.create(CONFIGMAPS, configmap(namespace, "a", count="0"))
    read = await proxied.get(CONFIGMAPS, "a", namespace)
    proxy.mute()
    with pytest.raises(Unavailable):
        await proxied.replace(CONFIGMAPS, read | {"data": {"count": "1"}}, timeout=BUDGET)

    async def is_written() -> bool:
        return bool((await kube.get(CONFIGMAPS, "a", namespace))["data"]["count"] == "1")

    await eventually(is_written, "it did happen")
    proxy.cut()
    proxy.resume()
    # What a service does: it acts on what it reads, and an answer that got lost costs a conflict, never a second write.
    patch = {"metadata": {name: read["metadata"][name] for name in ("uid", "resourceVersion")}, "data": {"count": "1"}}
    with pytest.raises(KubeError, match="409 Conflict"):
        await proxied.merge_patch(CONFIGMAPS, "a", patch, namespace, field_manager=MANAGER)


async def test_a_create_whose_answer_got_lost_finds_its_own_object(
    kube: Kube, proxied: Kube, proxy: TcpProxy, namespace: str
) -> None:
    await proxied.probe()
    proxy.mute()
    with pytest.raises(Unavailable):
        await proxied.create(CONFIGMAPS, configmap(namespace, "a"), timeout=BUDGET)
    await eventually(lambda: exists(kube, namespace), "it did happen")
    proxy.cut()
    proxy.resume()
    with pytest.raises(AlreadyExists):
        await proxied.create(CONFIGMAPS, configmap(namespace, "a"))


async def exists(kube: Kube, namespace: str) -> bool:
    try:
        await kube.get(CONFIGMAPS, "a", namespace)
    except NotFound:
        return False
    return True


async def test_a_cancelled_call_leaves_no_connection_behind(proxied: Kube, proxy: TcpProxy, namespace: str) -> None:
    """A leader that lost its lease cancels its work: what hangs must not hold the pool."""
    proxy.silence()
    calls = [asyncio.create_task(proxied.get(CONFIGMAPS, "a", namespace)) for _ in range(5)]
    await until(lambda: proxy.accepted >= len(calls), "each has a connection")
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    proxy.cut()
    proxy.resume()
    with pytest.raises(NotFound):
        await proxied.get(CONFIGMAPS, "a", namespace)


async def test_closing_during_an_outage_leaves_no_connection_open(
    proxied: Kube, proxy: TcpProxy, namespace: str
) -> None:
    """TLS by itself waits 30 s for the goodbye of the far side, of what was given up as of what is idle."""
    await proxied.list(CONFIGMAPS, namespace)
    proxy.silence()
    asking = [asyncio.create_task(proxied.list(CONFIGMAPS, namespace)) for _ in range(3)]
    await until(lambda: sockets_to(proxy.port) >= 3, "all of them ask")
    for item in asking:
        item.cancel()
    await asyncio.wait(asking)
    await proxied.close()
    await until(lambda: sockets_to(proxy.port) == 0, "nothing is left open", 25)


def sockets_to(port: int) -> int:
    """Return how many of this process lead to a port."""
    return sum(
        1
        for net_connection in psutil.Process().net_connections("tcp")
        if net_connection.raddr and net_connection.raddr[1] == port
    )
