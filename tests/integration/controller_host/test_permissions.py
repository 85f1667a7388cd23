"""controller_host, with the permissions under deploy/rbac and of `trellis controllers roles`, is refused nothing."""

from __future__ import annotations

import contextlib
import http
import itertools
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import yaml

from controller_host.domain.resources import ACCOUNT
from controller_host.timings import ReviewTimings, Timings, TurnTimings
from support.cluster.grants import SYSTEM, Granted, given, granted, manifests, refused, used
from support.guests.controllers_world import CONFIG_MAPS, Host, Tenant, prebuilt, until
from support.nodes.fleet import Fleet
from support.suite.typed import typed
from trellis.kube.resources import LEASES
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.api import Api

JOBS = {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["list", "watch"]}
pytestmark = [pytest.mark.cluster, pytest.mark.nats]

QUICK = Timings(
    reviews=ReviewTimings(keep=0.1, forget=0.1),
    turns=TurnTimings(unknown=0.1, denied=0.1),
)
RBAC = "/apis/rbac.authorization.k8s.io/v1"
FORBIDDEN = http.HTTPStatus.FORBIDDEN


def printed(*arguments: str) -> str:
    done = typed(os.environ, "controllers", "roles", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextlib.asynccontextmanager
async def installed(host: Host, cluster: ClusterInfo, api: Api, directory: Path) -> AsyncIterator[Granted]:
    with granted(cluster, api, ACCOUNT, directory) as account:
        account.apply(manifests("controller-host.yaml"))
        api.call("DELETE", LEASES.path(SYSTEM, ACCOUNT))
        host.settings |= {"TRELLIS_KUBECONFIG": str(account.kubeconfig), "TRELLIS_NAMESPACE": SYSTEM}
        async with host.serving():
            yield account


async def test_no_right_is_missing_and_none_is_given_for_nothing(
    host: Host, tenant: Tenant, target: Tenant, cluster: ClusterInfo, cluster_api: Api, tmp_path: Path
) -> None:
    tenant.account("mirror", CONFIG_MAPS, JOBS, namespaces=(tenant.name, target.name))
    tenant.module("mirror", prebuilt("mirror"))
    job = {"apiVersion": "batch/v1", "kind": "Job"}
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "labelSelector": {"matchLabels": {"watched": "true"}}}
    fleet = Fleet(cluster, cluster_api)
    offset = fleet.audit_offset()
    async with installed(host, cluster, cluster_api, tmp_path) as account:
        tenant.controller("mirror", config={"targetNamespace": target.name}, watches=[config_map, job])
        await until(lambda: tenant.condition("mirror", "Accepted")[0] == "False", "it may not be the account yet")
        message = next(
            condition["message"]
            for condition in tenant.status("mirror")["conditions"]
            if condition["type"] == "Accepted"
        )
        command = message.split("`")[1].partition(" | ")[0]
        assert command == f"trellis controllers roles -n {tenant.name} -a mirror"
        account.apply(yaml.safe_load_all(printed(*command.split()[3:])))
        tenant.config_map("one", x="1")
        await until(lambda: target.data("one") == {"x": "1"}, "mirrored", 90.0)
        await until(lambda: tenant.condition("mirror", "Ready")[0] == "True", "it says so")
        user = account.user
    records = fleet.writes(offset)
    assert [item for item in refused(records, user) if "impersonate" not in item] == []
    # What is done as an account is that account's to do, and was refused while there was no Role.
    records = [
        record
        for record in records
        if not record.get("impersonatedUser") and record["responseStatus"]["code"] != FORBIDDEN
    ]
    wanted = {(verb, resource) for verb, resource, _ in given(manifests("controller-host.yaml"))}
    found = {(verb, resource) for verb, resource, _ in used(records, user)}
    assert found <= wanted
    assert wanted - found <= {("get", "events"), ("patch", "events")}, "an Event that is repeated needs them"


@pytest.mark.thorough
async def test_a_revoked_permission_stops_a_controller_and_a_restored_one_continues_it(
    host: Host, tenant: Tenant, target: Tenant, cluster_api: Api
) -> None:
    watches = [
        {"apiVersion": "v1", "kind": "ConfigMap", "labelSelector": {"matchLabels": {"watched": "true"}}},
        {"apiVersion": "batch/v1", "kind": "Job"},
    ]
    tenant.account("mirror", CONFIG_MAPS, JOBS, namespaces=(tenant.name, target.name))
    tenant.module("mirror", prebuilt("mirror"))
    config = {"targetNamespace": target.name}
    tenant.controller("mirror", watches=watches, config=config)
    selector = {"matchLabels": {"wide": tenant.name}}
    everywhere = {"apiVersion": "v1", "kind": "ConfigMap", "namespaces": ["*"], "labelSelector": selector}
    tenant.controller("wide", module="mirror", serviceAccountName="mirror", watches=[everywhere], config=config)
    role = f"{RBAC}/namespaces/{tenant.name}/roles/{tenant.name}-mirror"
    granted_watches = ("True", "Granted")
    async with host.serving_here(QUICK):
        tenant.config_map("one", x="1")
        metadata = {"namespace": tenant.name, "name": "wide", "labels": selector["matchLabels"]}
        tenant.make({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"y": "1"}})
        await until(lambda: target.data("one") == {"x": "1"}, "it is called")
        await until(
            lambda: tenant.condition("wide", "WatchesGranted") == ("False", "AccountForbidden"), "it may not see all"
        )
        assert target.data("wide") is None
        await until(lambda: tenant.condition("mirror", "WatchesGranted") == granted_watches, "it may see all")
        assert cluster_api.call("PATCH", role, {"rules": [CONFIG_MAPS]})[0] == http.HTTPStatus.OK
        await until(lambda: _refused_after_a_change(tenant), "one of its watches is refused")
        assert tenant.condition("mirror", "Ready") == ("False", "AccountForbidden")
        before, calls = target.data("one"), host.metric("trellis_controller_call_seconds_count")
        tenant.config_map("one", x="last")
        reviews = _reviews(host)
        await until(lambda: _reviews(host) > reviews + 4, "the account is asked about again and again")
        assert cluster_api.call("PATCH", role, {"rules": [CONFIG_MAPS, JOBS]})[0] == http.HTTPStatus.OK
        assert (target.data("one"), host.metric("trellis_controller_call_seconds_count")) == (before, calls)
        with everywhere_granted(cluster_api, tenant):
            await until(lambda: (target.data("one") or {}).get("x") == "last", "it is called again")
            await until(lambda: tenant.condition("mirror", "WatchesGranted") == granted_watches, "and says so")
            await until(lambda: target.data("wide") is not None, "the other one is called, too")
            await until(lambda: tenant.condition("wide", "WatchesGranted") == granted_watches, "and says so")


def _reviews(host: Host) -> float:
    return host.metric("trellis_kube_requests_total", resource="subjectaccessreviews")


_CHANGES = itertools.count()


def _refused_after_a_change(tenant: Tenant) -> bool:
    """Change an object, which has the account asked about when what is known is old; return whether it is refused."""
    tenant.config_map("one", x=f"change-{next(_CHANGES)}")
    return tenant.condition("mirror", "WatchesGranted") == ("False", "AccountForbidden")


@contextlib.contextmanager
def everywhere_granted(api: Api, tenant: Tenant) -> Iterator[None]:
    """Let the account see ConfigMaps in all namespaces."""
    metadata, rbac = {"name": f"{tenant.name}-wide"}, {"apiVersion": "rbac.authorization.k8s.io/v1"}
    rules = [CONFIG_MAPS | {"verbs": ["list", "watch"]}]
    subject = {"kind": "ServiceAccount", "namespace": tenant.name, "name": "mirror"}
    made = {
        "clusterroles": rbac | {"kind": "ClusterRole", "metadata": metadata, "rules": rules},
        "clusterrolebindings": rbac
        | {"kind": "ClusterRoleBinding", "metadata": metadata, "subjects": [subject]}
        | {"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": metadata["name"]}},
    }
    for plural, manifest in made.items():
        assert api.call("POST", f"{RBAC}/{plural}", manifest)[0] == http.HTTPStatus.CREATED
    try:
        yield
    finally:
        for plural in made:
            api.call("DELETE", f"{RBAC}/{plural}/{metadata['name']}")
