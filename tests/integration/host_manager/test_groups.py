"""A group creates pods, reports their health, and is deleted completely, whatever the state of the lattice."""

from __future__ import annotations

import asyncio
import http
from typing import Any

import pytest

from support.cluster.exclusion import place
from support.lattices.host_world import PATIENCE, HostWorld
from support.nodes.fleet import eventually, is_ours
from support.suite.tiers import first_of
from trellis import names
from trellis.kube.resources import BUDGETS, CONFIGMAPS, DAEMON_SETS, DEPLOYMENTS, HOST_CONFIGS, SECRETS, SERVICES

pytestmark = pytest.mark.cluster

NOWHERE = "nats://127.0.0.1:1"


async def test_a_group_becomes_pods_and_scales_and_goes(hosts: HostWorld) -> None:
    async with hosts.service():
        hosts.create("group", hostReplicas=2, hostLabels={"zone": "a"})
        await hosts.settled("group", revision=2)
        assert hosts.find(SERVICES, "group")
        assert hosts.find(BUDGETS, "group")
        status = hosts.status("group")
        numbers = ("desiredReplicas", "replicas", "readyReplicas", "updatedReplicas")
        assert [status[name] for name in numbers] == [2, 2, 2, 2]
        assert [host["reported"] for host in status["hosts"]] == ["Unknown", "Unknown"]

        scale = hosts.call("GET", HOST_CONFIGS, "group", sub="scale")
        assert (scale["spec"]["replicas"], scale["status"]["replicas"]) == (2, 2)
        assert names.LABEL_INSTANCE in scale["status"]["selector"]
        hosts.call("PATCH", HOST_CONFIGS, "group", {"spec": {"replicas": 3}}, sub="scale")
        await eventually(lambda: hosts.status("group").get("readyReplicas") == 3, "three hosts", seconds=PATIENCE)
        for number, pod in enumerate(hosts.pods("group")):
            hosts.give_address(pod, f"10.9.0.{number + 1}")
        await eventually(
            lambda: {host.get("ip") for host in hosts.status("group")["hosts"]} == {f"10.9.0.{n}" for n in (1, 2, 3)},
            "their addresses",
            seconds=PATIENCE,
        )

        hosts.call("DELETE", HOST_CONFIGS, "group")
        await eventually(lambda: hosts.find(HOST_CONFIGS, "group") is None, "the group is gone", seconds=PATIENCE)
        await eventually(lambda: hosts.find(DEPLOYMENTS, "group") is None, "its children too", seconds=PATIENCE)

        wanted = {"hosts.ready": 1, "host_pod.ready": 3, "hosts.removed": 1, "host_pod.gone": 3}
        async with asyncio.timeout(60):
            while True:
                events = await hosts.fleet.events_until_now()
                published = [f"{event.noun}.{event.event_name}" for event in events]
                if all(published.count(event_data) >= count for event_data, count in wanted.items()):
                    break
        ready = next(event.event["data"] for event in events if (event.noun, event.event_name) == ("host_pod", "ready"))
        assert (ready["lattice"], ready["labels"], ready["ports"]) == ("default", {"zone": "a"}, [4222])


async def test_a_group_that_lacks_what_it_names_reports_it_and_has_no_children(hosts: HostWorld) -> None:
    async with hosts.service():
        hosts.create("group", secretName="creds", registryCredentialsSecret="registry")

        def degraded(text: str) -> Any:
            return lambda: text in hosts.condition("group", "Degraded")[2]

        await eventually(degraded(f"Secret {hosts.namespace}/creds"), "the condition", seconds=PATIENCE)
        status, reason, message = hosts.condition("group", "Degraded")
        assert (status, reason) == ("True", "SecretMissing")
        assert f"Secret {hosts.namespace}/registry" in message
        assert hosts.find(CONFIGMAPS, "group") is None
        assert hosts.find(DEPLOYMENTS, "group") is None

        hosts.secret("creds", **{"nats.creds": "one"})
        hosts.secret("registry", wrong="key")
        await eventually(degraded(".dockerconfigjson"), "the key is named", seconds=PATIENCE)
        assert hosts.find(DEPLOYMENTS, "group") is None

        hosts.secret("registry", **{".dockerconfigjson": '{"auths": {"r.example.com": {"auth": "dTpw"}}}'})
        await hosts.settled("group")
        assert hosts.find(SECRETS, "group-registry")

        def checksum() -> str:
            template = hosts.call("GET", DEPLOYMENTS, "group")["spec"]["template"]
            return str(template["metadata"]["annotations"][names.ANNOTATION_CHECKSUM])

        before = checksum()
        hosts.secret("creds", **{"nats.creds": "two"})
        await eventually(lambda: checksum() != before, "the hosts are rolled", seconds=PATIENCE)
        await hosts.settled("group")


@pytest.mark.parametrize(
    ("options", "expected_text"),
    first_of(
        [
            pytest.param({"podTemplateAdditions": {"nodeSelecto": {"a": "b"}}}, "nodeSelecto"),
            pytest.param({"containerTemplateAdditions": {"nats": {"ports": [{"containerPort": 70000}]}}}, "70000"),
            pytest.param({"podTemplateAdditions": {"volumes": "x"}}, "podTemplateAdditions.volumes"),
        ]
    ),
    ids=["unknown field", "bad value", "bad shape"],
)
async def test_pods_that_cannot_be_are_refused_before_anything_changes(
    hosts: HostWorld, options: dict[str, Any], expected_text: str
) -> None:
    async with hosts.service():
        hosts.create("group")
        await hosts.settled("group")
        generation = hosts.call("GET", DEPLOYMENTS, "group")["metadata"]["generation"]
        hosts.change("group", schedulingOptions=options, leafNodeDomain="other")
        await eventually(
            lambda: hosts.condition("group", "Degraded")[:2] == ("True", "InvalidTemplate"),
            expected_text,
            seconds=PATIENCE,
        )
        assert expected_text in hosts.condition("group", "Degraded")[2]
        assert hosts.condition("group", "Available")[0] == "True", "the hosts that run are none the worse for it"
        assert hosts.call("GET", DEPLOYMENTS, "group")["metadata"]["generation"] == generation
        assert "other" not in hosts.call("GET", CONFIGMAPS, "group")["data"]["nats.conf"]


@pytest.mark.thorough
async def test_a_group_that_becomes_a_daemonset_leaves_no_deployment(hosts: HostWorld) -> None:
    async with hosts.service():
        hosts.create("group")
        await hosts.settled("group")
        hosts.change("group", schedulingOptions={"daemonset": True})
        await eventually(lambda: hosts.find(DEPLOYMENTS, "group") is None, "the Deployment is gone", seconds=PATIENCE)
        assert hosts.find(DAEMON_SETS, "group")
        await eventually(lambda: hosts.status("group").get("workload") == "DaemonSet", "said so", seconds=PATIENCE)


async def test_a_change_by_a_user_on_a_child_is_reverted(hosts: HostWorld) -> None:
    async with hosts.service():
        hosts.create("group")
        await hosts.settled("group")
        hosts.call("PATCH", CONFIGMAPS, "group", {"data": {"nats.conf": "mine"}})
        await eventually(
            lambda: "leafnodes" in hosts.call("GET", CONFIGMAPS, "group")["data"]["nats.conf"],
            "it is put right",
            seconds=PATIENCE,
        )


@pytest.mark.thorough
async def test_labels_that_are_removed_from_a_deployment_are_put_back_and_no_host_is_restarted(
    hosts: HostWorld,
) -> None:
    async with hosts.service():
        hosts.create("group")
        await hosts.settled("group", revision=2)
        before = hosts.call("GET", DEPLOYMENTS, "group")
        hosts.call("PATCH", DEPLOYMENTS, "group", {"metadata": {"labels": None}})

        def restored() -> bool:
            return bool(
                hosts.call("GET", DEPLOYMENTS, "group")["metadata"].get("labels") == before["metadata"]["labels"]
            )

        await eventually(restored, "the labels are put back", seconds=PATIENCE)
        assert hosts.call("GET", DEPLOYMENTS, "group")["metadata"]["generation"] == before["metadata"]["generation"]


@pytest.mark.thorough
async def test_a_group_in_which_nothing_changes_is_not_written(hosts: HostWorld) -> None:
    """Quantities in words of their own: the API server stores 1000m as 1, which must not look like a difference."""
    resources = {"wasmcloud": {"requests": {"cpu": "1000m"}}}
    async with hosts.service(sources_interval=0.1) as service:
        hosts.create("group", schedulingOptions={"resources": resources})
        await hosts.settled("group")
        labels = {"service": service.name, "queue": "groups"}

        def runs() -> float:
            registry = service.telemetry.metrics.registry
            return registry.get_sample_value("trellis_handler_seconds_count", labels) or 0

        start = runs()
        await eventually(lambda: runs() > start + 3, "it is looked at", seconds=PATIENCE)
        offset, start = hosts.fleet.audit_offset(), runs()
        await eventually(lambda: runs() > start + 10, "it is looked at again", seconds=PATIENCE)
        written = [place(write) for write in hosts.fleet.writes(offset) if is_ours(write)]
        assert [where for where in written if where[1] == hosts.namespace] == []


async def test_everything_goes_on_without_the_bus(hosts: HostWorld) -> None:
    async with hosts.service(nats_url=NOWHERE):
        hosts.create("group")
        await hosts.settled("group")
        hosts.call("DELETE", HOST_CONFIGS, "group")
        await eventually(lambda: hosts.find(HOST_CONFIGS, "group") is None, "the group is gone", seconds=PATIENCE)


async def test_nothing_is_written_but_a_condition_while_the_other_operator_runs(hosts: HostWorld) -> None:
    labels = {"app.kubernetes.io/name": "wasmcloud-operator"}
    pod = {"containers": [{"name": "operator", "image": "ghcr.io/wasmcloud/wasmcloud-operator:0.5.0"}]}
    spec = {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "operator"}, "spec": spec}
    hosts.call("POST", DEPLOYMENTS, body=deployment)
    async with hosts.service():
        hosts.create("group")
        await eventually(
            lambda: hosts.condition("group", "OtherControllerActive")[0] == "True", "it says so", seconds=PATIENCE
        )
        assert "finalizers" not in hosts.call("GET", HOST_CONFIGS, "group")["metadata"]
        assert hosts.find(CONFIGMAPS, "group") is None
        status, _ = hosts.api.call("DELETE", DEPLOYMENTS.path(hosts.namespace, "operator"))
        assert status == http.HTTPStatus.OK
        await hosts.settled("group")
        assert hosts.condition("group", "OtherControllerActive")[0] == "False"

        hosts.call("POST", DEPLOYMENTS, body=deployment)  # reinstalled beside Trellis
        await eventually(
            lambda: hosts.condition("group", "OtherControllerActive")[0] == "True", "it says so again", seconds=PATIENCE
        )
        hosts.call("DELETE", DEPLOYMENTS, "group")
        hosts.create("other")
        await eventually(
            lambda: hosts.condition("other", "OtherControllerActive")[0] == "True", "of all groups", seconds=PATIENCE
        )
        assert hosts.find(DEPLOYMENTS, "group") is None, "it is the other operator's"
        assert hosts.find(DEPLOYMENTS, "other") is None
        hosts.api.call("DELETE", DEPLOYMENTS.path(hosts.namespace, "operator"))
        for name in ("group", "other"):
            await eventually(lambda name=name: hosts.find(DEPLOYMENTS, name), "it is made", seconds=PATIENCE)


@pytest.mark.thorough
async def test_a_finalizer_removed_by_hand_from_a_living_group_is_put_back(hosts: HostWorld) -> None:
    async with hosts.service():
        hosts.create("group")
        await hosts.settled("group")
        before = hosts.call("GET", DEPLOYMENTS, "group")["metadata"]["uid"]
        hosts.call("PATCH", HOST_CONFIGS, "group", {"metadata": {"finalizers": None}})

        def back() -> bool:
            return names.FINALIZER_HOSTS in hosts.call("GET", HOST_CONFIGS, "group")["metadata"].get("finalizers", [])

        await eventually(back, "the finalizer is back", seconds=PATIENCE)
        assert hosts.call("GET", DEPLOYMENTS, "group")["metadata"]["uid"] == before
