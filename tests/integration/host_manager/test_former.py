"""A group that is re-created under its name gets children of its own, whatever the garbage collector saw of the former
one.
"""

from __future__ import annotations

import os
import signal

import pytest

from support.lattices.host_world import CHILDREN, PATIENCE, HostWorld
from support.nodes.fleet import eventually
from trellis.kube.resources import HOST_CONFIGS
from trellis_dev import localcluster

pytestmark = pytest.mark.cluster

KINDS = ["ConfigMap", "ServiceAccount", "Role", "RoleBinding", "Deployment", "Service"]


def owners(hosts: HostWorld) -> dict[str, str]:
    """Return the uid of the owner of each child that there is, by kind."""
    found = {kind: hosts.find(CHILDREN[kind], "group") for kind in KINDS}
    return {kind: child["metadata"]["ownerReferences"][0]["uid"] for kind, child in found.items() if child}


@pytest.mark.thorough
async def test_children_of_a_deleted_group_missed_by_the_garbage_collector_are_deleted(hosts: HostWorld) -> None:
    """It takes the group for the former one if its watch was broken meanwhile; here it sees nothing at all."""
    [info] = localcluster.status(hosts.fleet.info.name)
    collector = info.pids["kube-controller-manager"]
    async with hosts.service():
        former = hosts.create("group", hostReplicas=2)["metadata"]["uid"]
        await eventually(lambda: owners(hosts) == dict.fromkeys(KINDS, former), "all children", seconds=PATIENCE)
        os.kill(collector, signal.SIGSTOP)
        try:
            hosts.call("DELETE", HOST_CONFIGS, "group")
            await eventually(lambda: hosts.find(HOST_CONFIGS, "group") is None, "it is gone", seconds=PATIENCE)
            uid = hosts.create("group", hostReplicas=3)["metadata"]["uid"]
            await eventually(lambda: owners(hosts) == dict.fromkeys(KINDS, uid), "its own children", seconds=PATIENCE)
        finally:
            os.kill(collector, signal.SIGCONT)
        replicas = hosts.call("GET", CHILDREN["Deployment"], "group")["spec"]["replicas"]
    assert replicas == 3
