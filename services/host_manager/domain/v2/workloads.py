"""Events about Workloads: started, gone, and failed by owner and reason. Pure; called by ``decide``.

Invariants: a Workload that does not reply for a time is not gone, its deletion is; the replacements of a failed
Workload, one each minute, cause no further event.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from host_manager.domain.v2.published import Owner, Published, ends_failures
from host_manager.domain.v2.trust import Evidence
from trellis.events.wasmcloud_v2 import WorkloadFailed, WorkloadGone, WorkloadStarted
from trellis.read_model.explain.page import Line
from trellis.read_model.health import Health
from trellis.v2.cluster import Cluster
from trellis.v2.deployments import DeploymentView, ReplicaSetView
from trellis.v2.explain.deployment import current_replica_set
from trellis.v2.explain.workload import is_cause, workload_cause
from trellis.v2.workloads import WorkloadView


class Owners:
    """The owners of Workloads: WorkloadReplicaSets and WorkloadDeployments by key."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._replica_sets = {item.meta.key: item for item in cluster.snapshot.replica_sets}
        self._deployments = {item.meta.key: item for item in cluster.snapshot.deployments}

    def replica_set(self, workload: WorkloadView) -> ReplicaSetView | None:
        """Return the WorkloadReplicaSet of a Workload, None if it has none or if it is not cached yet."""
        return self._replica_sets.get(f"{workload.meta.namespace}/{workload.meta.owner_name}")

    def owner(self, workload: WorkloadView) -> Owner | None:
        """Return the owner of the failures of a Workload; None for a former template, and before it is cached."""
        meta = workload.meta
        if not meta.owner_name:
            return Owner(meta.namespace, "Workload", meta.name, meta.uid)
        replica_set = self.replica_set(workload)
        if replica_set is None:
            return None
        if not replica_set.meta.owner_name:
            return Owner(meta.namespace, "WorkloadReplicaSet", replica_set.meta.name, replica_set.meta.uid)
        deployment = self._deployments.get(f"{meta.namespace}/{replica_set.meta.owner_name}")
        if deployment is None or deployment.meta.deleting or not self._is_current(deployment, replica_set):
            return None
        return Owner(meta.namespace, "WorkloadDeployment", deployment.meta.name, deployment.meta.uid)

    def _is_current(self, deployment: DeploymentView, replica_set: ReplicaSetView) -> bool:
        current = current_replica_set(self._cluster, deployment)
        return current is not None and current.meta.name == replica_set.meta.name


def lifecycle_events(
    cluster: Cluster, published: Published, owners: Owners
) -> Iterator[WorkloadStarted | WorkloadGone]:
    """Yield the events about Workloads that started, and about those that are deleted."""
    there = {item.meta.key: item for item in cluster.workloads if item.meta.uid and not item.meta.deleting}
    for key, former in published.workloads.items():
        workload = there.get(key)
        if workload is None or workload.meta.uid != former.uid:
            yield WorkloadGone(
                namespace=former.namespace, name=former.name, uid=former.uid, deployment=former.deployment
            )
    for key, workload in there.items():
        started = published.workloads.get(key)
        if not workload.ready or (started is not None and started.uid == workload.meta.uid):
            continue
        replica_set = owners.replica_set(workload)
        if workload.meta.owner_name and replica_set is None:
            continue  # its watch is behind: the event would lack the WorkloadDeployment
        meta = workload.meta
        yield WorkloadStarted(
            namespace=meta.namespace,
            name=meta.name,
            uid=meta.uid,
            deployment=replica_set.deployment if replica_set is not None else "",
            replica_set=meta.owner_name,
            host_id=workload.host_id,
            host_name=_host_name(cluster, workload),
        )


def _host_name(cluster: Cluster, workload: WorkloadView) -> str:
    host = cluster.host(workload.host_id)
    return host.meta.name if host is not None else ""


@dataclass(frozen=True, slots=True)
class Failing:
    """Workloads of an owner that fail for one reason, by the name of their WorkloadReplicaSet."""

    owner: Owner
    replica_set: str
    reason: str


def failures(cluster: Cluster, evidence: Evidence, owners: Owners) -> dict[Failing, list[tuple[WorkloadView, Line]]]:
    """Return the Workloads that fail, with their causes, as far as the causes are confirmed."""
    found: dict[Failing, list[tuple[WorkloadView, Line]]] = {}
    for workload in cluster.workloads:
        if workload.meta.deleting or (owner := owners.owner(workload)) is None or not owner.uid:
            continue
        line = workload_cause(cluster, workload)
        if line is None or not is_cause(line) or line.state is Health.UNKNOWN:
            continue
        if evidence.confirms(line.reason, cluster.host(workload.host_id or workload.spec.host_id)):
            key = Failing(owner, workload.meta.owner_name, line.reason)
            found.setdefault(key, []).append((workload, line))
    return found


def failure_events(
    cluster: Cluster,
    found: Mapping[Failing, Sequence[tuple[WorkloadView, Line]]],
    published: Published,
    started: Sequence[WorkloadStarted],
) -> Iterator[WorkloadFailed]:
    """Yield an event for each owner and reason that is not published, or that ``started`` end, published first."""
    for failing, failed in found.items():
        owner = failing.owner
        known = (failing.replica_set, failing.reason) in published.failures.get(owner, ())
        if known and not any(ends_failures(event, owner) for event in started):
            continue
        workload, line = failed[0]
        yield WorkloadFailed(
            namespace=owner.namespace,
            owner_kind=owner.kind,
            owner=owner.name,
            uid=owner.uid,
            replica_set=failing.replica_set,
            reason=failing.reason,
            message=line.shown,
            host_id=workload.host_id,
            host_name=_host_name(cluster, workload),
            workloads=len(failed),
        )
