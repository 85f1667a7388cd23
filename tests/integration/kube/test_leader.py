"""Election on a real Lease: never two leaders, and takeover when a lease is released or expired."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

import pytest

from support.cluster.kube_world import DEADLINE, configmap, eventually, until
from support.suite.tcp_proxy import TcpProxy
from trellis.kube.client import Kube
from trellis.kube.errors import NotLeading
from trellis.kube.leader import Leader
from trellis.kube.resources import CONFIGMAPS, LEASES
from trellis.kube.timings import LeaderTimings

pytestmark = pytest.mark.cluster

LEASE = "trellis-test"
LASTING = LeaderTimings(duration=60)
"""By which what comes before the lease has expired is seen within a deadline."""
QUICK = LeaderTimings(duration=4, renew_deadline=2.4, renew=0.8, retry=0.3, call_timeout=1.2)


@dataclass(eq=False)
class Candidate:
    """A process that would lead: notes when it led, by one clock for all."""

    kube: Kube
    namespace: str
    name: str
    timings: LeaderTimings = field(default_factory=LeaderTimings)

    def __post_init__(self) -> None:
        self.leader = Leader(self.kube, lease=LEASE, namespace=self.namespace, identity=self.name, timings=self.timings)
        self.stop = asyncio.Event()
        self.began: list[float] = []
        self.ended: list[float] = []
        self.task = asyncio.create_task(self.leader.run(self.lead, self.stop))

    async def lead(self, stopping: asyncio.Event) -> None:
        self.began.append(time.monotonic())
        try:
            await stopping.wait()
        finally:
            self.ended.append(time.monotonic())

    async def crash(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


async def test_a_graceful_stop_hands_over_before_the_lease_expires(kube: Kube, namespace: str) -> None:
    first = Candidate(kube, namespace, "first", LASTING)
    await until(lambda: first.leader.leading, "first leads")
    second = Candidate(kube, namespace, "second", LASTING)
    first.stop.set()
    await asyncio.wait_for(first.task, DEADLINE)
    assert not first.leader.leading
    await until(lambda: bool(second.began), "second leads")
    assert first.ended[0] <= second.began[0]
    lease = await kube.get(LEASES, LEASE, namespace)
    assert (lease["spec"]["holderIdentity"], lease["spec"]["leaseTransitions"]) == ("second", 1)
    second.stop.set()
    await asyncio.wait_for(second.task, DEADLINE)
    assert (await kube.get(LEASES, LEASE, namespace))["spec"].get("holderIdentity", "") == ""


async def test_a_crash_is_taken_over_after_the_lease_expired(kube: Kube, namespace: str) -> None:
    first = Candidate(kube, namespace, "first")
    await until(lambda: first.leader.leading, "first leads")
    second = Candidate(kube, namespace, "second")
    crashed = time.monotonic()
    await first.crash()
    await until(lambda: bool(second.began), "second leads")
    assert second.began[0] - crashed >= 6
    await second.crash()


async def test_a_leader_cut_off_stops_before_another_begins(
    kube: Kube, proxied: Kube, proxy: TcpProxy, namespace: str
) -> None:
    first = Candidate(proxied, namespace, "first", QUICK)
    await until(lambda: first.leader.leading, "first leads")
    second = Candidate(kube, namespace, "second", QUICK)
    proxy.silence()
    await until(lambda: bool(first.ended), "first gives up")
    assert not first.leader.leading
    assert not proxied.health.readiness().ok
    with pytest.raises(NotLeading):
        await proxied.guarded(first.leader.check).create(CONFIGMAPS, configmap(namespace, "late"))
    await until(lambda: bool(second.began), "second leads")
    assert first.ended[0] < second.began[0]
    proxy.cut()
    proxy.resume()
    await until(lambda: proxied.health.readiness().ok, "first is back as a candidate")
    assert not first.leader.leading
    assert len(first.began) == 1
    await asyncio.gather(first.crash(), second.crash())


async def test_a_lease_taken_by_another_is_noticed_at_the_next_renewal(kube: Kube, namespace: str) -> None:
    first = Candidate(kube, namespace, "first", QUICK)
    await until(lambda: first.leader.leading, "first leads")
    lease = await kube.get(LEASES, LEASE, namespace)
    lease["spec"] |= {"holderIdentity": "usurper", "renewTime": "2026-01-01T00:00:00.000000Z"}
    await kube.replace(LEASES, lease)
    await until(lambda: bool(first.ended), "first gives up")
    assert (await kube.get(LEASES, LEASE, namespace))["spec"]["holderIdentity"] == "usurper"
    await first.crash()


async def test_a_lease_edited_by_people_is_kept(kube: Kube, namespace: str) -> None:
    """An annotation changes the version the leader compares, not the holder."""
    timings = LeaderTimings(renew=0.2, retry=0.2)
    first = Candidate(kube, namespace, "first", timings)
    await until(lambda: first.leader.leading, "first leads")
    patch = {"metadata": {"annotations": {"note": "mine"}}}
    edited = await kube.merge_patch(LEASES, LEASE, patch, namespace, field_manager="kubectl")

    async def renewed() -> bool:
        lease = await kube.get(LEASES, LEASE, namespace)
        return bool(lease["spec"]["renewTime"] != edited["spec"]["renewTime"])

    await eventually(renewed, "a renewal after the edit")
    assert first.leader.leading
    assert len(first.began) == 1
    await first.crash()


async def test_many_candidates_have_one_leader(kube: Kube, namespace: str) -> None:
    candidates = [Candidate(kube, namespace, f"c{number}") for number in range(6)]
    leaders: list[str] = []
    while candidates:
        await until(lambda: any(candidate.leader.leading for candidate in candidates), "one of them leads")
        leading = [candidate for candidate in candidates if candidate.leader.leading]
        assert len(leading) == 1
        leaders.append(leading[0].name)
        leading[0].stop.set()
        await asyncio.wait_for(leading[0].task, DEADLINE)
        candidates.remove(leading[0])
    assert len(set(leaders)) == 6


async def test_a_missing_namespace_is_waited_for(kube: Kube, later_namespace: str) -> None:
    first = Candidate(kube, later_namespace, "first", LeaderTimings(retry=0.2))
    await until(lambda: not kube.health.readiness().ok, "not ready")
    assert f"namespace {later_namespace}" in kube.health.readiness().reasons[0]
    await kube.ensure_namespace(later_namespace, {})
    await until(lambda: first.leader.leading, "first leads")
    await until(lambda: kube.health.readiness().ok, "ready once its work has begun")
    await first.crash()


async def test_a_lease_that_was_edited_to_the_largest_numbers_is_taken_all_the_same(kube: Kube, namespace: str) -> None:
    largest = 2**31 - 1
    body = {
        "apiVersion": LEASES.api_version,
        "kind": LEASES.kind,
        "metadata": {"name": LEASE, "namespace": namespace},
        "spec": {"holderIdentity": "", "leaseDurationSeconds": largest, "leaseTransitions": largest},
    }
    await kube.create(LEASES, body)
    candidate = Candidate(kube, namespace, "candidate")
    await until(lambda: candidate.leader.leading, "it leads")
    assert (await kube.get(LEASES, LEASE, namespace))["spec"]["leaseTransitions"] == largest
    candidate.stop.set()
    await asyncio.wait_for(candidate.task, DEADLINE)
