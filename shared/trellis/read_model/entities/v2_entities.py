"""Entities of wasmCloud v2: host groups, hosts, Workloads, WorkloadDeployments, Artifacts and Services.

Pure. In: views in their cluster. Out: entities, as docs/console/api.md describes them. Called by ``composing_v2``.
Invariants: health comes from ``trellis.v2.explain``, as on pages; numbers of a host come from its heartbeat only, and
are None without one: its status has "unknown" and 0 most of the time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from trellis.read_model.entities.entities import identity, make_entity, one_line
from trellis.read_model.entities.journal import Entity
from trellis.v2.cluster import Cluster
from trellis.v2.deployments import ArtifactView, DeploymentView
from trellis.v2.explain.artifact import artifact_health
from trellis.v2.explain.deployment import deployment_health
from trellis.v2.explain.host import host_health
from trellis.v2.explain.host_group import host_group_health
from trellis.v2.explain.service import routed_service_health
from trellis.v2.explain.workload import workload_health
from trellis.v2.host_groups import HostGroup
from trellis.v2.hosts import HostView
from trellis.v2.objects import Conditions
from trellis.v2.routes import RoutedService
from trellis.v2.snapshot import Part
from trellis.v2.workloads import PartView, WorkloadView

HOST_GROUP: Final = "whostgroup"
HOST: Final = "whost"
WORKLOAD: Final = "workload"
DEPLOYMENT: Final = "workloaddeployment"
ARTIFACT: Final = "artifact"
SERVICE: Final = "wservice"
KINDS: Final = (HOST_GROUP, HOST, WORKLOAD, DEPLOYMENT, ARTIFACT, SERVICE)
"""Kinds of entities of wasmCloud v2."""
_READY: Final = "Ready"
_MIB: Final = 2**20


def v2_host_group_entity(cluster: Cluster, group: HostGroup) -> Entity:
    """Return a host group; ``pods``: without ended ones, None if they cannot be read."""
    live = group.live
    pods = {"all": len(live), "ready": sum(pod.ready for pod in live)} if cluster.snapshot.knows(Part.PODS) else None
    return make_entity(HOST_GROUP, group.namespace, group.name, host_group_health(cluster, group)) | {
        "pods": pods,
        "hosts": [identity(HOST, host.meta.namespace, host.meta.name) for host in group.hosts],
        "nodes": sorted({identity("node", "", pod.node) for pod in live if pod.node}),
    }


def v2_host_entity(cluster: Cluster, host: HostView) -> Entity:
    """Return a host; ``heartbeat``: whether one was received lately, None if no NATS is configured or readable."""
    cluster = cluster.within(host.meta.namespace)
    messages = cluster.snapshot.messages
    beat = cluster.description(host.id)
    listens = messages is not None and not messages.error
    known = cluster.snapshot.knows_all(Part.WORKLOADS)
    pod = cluster.pod_of(host)
    return make_entity(HOST, host.meta.namespace, host.meta.name, host_health(cluster, host)) | {
        "group": identity(HOST_GROUP, host.meta.namespace, host.group) if host.group else None,
        "pod": pod.meta.key if pod else None,
        "node": identity("node", "", pod.node) if pod and pod.node else None,
        "host_id": host.id or None,
        "address": host.address or None,
        "port": host.port,
        "environment": host.environment or None,
        "heartbeat": cluster.last_message(host.id) is not None if listens else None,
        "version": (beat.version or None) if beat else None,
        "system": (beat.system or None) if beat else None,
        "cpu_percent": round(beat.cpu) if beat and beat.cpu is not None else None,
        "memory_total": _rounded(beat.memory_total) if beat else None,
        "memory_free": _rounded(beat.memory_free) if beat else None,
        "components": beat.components if beat else None,
        "workloads": beat.workloads if beat else None,
        "placed": len(cluster.workloads_on(host.id)) if known else None,
        "conditions": _conditions(host.conditions),
    }


def workload_entity(cluster: Cluster, workload: WorkloadView, deployment: str) -> Entity:
    """Return a Workload; ``deployment``: name of its WorkloadDeployment, "" if there is none or if it is not known."""
    meta, unmet = workload.meta, workload.unmet
    return make_entity(WORKLOAD, meta.namespace, meta.name, workload_health(cluster, workload)) | {
        "phase": _READY if unmet is None else unmet.type,
        "deployment": identity(DEPLOYMENT, meta.namespace, deployment) if deployment else None,
        "host": _host_id(cluster, workload.host_id),
        "host_id": workload.host_id or None,
        "service": identity(SERVICE, meta.namespace, workload.spec.service) if workload.spec.service else None,
        "images": _images(workload.spec.parts),
        "conditions": _conditions(workload.conditions),
    }


def v2_deployment_entity(cluster: Cluster, deployment: DeploymentView) -> Entity:
    """Return a WorkloadDeployment; ``ready``: Workloads of its current template, which its own counts do not have."""
    meta = deployment.meta
    workloads = cluster.workloads_of(cluster.replica_set(deployment, deployment.current))
    known = cluster.snapshot.knows(Part.WORKLOADS) and cluster.snapshot.knows(Part.REPLICA_SETS)
    hosts = {id_ for item in workloads if (id_ := _host_id(cluster, item.host_id)) is not None}
    return make_entity(DEPLOYMENT, meta.namespace, meta.name, deployment_health(cluster, deployment)) | {
        "desired": deployment.replicas,
        "ready": sum(item.ready for item in workloads) if known else None,
        "policy": deployment.policy or None,
        "service": identity(SERVICE, meta.namespace, deployment.service) if deployment.service else None,
        "artifacts": sorted(identity(ARTIFACT, meta.namespace, name) for name in {*deployment.artifacts.values()}),
        "hosts": sorted(hosts),
        "images": _images(deployment.spec.parts),
        "conditions": _conditions(deployment.conditions),
    }


def artifact_entity(cluster: Cluster, artifact: ArtifactView) -> Entity:
    """Return an Artifact."""
    meta = artifact.meta
    return make_entity(ARTIFACT, meta.namespace, meta.name, artifact_health(cluster, artifact)) | {
        "image": one_line(artifact.image) or None,
        "url": one_line(artifact.url) or None,
        "published": artifact.published,
        "conditions": _conditions(artifact.conditions),
    }


def routed_service_entity(cluster: Cluster, service: RoutedService) -> Entity:
    """Return a Service of wasmCloud v2; ``endpoints``: number of its addresses, None if they cannot be read."""
    meta = service.meta
    known = cluster.snapshot.knows(Part.SLICES)
    hosts = {id_ for item in cluster.workloads_behind(service) if (id_ := _host_id(cluster, item.host_id)) is not None}
    return make_entity(SERVICE, meta.namespace, meta.name, routed_service_health(cluster, service)) | {
        "type": service.kind or None,
        "addresses": list(service.addresses),
        "ports": [{"name": port.name or None, "port": port.port} for port in service.ports],
        "endpoints": len(cluster.addresses_of(service)) if known else None,
        "deployments": [identity(DEPLOYMENT, meta.namespace, it.meta.name) for it in cluster.deployments_of(service)],
        "hosts": sorted(hosts),
    }


def _host_id(cluster: Cluster, host_id: str) -> str | None:
    host = cluster.host(host_id)
    return identity(HOST, host.meta.namespace, host.meta.name) if host is not None else None


def _images(parts: Iterable[PartView]) -> list[str]:
    return sorted({one_line(part.image) for part in parts if part.image})


def _conditions(conditions: Conditions) -> dict[str, str]:
    """Return the status of each condition; messages are on the page."""
    return {kind: found.status for kind, found in conditions.items()}


def _rounded(size: int | None) -> int | None:
    """Return bytes in whole MiB: a smaller difference is not shown, and would be a change with each heartbeat."""
    return size // _MIB * _MIB if size else None
