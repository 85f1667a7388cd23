"""Two real replicas and one lease: no fault of the leader loses work, and a former leader does nothing afterwards.

One of the guests is in the middle of a call all the while, reading and writing as fast as it is let: after the loss of
the lease nothing of that may reach the API server, neither a write nor a read.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

import pytest
import yaml

from support.guests.controller_replicas import Replicas, Work, replica
from support.guests.controllers_world import Host, Tenant, until
from support.suite.tcp_proxy import TcpProxy, kubeconfig_through
from trellis.kube import leader
from trellis_dev.localcluster import ClusterInfo

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.nats,
    pytest.mark.timeout(240),
]

GRACE_SECONDS = 25.0
Fault = Callable[[Replicas, Work], Awaitable[None]]


@pytest.fixture
def work(host: Host, tenant: Tenant, target: Tenant) -> Work:
    del host  # that the kind is served is its doing
    return Work(tenant, target)


@pytest.mark.thorough
async def test_a_leader_that_is_asked_to_stop_hands_over_with_a_guest_in_its_call(
    host: Host, cluster: ClusterInfo, work: Work
) -> None:
    replicas = Replicas(cluster, replica(host, "first"), replica(host, "second"))
    async with replicas.serving(work):
        work.change(2)
        assert await replicas.terminate("first") < GRACE_SECONDS
        await work.done(2)
        await replicas.second_beats()
        work.change(3)
        await work.done(3)
    assert replicas.violations() == []


@pytest.mark.thorough
async def test_a_leader_that_is_killed_is_succeeded_and_nothing_is_lost(
    host: Host, cluster: ClusterInfo, work: Work
) -> None:
    replicas = Replicas(cluster, replica(host, "first"), replica(host, "second"))
    async with replicas.serving(work):
        work.change(2)
        await replicas.first.kill()
        await work.done(2)
        await replicas.second_beats()
        work.change(3)
        await work.done(3)
    assert replicas.violations() == []


@pytest.mark.thorough
async def test_a_leader_that_was_stopped_for_a_while_asks_nothing_more_in_the_call_that_goes_on(
    host: Host, cluster: ClusterInfo, work: Work
) -> None:
    replicas = Replicas(cluster, replica(host, "first"), replica(host, "second"))
    async with replicas.serving(work):
        work.change(2)
        await replicas.stop("first")
        await work.done(2)
        await replicas.second_beats()
        beats = len(replicas.beats("first"))
        replicas.go_on("first")
        await until(
            lambda: bool(replicas.first.logged(logger=leader.__name__, level="warning")), "the first knows that it lost"
        )
        await does_nothing(replicas, work, beats)
        await inherits(replicas, work)
    assert replicas.violations() == []


@pytest.mark.thorough
async def test_a_leader_that_alone_is_cut_off_from_the_api_server_ends_before_another_begins(
    host: Host, cluster: ClusterInfo, work: Work, tmp_path: Path
) -> None:
    async with proxied(cluster, tmp_path) as (proxy, kubeconfig):
        first = replica(host, "first", TRELLIS_KUBECONFIG=kubeconfig)
        replicas = Replicas(cluster, first, replica(host, "second"))
        async with replicas.serving(work):
            work.change(2)
            await proxy.refuse()
            await work.done(2)
            await replicas.second_beats()
            beats = len(replicas.beats("first"))
            await proxy.open()
            await does_nothing(replicas, work, beats)
            await inherits(replicas, work)
    assert replicas.violations() == []


async def does_nothing(replicas: Replicas, work: Work, beats: int) -> None:
    """See that the first does nothing while the second works, though it could."""
    await until(lambda: replicas.first.metric("trellis_leader") == 0, "it leads no more")
    work.change(3)
    await work.done(3)
    assert len(replicas.beats("first")) == beats
    # Each beat is a list and then a write, so a list too many was asked for when no write was let through any more.
    assert 0 < replicas.lists("first") <= beats + 1


async def inherits(replicas: Replicas, work: Work) -> None:
    """See that the first, which was a candidate all the while, goes on when the second ends."""
    before = len(replicas.beats("first"))
    await replicas.terminate("second")
    work.change(4)
    await work.done(4)
    await until(lambda: len(replicas.beats("first")) > before, "its guest is called again", 60.0)


def server_of(kubeconfig: Path) -> SplitResult:
    config = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
    return urlsplit(config["clusters"][0]["cluster"]["server"])


@asynccontextmanager
async def proxied(cluster: ClusterInfo, directory: Path) -> AsyncIterator[tuple[TcpProxy, str]]:
    """A way to the API server that can fail, and the kubeconfig that takes it."""
    server = server_of(Path(cluster.kubeconfig))
    async with TcpProxy(str(server.hostname), int(server.port or 443)) as proxy:
        yield proxy, str(await asyncio.to_thread(kubeconfig_through, proxy.port, Path(cluster.kubeconfig), directory))
