"""Refusals by admission, quotas or permissions are reported at once, and provisioning recovers from them."""

from __future__ import annotations

import http
import json
import os
from dataclasses import replace

import pytest

from support.cluster.validating_policies import refusing, rule
from support.nodes.fleet import SHORT, Fleet, Manifest, counted, eventually
from support.nodes.kubelets import kubelets
from support.nodes.shims import Shim
from support.suite.typed import typed_meanwhile
from trellis import names
from trellis.provisioning.reasons import NODE_UPDATE_REFUSED, Reason
from trellis.provisioning.shim_status import Reason as ShimReason
from trellis.runtime.run import LedService

pytestmark = pytest.mark.cluster

MESSAGE = "no team label"


def unready(services: list[LedService], expected_text: str) -> bool:
    """Return whether one of the services is not ready and names these words."""
    return any(expected_text in reason for service in services for reason in service.health.readiness().reasons)


def installers(fleet: Fleet, labels: Manifest | None = None) -> None:
    """Create the namespace of the installers before the services do."""
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": fleet.installers, "labels": labels or {}}}
    assert fleet.api.call("POST", "/api/v1/namespaces", manifest)[0] == http.HTTPStatus.CREATED


async def explained(fleet: Fleet, what: str, *options: str) -> str:
    """Return the page of ``trellis explain``."""
    return await trellis(fleet, "explain", what, *options)


async def all_commands_name(fleet: Fleet, shim: Shim, expected_text: str) -> None:
    """Assert that every command about a rollout names a refusal; terminals fold what is long."""
    for command in (("nodes", "-o", "json"), ("rollout", "status", shim.name, "-o", "json"), ("status", "-o", "json")):
        assert expected_text in await trellis(fleet, *command), command


async def trellis(fleet: Fleet, *arguments: str) -> str:
    """Return what a command prints."""
    return (await typed_meanwhile({**os.environ, **fleet.environment()}, *arguments)).stdout


async def reported(fleet: Fleet, shim: Shim, nodes: list[str], reason: str, expected_text: str) -> None:
    """Wait until the Shim and its nodes report a refusal in the API server's words."""
    await eventually(lambda: shim.condition("Degraded") == ("True", reason), "reported on the Shim")
    assert expected_text in shim.message("Degraded")
    await eventually(
        lambda: any(expected_text in fleet.events(node).get(reason, "") for node in nodes), "reported on a Node"
    )


@pytest.mark.parametrize(
    "refusal",
    [
        pytest.param("pod-security", marks=pytest.mark.thorough),
        "quota",
        pytest.param("limit-range", marks=pytest.mark.thorough),
        pytest.param("service-account", marks=pytest.mark.thorough),
    ],
)
async def test_a_pod_that_is_refused_is_reported_at_once_and_retried_within_seconds(
    fleet: Fleet, shim: Shim, refusal: str
) -> None:
    nodes = shim.add_nodes(3)
    installers(fleet)
    path, expected_text, settings = await refuse_pods(fleet, refusal)
    async with kubelets(fleet), fleet.services(**settings) as running:
        shim.apply(max_update="100%")
        await reported(fleet, shim, nodes, Reason.INSTALLER_REFUSED.value, expected_text)
        await eventually(lambda: unready(running, expected_text), "not ready, with the API server's words")
        await eventually(lambda: f"{len(nodes) - 1} more" in shim.message("Degraded"), "each is counted")
        before = shim.message("Degraded")
        await tried_again(fleet, 2 * len(nodes))
        assert shim.message("Degraded") == before, "one refusal has the same words each time"
        assert max(events_of_refusal(fleet, node) for node in nodes) == 1
        assert expected_text in await explained(fleet, f"node/{nodes[0]}")
        await all_commands_name(fleet, shim, expected_text)
        permit_pods(fleet, refusal, path)
        await eventually(lambda: all(map(shim.has, nodes)), "every node has it", seconds=30)
        await eventually(lambda: shim.condition("Degraded")[0] == "False", "the Shim has recovered")
        await eventually(lambda: not unready(running, expected_text), "ready")


async def tried_again(fleet: Fleet, times: int) -> None:
    """Wait until so many more Jobs were created."""
    offset, path = fleet.audit_offset(), f"/namespaces/{fleet.installers}/jobs"

    def more() -> bool:
        made = [write for write in fleet.writes(offset) if write["verb"] == "create" and path in write["requestURI"]]
        return len(made) >= times

    await eventually(more, "more attempts", seconds=30)


def events_of_refusal(fleet: Fleet, node: str) -> int:
    """Return how many Events report on a Node that an installer's pod is refused."""
    selector = f"involvedObject.name%3D{node},reason%3D{Reason.INSTALLER_REFUSED.value}"
    return len(fleet.api.call("GET", f"/api/v1/namespaces/default/events?fieldSelector={selector}")[1]["items"])


async def refuse_pods(fleet: Fleet, refusal: str) -> tuple[str, str, Manifest]:
    """Have the API server refuse installers' pods; return what refuses, words of the refusal, and settings."""
    place = f"/api/v1/namespaces/{fleet.installers}"
    match refusal:
        case "pod-security":
            label = {"pod-security.kubernetes.io/enforce": "restricted"}
            fleet.api.call("PATCH", place, {"metadata": {"labels": label}})
            return place, "violates PodSecurity", {}
        case "quota":
            quota = {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
            assert fleet.api.call("POST", f"{place}/resourcequotas", quota)[0] == http.HTTPStatus.CREATED
            await counted(fleet.api, f"{place}/resourcequotas/none")
            return f"{place}/resourcequotas/none", "exceeded quota", {}
        case "limit-range":
            limit = {"type": "Container", "max": {"memory": "1Ki"}}
            ranges = {"metadata": {"name": "tiny"}, "spec": {"limits": [limit]}}
            assert fleet.api.call("POST", f"{place}/limitranges", ranges)[0] == http.HTTPStatus.CREATED
            return f"{place}/limitranges/tiny", "maximum memory usage", {}
        case _:
            return f"{place}/serviceaccounts", "not found", {"installer_service_account": "absent"}


def permit_pods(fleet: Fleet, refusal: str, path: str) -> None:
    if refusal == "pod-security":
        label = {"pod-security.kubernetes.io/enforce": "privileged"}
        assert fleet.api.call("PATCH", path, {"metadata": {"labels": label}})[0] == http.HTTPStatus.OK
    elif refusal == "service-account":
        assert fleet.api.call("POST", path, {"metadata": {"name": "absent"}})[0] == http.HTTPStatus.CREATED
    else:
        fleet.api.call("DELETE", path)


@pytest.mark.thorough
async def test_a_node_whose_labels_are_refused_is_reported_and_holds_no_slot_for_long(fleet: Fleet, shim: Shim) -> None:
    [refused, other] = sorted(shim.add_nodes(2))
    node = f"/api/v1/nodes/{refused}?dryRun=All"
    probe = {"metadata": {"labels": {"probe": "x"}}}
    matched, only = rule("", "nodes", "UPDATE"), f"object.metadata.name == '{refused}'"
    services = fleet.services(replace(SHORT, nodes=replace(SHORT.nodes, grace=1.0)), job_deadline=3)
    async with kubelets(fleet), services as running:
        forbidden = lambda: fleet.api.call("PATCH", node, probe)[0] >= http.HTTPStatus.BAD_REQUEST  # noqa: E731
        async with refusing(fleet, matched, MESSAGE, only, forbidden):
            shim.apply(max_update=1)
            await reported(fleet, shim, [refused], NODE_UPDATE_REFUSED, MESSAGE)
            await eventually(lambda: unready(running, MESSAGE), "not ready, with the API server's words")
            page = json.loads(await explained(fleet, f"node/{refused}", "-o", "json"))
            assert MESSAGE in page["cause"]
            [verified_by] = [line["text"] for line in page["lines"] if line["about"] == "verification"]
            assert "API server" in verified_by, "it is not the verification that is waited for"
            await all_commands_name(fleet, shim, MESSAGE)
            await eventually(lambda: shim.has(other), "another node has the slot", seconds=30)
            assert not shim.has(refused)
        await eventually(lambda: shim.has(refused), "the node is labelled", seconds=30)
        await eventually(lambda: shim.condition("Degraded")[0] == "False", "the Shim has recovered")
        await eventually(lambda: not unready(running, MESSAGE), "ready")


@pytest.mark.thorough
async def test_a_ledger_that_cannot_be_written_is_reported_on_the_shims(fleet: Fleet, shim: Shim) -> None:
    [node] = shim.add_nodes(1)
    async with kubelets(fleet), fleet.services() as running:
        shim.apply()
        await eventually(lambda: shim.has(node), "the node has it", seconds=60)
        await fleet.quiet()
        path = f"/api/v1/namespaces/{fleet.system}/configmaps/{names.LEDGER}"
        assert fleet.api.call("PATCH", path, {"immutable": True})[0] == http.HTTPStatus.OK
        [more] = shim.add_nodes(1)
        reason = ShimReason.LEDGER_REFUSED.value
        await eventually(lambda: shim.condition("Degraded") == ("True", reason), "reported on the Shim")
        assert "immutable" in shim.message("Degraded")
        await eventually(lambda: unready(running, "immutable"), "not ready, with the API server's words")
        assert fleet.job_of(more) is None
        assert fleet.api.call("DELETE", path)[0] == http.HTTPStatus.OK
        await eventually(lambda: shim.has(more), "the node has it", seconds=30)
        await eventually(lambda: shim.condition("Degraded")[0] == "False", "the Shim has recovered")
        assert not unready(running, "immutable")
