"""Two replicas of the real services in mid-rollout: one is stopped, goes on, and inherits when the other crashes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.cluster.exclusion import Lease, accepted, late_writes, place, writer
from support.nodes.fleet import Fleet, Manifest, eventually
from support.suite.forkserver import Child
from support.suite.typed import started

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

SERVICES = ("trellis-node-watcher", "trellis-provisioner")
PATIENCE = 120


@contextlib.asynccontextmanager
async def replica(fleet: Fleet, name: str) -> AsyncIterator[Child]:
    environment = {**os.environ, **fleet.environment(identity=name, max_unavailable="2")}
    process = await asyncio.to_thread(started, environment, "run", log=Path(os.devnull))
    try:
        yield process
    finally:
        process.kill()
        await process.wait()


def wrote(fleet: Fleet, offset: int, name: str) -> Counter[str]:
    """Count what a replica wrote, by service; renewals of leases are no work."""
    return Counter(
        service
        for record in fleet.writes(offset)
        for service in SERVICES
        if writer(record, service) == name and accepted(record) and place(record)[0] in {"nodes", "jobs", "configmaps"}
    )


def made_jobs(records: list[Manifest], fleet: Fleet) -> list[str]:
    return [
        place(record)[2]
        for record in records
        if record["verb"] == "create" and accepted(record) and place(record)[:2] == ("jobs", fleet.installers)
    ]


@pytest.mark.thorough
async def test_a_stopped_replica_and_its_successor_never_write_over_each_other(fleet: Fleet) -> None:
    offset = fleet.audit_offset()
    nodes = fleet.add(*["node"] * 8)
    async with replica(fleet, "first") as first, replica(fleet, "second") as second:
        await eventually(lambda: any(map(fleet.provisioned, nodes)), "the first node", seconds=PATIENCE)
        leads = max(("first", "second"), key=lambda name: wrote(fleet, offset, name).total())
        running = {"first": first, "second": second}
        leader, follower = running.pop(leads), running.popitem()[1]
        follows = "second" if leads == "first" else "first"
        leader.send_signal(signal.SIGSTOP)
        await eventually(
            lambda: set(wrote(fleet, offset, follows)) == set(SERVICES), "the other works", seconds=PATIENCE
        )
        leader.send_signal(signal.SIGCONT)
        nodes += fleet.add(*["node"] * 4)
        await fleet.all_provisioned(nodes, seconds=PATIENCE)
        follower.kill()
        before = wrote(fleet, offset, leads)
        nodes += fleet.add(*["node"] * 2)
        await fleet.all_provisioned(nodes, seconds=PATIENCE)
        await fleet.quiet()
        inherited = wrote(fleet, offset, leads) - before
        assert set(inherited) == set(SERVICES), "who was stopped was a candidate all the while"
    records = fleet.writes(offset)
    for service in SERVICES:
        assert late_writes(records, Lease(fleet.system, service)) == []
    made = made_jobs(records, fleet)
    assert len(made) == len(set(made)) == len(nodes)
