"""The number of requests for a group, and discovery of changes without polling."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from support.cluster.exclusion import place
from support.lattices.host_world import CHILDREN, PATIENCE, HostWorld
from support.nodes.fleet import eventually, is_ours
from support.suite.tiers import first_of
from trellis import names
from trellis.kube.resources import BUDGETS, CONFIGMAPS, DEPLOYMENTS, EVENTS, HOST_CONFIGS, PODS
from trellis.runtime.run import LedService

pytestmark = pytest.mark.cluster

SELDOM = 600.0
GROUPS_AT_ONCE = 20
NEW_GROUP: Counter[tuple[str, str]] = Counter(
    {
        ("GET", "roles"): 1,
        ("GET", "rolebindings"): 1,
        ("GET", "services"): 1,
        ("PATCH", "configmaps"): 1,
        ("PATCH", "serviceaccounts"): 1,
        ("PATCH", "deployments"): 1,
        ("PATCH", "roles"): 1,
        ("PATCH", "rolebindings"): 1,
        ("PATCH", "services"): 1,
        ("PATCH", "poddisruptionbudgets"): 1,
    }
)
"""Calls for the children of a new group, by verb and resource. No other child is read, none is tried by a dry run."""
NEW_GROUP_ITSELF = {("PATCH", "wasmcloudhostconfigs"): 4, ("GET", "wasmcloudhostconfigs"): 8, ("GET", "deployments"): 7}
"""At most: its finalizer (1), statuses (1 on a quiet machine; as its Deployment is seen, as its lattice is away), and
the reads before these."""
LOOK = 10
"""Reads of a whole group that names nothing: itself and nine children that it may have."""


def calls(service: LedService) -> Counter[tuple[str, str]]:
    """Return how often the service called the API server by now, by verb and resource, watches left out."""
    found: Counter[tuple[str, str]] = Counter()
    for family in service.telemetry.metrics.registry.collect():
        for sample in family.samples:
            if sample.name == "trellis_kube_requests_total" and sample.labels["service"] == service.name:
                found[sample.labels["verb"], sample.labels["resource"]] += int(sample.value)
    return Counter({key: count for key, count in found.items() if key[0] not in {"WATCH", "LIST"}})


@pytest.mark.thorough
async def test_a_new_group_is_made_with_few_calls(hosts: HostWorld) -> None:
    async with hosts.service(sources_interval=SELDOM) as service:
        hosts.create("first", hostReplicas=0)
        await hosts.settled("first")
        before = calls(service)
        hosts.create("group", hostReplicas=0, hostLabels={"zone": "a"})
        await hosts.settled("group")
        made = calls(service) - before
        other = {"leases", "readyz", "events", "wasmcloudhostconfigs"}
        children = Counter({key: n for key, n in made.items() if key[1] not in other and key != ("GET", "deployments")})
        assert children == NEW_GROUP
        assert all(made[key] <= most for key, most in NEW_GROUP_ITSELF.items()), made


async def test_a_look_at_a_group_in_which_nothing_changed_reads_it_once(hosts: HostWorld) -> None:
    async with hosts.service(sources_interval=0.5) as service:
        hosts.create("group", hostReplicas=0)
        await hosts.settled("group")

        def looks() -> int:
            return calls(service)["GET", "configmaps"]

        start = looks()
        await eventually(lambda: looks() > start + 2, "it is looked at", seconds=PATIENCE)
        offset, before = hosts.fleet.audit_offset(), calls(service)
        await eventually(lambda: looks() > before["GET", "configmaps"] + 4, "it is looked at again", seconds=PATIENCE)
        made = calls(service) - before
        looked = made["GET", "configmaps"]
        # One more may be under way, and one begun before.
        reads = sum(count for (verb, what), count in made.items() if verb == "GET" and what != "readyz")
        assert reads <= (looked + 2) * LOOK
        written = [place(write) for write in hosts.fleet.writes(offset) if is_ours(write)]
        assert [where for where in written if where[1] == hosts.namespace] == []


@pytest.mark.thorough
async def test_of_many_groups_made_at_once_each_child_is_written_once(hosts: HostWorld) -> None:
    async with hosts.service(sources_interval=SELDOM):
        hosts.create("first", hostReplicas=0)
        await hosts.settled("first")
        offset = hosts.fleet.audit_offset()
        wanted = [f"group-{number}" for number in range(GROUPS_AT_ONCE)]
        for name in wanted:
            hosts.create(name, hostReplicas=0)
        for name in wanted:
            await hosts.settled(name)
        ours = [write for write in hosts.fleet.writes(offset) if is_ours(write)]
        objects = [
            write["objectRef"] for write in ours if write.get("objectRef", {}).get("namespace") == hosts.namespace
        ]
        written = Counter(
            (item["resource"], item["name"]) for item in objects if item["resource"] != HOST_CONFIGS.plural
        )
        kinds = [*(kind.plural for kind in CHILDREN.values() if kind.kind != "DaemonSet"), BUDGETS.plural]
        assert written == Counter({(kind, name): 1 for kind in kinds for name in wanted})


def of_another(hosts: HostWorld, kind: str, name: str) -> dict[str, Any]:
    """Create an object that another one controls, and return it."""
    owner = hosts.call("POST", CONFIGMAPS, body={"metadata": {"name": "owner"}})["metadata"]["uid"]
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner, "controller": True}
    body: dict[str, Any] = {"metadata": {"name": name, "ownerReferences": [reference]}}
    labels = {"app": "another"}
    pod = {"containers": [{"name": "one", "image": "example.com/one"}]}
    template = {"metadata": {"labels": labels}, "spec": pod}
    specs: dict[str, dict[str, Any]] = {
        "Service": {"spec": {"ports": [{"port": 80}]}},
        "Deployment": {"spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}},
        "RoleBinding": {"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "x"}},
    }
    made: dict[str, Any] = hosts.call("POST", CHILDREN[kind], body=body | specs.get(kind, {}))
    return made


@pytest.mark.parametrize("kind", first_of(["Deployment", "ConfigMap", "ServiceAccount", "Service", "RoleBinding"]))
async def test_a_child_owned_by_another_controller_is_left_alone_and_no_hosts_are_created(
    hosts: HostWorld, kind: str
) -> None:
    theirs = of_another(hosts, kind, "group")
    async with hosts.service():
        hosts.create("group")
        await eventually(
            lambda: hosts.condition("group", "Degraded")[:2] == ("True", "ChildConflict"), kind, seconds=PATIENCE
        )
        assert f"{kind} {hosts.namespace}/group" in hosts.condition("group", "Degraded")[2]
    found = hosts.call("GET", CHILDREN[kind], "group")["metadata"]
    assert (found["uid"], found["ownerReferences"]) == (
        theirs["metadata"]["uid"],
        theirs["metadata"]["ownerReferences"],
    )
    assert kind == "Deployment" or hosts.find(DEPLOYMENTS, "group") is None
    reasons = {event["reason"] for event in hosts.call("GET", EVENTS)["items"]}
    assert "WriteRefused" not in reasons, "a refusal that was reckoned with is no news"


@pytest.mark.thorough
async def test_pods_labelled_as_before_0_5_1_are_seen(hosts: HostWorld) -> None:
    async with hosts.service():
        hosts.create("group", hostReplicas=0)
        labels = {names.LABEL_MANAGED_BY: "wasmcloud-operator", names.LABEL_INSTANCE: "group"}
        spec = {"containers": [{"name": "host", "image": "example.com/host"}]}
        hosts.call("POST", PODS, body={"metadata": {"name": "old", "labels": labels}, "spec": spec})
        await eventually(
            lambda: [host["pod"] for host in hosts.status("group").get("hosts") or ()] == ["old"],
            "the pod is shown",
            seconds=PATIENCE,
        )
