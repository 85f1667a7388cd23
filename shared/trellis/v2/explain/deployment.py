"""State of a WorkloadDeployment, and its cause: artifacts, rollout, Workloads, routing.

Pure. In: a WorkloadDeployment in its cluster. Out: health, cause, page. Called by ``explain`` and ``status``. Source:
runtime-operator 2.7. Ready is Unknown for every cause, and the counts are those of both WorkloadReplicaSets; so the
Workloads of the current one are evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from trellis.read_model.explain.page import Explanation, Line, Rank
from trellis.read_model.explain.subject import Beside, Subject, cause_of
from trellis.read_model.health import Health, Verdict
from trellis.v2.cluster import Cluster
from trellis.v2.deployments import DeploymentView, ReplicaSetView
from trellis.v2.explain.operator import operator_lines
from trellis.v2.explain.routing import Routed, routing_lines
from trellis.v2.explain.text import SUSPENDED, in_seconds, number_of, quoted, unknown
from trellis.v2.explain.workload import (
    WANTED,
    healthy,
    manifest_of,
    omitted_components,
    without_components,
    workload_cause,
)
from trellis.v2.fields import listed
from trellis.v2.objects import condition
from trellis.v2.reasons import Reason
from trellis.v2.snapshot import Part, Snapshot
from trellis.v2.workloads import WorkloadView

SUBJECT: Final = Subject("WorkloadDeployment", "workloaddeployment", "kubectl get workloaddeployments -A", WANTED)
_ARTIFACT: Final = re.compile(
    r"artifact (?P<name>\S{1,300}) (?P<problem>not found in deployment spec|not found|not published)"
)
_CONFLICT: Final = "the object has been modified"
_SHOWN: Final = 5


def explain_deployment(snapshot: Snapshot, deployment: DeploymentView, beside: Beside) -> Explanation:
    """Return the page of a WorkloadDeployment."""
    cluster = Cluster(snapshot)
    chain = [*_chain(cluster, deployment)]
    return SUBJECT.page(manifest_of(deployment.meta), chain, beside, _verdict(deployment, chain))


def deployment_health(cluster: Cluster, deployment: DeploymentView) -> Verdict:
    """Return the health of a WorkloadDeployment."""
    return _verdict(deployment, [*_chain(cluster, deployment)])


def deployment_cause(cluster: Cluster, deployment: DeploymentView) -> Line | None:
    """Return the cause of a WorkloadDeployment that is not healthy, None if it is: as its page has it."""
    return cause_of(_chain(cluster, deployment))


def _verdict(deployment: DeploymentView, chain: Sequence[Line]) -> Verdict:
    own = cause_of(line for line in chain if line.rank is not Rank.SERVICE)
    if own is not None:
        return own.verdict
    if deployment.replicas == 0:
        return Verdict(Health.SUSPENDED, Reason.SCALED_TO_ZERO, SUSPENDED)
    return healthy(chain)


def _chain(cluster: Cluster, deployment: DeploymentView) -> Iterator[Line]:
    meta = deployment.meta
    cluster = cluster.of_namespace(meta.namespace)
    current = current_replica_set(cluster, deployment)
    yield Line(
        "deployment", f"{meta.key}, replicas: {deployment.replicas}, current: {deployment.current or 'none'}", ok=True
    )
    if meta.deleting:
        yield Line("deletion", "it is being deleted", ok=False, reason=Reason.DELETING)
        return
    yield from omitted_components(deployment.spec)
    yield from operator_lines(cluster)
    artifacts = [*_artifacts(cluster, deployment)]
    yield from artifacts
    if any(line.trouble for line in artifacts):
        return
    if (denied := _not_deployed(deployment)) is not None:
        yield denied
    else:
        yield from _observed(cluster, deployment, current)
    workloads = cluster.workloads_of(current)
    former = _serving_before(cluster, deployment, current)
    ready = [item for item in workloads if workload_cause(cluster, item) is None]
    yield from _workloads(cluster, deployment, (current, workloads), former)
    if former is not None:
        text = f"WorkloadReplicaSet {former.meta.name} of the former template serves until the current one is ready"
        yield Line("rollout", text, ok=False, reason=Reason.ROLLING_OUT)
    if ready and deployment.replicas:
        yield from routing_lines(cluster, Routed(meta.namespace, ready[0].spec, deployment.service, ready))


def current_replica_set(cluster: Cluster, deployment: DeploymentView) -> ReplicaSetView | None:
    """Return the WorkloadReplicaSet of the current template: the newest one, while the status has none."""
    if deployment.current:
        return cluster.replica_set(deployment, deployment.current)
    return max(cluster.replica_sets_of(deployment), key=lambda item: item.meta.created or 0.0, default=None)


def _serving_before(
    cluster: Cluster, deployment: DeploymentView, current: ReplicaSetView | None
) -> ReplicaSetView | None:
    """Return the former WorkloadReplicaSet if it serves in place of the current one."""
    former = cluster.replica_set(deployment, deployment.previous)
    if former is None or (current is not None and former.meta.name == current.meta.name):
        return None
    serves = any(item.ready and not item.spec.empty for item in cluster.workloads_of(former))
    return former if serves else None


def _artifacts(cluster: Cluster, deployment: DeploymentView) -> Iterator[Line]:
    look = in_seconds(cluster.snapshot.timings.deployment_look)
    for kind in ("Artifact", "Deploy"):
        reported = deployment.condition(kind)
        found = _ARTIFACT.search(reported.message)
        if reported.status in {"", "True"} or found is None:
            continue
        name, problem = found["name"], found["problem"]
        namespace = deployment.meta.namespace
        if problem.endswith("spec"):
            have = ", ".join(sorted(deployment.artifacts)) or "none"
            text = f"image artifact://{name} is not in spec.artifacts, whose names are: {have}"
            do = "use the name of an entry of spec.artifacts, which is not the name of the Artifact"
            yield _cause("artifact", text, do, Reason.ARTIFACT_NOT_LISTED)
            return
        artifact = cluster.artifact(namespace, name)
        if artifact is not None and artifact.published:
            text = f"Artifact {namespace}/{name} is published now; the operator reconciles it again within {look}"
            yield Line("artifact", text, ok=False, reason=Reason.WAITING)
        elif problem == "not published" or artifact is not None:
            do = f"`trellis explain artifact/{name} -n {namespace}` shows the cause"
            text = f"Artifact {namespace}/{name} is not published"
            yield _cause("artifact", text, do, Reason.ARTIFACT_NOT_PUBLISHED)
        else:
            text = f"Artifact {namespace}/{name} does not exist"
            do = f"create it, or correct spec.artifacts: the operator reconciles it again within {look}"
            yield _cause("artifact", text, do, Reason.ARTIFACT_NOT_FOUND)
        return
    if deployment.artifacts:
        yield Line("artifact", f"in use: {listed(sorted(deployment.artifacts.values()), _SHOWN)}", ok=True)


def _not_deployed(deployment: DeploymentView) -> Line | None:
    """Return the step for a template without a WorkloadReplicaSet, as if a webhook or a quota denies it."""
    found = deployment.condition("Deploy")
    if found.status != "False" or not found.message or _CONFLICT in found.message:
        return None
    text = f"the operator cannot create a WorkloadReplicaSet of the template{quoted(found.message)}"
    return _cause("deploy", text, "correct the cause: the operator retries", Reason.SCALE_FAILED)


def _observed(cluster: Cluster, deployment: DeploymentView, current: ReplicaSetView | None) -> Iterator[Line]:
    """Yield the step for a change that the operator has not acted on: it does within a second."""
    settle = cluster.snapshot.timings.settle
    if not deployment.conditions:
        age = cluster.age(deployment.meta.created)
        if age is None or age <= settle:
            yield Line("observed", "the operator has not reconciled it yet", ok=False, reason=Reason.WAITING)
            return
        text = f"the operator has not reconciled it for {in_seconds(age)}"
        yield _not_observed(cluster, text)
        return
    if current is None:
        if deployment.current and cluster.snapshot.knows_all(Part.REPLICA_SETS):
            yield _not_observed(cluster, f"WorkloadReplicaSet {deployment.current} of its status does not exist")
        return
    wanted = current.replicas
    if wanted is not None and wanted != deployment.replicas:
        text = f"spec.replicas is {deployment.replicas}, and WorkloadReplicaSet {current.meta.name} still has {wanted}"
        yield _not_observed(cluster, text)
    if not deployment.template.fits(current.template):
        text = f"spec.template is not the one of WorkloadReplicaSet {current.meta.name}, which the operator still runs"
        yield _not_observed(cluster, text)


def _not_observed(cluster: Cluster, text: str) -> Line:
    do = "check that the runtime-operator runs and watches this namespace: it acts on a change within a second"
    rank = Rank.SYMPTOM if cluster.operator.unavailable else Rank.CAUSE
    return Line("observed", text, False, do, rank, Reason.NOT_OBSERVED, Health.PROGRESSING)


def _workloads(
    cluster: Cluster,
    deployment: DeploymentView,
    owned: tuple[ReplicaSetView | None, Sequence[WorkloadView]],
    former: ReplicaSetView | None,
) -> Iterator[Line]:
    """Yield the steps for the Workloads; ``owned``: the current WorkloadReplicaSet and its Workloads."""
    current, workloads = owned
    for part in (Part.REPLICA_SETS, Part.WORKLOADS):
        if not cluster.snapshot.knows(part):
            yield from _without(cluster, deployment, part)
            return
    causes: dict[tuple[str, str], list[Line]] = {}
    for item in workloads:
        if (line := workload_cause(cluster, item)) is not None:
            causes.setdefault((line.reason, line.text), []).append(line)
    ready = len(workloads) - sum(map(len, causes.values()))
    for lines in sorted(causes.values(), key=lambda found: (-found[0].rank, -len(found), found[0].text)):
        share = "" if len(lines) == len(workloads) else f"{len(lines)} of {len(workloads)} Workloads: "
        yield replace(lines[0], text=f"{share}{lines[0].text}", do=_with_former(lines[0], former))
    if not causes and not deployment.replicas and not workloads:
        yield Line("workloads", SUSPENDED, ok=True)
    elif not causes and ready >= deployment.replicas:
        yield Line("workloads", f"{ready} of {deployment.replicas} ready", ok=True)
    elif current is not None and (denied := _not_scaled(current)) is not None:
        yield denied
    elif not causes:
        yield _too_few(cluster, deployment, owned, ready)


def _too_few(
    cluster: Cluster,
    deployment: DeploymentView,
    owned: tuple[ReplicaSetView | None, Sequence[WorkloadView]],
    ready: int,
) -> Line:
    """Return the step for missing Workloads that nothing refuses: progress, until nothing has changed for a minute."""
    current, workloads = owned
    text = f"{ready} of its {number_of(deployment.replicas, 'Workload')} ready{_message_of(deployment)}"
    times = [deployment.meta.created, *map(cluster.changed, workloads)]
    times += [cluster.by_server(item.since) for item in deployment.conditions.values()]
    if current is not None:
        times += [current.meta.created, *(cluster.by_server(item.since) for item in current.conditions.values())]
    newest = max((time for time in times if time is not None), default=None)
    if cluster.older(newest, cluster.snapshot.timings.replaced + cluster.snapshot.timings.slack):
        return _not_observed(cluster, text)
    return Line("workloads", text, ok=False, reason=Reason.WAITING)


def _not_scaled(current: ReplicaSetView) -> Line | None:
    """Return the step for a WorkloadReplicaSet that cannot create or delete Workloads, as if a webhook denies them."""
    for kind in ("ScaleUp", "ScaleDown"):
        found = condition(current.conditions, kind)
        if found.status == "False" and found.message and _CONFLICT not in found.message:
            text = f"WorkloadReplicaSet {current.meta.name} is {kind}=False{quoted(found.message)}"
            return _cause("workloads", text, "correct the cause: the operator retries", Reason.SCALE_FAILED)
    return None


def _with_former(line: Line, former: ReplicaSetView | None) -> str:
    """Return the resolution during a failed rollout: a change back is a change, too, and deletes what serves."""
    if former is None or line.rank is not Rank.CAUSE:
        return line.do
    note = (
        f"WorkloadReplicaSet {former.meta.name} serves; any change of the template, also back, deletes it before its "
        "successor is ready"
    )
    return f"{line.do}; {note}" if line.do else note


def _without(cluster: Cluster, deployment: DeploymentView, part: Part) -> Iterator[Line]:
    """Yield the step while the Workloads are not known: only the condition Ready shows the state."""
    ready = deployment.condition("Ready")
    reason = unknown(cluster, part)
    if ready.true and deployment.spec.empty and deployment.replicas:
        yield without_components("it is Ready, and has", f"WorkloadDeployment {deployment.meta.name}")
        return
    if ready.true:
        yield Line("workloads", f"Ready; details unknown: {reason}", ok=True)
        return
    text = f"not Ready{_message_of(deployment)}; the cause is unknown: {reason}"
    yield Line("workloads", text, False, "", Rank.SYMPTOM, Reason.READ_INCOMPLETE, Health.UNKNOWN)


def _message_of(deployment: DeploymentView) -> str:
    """Return the message of the first condition that is not True, without those that only count."""
    for kind in ("Sync", "Deploy", "Scale"):
        reported = condition(deployment.conditions, kind)
        if not reported.true and reported.message:
            return "" if _CONFLICT in reported.message else quoted(reported.message)
    return ""


def _cause(about: str, text: str, do: str, reason: Reason) -> Line:
    return Line(about, text, False, do, Rank.CAUSE, reason)
