"""deploy/examples/controllers do what they are for; controller_host has the permissions that it has where installed."""

from __future__ import annotations

import asyncio
import contextlib
import http
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from controller_host.domain.resources import ACCOUNT
from support.cluster.grants import SYSTEM, granted, manifests
from support.examples.applied_examples import Kubectl, free
from support.guests.controllers_world import Host, Tenant, define, until
from support.lattices.host_world import PATIENCE
from support.suite.service_process import get
from trellis.kube.resources import JOBS, LEASES
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.api import Api
from trellis_dev.localcluster.nats import NatsServer

pytestmark = [pytest.mark.cluster, pytest.mark.nats]

TEAM, COPIES = "team-a", "copies"
LONG_AGO = "2020-01-01T00:00:00Z"


@pytest.fixture
def host(cluster: ClusterInfo, cluster_api: Api, nats_server: NatsServer, tmp_path: Path) -> Iterator[Host]:
    define(cluster_api)
    with free(cluster_api, TEAM, COPIES), granted(cluster, cluster_api, ACCOUNT, tmp_path) as account:
        account.apply(manifests("controller-host.yaml"))
        cluster_api.call("DELETE", LEASES.path(SYSTEM, ACCOUNT))
        settings = {"TRELLIS_KUBECONFIG": str(account.kubeconfig), "TRELLIS_NAMESPACE": SYSTEM}
        yield Host(cluster, nats_server.url, tmp_path, settings)


@pytest.fixture
def team(cluster_api: Api) -> Tenant:
    return Tenant(cluster_api, TEAM)


@contextlib.asynccontextmanager
async def applied(host: Host, kubectl: Kubectl) -> AsyncIterator[None]:
    """Have the example applied where the service runs, and its controllers ready."""
    async with host.serving():
        await until(lambda: get(host.port, "/readyz")[0] == http.HTTPStatus.OK, "it runs", 2 * PATIENCE)
        await asyncio.to_thread(kubectl.apply, "controllers")
        for name in ("mirror", "ttl"):
            await asyncio.to_thread(kubectl.wait, "Ready", f"wasmcontroller/{name}", TEAM)
        yield


async def test_the_mirror_copies_what_is_labelled_and_follows_it(host: Host, team: Tenant, kubectl: Kubectl) -> None:
    async with applied(host, kubectl):
        kubectl("create", "configmap", "settings", "-n", TEAM, "--from-literal=colour=blue")
        kubectl("create", "configmap", "other", "-n", TEAM, "--from-literal=colour=red")
        kubectl("label", "configmap", "settings", "-n", TEAM, "examples.trellis.dev/mirror=yes")
        await until(lambda: team.data("settings", COPIES) == {"colour": "blue"}, "it is copied")
        kubectl("delete", "configmap", "settings", "-n", TEAM)
        await until(lambda: team.data("settings", COPIES) is None, "its copy goes with it")
        assert team.data("other", COPIES) is None, "nobody asked for a copy of it"


@pytest.mark.thorough
async def test_the_ttl_deletes_jobs_that_ended_and_leaves_those_that_did_not(
    host: Host, team: Tenant, kubectl: Kubectl, cluster_api: Api
) -> None:
    def there(name: str) -> bool:
        return cluster_api.call("GET", JOBS.path(TEAM, name))[0] == http.HTTPStatus.OK

    def reported() -> list[str]:
        return [event["involvedObject"]["name"] for event in team.events() if event["reason"] == "TimeToLiveExpired"]

    async with applied(host, kubectl):
        for name in ("ended", "waits"):
            team.make(suspended(name))
        fail(cluster_api, "ended")
        await until(lambda: not there("ended") and reported() == ["ended"], "it is deleted, and that is told")
        assert there("waits")


def suspended(name: str) -> dict[str, Any]:
    """A Job that Kubernetes does nothing about."""
    container = {"name": "once", "image": "example.com/once:1"}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    metadata = {"name": name, "namespace": TEAM}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {"suspend": True, "template": template},
    }


def fail(api: Api, name: str) -> None:
    """Say of a Job, as Kubernetes would, that it failed long ago."""
    ends = [{"type": kind, "status": "True", "lastTransitionTime": LONG_AGO} for kind in ("FailureTarget", "Failed")]
    status = {"startTime": LONG_AGO, "conditions": ends}
    code, answer = api.call("PATCH", JOBS.path(TEAM, name, "status"), {"status": status})
    assert code == http.HTTPStatus.OK, answer
