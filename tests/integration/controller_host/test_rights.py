"""controller_host, with the rights under deploy/rbac and of `trellis controllers roles`, is refused nothing."""

from __future__ import annotations

import contextlib
import http
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from controller_host.resources import ACCOUNT
from support.controllers_world import CONFIG_MAPS, Host, Tenant, prebuilt, until
from support.fleet import Fleet
from support.grants import SYSTEM, Granted, given, granted, manifests, refused, used
from trellis.kube.resources import LEASES
from trellis.localcluster import ClusterInfo
from trellis.localcluster.api import Api

pytestmark = [pytest.mark.cluster, pytest.mark.nats, pytest.mark.xdist_group("cluster")]

FORBIDDEN = http.HTTPStatus.FORBIDDEN


def printed(*arguments: str) -> str:
    command = [sys.executable, "-m", "trellis_bundle", "controllers", "roles", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


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
    tenant.account("mirror", CONFIG_MAPS, namespaces=(tenant.name, target.name))
    tenant.module("mirror", prebuilt("mirror"))
    job = {"apiVersion": "batch/v1", "kind": "Job"}
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "labelSelector": {"matchLabels": {"watched": "true"}}}
    fleet = Fleet(cluster, cluster_api)
    mark = fleet.mark()
    async with installed(host, cluster, cluster_api, tmp_path) as account:
        tenant.controller("mirror", config={"targetNamespace": target.name}, watches=[config_map, job])
        await until(lambda: tenant.condition("mirror", "Accepted")[0] == "False", "it may not be the account yet")
        message = next(one["message"] for one in tenant.status("mirror")["conditions"] if one["type"] == "Accepted")
        command = message.split("`")[1].partition(" | ")[0]
        assert command == f"trellis controllers roles -n {tenant.name} -a mirror"
        account.apply(yaml.safe_load_all(printed(*command.split()[3:])))
        tenant.config_map("one", x="1")
        await until(lambda: target.data("one") == {"x": "1"}, "mirrored", 90.0)
        await until(lambda: tenant.condition("mirror", "Ready")[0] == "True", "it says so")
        user = account.user
    records = fleet.writes(mark)
    assert [one for one in refused(records, user) if "impersonate" not in one] == []
    # What is done as an account is that account's to do, and was refused while there was no Role.
    records = [one for one in records if not one.get("impersonatedUser") and one["responseStatus"]["code"] != FORBIDDEN]
    wanted = {(verb, resource) for verb, resource, _ in given(manifests("controller-host.yaml"))}
    found = {(verb, resource) for verb, resource, _ in used(records, user)}
    assert found <= wanted
    assert wanted - found <= {("get", "events"), ("patch", "events")}, "an Event that is repeated needs them"
