"""The claim by which one of two installations provisions the nodes, over the API server in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from support.cluster.kube_world import until
from trellis import names
from trellis.kube.claim import Claim
from trellis.kube.resources import LEASES
from trellis.kube.timings import LeaderTimings
from trellis.telemetry import setup
from trellis.telemetry.metrics import Metrics
from trellis_dev.fakes.fake import FakeKube

QUICK = LeaderTimings(duration=2, renew_deadline=1.5, renew=0.6, retry=0.05, call_timeout=0.3, handover=1)


@pytest.fixture
def kube() -> FakeKube:
    return FakeKube(telemetry=setup("test", metrics=Metrics()))


class Installation:
    """One installation; ``began``: for how long it was to leave nodes alone, at each of its terms."""

    def __init__(self, kube: FakeKube, name: str) -> None:
        self.claim = Claim(kube, names.CLAIM_NAMESPACE, name, election=QUICK)
        self.began: list[float] = []

    async def work(self, stopping: asyncio.Event) -> None:
        self.began.append(self.claim.settles_in)
        await stopping.wait()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Installation]:
        stop = asyncio.Event()
        task = asyncio.create_task(self.claim.run(self.work, stop))
        yield self
        stop.set()
        await task


async def delete_lease(kube: FakeKube) -> None:
    [lease] = kube.objects(LEASES)
    await kube.delete(LEASES, names.LEASE_NODES, names.CLAIM_NAMESPACE, uid=lease["metadata"]["uid"])


async def test_the_first_holder_leaves_no_node_alone_and_its_successor_does(kube: FakeKube) -> None:
    first, second = Installation(kube, "a"), Installation(kube, "b")
    async with first.running():
        await until(lambda: first.began == [0.0], "the first works")
        async with second.running():
            await until(lambda: bool(kube.health.readiness().reasons), "the second reports that it waits")
            assert second.began == []
            await until(lambda: names.WAITING_PREFIX + "b" in annotations(kube), "it is recorded")
        async with second.running():
            pass
    third = Installation(kube, "c")
    async with third.running():
        await until(lambda: bool(third.began), "another takes over", 10)
    assert third.began[0] > kube.timings.handover.settle - 10


async def test_a_candidate_that_observed_the_former_holder_uses_its_own_clock(
    kube: FakeKube, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = Installation(kube, "a"), Installation(kube, "b")
    async with first.running():
        await until(lambda: bool(first.began), "the first works")
    monkeypatch.setattr(kube, "now", lambda: 4e9)
    async with second.running():
        await until(lambda: bool(second.began), "another takes over", 10)
    assert second.began[0] > kube.timings.handover.settle - 10


def annotations(kube: FakeKube) -> dict[str, str]:
    [lease] = kube.objects(LEASES)
    return dict(lease["metadata"].get("annotations") or {})


async def test_both_services_of_an_installation_hold_the_claim_together(kube: FakeKube) -> None:
    watcher, planner = Installation(kube, "a"), Installation(kube, "a")
    async with planner.running():
        async with watcher.running():
            await until(lambda: watcher.began == planner.began == [0.0], "both work")
        renewed = kube.objects(LEASES)[0]["spec"]["renewTime"]
        await until(lambda: kube.objects(LEASES)[0]["spec"]["renewTime"] > renewed, "it is renewed", 5)
        assert planner.claim.leading
        assert planner.began == [0.0], "its term went on when the other one stopped"


async def test_a_claim_that_is_deleted_stays_with_the_installation_that_works(kube: FakeKube) -> None:
    first, second = Installation(kube, "a"), Installation(kube, "b")
    async with first.running(), second.running():
        await until(lambda: bool(first.began) and names.WAITING_PREFIX + "b" in annotations(kube), "one waits", 5)
        await delete_lease(kube)
        await until(lambda: bool(kube.objects(LEASES)), "the claim is there again")
        assert [lease["spec"]["holderIdentity"] for lease in kube.objects(LEASES)] == ["a"]
        assert second.began == []


async def test_services_that_begin_together_wait_for_no_second_look(kube: FakeKube) -> None:
    slow = replace(QUICK, duration=100, renew_deadline=90.0, retry=60.0)
    made = [Installation(kube, "a") for _ in range(2)]
    for item in made:
        item.claim = Claim(kube, names.CLAIM_NAMESPACE, "a", election=slow)
    async with made[0].running(), made[1].running():
        await until(lambda: all(item.began for item in made), "both work at once", 20)
