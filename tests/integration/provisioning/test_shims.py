"""A Shim is applied, changed, paused and deleted; nodes follow, version by version, and nothing is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import http
from collections.abc import AsyncIterator
from typing import Any

import pytest

from support.fleet import Fleet, Manifest, eventually
from trellis import names
from trellis.crds.kinds import KINDS, make_definition

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster")]

SHIMS = "/apis/runtime.spinkube.dev/v1alpha1/shims"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"


class Shim:
    """The Shim of one test, for the nodes that bear the test's label."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.name = f"spin-{fleet.id}"
        self.handler = f"spin-{fleet.id}"

    def add_nodes(self, count: int) -> list[str]:
        """Create nodes that the Shim selects."""
        made = self.fleet.add(*["node"] * count, opted_in=False)
        for node in made:
            self.fleet.patch(node, {"metadata": {"labels": {"test": self.fleet.id}}})
        return made

    def apply(self, *, sha256: str | None = "ab" * 32, max_update: int | str = 1, **spec: Any) -> None:
        """Create the Shim, or change what is given."""
        source = {"location": "https://example.com/spin.tar.gz"} | ({"sha256": sha256} if sha256 else {})
        manifest = {
            "apiVersion": "runtime.spinkube.dev/v1alpha1",
            "kind": "Shim",
            "metadata": {"name": self.name},
            "spec": {
                "nodeSelector": {"test": self.fleet.id},
                "fetchStrategy": {"anonHttp": source},
                "runtimeClass": {"name": self.name, "handler": self.handler},
                "rolloutStrategy": {"type": "rolling", "rolling": {"maxUpdate": max_update}},
                **spec,
            },
        }
        status, answer = self.fleet.api.call("POST", SHIMS, manifest)
        if status == http.HTTPStatus.CONFLICT:
            status, answer = self.fleet.api.call("PATCH", f"{SHIMS}/{self.name}", {"spec": manifest["spec"]})
        assert status in {http.HTTPStatus.OK, http.HTTPStatus.CREATED}, answer

    def delete(self) -> None:
        """Ask for its deletion."""
        self.fleet.api.call("DELETE", f"{SHIMS}/{self.name}")

    def found(self) -> Manifest | None:
        """Return it as it is, None if it is gone."""
        status, found = self.fleet.api.call("GET", f"{SHIMS}/{self.name}")
        return found if status == http.HTTPStatus.OK else None

    def runtime_class(self) -> Manifest | None:
        """Return its RuntimeClass, None if there is none."""
        status, found = self.fleet.api.call("GET", f"{CLASSES}/{self.name}")
        return found if status == http.HTTPStatus.OK else None

    def condition(self, kind: str) -> tuple[str, str]:
        """Return status and reason of a condition."""
        conditions = ((self.found() or {}).get("status") or {}).get("conditions") or []
        return next(((one["status"], one["reason"]) for one in conditions if one["type"] == kind), ("", ""))

    def counts(self) -> tuple[int, ...]:
        """Return nodes, ready and updated ones."""
        status = (self.found() or {}).get("status") or {}
        return tuple(status.get(name, -1) for name in ("nodes", "nodesReady", "nodesUpdated"))

    def has(self, node: str) -> bool:
        """Say whether a node is labelled with it."""
        return self.fleet.labels(node).get(self.name) == names.SHIM_PROVISIONED


@pytest.fixture
def shim(fleet: Fleet) -> Shim:
    """The test's Shim, its kind defined."""
    for kind in KINDS:
        fleet.api.call("POST", DEFINITIONS, make_definition(kind))
    return Shim(fleet)


@contextlib.asynccontextmanager
async def kubelets(fleet: Fleet) -> AsyncIterator[None]:
    """Show on each node the handlers that its finished Jobs installed or removed, as containerd and kubelet would."""

    def show() -> None:
        for job in fleet.jobs():
            if not (job.get("status") or {}).get("succeeded"):
                continue
            annotations = job["metadata"]["annotations"]
            node = annotations[names.ANNOTATION_NODE]
            shown = {item["name"] for item in fleet.node(node)["status"].get("runtimeHandlers") or []}
            wanted = shown | {"runc", *annotations.get(names.ANNOTATION_HANDLER, "").split(",")}
            wanted -= {"", *annotations.get(names.ANNOTATION_REMOVED_HANDLERS, "").split(",")}
            if shown != wanted:
                handlers = [{"name": name} for name in sorted(wanted)]
                fleet.patch(node, {"status": {"runtimeHandlers": handlers}}, "/status")

    async def run() -> None:
        while True:
            show()
            await asyncio.sleep(0.2)

    task = asyncio.create_task(run())
    try:
        yield
        assert not task.done(), task
    finally:
        task.cancel()


async def test_a_shim_goes_to_its_nodes_rolls_and_goes_away_again(fleet: Fleet, shim: Shim) -> None:
    nodes = shim.add_nodes(3)
    [other] = fleet.add("node", opted_in=False)
    before = {node: fleet.labels(node) for node in nodes}
    async with fleet.services(), kubelets(fleet):
        shim.apply()
        await eventually(lambda: shim.condition("Available") == ("True", "AllNodesReady"), "available", seconds=60)
        assert all(map(shim.has, nodes))
        assert not shim.has(other)
        runtime_class = shim.runtime_class()
        assert runtime_class is not None
        assert runtime_class["handler"] == shim.handler
        assert runtime_class["scheduling"]["nodeSelector"] == {shim.name: "provisioned"}
        await eventually(lambda: shim.counts() == (3, 3, 3), "all counted")
        await fleet.quiet()

        digests = {fleet.annotations(node)[names.ANNOTATION_SHIMS] for node in nodes}
        mark = fleet.mark()
        shim.apply(sha256="cd" * 32)
        await eventually(
            lambda: {fleet.annotations(node)[names.ANNOTATION_SHIMS] for node in nodes}.isdisjoint(digests),
            "every node has the new version",
            seconds=60,
        )
        await eventually(lambda: shim.condition("Progressing") == ("False", "Updated"), "updated")
        await fleet.quiet()
        assert fleet.most_in_work(mark) == 1

        shim.delete()
        await eventually(lambda: shim.found() is None, "the Shim is gone", seconds=60)
        await eventually(lambda: shim.runtime_class() is None, "its RuntimeClass is gone")
        await fleet.quiet()
        assert {node: fleet.labels(node) for node in nodes} == before
        assert not any(key.startswith("trellis.dev/") for node in nodes for key in fleet.annotations(node))
        for node in nodes:
            assert {item["name"] for item in fleet.node(node)["status"]["runtimeHandlers"]} == {"runc"}


async def test_a_shim_without_a_checksum_is_not_installed_and_says_so(fleet: Fleet, shim: Shim) -> None:
    shim.add_nodes(1)
    async with fleet.services(), kubelets(fleet):
        shim.apply(sha256=None)
        await eventually(lambda: shim.condition("Degraded") == ("True", "Unverified"), "Degraded")
        assert not fleet.jobs()
        shim.apply()
        await eventually(lambda: shim.condition("Available")[0] == "True", "available", seconds=60)
        shim.delete()
        await eventually(lambda: shim.found() is None, "the Shim is gone", seconds=60)


async def test_a_paused_shim_begins_nothing_until_it_is_resumed(fleet: Fleet, shim: Shim) -> None:
    [node] = shim.add_nodes(1)
    async with fleet.services(), kubelets(fleet):
        shim.apply(paused=True)
        await eventually(lambda: shim.condition("Progressing") == ("False", "Paused"), "paused")
        assert not fleet.jobs()
        shim.apply(paused=False)
        await eventually(lambda: shim.has(node), "the node has it", seconds=60)
        shim.delete()
        await eventually(lambda: shim.found() is None, "the Shim is gone", seconds=60)


async def test_pods_that_use_a_shim_are_respected(fleet: Fleet, shim: Shim) -> None:
    [node] = shim.add_nodes(1)
    async with fleet.services(), kubelets(fleet):
        shim.apply()
        await eventually(lambda: shim.runtime_class() and shim.has(node), "the node has it", seconds=60)
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "wasm", "namespace": fleet.system},
            "spec": {
                "nodeName": node,
                "runtimeClassName": shim.name,
                "containers": [{"name": "wasm", "image": "example.com/hello"}],
            },
        }
        pods = f"/api/v1/namespaces/{fleet.system}/pods"
        status, answer = fleet.api.call("POST", pods, pod)
        assert status == http.HTTPStatus.CREATED, answer
        shim.delete()
        message = await eventually(lambda: fleet.events(node).get("RuntimeInUse"), "an Event on the node")
        assert f"{fleet.system}/wasm" in message
        assert not shim.has(node)  # no further pod comes
        assert shim.found()
        patch = {"spec": {"removalPolicy": "Drain"}}
        assert fleet.api.call("PATCH", f"{SHIMS}/{shim.name}", patch)[0] == http.HTTPStatus.OK
        await eventually(lambda: shim.found() is None, "drained and gone", seconds=90)
        assert fleet.api.call("GET", f"{pods}/wasm")[0] == http.HTTPStatus.NOT_FOUND
