"""The number of hosts of a group that are unavailable at a time, when they are rolled and when nodes are drained."""

from __future__ import annotations

import http
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from support.lattices.host_world import PATIENCE, HostWorld
from support.nodes.fleet import eventually
from trellis.kube.resources import BUDGETS, DAEMON_SETS, DEPLOYMENTS, NODES, PODS

pytestmark = pytest.mark.cluster


@contextmanager
def no_room(hosts: HostWorld) -> Iterator[None]:
    """Let no new pod find a node while the block runs: a roll then stops where it is bounded."""
    _, found = hosts.api.call("GET", NODES.path())
    nodes = [node["metadata"]["name"] for node in found["items"]]
    for unschedulable in (True, None):
        for name in nodes:
            hosts.api.call("PATCH", NODES.path(None, name), {"spec": {"unschedulable": unschedulable}})
        if unschedulable:
            yield


@pytest.mark.thorough
async def test_a_changed_secret_rolls_no_more_hosts_at_a_time_than_a_drain_takes(hosts: HostWorld) -> None:
    """Of twelve hosts Kubernetes would take three away by itself, and bring three before."""
    hosts.secret("creds", **{"nats.creds": "one"})
    async with hosts.service():
        hosts.create("group", hostReplicas=12, secretName="creds")
        await hosts.settled("group", revision=2)
        assert hosts.call("GET", BUDGETS, "group")["spec"]["maxUnavailable"] == 1
        with no_room(hosts):
            hosts.secret("creds", **{"nats.creds": "two"})

            def rolling() -> tuple[int, int]:
                found = hosts.call("GET", DEPLOYMENTS, "group")
                if found["status"].get("observedGeneration") != found["metadata"]["generation"]:
                    return 0, 0
                return found["status"].get("updatedReplicas", 0), found["status"].get("readyReplicas", 0)

            await eventually(lambda: rolling() == (2, 11), "it goes as far as it may", seconds=PATIENCE)
            status = hosts.status("group")
            assert status["desiredReplicas"] == 12
        await hosts.settled("group")


@pytest.mark.thorough
async def test_a_host_on_each_node_has_no_budget_and_can_be_evicted(hosts: HostWorld) -> None:
    async with hosts.service():
        hosts.create("group", schedulingOptions={"daemonset": True})
        await hosts.settled("group", revision=2)
        assert hosts.find(DAEMON_SETS, "group")
        assert hosts.find(BUDGETS, "group") is None
        name = hosts.pods("group")[0]["metadata"]["name"]
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": hosts.namespace}}
        status, answer = hosts.api.call("POST", PODS.path(hosts.namespace, name, "eviction"), body)
        assert status == http.HTTPStatus.CREATED, answer
