"""Tokens that are revoked and certificates that rotate are followed in their files: no restart, no hot loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from support.cluster.accounts import Account
from support.cluster.kube_world import MANAGER, Watched, configmap, eventually, until
from trellis.kube.client import Kube
from trellis.kube.errors import KubeError, Unauthorized, Unavailable
from trellis.kube.informer import ChangeKind
from trellis.kube.network_errors import NOT_TRUSTED
from trellis.kube.resources import CONFIGMAPS
from trellis.kube.watch_timings import WatchTimings
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.api import Api
from trellis_dev.localcluster.certs import write_pki

Connect = Callable[[Path], Awaitable[Kube]]
pytestmark = pytest.mark.cluster

SHORT = WatchTimings(watch=(1, 2), backoff_first=0.2, backoff_most=1.0)
"""Watches that end and are opened anew every other second: an open one is not asked for its token again."""
PATIENCE = 60.0
"""The API server believes a token for another 10 s after it last looked."""


@pytest.fixture
def account(cluster: ClusterInfo, cluster_api: Api, namespace: str, tmp_path: Path) -> Iterator[Account]:
    made = Account(cluster, cluster_api, namespace, tmp_path)
    yield made
    made.remove()


def requested(kube: Kube) -> float:
    """Count the requests of a connection, of any outcome."""
    return sum(
        sample.value
        for family in kube.telemetry.metrics.kube_requests_total.collect()
        for sample in family.samples
        if sample.name.endswith("_total") and sample.labels["service"] == kube.telemetry.service
    )


async def is_refused(kube: Kube, namespace: str, error: type[KubeError]) -> bool:
    try:
        await kube.get(CONFIGMAPS, "a", namespace)
    except error:
        return True
    return False


async def test_a_revoked_token_is_read_again_by_calls_and_watches(
    kube: Kube, connect: Connect, account: Account, namespace: str
) -> None:
    await kube.create(CONFIGMAPS, configmap(namespace, "a", x="1"))
    own = await connect(account.kubeconfig)
    async with Watched(own, namespace, timings=SHORT) as watched:
        account.revoke()
        await eventually(lambda: is_refused(own, namespace, Unauthorized), "the token is worthless", PATIENCE)
        await until(lambda: not own.health.readiness().ok, "the watch is refused too", PATIENCE)
        assert "401 Unauthorized" in own.health.readiness().reasons[0]
        assert own.health.liveness().ok, "no restart brings a better token"
        assert account.token.read_text().strip() not in str(own.health.readiness().reasons)

        before = requested(own)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(watched.task), 4)
        assert requested(own) - before <= 30, "with a backoff of 0 … 1 s"
        await until(lambda: requested(own) > before, "tries go on")

        patch = {"data": {"x": "2"}}
        await kube.merge_patch(CONFIGMAPS, "a", patch, namespace, field_manager=MANAGER)
        account.issue()
        assert (await own.get(CONFIGMAPS, "a", namespace))["data"] == {"x": "2"}
        await until(lambda: len(watched.kinds_of(f"{namespace}/a")) == 2, "what happened meanwhile", PATIENCE)
        assert watched.kinds_of(f"{namespace}/a") == [ChangeKind.ADDED, ChangeKind.MODIFIED]
        await until(lambda: own.health.readiness().ok, "ready again")


@pytest.mark.thorough
async def test_a_write_meets_the_new_token_at_its_second_try(
    connect: Connect, account: Account, namespace: str
) -> None:
    own = await connect(account.kubeconfig)
    await own.create(CONFIGMAPS, configmap(namespace, "a"))
    account.revoke()
    await eventually(lambda: is_refused(own, namespace, Unauthorized), "the token is worthless", PATIENCE)
    account.issue()
    made = await own.create(CONFIGMAPS, configmap(namespace, "b"))
    await own.delete(CONFIGMAPS, "b", namespace, uid=made["metadata"]["uid"])


async def test_an_authority_that_rotated_in_its_file_is_followed_by_calls_and_watches(
    kube: Kube, connect: Connect, account: Account, namespace: str, tmp_path: Path
) -> None:
    """The server's authority is the new one here: the former content of the file authenticates no server any more."""
    (tmp_path / "other").mkdir()
    write_pki(tmp_path / "other")
    account.authority.write_bytes((tmp_path / "other" / "ca.crt").read_bytes())
    own = await connect(account.kubeconfig)
    watched = Watched(own, namespace, timings=SHORT)
    watching = asyncio.create_task(watched.informer.run())
    try:
        await until(lambda: NOT_TRUSTED in str(own.health.readiness().reasons), "it is named")
        assert await is_refused(own, namespace, Unavailable)
        await kube.create(CONFIGMAPS, configmap(namespace, "a"))
        account.authority.write_bytes(account.trusted)
        await own.get(CONFIGMAPS, "a", namespace)
        await until(lambda: f"{namespace}/a" in watched.informer.objects, "the watch goes on")
        await until(lambda: own.health.readiness().ok, "ready")
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def test_a_forbidden_list_is_skipped_until_it_is_permitted(
    kube: Kube, connect: Connect, account: Account, namespace: str
) -> None:
    await kube.create(CONFIGMAPS, configmap(namespace, "a", x="1"))
    account.remove()
    own = await connect(account.kubeconfig)
    async with Watched(own, namespace, refusable=True, timings=WatchTimings(refused=0.3)) as watched:
        assert watched.informer.objects == {}
        assert own.health.readiness().ok
        account.bind()
        await until(lambda: f"{namespace}/a" in watched.informer.objects, "it is read", PATIENCE)
