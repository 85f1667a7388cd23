"""Writes of provisioner and node_watcher that admission or missing permissions refuse: reported, and recovered from."""

from __future__ import annotations

import asyncio
import contextlib
import http
import time
from collections.abc import AsyncIterator

import pytest

from support.cluster.validating_policies import refusing, rule
from support.nodes.fleet import SHIMS, SHORT, Fleet, Manifest, eventually
from support.nodes.kubelets import kubelets
from support.nodes.shims import CLASSES, Shim
from trellis import names
from trellis.kube.resources import NAMESPACES
from trellis.provisioning.reasons import Reason
from trellis.provisioning.shim_status import Reason as ShimReason
from trellis.runtime.run import LedService

pytestmark = pytest.mark.cluster

MESSAGE = "no owner is named"
PODS = {"restartPolicy": "Never", "containers": [{"name": "probe", "image": "example.com/probe"}]}


def unready(services: list[LedService], expected_text: str) -> bool:
    """Return whether one of the services is not ready and names these words."""
    return any(expected_text in reason for service in services for reason in service.health.readiness().reasons)


async def reported(shim: Shim, reason: str, expected_text: str) -> None:
    """Wait until the Shim reports a refusal in the API server's words."""
    await eventually(lambda: shim.condition("Degraded") == ("True", reason), "reported on the Shim", seconds=60)
    assert expected_text in shim.message("Degraded")


@contextlib.asynccontextmanager
async def refusing_new(fleet: Fleet, group: str, resource: str, probe: Manifest, only: str) -> AsyncIterator[None]:
    """Have the API server refuse new objects of a resource in the installers' namespace."""
    api = f"/apis/{group}/v1" if group else "/api/v1"
    path = f"{api}/namespaces/{fleet.installers}/{resource}?dryRun=All"
    fleet.api.call("POST", NAMESPACES.path(), {"metadata": {"name": fleet.installers}})
    forbidden = lambda: MESSAGE in str(fleet.api.call("POST", path, probe)[1])  # noqa: E731
    within = f"request.namespace == '{fleet.installers}' && ({only})"
    async with refusing(fleet, rule(group, resource, "CREATE"), MESSAGE, within, forbidden):
        yield


@pytest.mark.thorough
async def test_a_job_that_a_policy_refuses_is_reported_and_created_once_it_is_permitted(
    fleet: Fleet, shim: Shim
) -> None:
    [node] = shim.add_nodes(1)
    probe = {"metadata": {"name": "probe"}, "spec": {"template": {"spec": PODS}}}
    async with kubelets(fleet), fleet.services() as running:
        async with refusing_new(fleet, "batch", "jobs", probe, "true"):
            shim.apply()
            await reported(shim, Reason.JOB_REFUSED.value, MESSAGE)
            await eventually(lambda: MESSAGE in fleet.events(node).get(Reason.JOB_REFUSED.value, ""), "on the Node")
            await eventually(lambda: unready(running, MESSAGE), "not ready")
        await eventually(lambda: shim.has(node), "the node has it", seconds=30)
        await eventually(lambda: shim.condition("Degraded")[0] == "False", "the Shim has recovered")
        await eventually(lambda: not unready(running, MESSAGE), "ready")


@pytest.mark.thorough
async def test_a_canary_that_a_policy_refuses_is_reported_for_as_long_as_it_is_refused(
    fleet: Fleet, shim: Shim
) -> None:
    [node] = shim.add_nodes(1)
    canary = f"has(object.metadata.labels) && '{names.LABEL_CANARY}' in object.metadata.labels"
    probe = {"metadata": {"name": "probe", "labels": {names.LABEL_CANARY: "true"}}, "spec": PODS}
    async with kubelets(fleet), fleet.services(verify_timeout=300) as running:
        async with refusing_new(fleet, "", "pods", probe, canary):
            shim.apply(verify={"canary": True})
            await reported(shim, Reason.INSTALLER_REFUSED.value, MESSAGE)
            await eventually(lambda: unready(running, MESSAGE), "not ready")
            until = time.monotonic() + 4 * SHORT.refusals.retry
            while time.monotonic() < until:
                assert shim.condition("Degraded") == ("True", Reason.INSTALLER_REFUSED.value)
                assert unready(running, MESSAGE)
                await asyncio.sleep(0.1)
        await eventually(lambda: shim.has(node), "the node has it", seconds=30)
        await eventually(lambda: shim.condition("Degraded")[0] == "False", "the Shim has recovered")
        await eventually(lambda: not unready(running, MESSAGE), "ready")


@pytest.mark.thorough
async def test_a_canary_that_was_refused_until_its_time_was_over_fails_with_the_words(fleet: Fleet, shim: Shim) -> None:
    [node] = shim.add_nodes(1)
    canary = f"has(object.metadata.labels) && '{names.LABEL_CANARY}' in object.metadata.labels"
    probe = {"metadata": {"name": "probe", "labels": {names.LABEL_CANARY: "true"}}, "spec": PODS}
    async with (
        kubelets(fleet),
        fleet.services(verify_timeout=4, retry_max="600s"),
        refusing_new(fleet, "", "pods", probe, canary),
    ):
        shim.apply(verify={"canary": True})
        failure = await eventually(
            lambda: fleet.annotations(node).get(names.ANNOTATION_FAILURE), "the failure is on the node", seconds=60
        )
        assert Reason.CANARY_FAILED.value in failure
        assert MESSAGE in failure


@pytest.mark.thorough
async def test_a_runtime_class_that_a_policy_refuses_is_reported_on_the_shim(fleet: Fleet, shim: Shim) -> None:
    shim.add_nodes(1)
    probe = {"metadata": {"name": shim.name}, "handler": "x"}
    forbidden = lambda: MESSAGE in str(fleet.api.call("POST", f"{CLASSES}?dryRun=All", probe)[1])  # noqa: E731
    only = f"object.metadata.name == '{shim.name}'"
    matched = rule("node.k8s.io", "runtimeclasses", "CREATE")
    async with kubelets(fleet), fleet.services() as running:
        async with refusing(fleet, matched, MESSAGE, only, forbidden):
            shim.apply()
            await reported(shim, ShimReason.RUNTIME_CLASS_REFUSED.value, MESSAGE)
            await eventually(lambda: unready(running, MESSAGE), "not ready")
        await eventually(shim.runtime_class, "there is a RuntimeClass", seconds=30)
        await eventually(lambda: shim.condition("Degraded")[0] == "False", "the Shim has recovered")
        await eventually(lambda: not unready(running, MESSAGE), "ready")


@pytest.mark.thorough
async def test_a_status_of_a_shim_that_a_policy_refuses_is_in_readiness(fleet: Fleet, shim: Shim) -> None:
    [node] = shim.add_nodes(1)
    shim.apply()
    path = f"{SHIMS}/{shim.name}/status?dryRun=All"
    patch = {"status": {"nodes": 0, "nodesReady": 0}}
    forbidden = lambda: MESSAGE in str(fleet.api.call("PATCH", path, patch)[1])  # noqa: E731
    matched = rule("runtime.spinkube.dev", "shims/status", "UPDATE") | {"apiVersions": ["*"]}
    only = f"object.metadata.name == '{shim.name}'"
    async with kubelets(fleet), contextlib.AsyncExitStack() as policy:
        await policy.enter_async_context(refusing(fleet, matched, MESSAGE, only, forbidden))
        async with fleet.services() as running:
            await eventually(lambda: unready(running, MESSAGE), "not ready")
            await eventually(lambda: shim.has(node), "the node has it all the same", seconds=60)
            await policy.aclose()
            await eventually(lambda: shim.condition("Available")[0] == "True", "the status is written", seconds=30)
            await eventually(lambda: not unready(running, MESSAGE), "ready")


@pytest.mark.thorough
async def test_a_ledger_damaged_by_hand_is_repaired_by_the_next_plan(fleet: Fleet, shim: Shim) -> None:
    [node] = shim.add_nodes(1)
    async with kubelets(fleet), fleet.services() as running:
        shim.apply()
        await eventually(lambda: shim.has(node), "the node has it", seconds=60)
        await fleet.quiet()
        path = f"/api/v1/namespaces/{fleet.system}/configmaps/{names.LEDGER}"
        marks = {names.ANNOTATION_HALTED: ",,x/y,", names.ANNOTATION_HALT_PUBLISHED: "/"}
        broken = {"data": {"garbage": "/////", node: "x"}, "metadata": {"annotations": marks}}
        assert fleet.api.call("PATCH", path, broken)[0] == http.HTTPStatus.OK
        [more] = shim.add_nodes(1)
        await eventually(lambda: shim.has(more), "the node has it", seconds=30)
        await fleet.quiet()
        assert not unready(running, "ledger")
