"""The reports about workloads use each permission of their ClusterRole, and no other one."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from support.cluster.grants import manifests
from support.cluster.kube_world import until
from support.wasm_pods.objects import crashing, event, pod, workload
from support.wasm_pods.reported import SHORT, World, of_deployment, owned
from trellis.kube.resources import ALL, CRON_JOBS, DAEMON_SETS, EVENTS, JOBS, REPLICA_SETS, STATEFUL_SETS
from trellis.kube.transport import HttpRequest

Permission = tuple[str, str, str]
REFUSED = 'pods "x" is forbidden: exceeded quota: small'
KNOWN = {(res.api_version, res.plural): res for res in ALL}


def given() -> set[Permission]:
    [role] = [
        item
        for item in manifests("provisioner.yaml")
        if (item["kind"], item["metadata"]["name"]) == ("ClusterRole", "trellis-provisioner-workloads")
    ]
    return {
        (verb, group, resource)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def permission(request: HttpRequest) -> Permission:
    _, root, *parts = request.path.split("/")
    version, parts = (parts[0], parts[1:]) if root == "api" else ("/".join(parts[:2]), parts[2:])
    if parts[0] == "namespaces" and len(parts) > 2:
        parts = parts[2:]
    res = KNOWN[version, parts[0]]
    read = "watch" if "watch" in request.query else "get" if len(parts) > 1 else "list"
    return {"POST": "create", "PATCH": "patch"}.get(request.method, read), res.group, res.plural


def most_often(world: World) -> int:
    own = (found for found in world.kube.objects(EVENTS) if found.get("reportingComponent"))
    return max((found["count"] for found in own), default=0)


async def test_each_permission_is_used_and_none_is_missing() -> None:
    refused = {
        REPLICA_SETS: workload("hello-1"),
        STATEFUL_SETS: workload("db"),
        DAEMON_SETS: workload("log", status={"desiredNumberScheduled": 1}),
        JOBS: owned(workload("nightly-1", owner=("CronJob", "nightly", "uid-nightly")), "batch/v1"),
        CRON_JOBS: workload("other", jobTemplate={"spec": workload()["spec"]}),
    }
    at = datetime.now(UTC).isoformat()
    world = World(
        [
            (CRON_JOBS, workload("nightly")),
            *of_deployment(lambda owner: pod("hello-1-a", crashing(137), owner=owner)),
            *((res, item) for res, item in refused.items() if res is not REPLICA_SETS),
            *(
                (
                    EVENTS,
                    event("FailedCreate", REFUSED, item["metadata"]["name"], kind=res.kind, api=res.api_version, at=at),
                )
                for res, item in refused.items()
            ),
        ],
        replace(SHORT, warn_again=0.0),
    )
    for number in (1, 2):  # the second leader repeats the Events
        async with world.running():
            await until(lambda: len(world.bus.stored) >= 5, "each is published")
            await until(lambda number=number: most_often(world) == number and len(world.warnings) >= 5, "Events")
        world.bus.stored.clear()
        world.begin()
    assert {permission(request) for request in world.kube.api.requests} == given()
