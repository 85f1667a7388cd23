"""Shims that the API server does not serve, that are deleted in a mass, or that vanish without being uninstalled."""

from __future__ import annotations

import http
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from support.cluster.api_proxy import ApiProxy
from support.nodes.fleet import SHORT, Fleet, Manifest, eventually, is_ours
from support.nodes.kubelets import kubelets
from support.nodes.shims import DEFINITIONS, SHIMS, Shim
from support.suite.typed import typed_meanwhile
from trellis import names
from trellis.config.timings import DeletionTimings
from trellis.crds.kinds import KINDS, make_definition
from trellis.kube.breaker import DELETION_PAUSED
from trellis.kube.resources import SHIMS as SHIM_KIND
from trellis.limits.breaker import Limits
from trellis.runtime.run import LedService
from trellis.telemetry import process_metrics

pytestmark = pytest.mark.cluster

DEFINITION = f"{DEFINITIONS}/{SHIM_KIND.definition}"
ALLOWED = Limits().objects
ROUNDS = 3


def changes(fleet: Fleet, offset: int) -> list[tuple[str, str, str]]:
    """Return what our services wrote since an audit offset that nodes have, or are to have."""
    concerned = {"nodes", "jobs", "shims", "runtimeclasses"}
    return [
        (write["verb"], write["objectRef"]["resource"], write["objectRef"].get("name", ""))
        for write in fleet.writes(offset)
        if is_ours(write) and write.get("objectRef", {}).get("resource") in concerned
    ]


def looks(service: LedService) -> float:
    """Return how often services of this name have looked at a node in this process."""
    labels = {"service": service.name, "queue": "nodes"}
    return process_metrics().registry.get_sample_value("trellis_handler_seconds_count", labels) or 0.0


async def nothing_changes(fleet: Fleet, offset: int, running: list[LedService], nodes: list[str]) -> None:
    """Change nodes, and see that both services look at each of them, several times, and write nothing."""
    for number in range(ROUNDS):
        enough = {service: looks(service) + len(nodes) for service in running}
        for node in nodes:
            fleet.patch(node, {"metadata": {"labels": {"test.example.com/round": str(number)}}})
        await eventually(lambda: all(looks(item) >= many for item, many in enough.items()), "all are looked at")  # noqa: B023 (waited for in this round)
        assert changes(fleet, offset) == []


def unready_for_shims(service: LedService) -> bool:
    """Say whether a service is not ready because Shims cannot be listed, and names why they are needed."""
    needed = re.compile(r"\bshims\b.*\b(node|installer Jobs)\b")
    return any(needed.search(reason) for reason in service.health.readiness().reasons)


def stored(shim: Shim) -> Manifest:
    """Return what a user keeps of a Shim and applies again."""
    found = shim.found()
    assert found is not None
    return {key: found[key] for key in ("apiVersion", "kind", "spec")} | {"metadata": {"name": shim.name}}


async def define_again(fleet: Fleet, manifest: Manifest) -> None:
    """Create the CRD and then the Shim, as a chart or GitOps does."""
    [kind] = [item for item in KINDS if make_definition(item)["metadata"]["name"] == SHIM_KIND.definition]
    await eventually(
        lambda: fleet.api.call("POST", DEFINITIONS, make_definition(kind))[0] == http.HTTPStatus.CREATED, "the CRD"
    )
    await eventually(lambda: fleet.api.call("POST", SHIMS, manifest)[0] == http.HTTPStatus.CREATED, "the Shim")


def delete_definition(fleet: Fleet) -> None:
    """Delete the CRD of Shims; those of former tests, whose services are gone, would hold it."""
    _, found = fleet.api.call("GET", SHIMS)
    for name in (item["metadata"]["name"] for item in found["items"]):
        if fleet.id not in name:
            fleet.api.call("DELETE", f"{SHIMS}/{name}")
            fleet.api.call("PATCH", f"{SHIMS}/{name}", {"metadata": {"finalizers": None}})
    fleet.api.call("DELETE", DEFINITION)


def remove_finalizer(shim: Shim) -> None:
    shim.fleet.api.call("PATCH", f"{SHIMS}/{shim.name}", {"metadata": {"finalizers": None}})


async def all_have(shim: Shim, nodes: list[str]) -> None:
    await eventually(lambda: all(map(shim.has, nodes)), "every node has it", seconds=60)
    await shim.fleet.quiet()


def paused(fleet: Fleet, nodes: list[str]) -> list[str]:
    return [node for node in nodes if DELETION_PAUSED in fleet.events(node)]


async def test_shims_that_are_not_served_at_the_start_are_unknown_and_not_deleted(
    fleet: Fleet, shim: Shim, tmp_path: Path
) -> None:
    nodes = shim.add_nodes(8)
    async with (
        ApiProxy(Path(fleet.info.kubeconfig), tmp_path) as proxy,
        kubelets(fleet),
    ):
        path = proxy.kubeconfig(proxy.port, tmp_path / "kubeconfig")
        async with fleet.services(kubeconfig=path):
            shim.apply(max_update="100%")
            await all_have(shim, nodes)
        proxy.withheld = "/apis/runtime.spinkube.dev/"
        offset = fleet.audit_offset()
        async with fleet.services(kubeconfig=path) as running:
            await eventually(lambda: all(map(unready_for_shims, running)), "not ready, with the reason")
            fleet.annotate(nodes[0], "true")
            more = shim.add_nodes(1)
            await nothing_changes(fleet, offset, running, [*nodes, *more])
            proxy.withheld = ""
            await all_have(shim, more)
            await eventually(lambda: not any(map(unready_for_shims, running)), "ready")
        jobs = [name for verb, resource, name in changes(fleet, offset) if (verb, resource) == ("create", "jobs")]
        assert len(jobs) == 1
        assert all(map(shim.has, nodes))
        shim.delete()


@pytest.mark.thorough
async def test_nodes_keep_what_they_have_while_there_is_no_crd_and_the_same_shim_is_not_installed_again(
    fleet: Fleet, shim: Shim
) -> None:
    nodes = shim.add_nodes(8)
    async with kubelets(fleet):
        async with fleet.services():
            shim.apply(max_update="100%")
            await all_have(shim, nodes)
            manifest = stored(shim)
        delete_definition(fleet)
        remove_finalizer(shim)
        await eventually(lambda: fleet.api.call("GET", SHIMS)[0] == http.HTTPStatus.NOT_FOUND, "not served")
        offset = fleet.audit_offset()
        async with fleet.services() as running:
            await eventually(lambda: all(map(unready_for_shims, running)), "not ready, with the reason")
            await nothing_changes(fleet, offset, running, nodes)
            await define_again(fleet, manifest)
            await eventually(lambda: shim.condition("Available") == ("True", "AllNodesReady"), "adopted", seconds=40)
            await eventually(lambda: owner_of(shim) == (shim.found() or {})["metadata"]["uid"], "its RuntimeClass")
            assert not [name for verb, resource, name in changes(fleet, offset) if resource in {"nodes", "jobs"}]
            shim.delete()
            await eventually(lambda: shim.found() is None, "uninstalled", seconds=60)
            assert not any(map(shim.has, nodes))


def owner_of(shim: Shim) -> str:
    owners = (shim.runtime_class() or {"metadata": {}})["metadata"].get("ownerReferences") or [{"uid": ""}]
    return str(owners[0]["uid"])


@pytest.mark.thorough
async def test_without_the_crd_annotated_nodes_get_the_legacy_image(fleet: Fleet, shim: Shim) -> None:
    delete_definition(fleet)
    await eventually(lambda: fleet.api.call("GET", SHIMS)[0] == http.HTTPStatus.NOT_FOUND, "not served")
    nodes = fleet.add("node", "node")
    async with fleet.services() as running:
        await fleet.all_provisioned(nodes)
        await eventually(lambda: not any(map(unready_for_shims, running)), "ready")
        fleet.annotate(nodes[0], None)
        await eventually(lambda: not fleet.provisioned(nodes[0]), "opted out")
    assert shim.found() is None


@pytest.mark.thorough
async def test_a_crd_that_is_deleted_takes_no_more_than_the_circuit_breaker_permits(fleet: Fleet, shim: Shim) -> None:
    nodes = shim.add_nodes(ALLOWED + 3)
    async with fleet.services() as running, kubelets(fleet):
        shim.apply(max_update="100%")
        await all_have(shim, nodes)
        manifest = stored(shim)
        delete_definition(fleet)
        await eventually(lambda: len(paused(fleet, nodes)) == 3, "three are held")
        await eventually(lambda: shim.condition("Degraded") == ("True", "MassDeletion"), "reported on the Shim")
        await eventually(lambda: len(recorded(fleet, nodes)) == 3, "the others are uninstalled", seconds=40)
        kept = [node for node in nodes if shim.has(node)]
        assert kept == recorded(fleet, nodes) == paused(fleet, nodes)
        remove_finalizer(shim)
        await eventually(lambda: all(map(unready_for_shims, running)), "the CRD is gone", seconds=40)
        assert all(map(shim.has, kept))
        offset = fleet.audit_offset()
        await define_again(fleet, manifest)
        await all_have(shim, nodes)
        jobs = [name for verb, resource, name in changes(fleet, offset) if (verb, resource) == ("create", "jobs")]
        assert len(jobs) == ALLOWED, "those that kept it are not provisioned again"
        shim.delete()


@pytest.mark.thorough
async def test_several_deletions_of_shims_at_once_are_paused_and_continue_when_a_user_permits_it(
    fleet: Fleet, shim: Shim
) -> None:
    nodes = shim.add_nodes(ALLOWED + 2)
    other = Shim(fleet, "slight")
    async with fleet.services(replace(SHORT, deletions=DeletionTimings(settle=1.0))), kubelets(fleet):
        shim.apply(max_update="100%")
        other.apply(max_update="100%")
        await all_have(shim, nodes)
        await all_have(other, nodes)
        shim.delete()
        other.delete()
        await eventually(lambda: len(paused(fleet, nodes)) == 2, "two are held")
        await fleet.quiet()
        assert sum(map(shim.has, nodes)) == 2
        await close_breaker(fleet)
        await eventually(lambda: shim.found() is None and other.found() is None, "uninstalled", seconds=60)


def recorded(fleet: Fleet, nodes: list[str]) -> list[str]:
    """Return the nodes whose record names Shims."""
    return [node for node in nodes if names.ANNOTATION_SHIMS in fleet.annotations(node)]


async def close_breaker(fleet: Fleet) -> None:
    done = await typed_meanwhile({**os.environ, **fleet.environment()}, "circuit-breaker", "close", "node-watcher")
    assert done.returncode == 0, done.stderr


@pytest.mark.thorough
async def test_a_shim_whose_finalizer_is_removed_by_hand_stays_on_its_nodes_for_a_grace(
    fleet: Fleet, shim: Shim
) -> None:
    nodes = shim.add_nodes(ALLOWED + 2)
    timings = replace(SHORT, deletions=DeletionTimings(settle=5.0, grace=6.0))
    async with fleet.services(timings), kubelets(fleet):
        shim.apply(max_update="100%")
        await all_have(shim, nodes)
        manifest, offset = stored(shim), fleet.audit_offset()
        shim.delete()
        remove_finalizer(shim)
        await eventually(lambda: all("ShimMissing" in fleet.events(node) for node in nodes), "reported on the nodes")
        assert fleet.api.call("POST", SHIMS, manifest)[0] == http.HTTPStatus.CREATED
        await eventually(lambda: shim.condition("Available") == ("True", "AllNodesReady"), "adopted")
        assert not [name for verb, resource, name in changes(fleet, offset) if resource in {"nodes", "jobs"}]
        shim.delete()
        remove_finalizer(shim)
        await eventually(lambda: len(paused(fleet, nodes)) == 2, "after the grace two are held")
        assert sum(map(shim.has, nodes)) == 2
