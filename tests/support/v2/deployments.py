"""A stand-in for the deployments and routes of wasmCloud v2's operator: one replica, one host, and its EndpointSlice.

In: WorkloadDeployments, as users or ``trellis migrate to-v2`` write them. Out: their WorkloadReplicaSet and Workload,
the EndpointSlice of their Service, and statuses, as recorded. Called by tests with a real host. Invariant, as of the
operator: a replacement is ready before the former Workload stops.
"""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from typing import Any, Final

from support.v2.operator import StandInOperator, set_conditions
from trellis import names
from trellis.kube.client import Kube
from trellis.kube.resources import (
    ENDPOINT_SLICES,
    SERVICES,
    WORKLOAD_DEPLOYMENTS,
    WORKLOAD_REPLICA_SETS,
    WORKLOADS,
    Manifest,
    Resource,
)
from trellis.v2.routes import LABEL_ROUTE, PORT

_MANAGER: Final = "runtime-operator"
_LABEL: Final = f"{WORKLOADS.group}/workload-deployment"
_GENERATION: Final = f"{WORKLOADS.group}/workload-replica-set-generation"
_REPLICAS: Final = {"current": 1, "expected": 1, "ready": 1}


def make_replica_set(deployment: Manifest) -> Manifest:
    """Return the WorkloadReplicaSet of a WorkloadDeployment in its present version."""
    name, spec = deployment["metadata"]["name"], deployment["spec"]
    template = spec["template"]
    if "kubernetes" in spec:
        template = {**template, "spec": {**template["spec"], "kubernetes": spec["kubernetes"]}}
    found = _owned(WORKLOAD_REPLICA_SETS, f"{name}-{_digest(template)}", deployment)
    found["metadata"]["labels"] = {_LABEL: name}
    return {**found, "spec": {"replicas": spec["replicas"], "template": template}}


def make_workload(replica_set: Manifest) -> Manifest:
    """Return the Workload of a WorkloadReplicaSet."""
    name, template = replica_set["metadata"]["name"], replica_set["spec"]["template"]
    found = _owned(WORKLOADS, f"{name}-{_digest(name)}", replica_set)
    found["metadata"]["annotations"] = {_GENERATION: _digest(template["spec"])}
    return {**found, "spec": template["spec"]}


def make_slice(service: Manifest, host: Manifest) -> Manifest:
    """Return the EndpointSlice that leads a Service to a Host."""
    name = service["metadata"]["name"]
    found = _owned(ENDPOINT_SLICES, f"{name[:54]}-{_digest(name)[:8]}", service)
    found["metadata"]["labels"] = {names.LABEL_SERVICE_NAME: name, LABEL_ROUTE: "true"}
    endpoint = {"addresses": [host["hostname"]], "conditions": {"ready": True, "serving": True}}
    return {
        **found,
        "addressType": "IPv4",
        "endpoints": [endpoint],
        "ports": [{"name": PORT, "protocol": "TCP", "port": host["httpPort"]}],
    }


def make_replica_set_status(now: str) -> dict[str, Any]:
    """Return the status of a WorkloadReplicaSet whose Workload is ready."""
    return {**_conditions(now, "ScaleUp", "ScaleDown", "Ready"), "replicas": dict(_REPLICAS)}


def make_deployment_status(name: str, replica_set: str, now: str) -> dict[str, Any]:
    """Return the status of a WorkloadDeployment whose WorkloadReplicaSet is ready."""
    return {
        **_conditions(now, "Artifact", "Sync", "Deploy", "Scale", "Ready"),
        "currentReplicaSet": {"name": replica_set},
        "currentReplicas": 1,
        "replicas": dict(_REPLICAS),
        "selector": f"{_LABEL}={name}",
    }


class Deployments:
    """Places WorkloadDeployments by the operator."""

    def __init__(self, operator: StandInOperator, kube: Kube) -> None:
        self._operator = operator
        self._kube = kube
        self._placed: dict[tuple[str, str], Manifest] = {}

    async def deploy(self, deployment: Manifest, host: Manifest) -> Manifest:
        """Run the present version of a WorkloadDeployment on a host, and stop the former one; return the Workload."""
        assert deployment["spec"]["replicas"] == 1, "the stand-in has one replica"
        metadata = deployment["metadata"]
        replica_set = await self._create(WORKLOAD_REPLICA_SETS, make_replica_set(deployment))
        workload = await self._create(WORKLOADS, make_workload(replica_set))
        placed = await self._operator.place(workload, host)
        conditions = placed["status"]["conditions"]
        assert all(condition["status"] == "True" for condition in conditions), conditions
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        await self._operator.write_status(WORKLOAD_REPLICA_SETS, replica_set, make_replica_set_status(now))
        status = make_deployment_status(metadata["name"], replica_set["metadata"]["name"], now)
        await self._operator.write_status(WORKLOAD_DEPLOYMENTS, deployment, status)
        if "kubernetes" in deployment["spec"]:
            name = deployment["spec"]["kubernetes"]["service"]["name"]
            service = await self._kube.get(SERVICES, name, metadata["namespace"])
            await self._create(ENDPOINT_SLICES, make_slice({**service, **_typed(SERVICES)}, host))
        key = metadata["namespace"], metadata["name"]
        if former := self._placed.get(key):
            await self._operator.remove(former)
        self._placed[key] = placed
        return placed

    async def _create(self, resource: Resource, manifest: Manifest) -> Manifest:
        return await self._kube.apply(resource, manifest, field_manager=_MANAGER, create_if_missing=True)


def _typed(resource: Resource) -> Manifest:
    return {"apiVersion": resource.api_version, "kind": resource.kind}


def _owned(resource: Resource, name: str, owner: Manifest) -> Manifest:
    """Return the beginning of an object that its owner controls."""
    of = owner["metadata"]
    reference = {key: owner[key] for key in ("apiVersion", "kind")} | {"name": of["name"], "uid": of["uid"]}
    reference |= {"controller": True, "blockOwnerDeletion": True}
    return {
        **_typed(resource),
        "metadata": {"name": name, "namespace": of["namespace"], "ownerReferences": [reference]},
    }


def _digest(content: object) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:10]


def _conditions(now: str, *kinds: str) -> dict[str, Any]:
    return set_conditions({}, now, **dict.fromkeys(kinds, ("True", "")))
