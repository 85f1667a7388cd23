"""Rollouts and the pods of users: a halt where they break, their repair by the former version, and drained nodes."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from provisioner.timings import RolloutPodTimings
from support.nodes.fleet import SHORT, Fleet, Manifest, eventually
from support.nodes.kubelets import kubelets
from support.nodes.shims import Shim
from support.suite.naming import lacking
from trellis import names
from trellis.provisioning.shim_status import Reason

pytestmark = pytest.mark.cluster

TIMINGS = replace(SHORT, rollout_pods=RolloutPodTimings(settle=2.0, look=0.3, fresh=0.1))
VERSION_1, VERSION_2 = "1" * 64, "2" * 64


def rollout(**rolling: Any) -> Manifest:
    return {"type": "rolling", "rolling": {"maxUpdate": 1, **rolling}}


def pods(fleet: Fleet) -> str:
    return f"/api/v1/namespaces/{fleet.system}/pods"


def spec_of(shim: Shim, node: str) -> Manifest:
    container = {"name": "app", "image": "example.com/app"}
    return {
        "runtimeClassName": shim.name,
        "nodeName": node,
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
    }


def pod_of(fleet: Fleet, name: str) -> Manifest:
    return fleet.api.call("GET", f"{pods(fleet)}/{name}")[1]


async def run(fleet: Fleet, shim: Shim, name: str, node: str) -> None:
    """Create a pod of the Shim on a node, ready, as the kubelet reports it."""
    manifest = {"metadata": {"name": name}, "spec": spec_of(shim, node)}
    status, answer = fleet.api.call("POST", pods(fleet), manifest)
    assert status == 201, answer
    # kwok starts each pod once, and never one with an address.
    await eventually(lambda: pod_of(fleet, name)["status"].get("phase") == "Running", f"kwok starts {name}")
    report(fleet, name, ready=True)


def report(fleet: Fleet, name: str, *, ready: bool) -> None:
    """Report a pod as ready for a minute, or as crashing."""
    now = (datetime.now(UTC) - timedelta(minutes=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    ended = {"terminated": {"exitCode": 137, "reason": "Error"}}
    state = {"running": {"startedAt": now}} if ready else {"waiting": {"reason": "CrashLoopBackOff"}}
    container = {"name": "app", "image": "x", "imageID": "x", "ready": ready, "restartCount": 3, "state": state}
    condition = {"type": "Ready", "status": "True" if ready else "False", "lastTransitionTime": now}
    status = {
        "phase": "Running",
        "podIP": "10.9.9.9",
        "podIPs": [{"ip": "10.9.9.9"}],
        "conditions": [condition],
        "containerStatuses": [container | ({} if ready else {"lastState": ended})],
    }
    code, answer = fleet.api.call("PATCH", f"{pods(fleet)}/{name}/status", {"status": status})
    assert code == 200, answer


async def end_well(fleet: Fleet, node: str) -> None:
    """Report that the installer on a node ended well, as the kubelet does; its source has it run until then."""

    def running() -> list[Manifest]:
        return [pod for pod in fleet.pods_on(node) if pod["status"].get("phase") == "Running"]

    [pod] = await eventually(running, f"an installer runs on {node}")
    path = f"/api/v1/namespaces/{fleet.installers}/pods/{pod['metadata']['name']}/status"
    code, answer = fleet.api.call("PATCH", path, {"status": {"phase": "Succeeded"}})
    assert code == 200, answer


def version_of(fleet: Fleet, shim: Shim, node: str) -> str:
    marks = fleet.annotations(node).get(names.ANNOTATION_SHIMS, "")
    return next((item.partition("=")[2] for item in marks.split() if item.startswith(f"{shim.name}=")), "")


def recorded(fleet: Fleet) -> dict[str, Any]:
    """Return the states of pods in the ledger."""
    _, found = fleet.api.call("GET", f"/api/v1/namespaces/{fleet.system}/configmaps/{names.LEDGER}")
    return dict(json.loads((found.get("data") or {}).get("workloads") or "{}"))


async def test_a_version_that_breaks_pods_halts_and_the_former_version_repairs_them(fleet: Fleet, shim: Shim) -> None:
    first, second = sorted(shim.add_nodes(2))
    async with fleet.services(TIMINGS), kubelets(fleet):
        shim.apply(sha256=VERSION_1, rolloutStrategy=rollout(workloads="Halt"))
        await eventually(lambda: shim.counts() == (2, 2, 2), "version 1 is everywhere", seconds=90)
        former = version_of(fleet, shim, first)
        for node in (first, second):
            await run(fleet, shim, f"app-{node}", node)
        await eventually(shim.observed, "observed")

        shim.apply(sha256=VERSION_2, rolloutStrategy=rollout(workloads="Halt"))
        await eventually(lambda: shim.name in recorded(fleet), "the pods are recorded", seconds=30)
        report(fleet, f"app-{first}", ready=False)
        expected = ("True", Reason.WORKLOAD_NOT_READY.value)
        await eventually(lambda: shim.condition("Degraded") == expected, "halted", seconds=60)
        assert shim.condition("Progressing") == ("False", Reason.HALTED.value)
        assert not lacking(shim.message("Degraded"), f"{fleet.system}/app-{first}", first, "ShimError")
        assert version_of(fleet, shim, first) != former
        assert version_of(fleet, shim, second) == former

    async with fleet.services(TIMINGS), kubelets(fleet):  # another leader continues with the record
        await eventually(lambda: shim.condition("Degraded") == expected, "still halted", seconds=60)
        assert version_of(fleet, shim, second) == former
        shim.apply(sha256=VERSION_1, rolloutStrategy=rollout(workloads="Halt"))
        await eventually(lambda: version_of(fleet, shim, first) == former, "the former version is back", seconds=60)
        report(fleet, f"app-{first}", ready=True)
        await eventually(lambda: recorded(fleet) == {}, "the pods are as ready as before", seconds=60)
        await eventually(lambda: shim.condition("Ready")[0] == "True", "ready", seconds=30)
        for node in (first, second):
            fleet.api.call("DELETE", f"{pods(fleet)}/app-{node}", {"gracePeriodSeconds": 0})
        shim.delete()
        await eventually(lambda: shim.found() is None, "the Shim is gone", seconds=60)


async def test_a_node_is_drained_before_it_is_changed(fleet: Fleet, shim: Shim) -> None:
    [node] = shim.add_nodes(1)
    strategy = rollout(workloads="Ignore", drain=True)
    async with fleet.services(TIMINGS), kubelets(fleet):
        shim.apply(sha256=VERSION_1, rolloutStrategy=strategy)
        await eventually(lambda: shim.counts() == (1, 1, 1), "version 1", seconds=90)
        former = version_of(fleet, shim, node)
        await run(fleet, shim, "bare", node)
        labels = {"app": "own"}
        template = {"metadata": {"labels": labels}, "spec": spec_of(shim, node)}
        owner = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
        path = f"/apis/apps/v1/namespaces/{fleet.system}/replicasets"
        fleet.api.call("POST", path, {"metadata": {"name": "app"}, "spec": owner})

        def owned() -> set[str]:
            _, found = fleet.api.call("GET", f"{pods(fleet)}?labelSelector=app%3Down")
            return {item["metadata"]["name"] for item in found["items"] if "deletionTimestamp" not in item["metadata"]}

        await eventually(owned, "the ReplicaSet has a pod")
        first = owned()
        budget = {"metadata": {"name": "app"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": labels}}}
        budgets = f"/apis/policy/v1/namespaces/{fleet.system}/poddisruptionbudgets"
        fleet.api.call("POST", budgets, budget)

        shim.apply(sha256=VERSION_2, rolloutStrategy=strategy)
        await fleet.event(node, "DrainBlocked")
        assert version_of(fleet, shim, node) == former
        fleet.api.call("DELETE", f"{budgets}/app")
        await eventually(lambda: version_of(fleet, shim, node) != former, "changed once it is drained", seconds=60)
        assert not owned() & first
        await eventually(owned, "its ReplicaSet has another pod, on the same node: it was not evicted again")
        assert "deletionTimestamp" not in pod_of(fleet, "bare")["metadata"]
        fleet.api.call("DELETE", f"{path}/app")
        fleet.api.call("DELETE", f"{pods(fleet)}/bare", {"gracePeriodSeconds": 0})
        shim.delete()
        await eventually(lambda: shim.found() is None, "the Shim is gone", seconds=60)


async def test_no_evicted_pod_returns_to_a_node_before_its_change_has_ended(fleet: Fleet, shim: Shim) -> None:
    """The scheduler would prefer the drained node, as all pods are on the other one."""
    nodes = sorted(shim.add_nodes(2))
    strategy = rollout(workloads="Ignore", drain=True)
    replica_sets = f"/apis/apps/v1/namespaces/{fleet.system}/replicasets"

    def by_node() -> list[str]:
        """Return the nodes of the pods, "" for a pod without one."""
        _, found = fleet.api.call("GET", f"{pods(fleet)}?labelSelector=app%3Down")
        there = [item for item in found["items"] if "deletionTimestamp" not in item["metadata"]]
        return sorted(item["spec"].get("nodeName", "") for item in there)

    def all_on(node: str) -> bool:
        return by_node() == [node, node]

    async with fleet.services(TIMINGS), kubelets(fleet):
        shim.apply(sha256=VERSION_1, rolloutStrategy=strategy)
        await eventually(lambda: shim.counts() == (2, 2, 2), "version 1", seconds=90)
        former, labels = version_of(fleet, shim, nodes[0]), {"app": "own"}
        spec = {name: value for name, value in spec_of(shim, "").items() if name != "nodeName"}
        template = {"metadata": {"labels": labels}, "spec": spec}
        owner = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
        fleet.api.call("POST", replica_sets, {"metadata": {"name": "app"}, "spec": owner})
        await eventually(lambda: len(by_node()) == 2 and "" not in by_node(), "each pod has a node")

        shim.apply(sha256=VERSION_2, path="hang-here.tar.gz", rolloutStrategy=strategy)
        for node, other in (nodes, nodes[::-1]):
            await eventually(partial(fleet.job_of, node), f"{node} is changed", seconds=60)
            assert not shim.has(node)
            await eventually(partial(all_on, other), "the pods are on the other node")
            assert fleet.job_of(node), "the Job still runs"
            assert version_of(fleet, shim, node) == former
            await end_well(fleet, node)
            await eventually(partial(shim.has, node), "the label returns with the new version", seconds=60)
            assert version_of(fleet, shim, node) != former
        await eventually(lambda: shim.counts() == (2, 2, 2), "version 2", seconds=60)
        fleet.api.call("DELETE", f"{replica_sets}/app")
        shim.delete()
        await eventually(lambda: shim.found() is None, "the Shim is gone", seconds=60)
