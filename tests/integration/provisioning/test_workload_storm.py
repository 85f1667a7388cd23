"""A storm of failures on a real API server and bus: few Warning Events, one event per failure, bounded memory.

5,000 pods of 250 owners wait for a node, a pod crashes every second, and a new pod without an owner fails every five.
Ten minutes last half a minute: the timings of the reports are a twentieth of those in production. No scheduler, kubelet
or controller runs; the test writes statuses as they do.
"""

from __future__ import annotations

import asyncio
import http
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest

import provisioner.app
from provisioner.timings import WorkloadTimings
from provisioner.workloads.warnings import BURST
from provisioner.workloads.wiring import Workloads
from support.nodes.fleet import SHORT, Fleet, Manifest, eventually
from support.nodes.shims import Shim
from support.wasm_pods.objects import crashing
from trellis import names
from trellis.kube.resources import EVENTS, NAMESPACES, PODS, REPLICA_SETS, RUNTIME_CLASSES, Resource
from trellis.read_model.wasm_pods.reasons import Reason
from trellis_dev.localcluster import ClusterInfo, kill, owned_cluster
from trellis_dev.localcluster.api import Api

pytestmark = [pytest.mark.cluster, pytest.mark.thorough, pytest.mark.timeout(900)]

OWNERS: Final = 250
PER_OWNER: Final = 20
IN_FLIGHT: Final = 8
FASTER: Final = 20
SECONDS: Final = 540
"""Less than the ten minutes after which an owner gets its next Event."""
RUN_EVERY: Final = 5
RUNS_AT_ONCE: Final = 10
PRODUCTION: Final = WorkloadTimings()
TIMINGS: Final = replace(
    SHORT,
    workloads=replace(
        WorkloadTimings(**{name: seconds / FASTER for name, seconds in asdict(PRODUCTION).items()}),
        steady=PRODUCTION.steady,  # the times in statuses are whole seconds
        forget=60 / FASTER,
    ),
)
CRASHING: Final = "crashing"


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterInfo]:
    """A control plane of this module's own: 5,000 pods would slow down the tests after it."""
    with owned_cluster() as info:
        yield info


@pytest.fixture(scope="module")
def cluster_api(cluster: ClusterInfo) -> Iterator[Api]:
    api = Api.of_kubeconfig(Path(cluster.kubeconfig))
    yield api
    api.close()


@pytest.fixture
def workloads(monkeypatch: pytest.MonkeyPatch) -> list[Workloads]:
    """The reports of each leadership term of a provisioner in this process."""
    made: list[Workloads] = []

    def noted(*arguments: Any) -> Workloads:
        made.append(Workloads(*arguments))
        return made[-1]

    monkeypatch.setattr(provisioner.app, "Workloads", noted)
    return made


class Storm:
    """The owners and pods of a Shim in a namespace, and their statuses."""

    def __init__(self, fleet: Fleet, shim: Shim) -> None:
        self.fleet, self.api, self.shim, self.namespace = fleet, fleet.api, shim, fleet.system
        self.owners = [f"waiting-{number:03}" for number in range(OWNERS)]
        self.crashes = self.runs = 0

    def prepare(self) -> None:
        """Create what the pods need: the namespace with its account, the RuntimeClass and its Shim."""
        self.create(NAMESPACES, {"metadata": {"name": self.namespace}})
        made: Manifest = {"metadata": {"name": self.shim.name}, "handler": self.shim.handler}
        scheduling = {"nodeSelector": {self.shim.name: names.SHIM_PROVISIONED}}
        self.create(RUNTIME_CLASSES, made | {"scheduling": scheduling})
        self.shim.apply(verify={"canary": False})

    def create(self, res: Resource, manifest: Manifest) -> Manifest:
        """Create an object; return it as it is stored."""
        path = res.path(self.namespace) if res.namespaced else res.path()
        status, answer = self.api.call("POST", path, manifest)
        assert status == http.HTTPStatus.CREATED, answer
        return answer

    def create_pod(self, name: str, owner: Manifest | None = None, node: str = "") -> None:
        """Create a pod; without a node it waits for one, as the scheduler reports it."""
        reference = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "controller": True, **owner}] if owner else []
        spec = {"runtimeClassName": self.shim.name, "containers": [{"name": "app", "image": "example.com/app"}]}
        spec |= {"nodeName": node} if node else {}
        self.create(PODS, {"metadata": {"name": name, "ownerReferences": reference}, "spec": spec})
        if not node:
            message = "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."
            scheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
            self.report(name, {"conditions": [scheduled]})

    def report(self, name: str, status: Manifest) -> None:
        """Change the status of a pod."""
        code, answer = self.api.call("PATCH", f"{PODS.path(self.namespace, name)}/status", {"status": status})
        assert code == http.HTTPStatus.OK, answer

    def create_owner(self, name: str, pods: int = PER_OWNER, node: str = "") -> None:
        """Create a ReplicaSet with its pods."""
        labels = {"app": name}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "app", "image": "a"}]}}
        spec = {"replicas": pods, "selector": {"matchLabels": labels}, "template": template}
        uid = self.create(REPLICA_SETS, {"metadata": {"name": name}, "spec": spec})["metadata"]["uid"]
        for number in range(pods):
            self.create_pod(f"{name}-{number:02}", {"name": name, "uid": uid}, node)

    def create_all(self) -> None:
        """Create all pods that wait, and the one that crashes."""
        with ThreadPoolExecutor(IN_FLIGHT) as threads:
            for _ in threads.map(self.create_owner, self.owners):
                pass
        [node] = self.fleet.add("node", opted_in=False)
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        status = {"conditions": [ready], "runtimeHandlers": [{"name": self.shim.handler}]}
        self.fleet.patch(node, {"status": status}, "/status")
        self.create_owner(CRASHING, 1, node)

    def crash(self) -> None:
        """Let the pod crash, with another status each time, or be ready again."""
        now, number, ready = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), self.crashes, self.crashes % 2 == 1
        self.crashes += 1
        running = {"name": "app", "ready": True, "restartCount": number, "state": {"running": {"startedAt": now}}}
        container = running if ready else crashing(1 + number % 100, restarts=number)
        condition = {"type": "Ready", "status": "True" if ready else "False", "lastTransitionTime": now}
        images = {"image": "example.com/app", "imageID": "example.com/app"}
        status = {"phase": "Running", "conditions": [condition], "containerStatuses": [container | images]}
        self.report(f"{CRASHING}-00", status)

    def run(self) -> None:
        """Create a pod without an owner that waits for a node, and delete an earlier one."""
        self.runs += 1
        self.create_pod(run_name(self.runs))
        self.end_run(self.runs - RUNS_AT_ONCE)

    def end_run(self, number: int) -> None:
        """Delete the pod of a run, if there is one."""
        self.api.call("DELETE", PODS.path(self.namespace, run_name(number)), {"gracePeriodSeconds": 0})

    def second(self, number: int) -> None:
        """Do what happens in one second."""
        self.crash()
        if number % RUN_EVERY == 0:
            self.run()

    async def rage(self) -> None:
        """Let the seconds pass. On a slow machine some of them are left out."""
        began, last = time.monotonic(), -1
        while (number := int((time.monotonic() - began) * FASTER)) < SECONDS:
            if number > last:
                await asyncio.to_thread(self.second, number)
                last = number
            else:
                await asyncio.sleep(0.01)

    def warnings(self) -> list[Manifest]:
        """Return the Events of provisioner about owners."""
        found = self.api.call("GET", EVENTS.path(self.namespace))[1]["items"]
        ours = (item for item in found if "provisioner" in item["source"].get("component", ""))
        return [item for item in ours if item["involvedObject"]["kind"] in {"ReplicaSet", "Pod"}]

    async def told(self) -> Counter[tuple[str, str, str]]:
        """Return how many events of each kind are on the bus: name of the event, of the object, and the reason."""
        found = [event.event | {"name": event.event_name} for event in await self.fleet.events_until_now()]
        data = ((item["name"], item["data"]) for item in found if item["data"].get("runtime_class") == self.shim.name)
        return Counter((name, of["name"], of.get("reason", "")) for name, of in data)


BY_OWNER: Final = ("owners", "controllers", "published states", "numbers of events")


def run_name(number: int) -> str:
    return f"run-{number:03}"


def remembered(reports: Workloads) -> dict[str, int]:
    """Return how much a provisioner keeps, by its kind."""
    kept = reports.reconciler
    return {
        "pods": len(reports.pods.objects),
        "owners": len(kept._members),
        "controllers": len(kept.owners._found),
        "published states": len(kept.published.states),
        "numbers of events": len(kept._stored),
        "causes": len(kept.gather._verdicts),
    }


async def test_a_storm_of_failures_is_few_warnings_and_one_event_each(
    fleet: Fleet, shim: Shim, workloads: list[Workloads]
) -> None:
    storm = Storm(fleet, shim)
    storm.prepare()
    account = f"/api/v1/namespaces/{storm.namespace}/serviceaccounts/default"
    await eventually(lambda: fleet.api.ok(account), "the account of the pods exists", seconds=60)
    for component in ("kube-controller-manager", "kube-scheduler", "kwok"):
        kill(fleet.info.name, component)
    await asyncio.to_thread(storm.create_all)
    async with fleet.services(TIMINGS):
        await eventually(storm.warnings, "the first Event", seconds=120)
        await storm.rage()
        warnings = storm.warnings()
        assert storm.crashes > 2 * BURST
        assert storm.runs > 2 * BURST

        written = Counter[tuple[str, str]]()
        for item in warnings:
            written[item["involvedObject"]["uid"], item["reason"]] += item["count"]
        assert set(written.values()) == {1}, "one Event per owner and reason in ten minutes"
        about = Counter(item["reason"] for item in warnings)
        assert about.keys() == {Reason.NO_NODE_WITH_LABEL, Reason.EXITED}
        assert about[Reason.EXITED] == 1
        assert BURST <= about[Reason.NO_NODE_WITH_LABEL] <= BURST + SECONDS / PRODUCTION.warn_refill + 1

        told = await storm.told()
        assert set(told.values()) == {1}
        waiting = {("failed", name, Reason.NO_NODE_WITH_LABEL.value) for name in storm.owners}
        runs = {("failed", run_name(number + 1), Reason.NO_NODE_WITH_LABEL.value) for number in range(storm.runs)}
        lasting = waiting | {("failed", CRASHING, Reason.EXITED.value)}
        ready_at_first = {("running", CRASHING, "")}
        assert lasting <= told.keys() <= lasting | runs | ready_at_first
        assert len(told) > len(lasting) + BURST, "each owner has an event, also without a Warning Event"

        for number in range(storm.runs + 1):
            await asyncio.to_thread(storm.end_run, number)
        [reports] = workloads
        left = {"pods": OWNERS * PER_OWNER + 1, **dict.fromkeys(BY_OWNER, OWNERS + 1)}
        await eventually(lambda: left.items() <= remembered(reports).items(), "nothing is left of the runs")
        assert remembered(reports)["causes"] <= left["pods"]
