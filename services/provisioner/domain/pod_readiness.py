"""Decides whether pods permit further nodes of a rollout: on changed nodes they must be as ready as before.

Pure. In: the pods of a Shim, how ready they were when nodes began (the ledger), the limits, the time. Out: the next
record, and whether further nodes begin, wait or are halted. Called by ``plan``. Invariants: pods that were not ready
before hold nothing; pods that cannot be read are not ready; a pod of an owner that moved counts where it is now; a
node whose pods are less ready than before may always begin, so that it is repaired by a retry or another version.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from trellis import names
from trellis.crds.shim import WorkloadPolicy
from trellis.provisioning.attempts import ShimLimits
from trellis.provisioning.shim_status import Reason
from trellis.provisioning.workload_state import Baseline, Readiness, WorkloadHalt, WorkloadState
from trellis.read_model.wasm_pods.counted_pods import RUN_ALWAYS

_NAMED: Final = 3
"""Number of pods that a command names."""
_DAEMON: Final = "DaemonSet"
_JOB: Final = "Job"
_FINAL_KINDS: Final = frozenset({"", _JOB})
"""Kinds of owners that do not replace each failed pod; "" has no owner."""


@dataclass(frozen=True, slots=True)
class RolloutPod:
    """A pod of a Shim. ``owner_kind``, ``owner_name``: its Deployment or other controller, "" if it has none.

    ``ready_since``: Unix seconds, 0 if not known. ``completed``, ``failed``: its phase. ``broken``: it does not start
    by itself; ``reason``, ``message``: why it is not ready, as ``trellis explain`` names it.
    """

    namespace: str
    name: str
    node: str = ""
    owner_kind: str = ""
    owner_name: str = ""
    created_at: int = 0
    ready: bool = False
    ready_since: int = 0
    completed: bool = False
    failed: bool = False
    deleting: bool = False
    broken: bool = False
    reason: str = ""
    message: str = ""

    @property
    def owner(self) -> str:
        """Key of its owner in the ledger; a pod without one is its own."""
        return names.short_hash(self.namespace, self.owner_kind or "Pod", self.owner_name or self.name)

    @property
    def is_replaced(self) -> bool:
        """True if it has ended, and its owner creates another one in its place."""
        if self.completed:
            return self.owner_kind in RUN_ALWAYS
        return self.failed and self.owner_kind not in _FINAL_KINDS

    def __str__(self) -> str:
        """Return ``namespace/name``."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Workloads:
    """The pods of a cluster for a plan. ``by_class``: by RuntimeClass, None if they cannot be read; ``error``: why.

    ``settle``: seconds for which a pod must be ready, and in which a changed node is not evaluated; ``look``: seconds
    until the next evaluation while pods are less ready than before.
    """

    by_class: Mapping[str, Sequence[RolloutPod]] | None = field(default_factory=dict)
    error: str = ""
    settle: float = 10.0
    look: float = 5.0

    def of(self, runtime_class: str) -> Sequence[RolloutPod] | None:
        """Return the pods of a RuntimeClass, None if they cannot be read."""
        return None if self.by_class is None else self.by_class.get(runtime_class, ())


@dataclass(frozen=True, slots=True)
class Work:
    """Nodes of a Shim in a plan. ``in_progress``: names of those with a slot for it, by UID.

    ``ended``: a slot of it was released in this plan. ``changes``: a node that has it is to be changed.
    ``latest``: Unix seconds; a later acknowledgement is ignored.
    """

    in_progress: Mapping[str, str] = field(default_factory=dict)
    ended: bool = False
    changes: bool = False
    latest: float = 0.0


@dataclass(frozen=True, slots=True)
class Judgement:
    """The result for one Shim. ``open``: further nodes may begin. ``waits``: why not, or why it is halted.

    ``pods``: None if no baseline can be recorded. ``wake_in``: seconds until time alone changes it.
    """

    state: WorkloadState
    open: bool = True
    waits: WorkloadHalt | None = None
    pods: Sequence[RolloutPod] | None = None
    wake_in: float | None = None

    def holds(self, uid: str) -> bool:
        """Return whether a node with this UID may not begin now."""
        return not self.open and uid not in self.state.baselines


def judge(limits: ShimLimits, former: WorkloadState | None, workloads: Workloads, work: Work, now: float) -> Judgement:
    """Return whether further nodes of a Shim may begin.

    1. Another version is rolled out: its halt ends, its time restarts; nodes with less ready pods stay known.
    2. A user resumed a halted rollout: the pods on the nodes that ended are accepted as they are.
    3. The pods cannot be read: wait, then halt.
    4. Pods on a node that ended are as ready as before: the node is no longer evaluated.
    5. Otherwise wait, and halt by the policy.
    """
    state = former or WorkloadState(limits.content)
    if state.content != limits.content:
        ended = int(now) if state.baselines else 0
        state = replace(state, content=limits.content, halt=None, ended=ended, unread=0)
    finished = any(uid not in work.in_progress for uid in state.baselines)
    if finished and (work.ended or not state.ended):
        state = replace(state, ended=int(now))
    resumed = limits.acknowledged if limits.acknowledged <= work.latest else 0
    if state.halt is not None and state.halt.at <= resumed:
        going = {uid: item for uid, item in state.baselines.items() if uid in work.in_progress}
        state = replace(state, baselines=going, halt=None)
    pods = workloads.of(limits.runtime_class)
    if pods is None:
        return _unread(limits, state, workloads, work, now)
    return _judge(limits, replace(state, unread=0), pods, workloads, work, now)


def _unread(limits: ShimLimits, state: WorkloadState, workloads: Workloads, work: Work, now: float) -> Judgement:
    """Return the result while pods cannot be read: nothing depends on them unless a node has, or had, the Shim."""
    finished = any(uid not in work.in_progress for uid in state.baselines)
    if not finished and not work.changes and state.halt is None:
        return Judgement(replace(state, unread=0))
    since = state.unread or int(now)
    state = replace(state, unread=since)
    if since <= limits.acknowledged <= work.latest:
        return Judgement(state)  # a user resumed the rollout without them
    message = f"pods with RuntimeClass {limits.runtime_class} cannot be read: {workloads.error}"
    waits = WorkloadHalt(Reason.WORKLOADS_UNKNOWN.value, int(now), message)
    left = limits.workload_timeout - (now - since)
    if state.halt is not None or left <= 0:
        halt = state.halt or waits
        return Judgement(replace(state, halt=halt), open=False, waits=halt, wake_in=workloads.look)
    return Judgement(state, open=False, waits=waits, wake_in=min(left, workloads.look))


def _judge(
    limits: ShimLimits, state: WorkloadState, pods: Sequence[RolloutPod], workloads: Workloads, work: Work, now: float
) -> Judgement:
    by_owner = _by_owner(pods) if any(uid not in work.in_progress for uid in state.baselines) else {}
    settling = max(0.0, state.ended + workloads.settle - now) if state.ended <= now else 0.0
    kept: dict[str, Baseline] = {}
    less: list[RolloutPod] = []
    is_open = True
    for uid, baseline in state.baselines.items():
        if uid in work.in_progress:
            kept[uid] = baseline
            continue
        found = [
            pod
            for owner, before in baseline.owners.items()
            for pod in _less_ready(baseline, before, by_owner.get(owner, ()), workloads.settle, now)
        ]
        if found or (settling and baseline.owners):
            kept[uid], is_open = baseline, False
            less += found
    state = replace(state, baselines=kept, ended=state.ended if kept else 0)
    if is_open:
        return Judgement(replace(state, halt=None), pods=pods)
    # The pods on nodes in progress are restarted just now, and a pod without a node may wait for one that is drained:
    # their time begins when those nodes end.
    in_progress = {*work.in_progress.values()}
    unblamed = in_progress | {""} if in_progress else in_progress
    blamed = sorted((pod for pod in less if pod.node not in unblamed), key=lambda pod: (not pod.broken, str(pod)))
    left = limits.workload_timeout - (now - state.ended)
    waits = _not_ready(blamed or less, state.ended, now) if less else None
    if blamed and waits is not None and (state.halt is not None or _halts(limits, blamed[0], left, settling)):
        # The time of the halt stays, so that a user who resumes acknowledges it once.
        halt = replace(waits, at=state.halt.at if state.halt is not None else int(now))
        return Judgement(replace(state, halt=halt), open=False, waits=halt, pods=pods, wake_in=workloads.look)
    wakes = [seconds for seconds in (settling, left) if seconds > 0]
    return Judgement(
        replace(state, halt=None), open=False, waits=waits, pods=pods, wake_in=min([workloads.look, *wakes])
    )


def _by_owner(pods: Iterable[RolloutPod]) -> dict[str, list[RolloutPod]]:
    found: dict[str, list[RolloutPod]] = defaultdict(list)
    for pod in pods:
        found[pod.owner].append(pod)
    return found


def _halts(limits: ShimLimits, first: RolloutPod, left: float, settling: float) -> bool:
    if left <= 0:
        return True
    return limits.workloads is WorkloadPolicy.HALT and first.broken and not settling


def _not_ready(pods: Sequence[RolloutPod], ended: int, now: float) -> WorkloadHalt:
    """Return the first of these pods as the reason. ``ended``: Unix seconds, when the last node ended its change.

    The pod is named before its own message, which is shortened in the middle of a condition: ``trellis explain pod``
    shows it whole.
    """
    pod = pods[0]
    where = f"on node {pod.node}" if pod.node else "without a node"
    more = len({str(item) for item in pods}) - 1
    also = f" and {more} more" if more else ""
    reason = f"{pod.reason}: " if pod.reason else ""
    cause = f": {pod.message}" if pod.message else " is less ready than before the change"
    message = f"{reason}pod {pod} {where}{also}{cause}{_remedy(pods, ended)}"
    return WorkloadHalt(Reason.WORKLOAD_NOT_READY.value, int(now), message, str(pod), pod.node, pod.reason)


def _remedy(pods: Iterable[RolloutPod], ended: int) -> str:
    """Return the command that deletes pods with the program of a former version, "" if there are none.

    A pod keeps the program of the shim that started its sandbox, so neither a rollback nor a restart repairs it. Pods
    without an owner are not in the command, because a user has to re-create them.
    """
    failing = {str(pod): pod for pod in pods if pod.broken and pod.node and not pod.deleting and pod.created_at < ended}
    replaced = [pod for pod in failing.values() if pod.owner_kind]
    text = "pods that were created before the end of the change can keep the former program of the shim"
    if not replaced:
        return f"; {text}: re-create pod {min(failing)}" if failing else ""
    namespace = replaced[0].namespace
    named = [pod.name for pod in replaced if pod.namespace == namespace][:_NAMED]
    more = f" ({len(replaced) - len(named)} more)" if len(replaced) > len(named) else ""
    return f"; {text}: `kubectl delete pod -n {namespace} {' '.join(named)}`{more}"


def baseline_of(node: str, pods: Iterable[RolloutPod], settle: float, now: float) -> Baseline:
    """Return how ready the pods on a node are that is about to begin: only owners with ready pods there count."""
    found = _by_owner(pod for pod in pods if pod.node == node and not pod.deleting and not pod.is_replaced)
    owners = {
        owner: (sum(_counts(pod, settle, now) for pod in of_owner), len(of_owner))
        for owner, of_owner in found.items()
        if any(not pod.completed and _counts(pod, settle, now) for pod in of_owner)
    }
    return Baseline(node, int(now), owners)


def _less_ready(
    baseline: Baseline, before: Readiness, pods: Sequence[RolloutPod], settle: float, now: float
) -> list[RolloutPod]:
    """Return the pods of an owner that are to become ready until it is as ready as before; [] if it is.

    Pods that left the node are replaced by pods that were created since, on any node; those of a DaemonSet are not.
    A failed pod of a Job counts until a later one exists. An owner without pods to become ready was scaled down,
    deleted, or has completed.
    """
    ready_before, total_before = before
    newest = max((pod.created_at for pod in pods), default=0)
    pods = [pod for pod in pods if not (pod.failed and pod.owner_kind == _JOB and pod.created_at < newest)]
    here = [pod for pod in pods if pod.node == baseline.node and not pod.is_replaced]
    staying = [pod for pod in here if not pod.deleting]
    left = max(0, total_before - len(staying))
    elsewhere = [
        pod
        for pod in pods
        if left and pod.node != baseline.node and pod.created_at >= baseline.since and pod.owner_kind != _DAEMON
        if not pod.is_replaced and not pod.deleting
    ]
    ready = sum(_counts(pod, settle, now) for pod in staying)
    ready += min(left, sum(_counts(pod, settle, now) for pod in elsewhere))
    if ready >= ready_before:
        return []
    return [pod for pod in (*here, *elsewhere) if pod.deleting or not _counts(pod, settle, now)]


def _counts(pod: RolloutPod, settle: float, now: float) -> bool:
    """Return whether a pod is ready, for long enough: a container that always fails is ready for a moment.

    A kubelet's clock may differ: a time far in the future does not count as recent.
    """
    return pod.completed or (pod.ready and not pod.deleting and abs(now - pod.ready_since) >= settle)
