"""Two installations in one cluster: one provisions the nodes, the other waits, reports it, and can take over."""

from __future__ import annotations

import asyncio
import http
import json
import os
from collections.abc import Iterator
from typing import Any

import pytest

from support.nodes.fleet import Fleet, eventually
from support.suite.typed import typed_meanwhile
from trellis import names
from trellis.kube.timings import claim_election
from trellis.runtime.run import LedService

pytestmark = pytest.mark.cluster

HOLDS = 40
"""Seconds within which a claim that nobody renews is taken."""


def other(fleet: Fleet) -> dict[str, Any]:
    """Return the settings of a second release with another installer."""
    return {
        "namespace": f"{fleet.id}-other",
        "installer_namespace": f"{fleet.id}-other-installers",
        "installer_image": "example.com/other-installer:2",
        "identity": "other",
    }


@pytest.fixture
def twice(fleet: Fleet) -> Iterator[Fleet]:
    yield fleet
    for name in ("namespace", "installer_namespace"):
        fleet.api.call("DELETE", f"/api/v1/namespaces/{other(fleet)[name]}")


def waits(services: list[LedService], holder: str) -> bool:
    """Return whether both services are not ready because another installation holds the nodes."""
    return all(any(holder in reason for reason in service.health.readiness().reasons) for service in services)


def jobs(fleet: Fleet) -> int:
    """Return how many Jobs both installations have created, by the audit log of their namespaces."""
    places = {fleet.installers, other(fleet)["installer_namespace"]}
    writes = (write for write in fleet.writes() if write["verb"] == "create")
    found = [write.get("objectRef") or {} for write in writes]
    return sum(item.get("resource") == "jobs" and item.get("namespace") in places for item in found)


async def status(fleet: Fleet, namespace: str) -> dict[str, Any]:
    """Return the row of ``trellis status`` about the installation."""
    environment = {**os.environ, **fleet.environment(), "TRELLIS_NAMESPACE": namespace}
    done = await typed_meanwhile(environment, "status", "-o", "json")
    rows = json.loads(done.stdout)["services"]
    return next(row for row in rows if row["name"] == "installation")


async def test_one_of_two_installations_provisions_and_both_are_reported(twice: Fleet) -> None:
    fleet, second = twice, other(twice)
    nodes = fleet.add("node", "node")
    async with fleet.services():
        await fleet.all_provisioned(nodes)
        async with fleet.services(**second) as waiting:
            await eventually(lambda: waits(waiting, fleet.system), "the second waits and names the first")
            fleet.annotate(nodes[0], None)
            await eventually(lambda: not fleet.provisioned(nodes[0]), "the first goes on")
            assert jobs(fleet) == len(nodes)
            for namespace in (fleet.system, second["namespace"]):
                async with asyncio.timeout(60):
                    while not (found := await status(fleet, namespace))["problem"]:
                        pass
                assert found["holder"] == fleet.system
                assert found["waiting"] == [second["namespace"]]


@pytest.mark.thorough
async def test_a_node_provisioned_by_another_installation_is_not_started_again_at_once(twice: Fleet) -> None:
    """There and back: each of them has another installer for the nodes that the other one provisioned."""
    fleet = twice
    nodes = fleet.add("node")
    async with fleet.services():
        await fleet.all_provisioned(nodes)
    for installation in (other(fleet), {}):
        async with fleet.services(**installation) as [watcher, planner]:
            await eventually(
                lambda planner=planner: any("InstallationChanged" in note for note in planner.health.notes()),
                "reported",
                seconds=HOLDS,
            )
            await eventually(lambda watcher=watcher: watcher.health.readiness().ok, "both have taken over")
            [more] = fleet.add("node")
            await eventually(lambda more=more: fleet.provisioned(more), "a new node is begun at once")
            assert all(fleet.provisioned(node) for node in nodes)
            nodes.append(more)
            assert jobs(fleet) == len(nodes), "one for each node"


@pytest.mark.thorough
async def test_a_claim_that_is_deleted_is_taken_by_the_installation_that_runs(twice: Fleet) -> None:
    fleet = twice
    [node] = fleet.add("node")
    lease = f"/apis/coordination.k8s.io/v1/namespaces/{fleet.system}/leases/{names.LEASE_NODES}"
    async with fleet.services():
        await fleet.all_provisioned([node])
        assert fleet.api.call("DELETE", lease)[0] == http.HTTPStatus.OK
        await eventually(lambda: fleet.api.call("GET", lease)[0] == http.HTTPStatus.OK, "it is taken again")
        assert fleet.api.call("GET", lease)[1]["spec"]["holderIdentity"] == fleet.system
        fleet.annotate(node, None)
        await eventually(lambda: not fleet.provisioned(node), "it goes on", seconds=claim_election().duration)
