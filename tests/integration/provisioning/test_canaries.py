"""Canary pods on simulated nodes: they verify a Shim where nothing else does; one that fails is rolled back."""

from __future__ import annotations

import http
from typing import Any

import pytest

from support.nodes.fleet import Fleet, eventually
from support.nodes.installers import LAST_LOG_LINE
from support.nodes.kubelets import kubelets
from support.nodes.shims import CLASSES, Shim
from trellis import names
from trellis.provisioning.views import UNDO

pytestmark = pytest.mark.cluster


def canary_classes(shim: Shim) -> list[str]:
    """Return the RuntimeClasses of the Shim's canaries."""
    _, found = shim.fleet.api.call("GET", CLASSES)
    return [item["metadata"]["name"] for item in found["items"] if item["handler"] == shim.handler]


def canaries(fleet: Fleet) -> list[dict[str, Any]]:
    """Return the canary pods on the test's nodes."""
    query = f"labelSelector={names.LABEL_CANARY}%3Dtrue"
    status, found = fleet.api.call("GET", f"/api/v1/namespaces/{fleet.installers}/pods?{query}")
    assert status == http.HTTPStatus.OK
    return list(found["items"])


@pytest.mark.thorough
async def test_a_node_that_lists_no_handlers_is_verified_by_a_pod(fleet: Fleet, shim: Shim) -> None:
    [node] = shim.add_nodes(1)
    async with fleet.services():
        shim.apply(verify={"canary": True})
        await eventually(lambda: shim.condition("Available") == ("True", "AllNodesReady"), "available", seconds=60)
        assert fleet.annotations(node)[names.ANNOTATION_VERIFIED] == "canary"
        assert fleet.labels(node)[names.LABEL_WASM_READY] == "ready"
        await eventually(lambda: not canaries(fleet), "the pod went with its Job")
        shim.delete()
        await eventually(lambda: shim.found() is None, "the Shim is gone", seconds=60)
        assert canary_classes(shim) == []
        assert not any(key.startswith("trellis.dev/") for key in fleet.annotations(node))


async def test_a_shim_that_only_a_verification_pod_detects_is_rolled_back_and_reported(
    fleet: Fleet, shim: Shim
) -> None:
    nodes = shim.add_nodes(1, "sick")
    [sick] = [node for node in nodes if node.startswith("sick")]
    [well] = [node for node in nodes if node != sick]
    async with fleet.services(retry_max="600s"), kubelets(fleet):
        shim.apply(max_update=2, verify={"canary": True})
        await eventually(lambda: shim.has(well), "the other node has it", seconds=60)
        failure = await eventually(
            lambda: fleet.annotations(sick).get(names.ANNOTATION_FAILURE), "the failure is on the node", seconds=60
        )
        assert "CanaryFailed" in failure
        assert LAST_LOG_LINE in failure
        assert "disruptive" in fleet.annotations(sick)[names.ANNOTATION_FAILED_ATTEMPT]
        assert not shim.has(sick)
        assert names.LABEL_WASM_READY not in fleet.labels(sick)
        await eventually(lambda: shim.condition("Degraded") == ("True", "NodesFailing"), "the Shim says so")
        message = str((shim.found() or {})["status"]["conditions"])
        assert sick in message
        assert LAST_LOG_LINE in message
        handlers = {item["name"] for item in fleet.node(sick)["status"]["runtimeHandlers"]}
        assert handlers == {"runc"}
        [undo] = [job for job in fleet.jobs() if job["metadata"]["labels"][names.LABEL_OPERATION] == UNDO]
        [container] = undo["spec"]["template"]["spec"]["containers"]
        assert container["args"] == ["uninstall", "--force"]
        assert "Complete" in {condition["type"] for condition in undo["status"]["conditions"]}
        shim.delete()
        await eventually(lambda: shim.found() is None, "the Shim is gone", seconds=60)
        await eventually(lambda: not fleet.jobs(), "no Job is left")


@pytest.mark.thorough
async def test_a_version_that_fails_gives_way_to_the_one_before(fleet: Fleet, shim: Shim) -> None:
    [node] = shim.add_nodes(0, "sick")
    async with fleet.services(retry_max="600s"), kubelets(fleet):
        shim.apply(verify={"canary": False})
        await eventually(lambda: shim.has(node), "the node has the first version", seconds=60)
        first = fleet.annotations(node)[names.ANNOTATION_SHIMS]
        shim.apply(sha256="cd" * 32, verify={"canary": True})
        await eventually(lambda: names.ANNOTATION_FAILURE in fleet.annotations(node), "it failed", seconds=60)
        assert fleet.annotations(node)[names.ANNOTATION_SHIMS] == first
        [undo] = [job for job in fleet.jobs() if job["metadata"]["labels"][names.LABEL_OPERATION] == UNDO]
        [container] = undo["spec"]["template"]["spec"]["containers"]
        assert container["args"] == ["install"]
        spec = next(item["value"] for item in container["env"] if item["name"] == names.INSTALLER_SPEC)
        assert "ab" * 32 in spec
        assert "cd" * 32 not in spec
        shim.delete()
        await eventually(lambda: shim.found() is None, "the Shim is gone", seconds=60)
