"""State of an owner of Wasm pods, and its cause: that of its template, or the first one of its pods.

Pure. In: an owner and its pods in their snapshot. Out: page. Called by ``explain``. Invariant: of pods with several
causes, that of the earliest step comes first, with the number of pods that have it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from trellis.read_model.explain.page import Explanation, Line, Manifest, Rank
from trellis.read_model.explain.subject import Beside, Subject, cause_of, verdict_of
from trellis.read_model.health import Health, Verdict
from trellis.read_model.wasm_pods.counted_pods import RUN_ALWAYS, counted
from trellis.read_model.wasm_pods.explain import placing
from trellis.read_model.wasm_pods.explain.lines import short, waits
from trellis.read_model.wasm_pods.explain.pod import pod_cause
from trellis.read_model.wasm_pods.failures import CREATE, bare, of_creation
from trellis.read_model.wasm_pods.owners import KEEPS_PLACE, ExecutorView, OwnerView
from trellis.read_model.wasm_pods.pods import Toleration, WasmPod
from trellis.read_model.wasm_pods.reasons import ORDER, Reason
from trellis.read_model.wasm_pods.snapshot import Part, Snapshot

SUBJECTS: Final = {
    kind: Subject(kind, kind.lower(), f"kubectl get {kind.lower()}s -A", "ready")
    for kind in ("Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob", "SpinApp")
}
_SHOWN: Final = 5
_REVISION: Final = "controller-revision-hash"
"""Label of a pod of a StatefulSet: the revision of its template."""
_TOLERATED: Final = (
    "not-ready",
    "unreachable",
    "disk-pressure",
    "memory-pressure",
    "pid-pressure",
    "unschedulable",
)
"""Taints that the pods of each DaemonSet tolerate (Kubernetes, pkg/controller/daemon/util)."""
_IDLE: Final = frozenset({Reason.SCALED_TO_ZERO, Reason.SUSPENDED})


def explain_owner(snapshot: Snapshot, owner: OwnerView, found: Manifest, beside: Beside) -> Explanation:
    """Return the page of an owner; ``found``: its manifest."""
    chain = [*_chain(snapshot, owner)]
    return SUBJECTS[owner.kind].page(found, chain, beside, _verdict(chain))


def owner_health(snapshot: Snapshot, owner: OwnerView) -> Verdict:
    """Return the health of an owner, as its page has it."""
    return _verdict([*_chain(snapshot, owner)])


def creation_cause(snapshot: Snapshot, owner: OwnerView) -> Line | None:
    """Return why a controller cannot create pods, as its page has it; None if it can, or is to have none.

    ``snapshot.pods``: those that it has. ``owner``: a Deployment, ReplicaSet, StatefulSet, DaemonSet, Job or CronJob.
    """
    if owner.meta.deleting or owner.complete or owner.suspended or owner.wanted == 0:
        return None
    return cause_of(_creation(snapshot, owner, counted_pods(owner, snapshot.pods)))


def _verdict(chain: Sequence[Line]) -> Verdict:
    cause = cause_of(chain)
    idle = next((line for line in chain if line.reason in _IDLE), None)
    if cause is None and idle is not None:
        return Verdict(Health.SUSPENDED, idle.reason, idle.text)
    return verdict_of(cause, Reason.HEALTHY)


def _chain(snapshot: Snapshot, owner: OwnerView) -> Iterator[Line]:
    yield Line(owner.kind.lower(), owner.meta.key, ok=True)
    if owner.meta.deleting:
        yield waits("deletion", "it is being deleted", Reason.DELETING)
    elif owner.kind == "SpinApp":
        yield from _spin_app(snapshot, owner)
    elif owner.kind == "CronJob":
        yield from _cron_job(snapshot, owner)
    else:
        yield from _workload(snapshot, owner)


def _spin_app(snapshot: Snapshot, app: OwnerView) -> Iterator[Line]:
    if snapshot.knows(Part.EXECUTORS):
        line = _executor(snapshot.executor, app)
        yield line
        if line.trouble:
            return
    else:
        yield Line("executor", f"{app.executor or '(none)'}: unknown: {snapshot.unread[Part.EXECUTORS]}")
    if not snapshot.knows(Part.DEPLOYMENTS):
        text = f"its Deployment is unknown: {snapshot.unread[Part.DEPLOYMENTS]}"
        yield Line("deployment", text, False, "", Rank.SYMPTOM, Reason.PODS_UNKNOWN, Health.UNKNOWN)
    elif snapshot.deployment is None:
        text = f"it has no Deployment {app.meta.name}, which spin-operator creates"
        do = f"check that spin-operator runs: `kubectl describe spinapp -n {app.meta.namespace} {app.meta.name}`"
        yield Line("deployment", text, False, do, Rank.CAUSE, Reason.DEPLOYMENT_MISSING)
    elif snapshot.deployment.meta.owner != app.meta.uid:
        by = f"to {snapshot.deployment.meta.owner_name}" if snapshot.deployment.meta.owner_name else "to no SpinApp"
        text = f"Deployment {app.meta.name} belongs {by}: it is not the one that spin-operator creates"
        do = "delete or rename that Deployment, or create the SpinApp with another name"
        yield Line("deployment", text, False, do, Rank.CAUSE, Reason.DEPLOYMENT_MISSING)
    else:
        yield from _workload(snapshot, snapshot.deployment)


def _executor(executor: ExecutorView | None, app: OwnerView) -> Line:
    if executor is None:
        text = f"SpinAppExecutor {app.executor or '(none)'} does not exist in namespace {app.meta.namespace}"
        do = "create it, or set spec.executor to an existing one"
        return Line("executor", text, False, do, Rank.CAUSE, Reason.EXECUTOR_MISSING)
    if not executor.creates_deployment:
        text = f"SpinAppExecutor {executor.name} creates no Deployment: another system runs the application"
        return Line("executor", text, False, "", Rank.SYMPTOM, Reason.PODS_UNKNOWN, Health.UNKNOWN)
    has = f"RuntimeClass {executor.runtime_class}" if executor.runtime_class else "no RuntimeClass"
    return Line("executor", f"SpinAppExecutor {executor.name}, with {has}", ok=True)


def _cron_job(snapshot: Snapshot, cron: OwnerView) -> Iterator[Line]:
    if cron.suspended:
        yield from _idle(snapshot, cron)
        return
    # The API server creates the Job of a CronJob without its RuntimeClass, and then refuses the pods.
    line = placing.runtime_class(snapshot, cron.template)
    if line.trouble or snapshot.job is None:
        yield line
    if line.trouble:
        return
    if not snapshot.knows(Part.JOBS):
        text = f"its Jobs are unknown: {snapshot.unread[Part.JOBS]}"
        yield Line("job", text, False, "", Rank.SYMPTOM, Reason.PODS_UNKNOWN, Health.UNKNOWN)
    elif snapshot.job is None:
        yield _refused(snapshot, cron) or Line("job", "it has created no Job yet")
    elif cron.has_succeeded_since(snapshot.job):
        yield Line("job", f"its last run has completed; its newest Job is of an earlier one: {snapshot.job.meta.name}")
    else:
        yield Line("job", f"its newest Job is {snapshot.job.meta.name}")
        yield from _workload(snapshot, snapshot.job)


def _workload(snapshot: Snapshot, owner: OwnerView) -> Iterator[Line]:
    if owner.complete:
        yield Line("pods", "it is complete", ok=True)
        return
    if owner.suspended or owner.wanted == 0:
        yield from _idle(snapshot, owner)
        return
    pods = counted_pods(owner, snapshot.pods)
    before = [*_creation(snapshot, owner, pods)]
    yield from before
    if any(line.trouble for line in before):
        return
    if not snapshot.knows(Part.PODS):
        text = f"its pods are unknown: {snapshot.unread[Part.PODS]}"
        yield Line("pods", text, False, "", Rank.SYMPTOM, Reason.PODS_UNKNOWN, Health.UNKNOWN)
        return
    yield from _pods(snapshot, [*pods, *_without_successor(snapshot, owner)])
    yield from _of_former_template(owner, pods)
    yield from _end_of(owner)
    yield _count(owner, pods)


def _creation(snapshot: Snapshot, owner: OwnerView, pods: Sequence[WasmPod]) -> Iterator[Line]:
    """Yield the steps before there is a pod: its RuntimeClass, and a refusal of the API server."""
    ready = sum(pod.works for pod in pods)
    ok = bool(pods) and ready == len(pods)
    # Ready pods of a former template do not need the RuntimeClass of the current one.
    current = all(pod.runtime_class == owner.template.runtime_class for pod in pods)
    line = placing.runtime_class(snapshot, replace(owner.template, ready=ok and current))
    yield line
    refused, enough = _refused(snapshot, owner), ok and ready >= (owner.wanted or 0)
    if refused is not None and not line.trouble and (owner.refused or not enough):
        yield refused


def _of_former_template(owner: OwnerView, pods: Sequence[WasmPod]) -> Iterator[Line]:
    """Yield the steps of a rollout that does not end by itself."""
    here = f"-n {owner.meta.namespace} {owner.meta.name}"
    if owner.paused:
        text, do = "it is paused by spec.paused", f"`kubectl rollout resume deployment {here}`"
        needs = owner.outdated or not pods
        state = Health.SUSPENDED if needs else None
        yield Line(
            "rollout", text, False if needs else None, do, Rank.SYMPTOM, Reason.SUSPENDED if needs else "", state
        )
    elif owner.stalled:
        do = f"`kubectl describe deployment {here}`"
        yield Line("rollout", short(owner.stalled), False, do, Rank.CAUSE, Reason.ROLLOUT_STALLED)
    elif owner.outdated:
        yield waits("rollout", "not all of its pods have the current template", Reason.NOT_READY)
    for pod in pods:
        of = pod.meta.labels.get(_REVISION, owner.revision)
        if owner.kind == "StatefulSet" and owner.revision and of != owner.revision and not pod.works:
            # Kubernetes documents this as forced rollback: the controller waits for the pod to be ready first.
            text = f"pod {pod.meta.name} has a former template, and is replaced only once it is ready"
            yield Line("rollout", text, False, f"delete pod {pod.meta.name}", Rank.ASIDE)
            return


def _end_of(owner: OwnerView) -> Iterator[Line]:
    """Yield the step of a Job that has failed; its pods can be deleted since."""
    if owner.failed:
        do = f"remove the cause, and re-create it: `kubectl describe job -n {owner.meta.namespace} {owner.meta.name}`"
        yield Line("job", f"it has failed: {short(owner.failed)}", False, do, Rank.CAUSE, Reason.JOB_FAILED)


def _idle(snapshot: Snapshot, owner: OwnerView) -> Iterator[Line]:
    if owner.suspended:
        yield Line("pods", "it is suspended by spec.suspend", reason=Reason.SUSPENDED)
        return
    if owner.kind != "DaemonSet":
        name = "parallelism" if owner.kind == "Job" else "replicas"
        yield Line("pods", f"spec.{name} is 0", reason=Reason.SCALED_TO_ZERO)
        return
    # The controller of DaemonSets evaluates labels and taints by itself: there is no pod for the scheduler.
    line = placing.runtime_class(snapshot, owner.template)
    yield line
    if not line.trouble:
        template = placing.with_class(snapshot, replace(owner.template, tolerations=_tolerations_of_all(owner)))
        found = placing.no_node(snapshot, template) if template is not None else None
        yield found or waits("pods", "no node is to have a pod")


def _tolerations_of_all(owner: OwnerView) -> tuple[Toleration, ...]:
    """Return the tolerations of the pods of a DaemonSet: its controller adds those of node problems."""
    return (*owner.template.tolerations, *(Toleration(f"node.kubernetes.io/{key}", "Exists") for key in _TOLERATED))


def counted_pods(owner: OwnerView, every: Sequence[WasmPod]) -> list[WasmPod]:
    """Return the pods that count: those in deletion have a successor, or get one; failed ones of 0 replicas do not."""
    found = counted(owner.kind, [pod for pod in every if not pod.meta.deleting])
    return [pod for pod in found if not pod.ended] if owner.wanted == 0 and owner.kind in RUN_ALWAYS else found


def _without_successor(snapshot: Snapshot, owner: OwnerView) -> list[WasmPod]:
    """Return the pods in deletion for which the owner waits: on a lost node, nothing ends them."""
    return [pod for pod in snapshot.pods if pod.meta.deleting] if owner.kind in KEEPS_PLACE else []


def _refused(snapshot: Snapshot, owner: OwnerView) -> Line | None:
    """Return why the API server refuses the pods of an owner, None if it does not, or not any more."""
    newest = next(iter(snapshot.events_of(owner.meta.uid, CREATE)), None)
    if newest is not None and any(pod.created_at > newest.at > 0 for pod in snapshot.pods):
        newest = None  # a later attempt has succeeded
    enough = owner.wanted is not None and len(snapshot.pods) >= owner.wanted
    has_pods = enough or (owner.wanted is None and bool(snapshot.pods))
    words = owner.refused or ("" if newest is None or has_pods else newest.message)
    if not words:
        return None
    failure, text = of_creation(words), f"its pods are refused: {short(bare(words))}"
    if failure is not None and failure.reason is Reason.RUNTIME_CLASS_MISSING:
        do = "its RuntimeClass did not exist at the last attempt: Kubernetes retries within minutes"
        return Line("pods", text, False, do, Rank.CAUSE, Reason.RUNTIME_CLASS_MISSING)
    do = "change the pod template, or the quota or policy that the message names"
    if "exceeded quota" in words:
        do = f"free or raise the quota: `kubectl describe resourcequota -n {owner.meta.namespace}`"
    elif "violates PodSecurity" in words:
        do = "set the fields of securityContext that the message names in the pod template"
    return Line("pods", text, False, do, Rank.CAUSE, Reason.PODS_REFUSED)


def _pods(snapshot: Snapshot, pods: Sequence[WasmPod]) -> Iterator[Line]:
    """Yield one line for each cause, with the number of pods that have it and the name of one."""
    found: dict[str, list[tuple[WasmPod, Line]]] = {}
    for pod in pods:
        if (line := pod_cause(snapshot, pod)) is not None:
            found.setdefault(line.reason, []).append((pod, line))
    groups = sorted(found.values(), key=lambda same: (-same[0][1].rank, ORDER.get(Reason(same[0][1].reason), 0)))
    for same in groups[:_SHOWN]:
        pod, line = min(same, key=lambda item: item[0].meta.name)
        share = f"{len(same)} of {len(pods)} pods ({pod.meta.name}): " if len(pods) > 1 else f"pod {pod.meta.name}: "
        yield replace(line, text=f"{share}{line.text}")


def _count(owner: OwnerView, pods: Sequence[WasmPod]) -> Line:
    ready = sum(pod.works for pod in pods)
    wanted = owner.wanted if owner.wanted is not None else len(pods)
    text = f"{ready} of {max(wanted, len(pods))} are ready"
    if owner.wanted is None and not pods:
        return Line("pods", "it has no pod" if owner.failed else "it has created no pod yet")
    if ready >= wanted and ready == len(pods):
        return Line("pods", text, ok=True)
    return waits("pods", text)
