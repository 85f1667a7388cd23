"""Killed processes, unavailable servers, deleted streams and invalid messages on the bus lose nothing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import nats
import pytest

from support.nodes.fleet import Fleet, eventually
from support.suite.forkserver import Child
from support.suite.typed import started
from trellis import names
from trellis.events.subjects import STREAM_EVENTS, escape
from trellis_dev import localcluster
from trellis_dev.localcluster.nats import NatsServer

pytestmark = pytest.mark.cluster


@contextlib.asynccontextmanager
async def process(fleet: Fleet, **changes: object) -> AsyncIterator[Child]:
    """Run `trellis run` in a process of its own."""
    environment = {**os.environ, **fleet.environment(**changes)}
    process = await asyncio.to_thread(started, environment, "run", log=Path(os.devnull))
    try:
        yield process
    finally:
        process.terminate()
        await asyncio.wait_for(process.wait(), 40)


KILLED_AFTER = (3, 6)
"""Nodes that are provisioned when the process is killed."""


def created_jobs(fleet: Fleet, offset: int) -> list[str]:
    return [
        write["objectRef"]["name"]
        for write in fleet.writes(offset)
        if write["verb"] == "create"
        and write.get("objectRef", {}).get("resource") == "jobs"
        and write.get("objectRef", {}).get("namespace") == fleet.installers
        and write["responseStatus"]["code"] == 201
    ]


@pytest.mark.thorough
async def test_a_process_killed_in_mid_rollout_loses_nothing_and_repeats_no_job(fleet: Fleet) -> None:
    offset = fleet.audit_offset()
    nodes = fleet.add(*["node"] * 12)
    for wanted in KILLED_AFTER:
        async with process(fleet, max_unavailable="2") as running:
            await eventually(
                lambda wanted=wanted: sum(map(fleet.provisioned, nodes)) >= wanted, f"{wanted} nodes", seconds=60
            )
            running.send_signal(signal.SIGKILL)
            await running.wait()
    async with process(fleet, max_unavailable="2"):
        await fleet.all_provisioned(nodes, seconds=90)
        await fleet.quiet()
    made = created_jobs(fleet, offset)
    assert len(made) == len(set(made))
    # One that was made while its maker was killed has no answer: in the API server's log, too.
    assert len(nodes) - len(KILLED_AFTER) <= len(made) <= len(nodes)


@pytest.mark.thorough
async def test_a_second_replica_takes_over_when_the_first_is_asked_to_stop(fleet: Fleet) -> None:
    nodes = fleet.add("node", "node")
    async with process(fleet) as first:
        await fleet.all_provisioned(nodes)
        async with process(fleet):
            more = fleet.add("node", "node")
            first.terminate()
            assert await asyncio.wait_for(first.wait(), 30) == 0
            await fleet.all_provisioned([*nodes, *more])


@pytest.mark.thorough
async def test_work_continues_without_the_bus_and_unpublished_events_are_published_later(
    fleet: Fleet, nats_server: NatsServer
) -> None:
    nats_server.stop()
    nodes = fleet.add("node", "node")
    try:
        async with fleet.services(nats_url=nats_server.url) as services:
            await fleet.all_provisioned(nodes)
            assert any("bus" in reason for reason in services[0].health.readiness().reasons)
            nats_server.start()
            published = await eventually_published(nats_server.url, fleet, {"node.opted_in", "node.ready"}, len(nodes))
            assert published
            await eventually(lambda: all(service.health.readiness().ok for service in services), "ready again")
    finally:
        if nats_server.pid is None:
            nats_server.start()


async def eventually_published(url: str, fleet: Fleet, wanted: set[str], nodes: int) -> bool:
    """Wait until each wanted event was published for each node."""
    client = await nats.connect(url)
    try:
        stream = client.jetstream()
        async with asyncio.timeout(60):
            while True:
                with contextlib.suppress(nats.js.errors.NotFoundError):
                    info = await stream.stream_info(STREAM_EVENTS, subjects_filter=f"trellis.evt.{fleet.id}.>")
                    subjects = info.state.subjects or {}
                    received = [".".join(subject.split(".")[3:5]) for subject in subjects]
                    if all(received.count(event) == nodes for event in wanted):
                        return True
                await asyncio.sleep(0.2)
    finally:
        await client.close()


@pytest.mark.thorough
async def test_a_bus_that_is_wiped_in_mid_work_is_made_again_and_work_goes_on(fleet: Fleet) -> None:
    async with fleet.services(max_unavailable="1") as services:
        nodes = fleet.add(*["node"] * 3)
        await eventually(lambda: any(map(fleet.provisioned, nodes)), "the first node")
        client = await nats.connect(fleet.info.nats_url)
        await client.jetstream().delete_stream(STREAM_EVENTS)
        await client.close()
        nodes += fleet.add(*["node"] * 2)
        await fleet.all_provisioned(nodes, seconds=40)
        # every node that is ready is said to be, again if need be: the stream is new
        assert await eventually_published(fleet.info.nats_url, fleet, {"node.ready"}, len(nodes))
        await eventually(lambda: all(service.health.readiness().ok for service in services), "ready")


@pytest.mark.thorough
async def test_an_api_server_that_restarts_in_mid_rollout_is_waited_for(fleet: Fleet) -> None:
    nodes = fleet.add(*["node"] * 6)
    async with fleet.services(max_unavailable="1") as services:
        await eventually(lambda: any(map(fleet.provisioned, nodes)), "the first node")
        await asyncio.to_thread(localcluster.restart, fleet.info.name, "kube-apiserver")
        fleet.api.close()
        await fleet.all_provisioned(nodes, seconds=60)
        await eventually(lambda: all(service.health.readiness().ok for service in services), "ready again")


async def test_garbage_on_the_bus_is_a_dead_letter_and_the_next_event_is_received(fleet: Fleet) -> None:
    async with fleet.services():
        [first] = fleet.add("node")
        await fleet.all_provisioned([first])
        client = await nats.connect(fleet.info.nats_url)
        subject = f"trellis.evt.{fleet.id}.node.opted_in.{escape('x')}"
        await client.jetstream().publish(subject, b"\xff not json")
        [second] = fleet.add("node")
        await fleet.all_provisioned([second])
        dead = await client.jetstream().subscribe(f"trellis.dead.{fleet.id}.>", ordered_consumer=True)
        letter = await dead.next_msg(timeout=20)
        assert letter.data == b"\xff not json"
        assert "Trellis-Reason" in (letter.headers or {})
        await client.close()


@pytest.mark.thorough
async def test_a_handler_that_waits_for_a_slow_node_delays_no_other(fleet: Fleet) -> None:
    fleet.add("hangs")
    nodes = fleet.add("node", "node", "node")
    async with fleet.services(max_unavailable="2"):
        await fleet.all_provisioned(nodes)
        assert names.LABEL_PROVISIONED not in fleet.labels(f"hangs-{fleet.id}-0")
