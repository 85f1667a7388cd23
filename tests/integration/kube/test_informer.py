"""Watches on a real kube-apiserver do not go deaf and do not run hot."""

from __future__ import annotations

import asyncio

import pytest

from support.kube_world import MANAGER, Watched, configmap, until
from support.tcp_proxy import TcpProxy
from trellis.kube.client import Kube
from trellis.kube.informer import ChangeKind, WatchTimings
from trellis.kube.resources import CONFIGMAPS
from trellis.localcluster import ClusterInfo, restart

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster")]

QUICK = WatchTimings(idle=2.0, backoff_first=0.05, backoff_most=0.5)


async def test_a_cut_connection_loses_nothing_and_repeats_nothing(
    kube: Kube, proxied: Kube, proxy: TcpProxy, namespace: str
) -> None:
    async with Watched(proxied, namespace, timings=QUICK) as watched:
        for number in range(5):
            proxy.cut()
            await kube.create(CONFIGMAPS, configmap(namespace, f"c{number}"))
        wanted = {f"{namespace}/c{number}" for number in range(5)}
        await until(lambda: watched.of_tests() == wanted, "all objects made during the cuts")
        assert {kind for key in wanted for kind in watched.kinds_of(key)} == {ChangeKind.ADDED}
        assert all(len(watched.kinds_of(key)) == 1 for key in wanted)
        assert proxied.health.readiness().ok, "a cut that heals at once is no outage"


async def test_a_half_open_connection_is_noticed(kube: Kube, proxied: Kube, proxy: TcpProxy, namespace: str) -> None:
    async with Watched(proxied, namespace, timings=QUICK) as watched:
        proxy.silence()
        await kube.create(CONFIGMAPS, configmap(namespace, "unheard"))
        await until(lambda: not proxied.health.readiness().ok, "silence makes it not ready")
        assert f"watch configmaps in {namespace}: cannot WATCH ConfigMap" in proxied.health.readiness().reasons[0]
        assert proxied.health.liveness().ok, "an outage is never a reason for a restart"
        proxy.cut()
        proxy.resume()
        await until(lambda: f"{namespace}/unheard" in watched.informer.objects, "the change made in the silence")
        assert proxied.health.readiness().ok


async def test_an_outage_is_survived_without_a_hot_loop(
    kube: Kube, proxied: Kube, proxy: TcpProxy, namespace: str
) -> None:
    made = await kube.create(CONFIGMAPS, configmap(namespace, "a"))
    failures = proxied.telemetry.metrics.kube_requests_total.labels(
        proxied.telemetry.service, "WATCH", "configmaps", "error"
    )
    async with Watched(proxied, namespace, timings=QUICK) as watched:
        await proxy.refuse()
        await until(lambda: not proxied.health.readiness().ok, "not ready")
        await kube.delete(CONFIGMAPS, "a", namespace, uid=made["metadata"]["uid"])
        before = failures._value.get()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(watched.task), 3)
        tries = failures._value.get() - before
        assert 3 <= tries <= 40, f"{tries} tries in 3 s with a backoff of 0 … 0.5 s"
        assert f"{namespace}/a" in watched.informer.objects, "silence deletes nothing"
        await proxy.open()
        await until(lambda: f"{namespace}/a" not in watched.informer.objects, "the deletion in the outage")
        assert watched.kinds_of(f"{namespace}/a") == [ChangeKind.ADDED, ChangeKind.DELETED]
        assert proxied.health.readiness().ok


async def test_a_restarted_api_server_is_followed(kube: Kube, namespace: str, cluster: ClusterInfo) -> None:
    async with Watched(kube, namespace, timings=QUICK) as watched:
        await kube.create(CONFIGMAPS, configmap(namespace, "before", x="1"))
        await until(lambda: f"{namespace}/before" in watched.informer.objects, "before")
        await asyncio.to_thread(restart, cluster.name, "kube-apiserver")
        await kube.wait_available()
        await kube.merge_patch(CONFIGMAPS, "before", {"data": {"x": "2"}}, namespace, field_manager=MANAGER)
        await kube.create(CONFIGMAPS, configmap(namespace, "after"))
        await until(lambda: f"{namespace}/after" in watched.informer.objects, "after")
        assert watched.kinds_of(f"{namespace}/before") == [ChangeKind.ADDED, ChangeKind.MODIFIED]


async def test_a_watch_that_fell_behind_lists_again(
    kube: Kube, proxied: Kube, proxy: TcpProxy, namespace: str, cluster: ClusterInfo
) -> None:
    """410 Gone: what vanished meanwhile is DELETED after the list; what stayed is not repeated."""
    doomed = await kube.create(CONFIGMAPS, configmap(namespace, "doomed"))
    await kube.create(CONFIGMAPS, configmap(namespace, "stays"))
    counter = proxied.telemetry.metrics.kube_requests_total
    lists = counter.labels(proxied.telemetry.service, "LIST", "configmaps", "200")
    async with Watched(proxied, namespace, timings=QUICK) as watched:
        await proxy.refuse()
        await kube.delete(CONFIGMAPS, "doomed", namespace, uid=doomed["metadata"]["uid"])
        await asyncio.to_thread(restart, cluster.name, "kube-apiserver")  # its history starts after the deletion
        await kube.wait_available()
        assert lists._value.get() == 1
        await proxy.open()
        await until(lambda: watched.of_tests() == {f"{namespace}/stays"}, "the deletion")
        assert lists._value.get() == 2
        assert watched.kinds_of(f"{namespace}/stays") == [ChangeKind.ADDED]
        assert watched.kinds_of(f"{namespace}/doomed") == [ChangeKind.ADDED, ChangeKind.DELETED]


async def test_bookmarks_keep_a_quiet_watch_fresh(kube: Kube, namespace: str) -> None:
    """A watch that ends gets a bookmark before, if anything of its kind happened anywhere."""
    await kube.ensure_namespace(f"{namespace}-other", {})
    async with Watched(kube, namespace, timings=WatchTimings(watch=(5, 5))) as watched:
        before = int(watched.informer._version)
        await kube.create(CONFIGMAPS, configmap(f"{namespace}-other", "elsewhere"))
        await until(lambda: int(watched.informer._version) > before, "a bookmark moves the version")
        assert watched.of_tests() == set()
