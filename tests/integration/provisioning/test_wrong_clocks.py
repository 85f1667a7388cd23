"""Two replicas whose wall clocks are wrong, run under libfaketime; the API server, its controllers and NATS are right.

Nodes are provisioned, leases change hands, nothing is judged early, and nothing is taken from a node.
"""

from __future__ import annotations

import asyncio
import contextlib
from asyncio.subprocess import Process
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from support.cluster.exclusion import Lease, accepted, late_writes, place, writer
from support.nodes.fleet import Fleet, Manifest, eventually
from support.nodes.shims import Shim
from support.suite.faked_clock import FakedClock
from support.suite.service_process import running
from trellis import names
from trellis.bus.streams.tail import Selection, tail
from trellis.provisioning.views import PROVISION

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.usefixtures("faked_clocks"),
    pytest.mark.timeout(300),
]

SERVICES = ("trellis-node-watcher", "trellis-provisioner")
REPLICAS = ("first", "second")
PATIENCE = 90
TEN_MINUTES, HOUR = 600, 3600
LATER = {"max_unavailable": 4, "retry_min": 240, "retry_max": 240}
"""No second attempt within these tests."""


@dataclass
class Pair:
    """Two replicas of both services, each with a clock of its own."""

    fleet: Fleet
    clocks: dict[str, FakedClock]
    processes: dict[str, Process] = field(default_factory=dict)

    def leader(self) -> str:
        """Return which replica leads both services, "" if none does."""
        path = f"/apis/coordination.k8s.io/v1/namespaces/{self.fleet.system}/leases/"
        found = {self.fleet.api.call("GET", path + name)[1].get("spec", {}).get("holderIdentity") for name in SERVICES}
        return next(iter(found)) or "" if len(found) == 1 else ""

    def change(self, *wrong: str) -> None:
        """Step the clocks of both while they run."""
        for clock, how in zip(self.clocks.values(), wrong, strict=True):
            clock.change(how)


@contextlib.asynccontextmanager
async def pair(fleet: Fleet, folder: Path, *wrong: str) -> AsyncIterator[Pair]:
    """Run two replicas by clocks that are so wrong; the first one leads."""
    clocks = {name: FakedClock(folder / f"clock-of-{name}", how) for name, how in zip(REPLICAS, wrong, strict=True)}
    made = Pair(fleet, clocks)
    async with contextlib.AsyncExitStack() as stack:
        for name, clock in clocks.items():
            environment = fleet.environment(identity=name, **LATER) | clock.environment()
            made.processes[name] = await stack.enter_async_context(
                running(folder / f"{name}.log", "node-watcher", "provisioner", forked=False, **environment)
            )
            await eventually(lambda: made.leader() == "first", "the first one leads", seconds=PATIENCE)
        yield made


def created_jobs(fleet: Fleet, records: list[Manifest]) -> Counter[str]:
    """Count the creations of installer Jobs by name."""
    created = (record for record in records if record["verb"] == "create" and accepted(record))
    return Counter(place(item)[2] for item in created if place(item)[:2] == ("jobs", fleet.installers))


def terms(fleet: Fleet, records: list[Manifest], service: str) -> list[str]:
    """Return which replicas held a lease one after another."""
    held: list[str] = []
    for record in records:
        who = writer(record, service)
        if who and accepted(record) and place(record) == Lease(fleet.system, service).place and who not in held[-1:]:
            held.append(who)
    return held


async def provisioned(shim: Shim, nodes: list[str]) -> None:
    """Wait until the nodes have the Shim."""
    await eventually(lambda: all(map(shim.has, nodes)), "the nodes have the Shim", seconds=PATIENCE)


async def verifications(fleet: Fleet, nodes: list[str]) -> Counter[str]:
    """Return how often it was published of each node that it is provisioned, once it was of all."""
    received: Counter[str] = Counter()
    async with asyncio.timeout(PATIENCE):
        async for item in tail(fleet.info.nats_url, Selection(cluster=fleet.id, last=10_000)):
            if item.event["type"] == "dev.trellis.provision.succeeded.v1":
                received[item.event["data"]["node"]] += 1
            if received.keys() >= {*nodes}:
                break
    return received


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("begin", "steps"),
    [
        ((f"+{HOUR}", f"-{HOUR}"), ()),
        pytest.param(
            ("+0 x1.1", "+0 x0.9"),
            ((f"+{TEN_MINUTES} x1.1", f"-{TEN_MINUTES} x0.9"), ("+0", "+0")),
            marks=pytest.mark.thorough,
        ),
    ],
    ids=["an hour off", "too fast and too slow, and stepped"],
)
async def test_wrong_clocks_change_nothing(
    fleet: Fleet, shim: Shim, tmp_path: Path, begin: tuple[str, str], steps: tuple[tuple[str, str], ...]
) -> None:
    offset = fleet.audit_offset()
    async with pair(fleet, tmp_path, *begin) as replicas:
        acted, bad, *done = shim.add_nodes(1, "acted", "bad")
        shim.apply(max_update=4, verify={"canary": True})
        job = await eventually(lambda: fleet.job_of(acted), "its Job", seconds=PATIENCE)
        for step in ((), *steps):
            replicas.change(*step or begin)
            done += shim.add_nodes(1)
            await provisioned(shim, done)
        assert replicas.leader() == "first", "a wrong clock is no reason for a new leader"
        replicas.processes["first"].kill()
        await eventually(lambda: replicas.leader() == "second", "the other leads", seconds=PATIENCE)
        done += shim.add_nodes(1)
        await provisioned(shim, done)
        assert names.ANNOTATION_FAILURE in fleet.annotations(bad)
        found = fleet.job_of(acted)
        assert found is not None
        assert found["metadata"]["uid"] == job["metadata"]["uid"], "its Job is at work, and nobody judged it"
        assert names.ANNOTATION_FAILURE not in fleet.annotations(acted)
        assert await verifications(fleet, done) == Counter(done)
    records = fleet.writes(offset)
    for service in SERVICES:
        assert late_writes(records, Lease(fleet.system, service)) == []
        assert terms(fleet, records, service) == list(REPLICAS)
    created = created_jobs(fleet, records)
    assert set(created.values()) == {1}
    assert len(created) == len(done) + 2, created
    assert all(f"-{PROVISION}-" in name for name in created), created
