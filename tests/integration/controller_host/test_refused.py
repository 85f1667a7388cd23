"""A write that admission refuses to controller_host or to its controllers is reported in the server's words."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator

import pytest

from support.cluster.validating_policies import refusing, rule
from support.guests.controllers_world import CONFIG_MAPS, Host, Tenant, prebuilt, until
from support.nodes.fleet import Fleet, Manifest
from support.suite.service_process import get
from trellis.kube.resources import WASM_CONTROLLERS
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.api import Api

pytestmark = [pytest.mark.cluster, pytest.mark.nats]

MESSAGE = "no owner is named"
SECONDS = 30.0
"""After which everything has recovered."""


@pytest.fixture
def fleet(cluster: ClusterInfo, cluster_api: Api) -> Fleet:
    return Fleet(cluster, cluster_api)


def readiness(host: Host) -> str:
    """Return what readiness names."""
    return json.dumps(json.loads(get(host.port, "/readyz")[1]))


def message(tenant: Tenant, name: str) -> str:
    """Return the last fault of a controller."""
    return str((tenant.status(name).get("lastFault") or {}).get("message", ""))


@contextlib.asynccontextmanager
async def refusing_in(
    fleet: Fleet, tenant: Tenant, matched: Manifest, call: tuple[str, str, Manifest]
) -> AsyncIterator[None]:
    method, path, probe = call
    forbidden = lambda: MESSAGE in str(fleet.api.call(method, f"{path}?dryRun=All", probe)[1])  # noqa: E731
    async with refusing(fleet, matched, MESSAGE, f"request.namespace == '{tenant.name}'", forbidden):
        yield


@pytest.mark.thorough
async def test_a_status_that_a_policy_refuses_is_in_readiness_until_it_is_written(
    host: Host, tenant: Tenant, target: Tenant, fleet: Fleet
) -> None:
    tenant.account("mirror", CONFIG_MAPS, namespaces=(tenant.name, target.name))
    tenant.module("mirror", prebuilt("mirror"))
    tenant.controller("mirror", config={"targetNamespace": target.name})
    status = {"status": {"observedGeneration": 1}}
    matched = rule(WASM_CONTROLLERS.group, f"{WASM_CONTROLLERS.plural}/status", "UPDATE") | {"apiVersions": ["*"]}
    call = ("PATCH", WASM_CONTROLLERS.path(tenant.name, "mirror", "status"), status)
    async with host.serving():
        await until(lambda: tenant.condition("mirror", "Accepted")[0] == "True", "it is accepted")
        async with refusing_in(fleet, tenant, matched, call):
            tenant.change("mirror", {"paused": True})
            await until(lambda: MESSAGE in readiness(host), "in readiness")
        await until(lambda: tenant.condition("mirror", "Ready") == ("False", "Paused"), "the status", SECONDS)
        await until(lambda: MESSAGE not in readiness(host), "readiness names it no more")


async def test_a_refused_write_of_a_controller_is_its_last_fault(
    host: Host, tenant: Tenant, target: Tenant, fleet: Fleet
) -> None:
    tenant.account("mirror", CONFIG_MAPS, namespaces=(tenant.name, target.name))
    tenant.module("mirror", prebuilt("mirror"))
    tenant.controller("mirror", config={"targetNamespace": target.name})
    call = ("POST", f"/api/v1/namespaces/{target.name}/configmaps", {"metadata": {"name": "probe"}})
    async with host.serving():
        async with refusing_in(fleet, target, rule("", "configmaps", "CREATE", "UPDATE"), call):
            tenant.config_map("one", color="red")
            await until(lambda: MESSAGE in message(tenant, "mirror"), "in the status")
            await until(lambda: any(MESSAGE in str(event["message"]) for event in tenant.events()), "an Event")
            await until(lambda: tenant.status("mirror")["failing"] == 1, "one object is counted")
        await until(lambda: target.data("one") == {"color": "red"}, "it is mirrored", SECONDS)
