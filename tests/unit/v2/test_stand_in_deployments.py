"""The stand-in for upstream's deployments and routes makes the objects and statuses that were recorded."""

from __future__ import annotations

from typing import Any

import pytest

from support.v2.deployments import (
    make_deployment_status,
    make_replica_set,
    make_replica_set_status,
    make_slice,
    make_workload,
)
from support.v2.recordings import recording

RECORDED = {item["kind"]: item for item in recording("02-deployment-ready").objects(1e9)}
API = "runtime.wasmcloud.dev/v1alpha1"
MADE = {"WorkloadReplicaSet", "Workload", "EndpointSlice"}
Manifest = dict[str, Any]


def typed(kind: str) -> Manifest:
    """Return a recorded object with its version, which recordings omit."""
    return {"apiVersion": "v1" if kind == "Service" else API, **RECORDED[kind]}


def made() -> dict[str, Manifest]:
    """Return what the stand-in makes; each object has the owner that was recorded."""
    return {
        "WorkloadReplicaSet": make_replica_set(typed("WorkloadDeployment")),
        "Workload": make_workload(typed("WorkloadReplicaSet")),
        "EndpointSlice": make_slice(typed("Service"), RECORDED["Host"]),
    }


def without_names(manifest: Manifest) -> Manifest:
    """Return an object without its name, hashes, status, and the metadata that an API server or a placement adds."""
    metadata = {key: manifest["metadata"][key] for key in ("namespace", "labels") if key in manifest["metadata"]}
    metadata["annotations"] = set(manifest["metadata"].get("annotations", {}))
    owners = manifest["metadata"]["ownerReferences"]
    rest = {key: value for key, value in manifest.items() if key not in {"apiVersion", "metadata", "status"}}
    return {**rest, "metadata": metadata, "owners": owners}


@pytest.mark.parametrize("kind", sorted(MADE))
def test_object_of_a_deployment(kind: str) -> None:
    assert without_names(made()[kind]) == without_names(RECORDED[kind])


@pytest.mark.parametrize("kind", sorted(MADE))
def test_name_begins_with_that_of_its_owner(kind: str) -> None:
    found = made()[kind]["metadata"]
    assert found["name"].startswith(f"{found['ownerReferences'][0]['name']}-")


def test_another_template_makes_another_replica_set() -> None:
    deployment = typed("WorkloadDeployment")
    other = {**deployment, "spec": {**deployment["spec"], "template": {"spec": {"components": []}}}}
    assert make_replica_set(deployment)["metadata"]["name"] != make_replica_set(other)["metadata"]["name"]


def test_statuses_of_a_ready_deployment() -> None:
    deployment, replica_set = RECORDED["WorkloadDeployment"], RECORDED["WorkloadReplicaSet"]
    time = deployment["status"]["conditions"][0]["lastTransitionTime"]
    assert make_replica_set_status(time) == replica_set["status"]
    status = make_deployment_status("hello", replica_set["metadata"]["name"], time)
    assert status == deployment["status"]
