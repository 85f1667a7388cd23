"""etcd is restored from a backup within seconds: what was seen since then never happened, and versions are used again.

A kube-apiserver answers a watch from a version that is newer than its own with 200 and silence.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.cluster.etcd_backup import EtcdBackup
from support.cluster.kube_world import MANAGER, Watched, configmap, until
from support.suite.tcp_proxy import TcpProxy
from trellis.kube.client import Kube
from trellis.kube.resources import CONFIGMAPS
from trellis.kube.watch_timings import WatchTimings
from trellis_dev.localcluster import ClusterInfo, owned_cluster

pytestmark = [pytest.mark.cluster]

TIMINGS = WatchTimings(backoff_first=0.05, backoff_most=0.5)
"""As in production, but for the backoff: neither an idle cut nor the next full list is due within the test."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterInfo]:
    """A control plane of this module's own: a restore undoes all changes."""
    with owned_cluster() as info:
        yield info


@pytest.fixture
def backup(cluster: ClusterInfo, tmp_path: Path) -> EtcdBackup:
    """A backup that was not taken yet."""
    return EtcdBackup(cluster, tmp_path)


async def change(kube: Kube, namespace: str, last: str) -> None:
    """Create, change and delete an object each; ``last`` comes last."""

    async def created() -> None:
        await kube.create(CONFIGMAPS, configmap(namespace, "created"))

    async def changed() -> None:
        await kube.merge_patch(CONFIGMAPS, "changed", {"data": {"x": "new"}}, namespace, field_manager=MANAGER)

    async def deleted() -> None:
        found = await kube.get(CONFIGMAPS, "deleted", namespace)
        await kube.delete(CONFIGMAPS, "deleted", namespace, uid=found["metadata"]["uid"])

    steps = {"created": created, "changed": changed, "deleted": deleted}
    for name in sorted(steps, key=lambda name: (name == last, name)):
        await steps[name]()


@pytest.mark.thorough
@pytest.mark.parametrize("last", ["created", "changed", "deleted"])
async def test_a_restored_store_is_what_counts_though_its_versions_are_as_new_by_then(
    last: str, kube: Kube, proxied: Kube, proxy: TcpProxy, namespace: str, backup: EtcdBackup
) -> None:
    await kube.create(CONFIGMAPS, configmap(namespace, "changed", x="old"))
    await kube.create(CONFIGMAPS, configmap(namespace, "deleted"))
    await asyncio.to_thread(backup.take)
    await kube.wait_available()
    async with Watched(proxied, namespace, timings=TIMINGS) as watched:
        objects = watched.informer.objects
        await change(kube, namespace, last)
        await until(lambda: f"{namespace}/created" in objects and f"{namespace}/deleted" not in objects, "the changes")
        await until(lambda: objects[f"{namespace}/changed"].data == (("x", "new"),), "the change")
        seen = int(watched.informer._version)
        await proxy.refuse()
        await asyncio.to_thread(backup.restore)
        await kube.wait_available()
        while int((await kube.create(CONFIGMAPS, configmap(namespace, "later")))["metadata"]["resourceVersion"]) < seen:
            found = await kube.get(CONFIGMAPS, "later", namespace)
            await kube.delete(CONFIGMAPS, "later", namespace, uid=found["metadata"]["uid"])
        await proxy.open()
        wanted = {f"{namespace}/{name}" for name in ("changed", "deleted", "later")}
        await until(lambda: watched.of_tests() == wanted, "the restored objects, and those made since")
        assert objects[f"{namespace}/changed"].data == (("x", "old"),)
        assert proxied.health.readiness().ok


async def test_a_watch_from_a_version_that_is_not_there_yet_is_not_waited_for(
    kube: Kube, namespace: str, backup: EtcdBackup
) -> None:
    await asyncio.to_thread(backup.take)
    await kube.wait_available()
    async with Watched(kube, namespace, timings=TIMINGS) as watched:
        for number in range(300):  # more than the control plane writes by itself until the watch is open again
            await kube.create(CONFIGMAPS, configmap(namespace, f"c{number}"))
        await until(lambda: f"{namespace}/c299" in watched.informer.objects, "the changes")
        await asyncio.to_thread(backup.restore)
        await until(lambda: not watched.of_tests(), "the restored state")
        await kube.wait_available()
        await kube.create(CONFIGMAPS, configmap(namespace, "new"))
        await until(lambda: watched.of_tests() == {f"{namespace}/new"}, "a change after the restore")
