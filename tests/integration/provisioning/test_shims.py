"""A Shim is applied, changed, paused and deleted; nodes follow, version by version, and nothing is left behind."""

from __future__ import annotations

import http

import pytest

from support.nodes.fleet import Fleet, eventually
from support.nodes.kubelets import kubelets
from support.nodes.shims import SHIMS, Shim
from trellis import names

pytestmark = pytest.mark.cluster


async def test_a_shim_is_installed_updated_and_removed(fleet: Fleet, shim: Shim) -> None:
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
        offset = fleet.audit_offset()
        shim.apply(sha256="cd" * 32)
        await eventually(
            lambda: {fleet.annotations(node)[names.ANNOTATION_SHIMS] for node in nodes}.isdisjoint(digests),
            "every node has the new version",
            seconds=60,
        )
        await eventually(lambda: shim.condition("Progressing") == ("False", "Updated"), "updated")
        await fleet.quiet()
        assert fleet.most_in_progress(offset) == 1

        shim.delete()
        await eventually(lambda: shim.found() is None, "the Shim is gone", seconds=60)
        await eventually(lambda: shim.runtime_class() is None, "its RuntimeClass is gone")
        await fleet.quiet()
        assert {node: fleet.labels(node) for node in nodes} == before
        assert not any(key.startswith("trellis.dev/") for node in nodes for key in fleet.annotations(node))
        await eventually(lambda: all(handlers(fleet, node) == {"runc"} for node in nodes), "no node shows the handler")


def handlers(fleet: Fleet, node: str) -> set[str]:
    """Return the handlers that a node shows."""
    return {item["name"] for item in fleet.node(node)["status"]["runtimeHandlers"]}


@pytest.mark.thorough
async def test_a_shim_without_a_checksum_is_not_installed_and_reports_it(fleet: Fleet, shim: Shim) -> None:
    shim.add_nodes(1)
    async with fleet.services(), kubelets(fleet):
        shim.apply(sha256=None)
        await eventually(lambda: shim.condition("Degraded") == ("True", "ChecksumMissing"), "Degraded")
        assert not fleet.jobs()
        shim.apply()
        await eventually(lambda: shim.condition("Available")[0] == "True", "available", seconds=60)
        shim.delete()
        await eventually(lambda: shim.found() is None, "the Shim is gone", seconds=60)


@pytest.mark.thorough
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
