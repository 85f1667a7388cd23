"""Watches on a real kube-apiserver do not stall and do not run hot."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from typing import Any

import pytest

from support.cluster.kube_world import MANAGER, Watched, configmap, until, watch_of
from support.suite.tcp_proxy import TcpProxy
from trellis.kube.client import Kube
from trellis.kube.informer import ChangeKind
from trellis.kube.reader import Selection
from trellis.kube.resources import CONFIGMAPS
from trellis.kube.watch_timings import WatchTimings
from trellis_dev.localcluster import ClusterInfo, restart
from trellis_dev.localcluster.paths import Layout
from trellis_dev.localcluster.state import load

pytestmark = pytest.mark.cluster

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
        assert proxied.health.parts()[watch_of(namespace)] is False
        assert "WATCH ConfigMap" in proxied.health.readiness().reasons[0]
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
        proxied.telemetry.service, "LIST", "configmaps", "error"
    )
    async with Watched(proxied, namespace, timings=QUICK) as watched:
        await proxy.refuse()
        await until(lambda: not proxied.health.readiness().ok, "not ready")
        await kube.delete(CONFIGMAPS, "a", namespace, uid=made["metadata"]["uid"])
        before = failures._value.get()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(watched.task), 3)
        tries = failures._value.get() - before
        assert tries <= 40, f"{tries} tries in 3 s with a backoff of 0 … 0.5 s"
        await until(lambda: failures._value.get() - before >= 3, "tries go on")
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


@pytest.mark.thorough
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


async def test_bookmarks_keep_a_quiet_watch_fresh(kube: Kube, namespace: str, later_namespace: str) -> None:
    """A watch that ends gets a bookmark before, if anything of its kind happened anywhere."""
    await kube.ensure_namespace(later_namespace, {})
    async with Watched(kube, namespace, timings=WatchTimings(watch=(5, 5))) as watched:
        before = int(watched.informer._version)
        await kube.create(CONFIGMAPS, configmap(later_namespace, "elsewhere"))
        await until(lambda: int(watched.informer._version) > before, "a bookmark moves the version")
        assert watched.of_tests() == set()


@pytest.mark.thorough
async def test_a_list_whose_page_token_was_compacted_restarts(kube: Kube, namespace: str, cluster: ClusterInfo) -> None:
    """410 for a page: etcd has forgotten the state that the first page was of."""
    for number in range(5):
        await kube.create(CONFIGMAPS, configmap(namespace, f"c{number}"))
    # The controller manager puts a certificate into each namespace, when it comes to it.
    ours = Selection(CONFIGMAPS, namespace, field_selector="metadata.name!=kube-root-ca.crt")
    pages = kube.pages(ours, limit=2)
    first = await anext(pages)
    assert first.first
    deleted = next(iter(first.items))["metadata"]
    await kube.delete(CONFIGMAPS, deleted["name"], namespace, uid=deleted["uid"])
    await asyncio.to_thread(compact_etcd, cluster)
    await asyncio.to_thread(restart, cluster.name, "kube-apiserver")  # which has snapshots of its own
    await kube.wait_available()
    ahead, *rest = [page async for page in pages]
    assert not ahead.first, "it was read before"
    assert rest[0].first, "what came before does not count any more"
    names = {item["metadata"]["name"] for page in rest for item in page.items}
    assert names == {f"c{number}" for number in range(5)} - {deleted["name"]}


def compact_etcd(cluster: ClusterInfo) -> None:
    """Let etcd forget all history, by its JSON gateway."""
    state = load(Layout.of(cluster.name))
    assert state is not None

    def call(path: str, **body: object) -> dict[str, Any]:
        url = f"http://127.0.0.1:{state.ports['etcd']}/v3/kv/{path}"
        with urllib.request.urlopen(url, json.dumps(body).encode(), timeout=10) as answer:
            return dict(json.load(answer))

    revision = call("range", key="AA==")["header"]["revision"]
    call("compaction", revision=revision, physical=True)


async def test_a_watch_survives_that_etcd_forgets_its_history(
    kube: Kube, proxied: Kube, proxy: TcpProxy, namespace: str, cluster: ClusterInfo
) -> None:
    await kube.create(CONFIGMAPS, configmap(namespace, "before"))
    async with Watched(proxied, namespace, timings=QUICK) as watched:
        await proxy.refuse()
        await kube.create(CONFIGMAPS, configmap(namespace, "meanwhile"))
        await asyncio.to_thread(compact_etcd, cluster)
        await proxy.open()
        await until(lambda: f"{namespace}/meanwhile" in watched.informer.objects, "what happened meanwhile")
        assert watched.kinds_of(f"{namespace}/before") == [ChangeKind.ADDED]


async def test_everything_is_listed_again_from_time_to_time_and_nothing_is_reported_twice(
    kube: Kube, namespace: str
) -> None:
    counter = kube.telemetry.metrics.kube_requests_total
    lists = counter.labels(kube.telemetry.service, "LIST", "configmaps", "200")
    await kube.create(CONFIGMAPS, configmap(namespace, "a"))
    async with Watched(kube, namespace, timings=WatchTimings(relist=0.4, backoff_first=0.05)) as watched:
        await until(lambda: lists._value.get() >= 4, "several lists")
        await kube.create(CONFIGMAPS, configmap(namespace, "b"))
        await until(lambda: f"{namespace}/b" in watched.informer.objects, "b")
        assert watched.kinds_of(f"{namespace}/a") == [ChangeKind.ADDED]
