"""`trellis migrate` takes over what KWasm and runtime-class-manager left: no installer runs again."""

from __future__ import annotations

import asyncio
import contextlib
import http
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from support.cluster.definitions import OURS, ensure_served
from support.nodes.fleet import Fleet, Manifest, eventually
from support.nodes.kubelets import kubelets
from support.nodes.leftovers import as_new, leftover
from support.nodes.shims import Shim
from support.suite.typed import Done, bare_environment, typed_meanwhile
from trellis import names

pytestmark = pytest.mark.cluster

SHIMS = "/apis/runtime.spinkube.dev/v1alpha1/shims"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"
IMAGE = "ghcr.io/kwasm/kwasm-node-installer:main"


class Former:
    """The objects of a retired operator in one test's cluster, and the command that takes them over."""

    def __init__(self, fleet: Fleet, namespace: str) -> None:
        self.fleet = fleet
        self.namespace = namespace
        self.shim = f"spin-{fleet.id}"

    def post(self, path: str, manifest: Manifest) -> Manifest:
        """Create an object."""
        status, answer = self.fleet.api.call("POST", path, manifest)
        assert status == http.HTTPStatus.CREATED, answer
        return answer

    def job(self, peer: str, node: str, shim_uid: str = "") -> str:
        """Create the Job of an operator on a node, which ends well; returns its path."""
        uid = self.fleet.node(node)["metadata"]["uid"]
        fill = {"node": node, "node_uid": uid, "shim": self.shim, "shim_uid": shim_uid, "namespace": self.namespace}
        manifest = as_new(leftover(peer, "job", **fill))
        manifest["spec"]["backoffLimit"] = 0  # a Job that fails is to fail at once
        made = self.post(f"/apis/batch/v1/namespaces/{self.namespace}/jobs", manifest)
        return f"/apis/batch/v1/namespaces/{self.namespace}/jobs/{made['metadata']['name']}"

    async def ended(self, *jobs: str) -> None:
        """Wait until Jobs have ended, one way or the other."""
        for path in jobs:
            await eventually(lambda path=path: self._ended(path), f"{path} has ended", seconds=60)

    def _ended(self, path: str) -> bool:
        conditions = (self.fleet.api.call("GET", path)[1].get("status") or {}).get("conditions") or []
        return any(
            condition["type"] in {"Complete", "Failed"} and condition["status"] == "True" for condition in conditions
        )

    def exists(self, path: str) -> bool:
        """Say whether an object is there, and not on its way out."""
        status, found = self.fleet.api.call("GET", path)
        return status == http.HTTPStatus.OK and "deletionTimestamp" not in found["metadata"]

    def show(self, node: str, *handlers: str) -> None:
        """List handlers on a node, as its kubelet does."""
        items = [{"name": name} for name in ("", "runc", *handlers)]
        self.fleet.patch(node, {"status": {"runtimeHandlers": items}}, "/status")

    async def migrate(self, *arguments: str) -> Done:
        """Run the command as a user runs it."""
        return await typed_meanwhile(bare_environment(**self.fleet.environment()), "migrate", *arguments)

    async def steps(self, *arguments: str) -> dict[str, str]:
        """Return what the command says of this test's objects: what becomes of each."""
        done = await self.migrate(*arguments, "-o", "json")
        assert done.returncode == 0, done.stderr
        document: dict[str, Any] = json.loads(done.stdout)
        own = [step for step in document["steps"] if self.fleet.id in step["object"]]
        return {step["object"]: step["do"] for step in own}

    def nodes_of_jobs(self, offset: int) -> list[str]:
        """Return the nodes of the installer Jobs that were made since an audit offset."""
        return [
            write.get("objectRef", {}).get("name", "").rsplit("-", 3)[0]
            for write in self.fleet.writes(offset)
            if write["verb"] == "create"
            and write.get("objectRef", {}).get("resource") == "jobs"
            and write.get("objectRef", {}).get("namespace") == self.fleet.installers
        ]


@pytest.fixture
def former(fleet: Fleet, namespace: str) -> Iterator[Former]:
    """The leftovers of one test, the Shim's kind defined."""
    ensure_served(fleet.api, *OURS)
    made = Former(fleet, namespace)
    yield made
    fleet.api.call("PATCH", f"{SHIMS}/{made.shim}", {"metadata": {"finalizers": None}})
    fleet.api.call("DELETE", f"{SHIMS}/{made.shim}")
    fleet.api.call("DELETE", f"{CLASSES}/{made.shim}")


@contextlib.asynccontextmanager
async def heartbeats(fleet: Fleet, *nodes: str) -> AsyncIterator[None]:
    """Change Nodes all the time, as kubelets do."""

    async def beat() -> None:
        count = 0
        while True:
            for node in nodes:
                count += 1
                fleet.patch(node, {"metadata": {"annotations": {"test.example.com/beat": str(count)}}})
            await asyncio.sleep(0.2)

    task = asyncio.create_task(beat())
    try:
        yield
        assert not task.done(), task
    finally:
        task.cancel()


@pytest.mark.thorough
async def test_nodes_of_kwasm_are_taken_over_and_nothing_is_installed_again(fleet: Fleet, former: Former) -> None:
    verified, unverified, broken = fleet.add("node", "node", "bad")
    former.show(verified, "spin")
    jobs = []
    for node in (verified, unverified, broken):
        jobs.append(former.job("kwasm", node))
        fleet.patch(node, {"metadata": {"labels": {names.LABEL_PROVISIONED: node}}})
    await former.ended(*jobs)
    before = {node: (fleet.labels(node), fleet.annotations(node)) for node in (verified, unverified, broken)}
    requested = ("kwasm", "--handler", "spin", "--installer-image", IMAGE)

    planned = await former.steps(*requested, "--dry-run")
    assert planned[f"Node {verified}"] == planned[f"Node {unverified}"] == "take over"
    assert planned[f"Node {broken}"] == "leave"
    refused = await former.migrate(*requested)
    assert refused.returncode == 1
    assert "--yes" in refused.stderr
    assert before == {node: (fleet.labels(node), fleet.annotations(node)) for node in before}

    async with heartbeats(fleet, verified, unverified):
        assert await former.steps(*requested, "--yes") == planned
    assert [former.exists(path) for path in jobs] == [False, False, True]
    again = await former.steps(*requested, "--yes")
    assert set(again.values()) == {"leave"}

    fleet.annotate(broken, None)  # that one is to be installed, and is no matter of this test
    offset = fleet.audit_offset()
    async with fleet.services(handler="spin", installer_image=IMAGE):
        events = await fleet.published_events(4, seconds=60)
        assert sorted(event.event_name for event in events) == ["opted_in", "opted_in", "ready", "ready"]
        [fresh] = fleet.add("node", opted_in=False)
        former.show(fresh, "spin")
        fleet.annotate(fresh, "true")
        await fleet.all_provisioned([fresh])
        await fleet.quiet()
    assert former.nodes_of_jobs(offset) == [fresh], "what came last has a Job, and those before it have none"
    assert fleet.provisioned(verified)
    assert fleet.provisioned(unverified)
    assert fleet.labels(verified)[names.LABEL_WASM_READY] == names.WASM_READY
    assert names.LABEL_WASM_READY not in fleet.labels(unverified)


async def test_shims_are_taken_over_and_can_be_removed_again(fleet: Fleet, former: Former) -> None:
    verified, unverified = fleet.add("node", "node", opted_in=False)
    former.show(verified, former.shim)
    shim = former.post(SHIMS, as_new(leftover("rcm", "shim", shim=former.shim)))
    uid = shim["metadata"]["uid"]
    former.post(CLASSES, as_new(leftover("rcm", "runtime_class", shim=former.shim, shim_uid=uid)))
    jobs = []
    for node in (verified, unverified):
        jobs.append(former.job("rcm", node, uid))
        fleet.patch(node, {"metadata": {"labels": {former.shim: "provisioned", f"{former.shim}-nodes": "true"}}})
    await former.ended(*jobs)
    planned = await former.steps("rcm", "--yes")
    assert planned[f"Shim {former.shim}"] == planned[f"Node {verified}"] == planned[f"Node {unverified}"] == "take over"
    assert not any(map(former.exists, jobs))
    assert set((await former.steps("rcm", "--yes")).values()) == {"keep"}
    assert fleet.api.call("GET", f"{SHIMS}/{former.shim}")[1]["metadata"]["finalizers"] == [names.FINALIZER]

    offset = fleet.audit_offset()
    async with fleet.services():

        def found() -> Manifest:
            return fleet.api.call("GET", f"{SHIMS}/{former.shim}")[1]

        def available() -> bool:
            conditions = (found().get("status") or {}).get("conditions") or []
            return {"Available": "True"}.items() <= {
                condition["type"]: condition["status"] for condition in conditions
            }.items()

        await eventually(available, "the Shim is available", seconds=30)
        selector = {"nodeSelector": {former.shim: "provisioned"}}
        await eventually(
            lambda: fleet.api.call("GET", f"{CLASSES}/{former.shim}")[1].get("scheduling") == selector,
            "the RuntimeClass is ours",
        )
        later = Shim(fleet, "later")
        [fresh] = later.add_nodes(1)
        async with kubelets(fleet):
            later.apply()
            await eventually(lambda: later.has(fresh), "it has a Shim that came later", seconds=60)
        await fleet.quiet()
        assert former.nodes_of_jobs(offset) == [fresh], "what came last has a Job, and those before it have none"
        assert fleet.labels(verified)[names.LABEL_WASM_READY] == names.WASM_READY
        assert names.LABEL_WASM_READY not in fleet.labels(unverified)
        assert found()["status"]["nodesReady"] == 2

        former.show(unverified, former.shim)  # its kubelet was updated, and lists handlers now
        await eventually(
            lambda: fleet.labels(unverified).get(names.LABEL_WASM_READY) == names.WASM_READY, "verified by its handler"
        )
        assert fleet.annotations(unverified)[names.ANNOTATION_VERIFIED] == "handler"
        assert former.nodes_of_jobs(offset) == [fresh]

        fleet.api.call("DELETE", f"{SHIMS}/{former.shim}")
        await eventually(lambda: fleet.job_of(verified), "a Job removes it", seconds=30)
        former.show(verified)
        former.show(unverified)
        await eventually(lambda: not found().get("metadata", {}).get("uid"), "the Shim is gone", seconds=60)
    assert former.shim not in fleet.labels(verified)


async def test_nothing_is_done_while_the_operator_runs_unless_it_is_requested(fleet: Fleet, former: Former) -> None:
    [node] = fleet.add("node")
    fleet.patch(node, {"metadata": {"labels": {names.LABEL_PROVISIONED: node}}})
    path = f"/apis/apps/v1/namespaces/{former.namespace}/deployments"
    former.post(path, as_new(leftover("kwasm", "deployment", namespace=former.namespace)))
    try:
        refused = await former.migrate("kwasm", "--yes")
        assert refused.returncode == 1
        assert f"Deployment {former.namespace}/kwasm-operator" in refused.stderr
        assert "--take-over" in refused.stderr
        assert names.ANNOTATION_DIGEST not in fleet.annotations(node)
        done = await former.migrate("kwasm", "--yes", "--take-over")
        assert done.returncode == 0, done.stderr
        assert fleet.annotations(node)[names.ANNOTATION_VERIFIED] == "job"
    finally:
        fleet.api.call("DELETE", f"{path}/kwasm-operator")
    await eventually(lambda: not former.exists(f"{path}/kwasm-operator"), "the Deployment is gone")
