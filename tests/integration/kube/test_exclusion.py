"""One object, one hand: two replicas of a service in processes of their own, and every fault of a leader.

For each fault: no key is ever in work by both, and on no object does the API server accept a write of the former
leader after its successor's first (design section 3, rules 3 and 7). Judged by ``support.cluster.exclusion`` from the
replicas' journals and the API server's audit log. The faults are tried side by side, for most of each is waiting.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from support.cluster.pair import KEYS, Pair
from support.cluster.replica import LEADER, LEASE
from support.suite.tcp_proxy import TcpProxy, kubeconfig_through
from trellis.kube.client import Kube
from trellis.kube.resources import LEASES, NAMESPACES
from trellis_dev.localcluster import ClusterInfo

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

STOPPED_SECONDS = 3.0 * LEADER.duration
HOUR = 3600.0
Fault = Callable[[Pair, Path], Awaitable[None]]


@pytest.fixture
async def trial(cluster: ClusterInfo, kube: Kube, tmp_path: Path) -> Callable[[Fault], Awaitable[None]]:
    """Tries one fault on a pair of its own, and judges it."""

    async def run(fault: Fault) -> None:
        name = fault.__name__.replace("_", "-")
        directory = tmp_path / name
        directory.mkdir()
        pair = Pair(cluster, kube, f"test-{name}-{secrets.token_hex(3)}", directory)
        await pair.begin()
        try:
            await fault(pair, directory)
        finally:
            await pair.end()
        assert pair.both_wrote(), f"{name}: nothing was tried"
        violations = pair.violations()
        if fault is late_and_careless:
            assert any(" by first" in violation and " patch configmaps" in violation for violation in violations), (
                violations
            )
        else:
            assert violations == [], f"{name}: see {directory}"
        made = await kube.get(NAMESPACES, pair.lease.namespace)
        await kube.delete(NAMESPACES, pair.lease.namespace, uid=made["metadata"]["uid"])

    return run


@asynccontextmanager
async def proxied(pair: Pair, directory: Path) -> AsyncIterator[tuple[TcpProxy, str]]:
    """A way to the API server that can fail, and the kubeconfig that takes it."""
    server = urlsplit(pair.kube.server)
    async with TcpProxy(str(server.hostname), int(server.port or 443)) as proxy:
        yield proxy, str(kubeconfig_through(proxy.port, Path(pair.cluster.kubeconfig), directory))


async def stop_requested(pair: Pair, _: Path) -> None:
    await pair.lead_and_follow()
    await pair.terminate("first")
    await pair.worked("second", 2)


async def killed(pair: Pair, _: Path) -> None:
    await pair.lead_and_follow()
    await pair.kill("first")
    await pair.worked("second", 2)


async def stopped_for_a_while(pair: Pair, _: Path) -> None:
    await pair.lead_and_follow()
    await pair.stop("first")
    await pair.worked("second")
    await asyncio.sleep(STOPPED_SECONDS - pair.stopped_for("first"))
    pair.go_on("first")
    await pair.worked("second", 3)
    await pair.terminate("second")
    await pair.worked("first")  # it was a candidate all the while


async def cut_off(pair: Pair, directory: Path) -> None:
    async with proxied(pair, directory) as (proxy, kubeconfig):
        await pair.lead_and_follow(first={"kubeconfig": kubeconfig})
        await proxy.refuse()
        await pair.worked("second")
        await proxy.open()
        await pair.worked("second", 3)
        await pair.terminate("second")
        await pair.worked("first")


async def left_half_open(pair: Pair, directory: Path) -> None:
    async with proxied(pair, directory) as (proxy, kubeconfig):
        await pair.lead_and_follow(first={"kubeconfig": kubeconfig})
        proxy.silence()
        await pair.worked("second")
        proxy.cut()
        proxy.resume()
        await pair.worked("second", 3)
        await pair.terminate("second")
        await pair.worked("first")


async def wrong_about_the_time(pair: Pair, directory: Path) -> None:
    """The leader an hour ahead, the candidate an hour behind, and both stepped in the middle of a term."""
    clocks = {name: directory / f"clock-of-{name}" for name in ("first", "second")}
    clocks["first"].write_text(str(HOUR))
    clocks["second"].write_text(str(-HOUR))
    await pair.lead_and_follow(first={"clock": clocks["first"]}, second={"clock": clocks["second"]})
    assert HOUR - 60 < await lead_of_the_lease(pair) < HOUR + 60
    for step in (-2 * HOUR, 2 * HOUR, 0.0):
        clocks["first"].write_text(str(step))
        clocks["second"].write_text(str(-step))
        await renewed(pair, 3)  # 0.9 s each: in all longer than the lease lasts
    assert not pair.noted("second", "began"), "a stepped clock is no reason for a new leader"
    await pair.kill("first")
    clocks["second"].write_text(str(-2 * HOUR))
    await pair.worked("second", 2)


async def lead_of_the_lease(pair: Pair) -> float:
    """Return the seconds by which the lease's time is ahead."""
    lease = await pair.kube.get(LEASES, LEASE, pair.lease.namespace)
    ahead: timedelta = datetime.fromisoformat(lease["spec"]["renewTime"]) - datetime.now(UTC)
    return ahead.total_seconds()


async def renewed(pair: Pair, times: int) -> None:
    def renewals() -> int:
        return pair.codes("first")["leases", 200]

    before = renewals()
    await pair.until(lambda: renewals() >= before + times, f"{times} renewals")


async def late(pair: Pair, directory: Path) -> None:
    """Check that late writes of a stopped leader, which arrive after all writes of its successor, are refused."""
    await send_late(pair, directory, fenced=True)
    assert pair.codes("first")["configmaps", 409] > 0


async def late_and_careless(pair: Pair, directory: Path) -> None:
    """The same with writes that name nothing: were it not for preconditions, this is what these trials would see."""
    await send_late(pair, directory, fenced=False)


async def send_late(pair: Pair, directory: Path, *, fenced: bool) -> None:
    async with proxied(pair, directory) as (proxy, kubeconfig):
        await pair.lead_and_follow(first={"kubeconfig": kubeconfig, "fenced": fenced}, second={"fenced": fenced})
        proxy.hold()
        await pair.until(lambda: proxy.holding() >= len(KEYS), "a write of each key, or the lease and all but one")
        # Stopped it cannot take back what it sent: a connection that is closed has the server drop the request.
        await pair.stop("first")
        await pair.worked("second", 2)
        before = pair.codes("first").total()
        proxy.release()
        await pair.until(lambda: pair.codes("first").total() >= before + len(KEYS), "what was late is answered")
        await pair.worked("second")
        pair.go_on("first")
        await pair.worked("second", 2)


@pytest.mark.parametrize(
    "faults",
    [
        pytest.param([stop_requested, killed, stopped_for_a_while, wrong_about_the_time], marks=pytest.mark.thorough),
        pytest.param([cut_off, left_half_open, late, late_and_careless], marks=pytest.mark.thorough),
    ],
    ids=["stopped, killed, out of time", "cut off, half-open, late"],
)
async def test_no_object_is_in_two_hands(trial: Callable[[Fault], Awaitable[None]], faults: list[Fault]) -> None:
    async with asyncio.TaskGroup() as group:
        for fault in faults:
            group.create_task(trial(fault), name=fault.__name__)
