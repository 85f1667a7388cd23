"""Writes of host_manager that admission refuses: reported on the group and in readiness, and recovered from."""

from __future__ import annotations

import contextlib
import http
from collections.abc import AsyncIterator

import pytest

from support.cluster.validating_policies import refusing, rule
from support.lattices.host_world import PATIENCE, HostWorld
from support.nodes.fleet import Manifest, eventually
from trellis.kube.resources import DEPLOYMENTS, EVENTS, HOST_CONFIGS, Resource
from trellis.runtime.run import LedService

pytestmark = pytest.mark.cluster

MESSAGE = "no owner is named"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
SECONDS = 30.0
"""After which everything has recovered."""


def noted(service: LedService, expected_text: str) -> bool:
    """Return whether readiness names these words."""
    return expected_text in str((service.health.readiness().reasons, service.health.notes()))


async def reported(hosts: HostWorld, service: LedService, expected_text: str) -> None:
    """Wait until a refusal is reported on the group, by an Event, and in readiness."""
    await eventually(
        lambda: hosts.condition("group", "Degraded")[:2] == ("True", "WriteRefused"), "WriteRefused", seconds=PATIENCE
    )
    assert expected_text in hosts.condition("group", "Degraded")[2]
    events = lambda: [item for item in hosts.call("GET", EVENTS)["items"] if item["reason"] == "WriteRefused"]  # noqa: E731
    await eventually(lambda: any(expected_text in event["message"] for event in events()), "an Event")
    await eventually(lambda: noted(service, expected_text), "in readiness")


async def recovered(hosts: HostWorld, service: LedService, expected_text: str) -> None:
    await eventually(lambda: hosts.find(DEPLOYMENTS, "group"), "there is a Deployment", seconds=SECONDS)
    await hosts.settled("group")
    await eventually(lambda: not noted(service, expected_text), "readiness names it no more")


@contextlib.asynccontextmanager
async def refusing_all(hosts: HostWorld, res: Resource, probe: Manifest) -> AsyncIterator[None]:
    """Have a policy refuse what a kind gets in the test's namespace."""
    path = f"{res.path(hosts.namespace)}?dryRun=All"
    forbidden = lambda: MESSAGE in str(hosts.api.call("POST", path, probe)[1])  # noqa: E731
    only = f"request.namespace == '{hosts.namespace}'"
    async with refusing(hosts.fleet, rule(res.group, res.plural, "CREATE"), MESSAGE, only, forbidden):
        yield


PROBE: Manifest = {
    "metadata": {"name": "probe"},
    "spec": {
        "selector": {"matchLabels": {"probe": "x"}},
        "template": {"metadata": {"labels": {"probe": "x"}}, "spec": {"containers": [{"name": "x", "image": "x"}]}},
    },
}


async def test_a_deployment_that_a_policy_refuses_is_reported_and_written_once_it_is_permitted(
    hosts: HostWorld,
) -> None:
    async with hosts.service() as service:
        async with refusing_all(hosts, DEPLOYMENTS, PROBE):
            hosts.create("group")
            await reported(hosts, service, MESSAGE)
        await recovered(hosts, service, MESSAGE)


@pytest.mark.thorough
async def test_a_webhook_that_cannot_be_called_is_reported_in_the_api_servers_words(hosts: HostWorld) -> None:
    name = f"away-{hosts.fleet.id}"
    webhook = {
        "name": "away.test.trellis.dev",
        "clientConfig": {"url": "https://127.0.0.1:9/x"},
        "rules": [rule(DEPLOYMENTS.group, DEPLOYMENTS.plural, "CREATE")],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": hosts.namespace}},
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    body = {"metadata": {"name": name}, "webhooks": [webhook]}
    path = f"{DEPLOYMENTS.path(hosts.namespace)}?dryRun=All"
    async with hosts.service() as service:
        assert hosts.api.call("POST", WEBHOOKS, body)[0] == http.HTTPStatus.CREATED
        try:
            await eventually(lambda: "webhook" in str(hosts.api.call("POST", path, PROBE)[1]), "it is in force")
            hosts.create("group")
            await reported(hosts, service, "failed calling webhook")
        finally:
            hosts.api.call("DELETE", f"{WEBHOOKS}/{name}")
        await recovered(hosts, service, "failed calling webhook")


@pytest.mark.thorough
async def test_a_status_that_a_policy_refuses_is_in_readiness(hosts: HostWorld) -> None:
    hosts.create("group")
    path = f"{HOST_CONFIGS.path(hosts.namespace, 'group', 'status')}?dryRun=All"
    patch = {"status": {"apps": [], "app_count": 0}}
    forbidden = lambda: MESSAGE in str(hosts.api.call("PATCH", path, patch)[1])  # noqa: E731
    matched = rule(HOST_CONFIGS.group, f"{HOST_CONFIGS.plural}/status", "UPDATE") | {"apiVersions": ["*"]}
    only = f"request.namespace == '{hosts.namespace}'"
    async with refusing(hosts.fleet, matched, MESSAGE, only, forbidden), hosts.service() as service:
        await eventually(lambda: noted(service, MESSAGE), "in readiness", seconds=PATIENCE)
        await eventually(lambda: hosts.find(DEPLOYMENTS, "group"), "there is a Deployment all the same")
