"""Two API servers of different staleness behind one address: nothing that was seen is undone, and lists are few.

Both are on one etcd. The second one's way to etcd is late, so its watch cache is behind; or silent, so it answers
nothing that needs etcd.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from support.cluster.kube_world import MANAGER, Watched, configmap, until
from support.cluster.second_apiserver import SecondApiServer
from support.suite.tcp_proxy import TcpProxy
from trellis.kube.changes import ChangeKind
from trellis.kube.client import Kube
from trellis.kube.resources import CONFIGMAPS
from trellis.kube.timings import ConnectionTimings, KubeTimings
from trellis.kube.watch_timings import WatchTimings
from trellis_dev.localcluster import ClusterInfo, owned_cluster

pytestmark = [pytest.mark.cluster, pytest.mark.thorough]

TIMINGS = WatchTimings(backoff_first=0.05, backoff_most=0.5)
"""As in production, but for the backoff: neither an idle cut nor the next full list is due within the test."""
LATE = 0.7
SWITCHES = 12
QUIET = 2.0
"""Seconds; the backoff of a watch is a quarter of them at most."""


@pytest.fixture
def timings() -> KubeTimings:
    return KubeTimings(call=5.0, connection=ConnectionTimings(open=5.0))


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterInfo]:
    """A control plane of this module's own: it gets a second API server."""
    with owned_cluster() as info:
        yield info


@pytest.fixture
async def second(cluster: ClusterInfo, tmp_path: Path) -> AsyncIterator[SecondApiServer]:
    async with SecondApiServer(cluster, tmp_path / "second.log") as running:
        yield running


def requests(kube: Kube, verb: str) -> float:
    """Count what a connection asked, of any outcome."""
    return sum(
        sample.value
        for family in kube.telemetry.metrics.kube_requests_total.collect()
        for sample in family.samples
        if sample.name.endswith("_total")
        and (sample.labels["service"], sample.labels["verb"]) == (kube.telemetry.service, verb)
    )


def numbers(watched: Watched, key: str) -> list[int]:
    """Return the values of an object in the order in which they were seen."""
    return [int(dict(change.new.data)["n"]) for change in watched.changes if change.key == key and change.new]


async def write(kube: Kube, namespace: str, number: int) -> None:
    """Change one object, create another, and delete the one before."""
    patch = {"data": {"n": str(number)}}
    await kube.merge_patch(CONFIGMAPS, "changed", patch, namespace, field_manager=MANAGER)
    await kube.create(CONFIGMAPS, configmap(namespace, f"c{number}", n=str(number)))
    if number > 1:
        found = await kube.get(CONFIGMAPS, f"c{number - 1}", namespace)
        await kube.delete(CONFIGMAPS, f"c{number - 1}", namespace, uid=found["metadata"]["uid"])


async def test_switches_between_servers_undo_nothing_and_end_in_one_watch(
    kube: Kube, proxied: Kube, proxy: TcpProxy, namespace: str, second: SecondApiServer
) -> None:
    await kube.create(CONFIGMAPS, configmap(namespace, "changed", n="0"))
    await kube.create(CONFIGMAPS, configmap(namespace, "kept", n="0"))
    second.store.late = LATE
    async with Watched(proxied, namespace, timings=TIMINGS) as watched:
        for number in range(1, SWITCHES + 1):
            await write(kube, namespace, number)
            proxy.lead_to(second.port if number % 2 else second.first_port)
            proxy.cut()
        proxy.lead_to(second.port)
        proxy.cut()
        await write(kube, namespace, SWITCHES + 1)
        wanted = {f"{namespace}/{name}" for name in ("changed", "kept", f"c{SWITCHES + 1}")}
        await until(lambda: watched.of_tests() == wanted, "the newest state, by the server that is behind", 60)
        await until(lambda: numbers(watched, f"{namespace}/changed")[-1] == SWITCHES + 1, "the newest change", 60)
        assert numbers(watched, f"{namespace}/changed") == sorted(numbers(watched, f"{namespace}/changed"))
        assert ChangeKind.DELETED not in watched.kinds_of(f"{namespace}/kept")
        for number in range(1, SWITCHES + 2):
            kinds = watched.kinds_of(f"{namespace}/c{number}")
            assert kinds in ([], [ChangeKind.ADDED], [ChangeKind.ADDED, ChangeKind.DELETED]), "none comes back"
        await until(lambda: proxied.health.readiness().ok, "ready", 60)
        lists = requests(proxied, "LIST")
        assert lists <= 3 * (SWITCHES + 2), "for each switch one question and one list, and the first list"
        loop = asyncio.get_running_loop()
        quiet_until = loop.time() + QUIET
        await until(lambda: loop.time() > quiet_until, "it is left alone")
        assert requests(proxied, "LIST") == lists, "no list follows where nothing was cut"


async def test_a_server_that_lost_its_store_undoes_nothing_and_is_named(
    kube: Kube, proxied: Kube, proxy: TcpProxy, namespace: str, second: SecondApiServer
) -> None:
    await kube.create(CONFIGMAPS, configmap(namespace, "changed", n="0"))
    async with Watched(proxied, namespace, timings=TIMINGS) as watched:
        second.store.silence()
        await write(kube, namespace, 1)
        await until(lambda: f"{namespace}/c1" in watched.informer.objects, "the change")
        proxy.lead_to(second.port)
        proxy.cut()
        await until(lambda: not proxied.health.readiness().ok, "it is named", 60)
        assert watched.of_tests() == {f"{namespace}/changed", f"{namespace}/c1"}
        second.store.resume()
        await write(kube, namespace, 2)
        await until(lambda: f"{namespace}/c2" in watched.informer.objects, "the next change", 90)
        assert numbers(watched, f"{namespace}/changed") == [0, 1, 2]
        await until(lambda: proxied.health.readiness().ok, "ready", 60)
