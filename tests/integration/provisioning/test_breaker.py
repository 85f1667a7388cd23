"""A mass deletion is stopped by any leader until a user permits it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.nodes.breakers import paused_by
from support.nodes.fleet import Fleet, eventually
from support.nodes.kubelets import kubelets
from support.nodes.shims import Shim
from support.suite.service_process import free_port, get_status, running
from support.suite.typed import typed_meanwhile
from trellis.kube.breaker import DELETION_PAUSED

pytestmark = pytest.mark.cluster


async def trellis(fleet: Fleet, *arguments: str) -> tuple[int, Any]:
    """Run a command with `-o json` and return its exit status and document."""
    done = await typed_meanwhile({**os.environ, **fleet.environment()}, *arguments, "-o", "json")
    assert done.stderr == ""
    return done.returncode, json.loads(done.stdout)


async def breaker_until(fleet: Fleet, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Wait until the command shows of node_watcher's circuit breaker what holds; return its row."""
    async with asyncio.timeout(60):
        while True:
            _, document = await trellis(fleet, "circuit-breaker", "status")
            row = next(row for row in document["circuit_breakers"] if row["service"] == "node-watcher")
            if holds(row):
                return dict(row)


def events_of(fleet: Fleet, reason: str, namespace: str = "default") -> dict[str, int]:
    """Return how often an Event of a reason was recorded, by the object's name."""
    _, found = fleet.api.call("GET", f"/api/v1/namespaces/{namespace}/events?fieldSelector=reason%3D{reason}")
    return {
        event["involvedObject"]["name"]: event["count"]
        for event in found.get("items", [])
        if fleet.id in event["involvedObject"]["name"]
    }


def still_labelled(fleet: Fleet, nodes: list[str]) -> list[str]:
    return [name for name in nodes if fleet.provisioned(name)]


async def test_a_mass_opt_out_is_paused_across_leaders_until_a_user_permits_it(fleet: Fleet, tmp_path: Path) -> None:
    nodes = fleet.add(*["node"] * 40)
    port, log = free_port(), tmp_path / "log"
    async with running(log, **fleet.environment(max_unavailable="100%", health_port=port)) as first:
        await fleet.all_provisioned(nodes, seconds=90)
        await fleet.quiet()
        out = nodes[:30]
        for name in out:
            fleet.annotate(name, None)
        await eventually(lambda: len(still_labelled(fleet, out)) == 25, "five went", seconds=60)
        held = set(still_labelled(fleet, out))
        await eventually(
            lambda: set(events_of(fleet, DELETION_PAUSED)) == held, "an Event on each held node", seconds=60
        )
        row = await breaker_until(fleet, lambda row: (row["state"], row["paused"]) == ("Open", 25))
        assert "more than 5 of 40 nodes" in row["reason"]
        assert (await trellis(fleet, "circuit-breaker", "status"))[0] == 1
        _, metrics = await get_status(port, "/metrics")
        assert 'trellis_circuit_breaker_open{kind="nodes",service="node_watcher"} 1.0' in metrics
        assert 'trellis_circuit_breaker_paused_total{kind="nodes",service="node_watcher"} 25.0' in metrics
        assert (await get_status(port, "/readyz"))[0] == 200
        assert log.read_text().count("breaker opened") == 1
        assert '"event":"failed' not in log.read_text()
        first.send_signal(signal.SIGKILL)
        await first.wait()
    async with running(log, **fleet.environment(max_unavailable="100%")):
        # The successor says it again on each, so it has tried each of them.
        await eventually(
            lambda: list(events_of(fleet, DELETION_PAUSED).values()) == [2] * 25, "the successor holds", seconds=60
        )
        assert len(still_labelled(fleet, nodes)) == 35
        assert (await trellis(fleet, "circuit-breaker", "close", "node-watcher"))[0] == 0
        await eventually(lambda: not still_labelled(fleet, out), "those that were held go on", seconds=60)
        assert len(still_labelled(fleet, nodes)) == 10
        row = await breaker_until(fleet, lambda row: row["state"] == "Closed")
        assert row["closed"]["by"] == "admin"


@pytest.mark.thorough
async def test_a_mass_deletion_that_was_announced_is_not_paused(fleet: Fleet, tmp_path: Path) -> None:
    nodes = fleet.add(*["node"] * 12)
    async with running(tmp_path / "log", **fleet.environment(max_unavailable="100%")):
        await fleet.all_provisioned(nodes, seconds=60)
        await fleet.quiet()
        assert (await trellis(fleet, "circuit-breaker", "close", "node-watcher", "--for", "10m"))[0] == 0
        for name in nodes:
            fleet.annotate(name, "false")
        await eventually(lambda: not still_labelled(fleet, nodes), "all went", seconds=60)
        assert events_of(fleet, DELETION_PAUSED) == {}


@pytest.mark.thorough
async def test_a_node_whose_removal_is_paused_keeps_its_labels_after_opting_in_again(
    fleet: Fleet, tmp_path: Path
) -> None:
    nodes = fleet.add(*["node"] * 8)
    async with running(tmp_path / "log", **fleet.environment(max_unavailable="100%")):
        await fleet.all_provisioned(nodes, seconds=60)
        await fleet.quiet()
        for name in nodes:
            fleet.annotate(name, "maybe")
        await eventually(lambda: len(events_of(fleet, DELETION_PAUSED)) == 3, "three are held", seconds=60)
        kept = still_labelled(fleet, nodes)
        assert len(kept) == paused_by(fleet, "node_watcher", "nodes") == 3
        offset = fleet.audit_offset()
        for name in nodes:
            fleet.annotate(name, "true")
        await fleet.all_provisioned(nodes, seconds=60)
        await fleet.quiet()
        patched = {
            write["objectRef"]["name"]
            for write in fleet.writes(offset)
            if write.get("objectRef", {}).get("resource") == "nodes"
            and "trellis-node-watcher" in write.get("userAgent", "")
        }
        assert patched == set(nodes) - set(kept), "nothing was done to those that were held"
        await eventually(
            lambda: paused_by(fleet, "node_watcher", "nodes") == 0, "open, and holds none of them any more"
        )


@pytest.mark.thorough
async def test_a_mass_of_running_installers_is_not_stopped_at_once(fleet: Fleet, tmp_path: Path) -> None:
    nodes = fleet.add(*["hangs"] * 9)
    async with running(tmp_path / "log", **fleet.environment(max_unavailable="100%")):
        await eventually(lambda: len(fleet.jobs()) == 9, "an installer each", seconds=60)
        for name in nodes:
            fleet.annotate(name, None)
        await eventually(lambda: paused_by(fleet, "provisioner", "jobs") == 4, "four are held", seconds=60)
        await eventually(lambda: len(fleet.jobs()) == 4, "five are stopped", seconds=60)
        held = {job["metadata"]["name"] for job in fleet.jobs()}
        await eventually(
            lambda: set(events_of(fleet, DELETION_PAUSED, fleet.installers)) == held, "an Event on each Job held"
        )
        removed = [event for event in await fleet.events_until_now() if event.event_name == "removed"]
        assert len(removed) == 5, "nothing is said of those that run on"
        assert (await trellis(fleet, "circuit-breaker", "close", "provisioner", "jobs"))[0] == 0
        await eventually(lambda: not fleet.jobs(), "the others are stopped too", seconds=60)


@pytest.mark.thorough
async def test_a_deleted_shim_is_removed_from_many_nodes_and_a_narrowed_selector_is_paused(
    fleet: Fleet, shim: Shim
) -> None:
    nodes = shim.add_nodes(8)
    async with fleet.services(), kubelets(fleet):
        shim.apply(max_update="100%")
        await eventually(lambda: all(map(shim.has, nodes)), "every node has it", seconds=60)
        shim.delete()
        await eventually(lambda: shim.found() is None, "the Shim is gone", seconds=90)
        assert not any(map(shim.has, nodes))
        assert events_of(fleet, DELETION_PAUSED) == {}
        shim.apply(max_update="100%")
        await eventually(lambda: all(map(shim.has, nodes)), "every node has it again", seconds=60)
        shim.apply(max_update="100%", nodeSelector={"test": "nowhere"})
        await eventually(lambda: len(events_of(fleet, DELETION_PAUSED)) == 3, "three of eight are held", seconds=60)
        assert sum(map(shim.has, nodes)) == 3
        shim.delete()
        await eventually(lambda: shim.found() is None, "the Shim is gone, also from those", seconds=90)
        assert not any(map(shim.has, nodes))
