"""Groups that wasmcloud-operator made keep their pods; what we do better comes with the next roll."""

from __future__ import annotations

import http
import json
from typing import Any

import pytest

from support.lattices.host_groups import CASES, FORMER_NAME, TODAYS_NAME, children
from support.lattices.host_world import CHILDREN, PATIENCE, HostWorld
from support.nodes.fleet import eventually
from trellis import names
from trellis.kube.resources import DEPLOYMENTS, HOST_CONFIGS

pytestmark = [pytest.mark.cluster, pytest.mark.thorough]


def docker_config(**auths: dict[str, str]) -> str:
    return json.dumps({"auths": auths})


def named_by_full(hosts: HostWorld) -> None:
    """Make what the recorded group `full` names."""
    auth = {"username": "u1", "password": "p1", "auth": "dTE6cDE="}
    hosts.secret("wasmcloud-registry", **{".dockerconfigjson": docker_config(**{"registry.example.com": auth})})
    hosts.secret("cluster-secrets", **{"nats.creds": "-----BEGIN NATS USER JWT-----"})
    hosts.secret("ca1", **{"ca.crt": "x", "other.txt": "y"})
    data = {"corp.crt": "x", "note": "y"}
    path = f"/api/v1/namespaces/{hosts.namespace}/configmaps"
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ca2"}, "data": data}
    assert hosts.api.call("POST", path, config_map)[0] == http.HTTPStatus.CREATED


def managers(found: dict[str, Any]) -> set[str]:
    return {entry["manager"] for entry in found["metadata"]["managedFields"] if entry["operation"] == "Apply"}


@pytest.mark.parametrize("operator", [TODAYS_NAME, FORMER_NAME])
@pytest.mark.parametrize("case", CASES)
async def test_adopting_a_group_changes_its_pods_only_where_they_show_credentials(
    hosts: HostWorld, case: str, operator: str
) -> None:
    if case == "full":
        named_by_full(hosts)
    await hosts.as_recorded(case, operator)
    kind = "DaemonSet" if case == "daemonset" else "Deployment"

    def workload() -> dict[str, Any]:
        found: dict[str, Any] = hosts.call("GET", CHILDREN[kind], case)
        return found

    def running() -> set[str]:
        return {pod["metadata"]["uid"] for pod in hosts.pods(case) if pod["status"].get("phase") == "Running"}

    wanted = 1 if case == "minimal" else 2
    await eventually(lambda: len(running()) == wanted, "the pods run", seconds=PATIENCE)
    before = running()
    assert workload()["metadata"]["generation"] == 1
    async with hosts.service():
        await hosts.settled(case, revision=1)
        for child in children(case):
            found = hosts.call("GET", CHILDREN[child], case)
            assert managers(found) == {names.FIELD_MANAGER_HOST_MANAGER}, child
        assert workload()["metadata"]["generation"] == (2 if case == "full" else 1)
        assert hosts.call("GET", HOST_CONFIGS, case)["metadata"]["finalizers"] == [names.FINALIZER_HOSTS]
        if case == "full":
            shown = json.dumps(workload())
            assert '"p1"' not in shown
            assert '"u1"' not in shown
        else:
            assert running() == before


async def test_an_adopted_group_gets_the_template_of_trellis_when_its_user_rolls_it(hosts: HostWorld) -> None:
    await hosts.as_recorded("minimal")
    async with hosts.service():
        await hosts.settled("minimal", revision=1)
        hosts.change("minimal", hostReplicas=2)  # no reason to roll
        await hosts.settled("minimal", revision=1)
        hosts.change("minimal", logLevel="DEBUG")
        await hosts.settled("minimal", revision=2)
    template = hosts.call("GET", DEPLOYMENTS, "minimal")["spec"]["template"]
    assert names.ANNOTATION_CHECKSUM in template["metadata"]["annotations"]


async def test_an_adopted_group_gets_the_template_of_trellis_when_its_user_requests_it(hosts: HostWorld) -> None:
    await hosts.as_recorded("minimal")
    async with hosts.service():
        await hosts.settled("minimal", revision=1)
        annotations = {names.ANNOTATION_TEMPLATE: names.TEMPLATE_LATEST}
        hosts.call("PATCH", HOST_CONFIGS, "minimal", {"metadata": {"annotations": annotations}})
        await hosts.settled("minimal", revision=2)
