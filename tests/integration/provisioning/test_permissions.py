"""node_watcher and provisioner, each with exactly the permissions of the chart: none is missing, none given in vain."""

from __future__ import annotations

import copy
import http
from functools import partial
from pathlib import Path

import pytest

import node_watcher.app
import node_watcher.settings
import provisioner.app
import provisioner.settings
from support.chart.rendered import Manifest, only, rendered
from support.cluster.grants import SYSTEM, Granted, Right, elsewhere, given, granted, refused, used
from support.nodes.fleet import SHORT, Fleet, eventually, watcher_timings
from support.nodes.kubelets import kubelets
from support.nodes.shims import CLASSES, SHIMS, Shim
from support.suite.in_process import serving
from trellis import names
from trellis.kube.breaker import DELETION_PAUSED
from trellis.kube.resources import CLUSTER_ROLES, CONFIGMAPS, CONTROLLER_REVISIONS, EVENTS, LEASES, NAMESPACES, ROLES
from trellis.names import CLAIM_NAMESPACE
from trellis.provisioning.reasons import APPLY_AGAIN, NODE_UPDATE_REFUSED
from trellis.provisioning.reasons import Reason as NodeReason
from trellis.provisioning.shim_status import Reason as ShimReason
from trellis_dev.localcluster.api import Api

pytestmark = pytest.mark.cluster

OF_REPEATED_EVENTS = {("get", "events"), ("patch", "events")}
OF_AN_ELEVENTH_VERSION = {("delete", "controllerrevisions.apps")}
OF_THE_FIRST_OF_BOTH = {("create", "leases.coordination.k8s.io")}
"""One service creates the claim of the installation, and the other finds it."""
OF_REAL_KUBELETS = {("get", "pods/log"), ("list", "events")}
"""An installer that leaves no last words, a canary whose sandbox cannot be made: simulated ones always say why."""
WATCHER, PROVISIONER = "trellis-node-watcher", "trellis-provisioner"

create_watcher = partial(node_watcher.app.create_app, timings=watcher_timings(SHORT))
create_provisioner = partial(provisioner.app.create_app, timings=SHORT)


def applied(fleet: Fleet, service: str) -> list[Manifest]:
    """Return the account and the roles of a service, where the fleet's installers are."""
    services = only(service)
    if service == "provisioner":
        services[service]["watchWorkloads"] = False  # tests/unit/provisioner/test_workload_permissions.py has these
    found = rendered(
        services=services,
        installers={"namespace": fleet.installers},
        crds={"install": False},
    )
    return [item for item in found if item["kind"] == "ServiceAccount" or "Role" in item["kind"]]


def placed(found: set[Right], wanted: set[Right]) -> set[Right]:
    """Return permissions with the namespace by which they are given, "" for all of them."""
    return {item if item in wanted else (item[0], item[1], "") for item in found}


def forget_former(api: Api) -> None:
    """Delete what installations of other tests left: leases, the ledger, breakers, versions of Shims."""
    for res in (LEASES, CONFIGMAPS, CONTROLLER_REVISIONS):
        for item in api.call("GET", res.path(SYSTEM))[1]["items"]:
            if item["metadata"]["name"] != "kube-root-ca.crt":
                api.call("DELETE", res.path(SYSTEM, item["metadata"]["name"]))


async def a_version_fails_and_gives_way(shim: Shim, well: str, sick: str) -> None:
    """The first version comes, the second is found out by its canary on one node; then the first comes back."""
    fleet = shim.fleet
    shim.apply(max_update=2, verify={"canary": False})
    await eventually(lambda: shim.has(well) and shim.has(sick), "both have the first version", seconds=60)
    shim.apply(sha256="cd" * 32, max_update=2, verify={"canary": True})
    await eventually(lambda: names.ANNOTATION_FAILURE in fleet.annotations(sick), "it failed", seconds=90)
    shim.apply(max_update=2, verify={"canary": False})

    def available() -> bool:
        return shim.observed() and shim.condition("Available") == ("True", "AllNodesReady")

    await eventually(available, "available", seconds=90)


async def what_is_made_is_kept(shim: Shim) -> None:
    """A user changes the RuntimeClass: it is as it was."""
    path, key = f"{CLASSES}/{shim.name}", shim.name
    patch = {"scheduling": {"nodeSelector": {key: "elsewhere"}}}
    assert shim.fleet.api.call("PATCH", path, patch)[0] == http.HTTPStatus.OK

    def again() -> bool:
        return bool((shim.runtime_class() or {})["scheduling"]["nodeSelector"] == {key: names.SHIM_PROVISIONED})

    await eventually(again, "the RuntimeClass is as it was", seconds=60)


async def it_is_drained_and_goes(shim: Shim, node: str) -> None:
    fleet = shim.fleet
    spec = {"nodeName": node, "runtimeClassName": shim.name, "containers": [{"name": "wasm", "image": "example.com/x"}]}
    pod = {"metadata": {"name": "wasm", "namespace": fleet.system}, "spec": spec}
    assert fleet.api.call("POST", f"/api/v1/namespaces/{fleet.system}/pods", pod)[0] == http.HTTPStatus.CREATED
    shim.delete()
    await eventually(lambda: "RuntimeInUse" in fleet.events(node), "an Event on the node", seconds=60)
    fleet.api.call("PATCH", f"{SHIMS}/{shim.name}", {"spec": {"removalPolicy": "Drain"}})
    await eventually(lambda: shim.found() is None, "drained and gone", seconds=90)


async def a_mass_of_installers_is_held(fleet: Fleet, nodes: list[str]) -> None:
    """All opt out while an installer runs on each; a blocked removal is reported on its Job."""
    await eventually(lambda: len(fleet.jobs()) == len(nodes), "an installer each", seconds=60)
    for name in nodes:
        fleet.annotate(name, None)
    path = f"{EVENTS.path(fleet.installers)}?fieldSelector=reason%3D{DELETION_PAUSED}"
    await eventually(lambda: fleet.api.call("GET", path)[1]["items"], "the breaker is open", seconds=60)
    for name in nodes:
        fleet.delete(name)
    await eventually(lambda: not fleet.jobs(), "no Job of theirs", seconds=60)


async def a_mass_is_held(fleet: Fleet, nodes: list[str]) -> None:
    """All opt out at once; some of them are held by the breaker."""
    await fleet.all_provisioned(nodes, seconds=90)
    await fleet.quiet()
    for name in nodes:
        fleet.annotate(name, None)
    await eventually(
        lambda: any(DELETION_PAUSED in fleet.events(name) for name in nodes), "the breaker is open", seconds=60
    )


@pytest.mark.timeout(420)  # all that can happen to a Shim, one thing after the other
@pytest.mark.thorough
async def test_each_right_is_used_and_none_is_missing(fleet: Fleet, shim: Shim, tmp_path: Path) -> None:
    api = fleet.api
    for name in (SYSTEM, fleet.system, fleet.installers):
        api.call("POST", NAMESPACES.path(), {"metadata": {"name": name}})
    forget_former(api)
    permissions = {WATCHER: applied(fleet, "nodeWatcher"), PROVISIONER: applied(fleet, "provisioner")}
    [well, sick, bad] = sorted(shim.add_nodes(1, "sick") + fleet.add("bad"), reverse=True)
    sick, well = (sick, well) if sick.startswith("sick") else (well, sick)
    offset = fleet.audit_offset()
    with (
        granted(fleet.info, api, WATCHER, tmp_path) as watcher,
        granted(fleet.info, api, PROVISIONER, tmp_path) as installer,
    ):
        watcher.apply(permissions[WATCHER])
        installer.apply(permissions[PROVISIONER])
        settings = fleet.settings(
            namespace=SYSTEM, claim_namespace=CLAIM_NAMESPACE, halt_after_failures=1, max_unavailable="100%"
        )
        watching = serving(
            create_watcher, node_watcher.settings.Settings, settings | {"kubeconfig": watcher.kubeconfig}
        )
        own = {"kubeconfig": installer.kubeconfig, "watch_workloads": False}
        installing = serving(create_provisioner, provisioner.settings.Settings, settings | own)
        async with watching as item, installing as other, kubelets(fleet):
            await eventually(lambda: "failed" in str(fleet.annotations(bad)), "an installer fails", seconds=60)
            await a_version_fails_and_gives_way(shim, well, sick)
            assert item.health.readiness().reasons == other.health.readiness().reasons == ()
            await what_is_made_is_kept(shim)
            await it_is_drained_and_goes(shim, well)
            fleet.delete(bad)
            await a_mass_of_installers_is_held(fleet, fleet.add(*["hangs"] * 8))
            await a_mass_is_held(fleet, fleet.add(*["node"] * 8))
    forget_former(api)
    records = fleet.writes(offset)
    for account in (watcher, installer):
        assert refused(records, account.user) == []
        assert elsewhere(records, account.user) == {"/readyz"}
    for account, name in ((watcher, WATCHER), (installer, PROVISIONER)):
        wanted = given(permissions[name])
        found = placed(used(records, account.user), wanted)
        assert found - wanted == set(), f"{name}: used, but given by other rules than these"
        unused = {item[:2] for item in wanted - found}
        rare = OF_REPEATED_EVENTS | OF_AN_ELEVENTH_VERSION | OF_REAL_KUBELETS | OF_THE_FIRST_OF_BOTH
        assert unused <= rare, f"{name}: given, but not used"


async def test_permissions_that_are_missing_are_reported_and_used_once_they_are_given(
    fleet: Fleet, shim: Shim, tmp_path: Path
) -> None:
    api = fleet.api
    for name in (SYSTEM, fleet.system, fleet.installers):
        api.call("POST", NAMESPACES.path(), {"metadata": {"name": name}})
    forget_former(api)
    [node] = shim.add_nodes(1)
    settings = fleet.settings(namespace=SYSTEM, claim_namespace=CLAIM_NAMESPACE)
    with (
        granted(fleet.info, api, WATCHER, tmp_path) as watcher,
        granted(fleet.info, api, PROVISIONER, tmp_path) as installer,
    ):
        ledger, nodes = apply_without(fleet, installer, "configmaps"), apply_without(fleet, watcher, "nodes")
        as_watcher, as_installer = ({**settings, "kubeconfig": item.kubeconfig} for item in (watcher, installer))
        async with (
            kubelets(fleet),
            serving(create_watcher, node_watcher.settings.Settings, as_watcher) as watching,
            serving(create_provisioner, provisioner.settings.Settings, as_installer) as installing,
        ):
            shim.apply()
            await degraded(shim, ShimReason.LEDGER_REFUSED.value, 'cannot get resource "configmaps"')
            await eventually(lambda: "configmaps" in str(installing.health.readiness().reasons), "not ready")
            give_back(api, ledger)
            await degraded(shim, NODE_UPDATE_REFUSED, 'cannot patch resource "nodes"')
            await eventually(lambda: "nodes" in str(watching.health.readiness().reasons), "not ready")
            assert '"nodes"' in await fleet.event(node, NODE_UPDATE_REFUSED)
            give_back(api, nodes)
            await eventually(lambda: shim.has(node), "the node has it", seconds=30)
            await eventually(lambda: shim.condition("Degraded")[0] == "False", "the Shim has recovered")
            await eventually(lambda: all(each.health.readiness().ok for each in (watching, installing)), "ready")
            shim.delete()
            await eventually(lambda: shim.found() is None, "the Shim is gone", seconds=60)
    forget_former(api)


@pytest.mark.thorough
async def test_a_namespace_of_installers_that_is_created_again_is_reported_until_it_is_complete(
    fleet: Fleet, shim: Shim, tmp_path: Path
) -> None:
    """The Roles of both services go with the namespace; a user creates the namespace alone, and later the rest."""
    api, settings = fleet.api, fleet.settings(namespace=SYSTEM, claim_namespace=CLAIM_NAMESPACE)
    for name in (SYSTEM, fleet.system, fleet.installers):
        api.call("POST", NAMESPACES.path(), {"metadata": {"name": name}})
    forget_former(api)
    [first] = shim.add_nodes(1)
    with (
        granted(fleet.info, api, WATCHER, tmp_path) as watcher,
        granted(fleet.info, api, PROVISIONER, tmp_path) as installer,
    ):
        permissions = {watcher: applied(fleet, "nodeWatcher"), installer: applied(fleet, "provisioner")}
        for account, found in permissions.items():
            account.apply(found)
        as_watcher, as_installer = ({**settings, "kubeconfig": item.kubeconfig} for item in (watcher, installer))
        async with (
            kubelets(fleet),
            serving(create_watcher, node_watcher.settings.Settings, as_watcher) as watching,
            serving(create_provisioner, provisioner.settings.Settings, as_installer) as installing,
        ):
            shim.apply()
            await eventually(lambda: shim.has(first), "the node has it", seconds=60)
            await namespace_is_created_again(fleet)
            [more] = shim.add_nodes(1)
            await degraded(shim, NodeReason.JOB_REFUSED.value, 'cannot create resource "jobs"')
            assert APPLY_AGAIN in shim.message("Degraded")
            await eventually(lambda: APPLY_AGAIN in fleet.events(more).get(NodeReason.JOB_REFUSED, ""), "on the Node")
            await eventually(lambda: APPLY_AGAIN in str(installing.health.readiness().reasons), "not ready")
            for account, found in permissions.items():
                account.restore(item for item in found if item["metadata"].get("namespace") == fleet.installers)
            await eventually(lambda: shim.has(more), "the node has it", seconds=30)
            await eventually(lambda: shim.condition("Degraded")[0] == "False", "the Shim has recovered")
            await eventually(lambda: all(each.health.readiness().ok for each in (watching, installing)), "ready")
            assert shim.has(first)
            shim.delete()
            await eventually(lambda: shim.found() is None, "the Shim is gone", seconds=60)
    forget_former(api)


async def namespace_is_created_again(fleet: Fleet) -> None:
    """Delete the namespace of the installers with all that is in it, and create it alone."""
    path = NAMESPACES.path(None, fleet.installers)
    assert fleet.api.call("DELETE", path)[0] == http.HTTPStatus.OK
    await eventually(lambda: fleet.api.call("GET", path)[0] == http.HTTPStatus.NOT_FOUND, "it is gone", seconds=60)
    assert fleet.api.call("POST", NAMESPACES.path(), {"metadata": {"name": fleet.installers}})[0] == (
        http.HTTPStatus.CREATED
    )


async def degraded(shim: Shim, reason: str, expected_text: str) -> None:
    """Wait until the Shim reports a refusal in the API server's words."""
    await eventually(lambda: shim.condition("Degraded") == ("True", reason), reason, seconds=60)
    assert expected_text in shim.message("Degraded")


def apply_without(fleet: Fleet, account: Granted, resource: str) -> list[Manifest]:
    """Apply what an account is given without what changes a resource; return the roles as they are meant to be."""
    whole = applied(fleet, {"configmaps": "provisioner", "nodes": "nodeWatcher"}[resource])
    less = copy.deepcopy(whole)
    for item in less:
        for each in item.get("rules", ()):
            if each["resources"] == [resource]:
                each["verbs"] = [verb for verb in each["verbs"] if verb in {"list", "watch"}] or ["watch"]
    account.apply(less)
    return [item for item, other in zip(whole, less, strict=True) if item != other]


def give_back(api: Api, roles: list[Manifest]) -> None:
    """Give what was withheld."""
    assert roles
    for role in roles:
        path = {"ClusterRole": CLUSTER_ROLES, "Role": ROLES}[role["kind"]].path(
            role["metadata"].get("namespace"), role["metadata"]["name"]
        )
        assert api.call("PATCH", path, {"rules": role["rules"]})[0] == http.HTTPStatus.OK
