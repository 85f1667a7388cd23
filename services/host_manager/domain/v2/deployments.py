"""Events about WorkloadDeployments and Artifacts. Pure; called by ``decide``.

Invariants: progress changes nothing that is published, so a replacement of a failed Workload does not hide its failure
for a moment; a state that is not known is not published; Workloads that fail for different reasons in turn, each
replaced once a minute, cause one event for each reason.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from host_manager.domain.v2.published import DeploymentState, Failure, Owner, Published
from host_manager.domain.v2.trust import BY_SILENCE, NOT_KNOWN
from host_manager.domain.v2.workloads import Failing
from trellis.events.wasmcloud_v2 import (
    ArtifactPublished,
    WorkloadDeploymentDegraded,
    WorkloadDeploymentReady,
    WorkloadDeploymentRolled,
)
from trellis.read_model.health import Health, Verdict
from trellis.v2.cluster import Cluster
from trellis.v2.deployments import DeploymentView
from trellis.v2.explain.deployment import current_replica_set, deployment_health
from trellis.v2.operator import State
from trellis.v2.snapshot import Part

DeploymentEvent = WorkloadDeploymentReady | WorkloadDeploymentDegraded | WorkloadDeploymentRolled


def deployment_events(
    cluster: Cluster, published: Published, failing: Collection[Failing]
) -> Iterator[DeploymentEvent]:
    """Yield the events to publish about WorkloadDeployments; ``failing``: Workloads whose failure is confirmed."""
    confirmed = {(item.owner.uid, item.reason) for item in failing}
    for deployment in sorted(cluster.snapshot.deployments, key=lambda item: item.meta.key):
        if not deployment.meta.uid or deployment.meta.deleting:
            continue
        former = published.deployments.get(deployment.meta.key)
        if former is None or former.uid != deployment.meta.uid:
            former = DeploymentState(deployment.meta.uid)
        verdict = deployment_health(cluster, deployment)
        if verdict.health is Health.DEGRADED:
            if verdict.reason not in BY_SILENCE | NOT_KNOWN or (deployment.meta.uid, verdict.reason) in confirmed:
                failed = published.failures.get(_owner(deployment), ())
                yield from _degraded(cluster, deployment, former, verdict, failed)
        elif verdict.health is Health.SUSPENDED or (
            verdict.health is Health.HEALTHY and _conditions_count(cluster, deployment.meta.namespace, former)
        ):
            yield from _ready(cluster, deployment, former)


def _conditions_count(cluster: Cluster, namespace: str, former: DeploymentState) -> bool:
    """Return whether conditions that are True are the current state: only an operator that works updates them.

    Without the Hosts, as in configured namespaces, its state is unknown. Then conditions that changed from False are
    evidence, because it wrote them. A silence of hosts is not in conditions, so they do not show its end.
    """
    if not cluster.snapshot.knows(Part.HOSTS):
        return former.reason not in BY_SILENCE
    return cluster.of_namespace(namespace).operator.state is State.WORKING


def _owner(deployment: DeploymentView) -> Owner:
    meta = deployment.meta
    return Owner(meta.namespace, "WorkloadDeployment", meta.name, meta.uid)


def _degraded(
    cluster: Cluster,
    deployment: DeploymentView,
    former: DeploymentState,
    verdict: Verdict,
    failed: Collection[Failure],
) -> Iterator[DeploymentEvent]:
    if verdict.reason == former.reason or not verdict.reason:
        return
    meta, replica_set = deployment.meta, _current(cluster, deployment)
    if former.reason and (replica_set, verdict.reason) in failed:
        return  # published as a failure of its Workloads since it was ready
    yield WorkloadDeploymentDegraded(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        generation=meta.generation,
        replicas=deployment.replicas,
        replica_set=replica_set,
        reason=verdict.reason,
        message=verdict.message,
    )


def _ready(cluster: Cluster, deployment: DeploymentView, former: DeploymentState) -> Iterator[DeploymentEvent]:
    meta, current = deployment.meta, _current(cluster, deployment)
    if former.replica_set and current and former.replica_set != current:
        yield WorkloadDeploymentRolled(
            namespace=meta.namespace,
            name=meta.name,
            uid=meta.uid,
            generation=meta.generation,
            replicas=deployment.replicas,
            replica_set=current,
            former=former.replica_set,
        )
    if former.replicas != deployment.replicas:
        yield WorkloadDeploymentReady(
            namespace=meta.namespace,
            name=meta.name,
            uid=meta.uid,
            generation=meta.generation,
            replicas=deployment.replicas,
            replica_set=current,
        )


def _current(cluster: Cluster, deployment: DeploymentView) -> str:
    found = current_replica_set(cluster, deployment)
    return found.meta.name if found is not None else deployment.current


def artifact_events(cluster: Cluster, published: Published) -> Iterator[ArtifactPublished]:
    """Yield the events to publish about Artifacts."""
    for artifact in sorted(cluster.snapshot.artifacts, key=lambda item: item.meta.key):
        meta = artifact.meta
        observed = artifact.observed is None or artifact.observed >= meta.generation
        if not meta.uid or meta.deleting or not (artifact.published and artifact.url) or not observed:
            continue
        former = published.artifacts.get(meta.key)
        if former is not None and (former.uid, former.image) == (meta.uid, artifact.url):
            continue
        yield ArtifactPublished(
            namespace=meta.namespace, name=meta.name, uid=meta.uid, generation=meta.generation, image=artifact.url
        )
