"""Decides about one node: create its Job, judge it, publish its outcome, delete it.

Pure. In: a frozen snapshot of one Node, its Jobs and its slot in the ledger. Out: actions, each with its reason. Called
by ``app`` between gather and apply; slots are assigned by ``plan``, never here. Invariants: no Job without a slot; one
Job per node at a time; a Job is deleted only when success or failure is recorded on the Node, its effect is no longer
wanted, or another Node took the name; an event is published before it is marked as published; no Job of the Trellis
installer is deleted while the Node does not name what the Job left there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from provisioner.domain.actions import (
    Action,
    CreateJob,
    DeleteJob,
    EndJob,
    EvictPod,
    GiveBackSlot,
    GuardedDeletion,
    LookAgain,
    Publish,
    Snapshot,
    User,
    WarnNode,
)
from provisioner.domain.job_clock import at_work
from provisioner.domain.job_failure import about, blamed_by, failure_message, judge, result_of
from provisioner.domain.refused import pod_refused, refusal_ended_by
from provisioner.domain.tasks import to_remove
from provisioner.domain.verification import verify
from trellis import names
from trellis.crds.shim import RemovalPolicy
from trellis.events.provision import ProvisionRemoved, ProvisionStarted
from trellis.limits.breaker import Deletion
from trellis.provisioning.attempts import changes_of, difference
from trellis.provisioning.ledger import Entry
from trellis.provisioning.leftovers import left_by, overtaken
from trellis.provisioning.reasons import Reason
from trellis.provisioning.shims import ShimView
from trellis.provisioning.views import (
    SUPPORTED_OS,
    UNDO,
    JobState,
    JobView,
    NodeView,
    OptIn,
    Target,
    newest,
    opt_in_of,
)

JOBS = "jobs"
"""Kind of the circuit breaker that guards running installer Jobs."""
_NAMED: Final = 5
_STAYING: Final = frozenset({"", "DaemonSet", "Node"})
"""Kinds of controllers of pods that are not evicted; "Node" is that of static pods."""
_NOTHING_TO_INSTALL: Final = (
    f"{names.ANNOTATION_OPT_IN}=true, but there is nothing to install: no Shim is labelled "
    f"{names.LABEL_KWASM_DEFAULT}=true, and TRELLIS_INSTALLER_IMAGE is empty; label one, or set the image"
)


def decide(snapshot: Snapshot) -> list[Action]:
    """Return the actions on one node, in order."""
    node = snapshot.node
    if node is None:
        return []  # its Jobs are owned by the Node: the garbage collector deletes them
    if snapshot.shims_unknown:
        return []  # a Shim that cannot be listed does not count as deleted
    former: list[Action] = [
        DeleteJob(job, Reason.NODE_REPLACED, foreground=False)
        for job in snapshot.jobs
        if job.node_uid != node.uid and not job.deleting
    ]
    if snapshot.unserved and snapshot.target is None:
        former.append(WarnNode(node, Reason.NOTHING_TO_INSTALL, _NOTHING_TO_INSTALL))
    jobs = tuple(job for job in snapshot.jobs if job.node_uid == node.uid)
    job = newest(jobs)
    if snapshot.report_skip and node.skip and snapshot.target is not None and changes_of(node, snapshot.target):
        former.append(WarnNode(node, node.skip.reason, node.skip.message))
    if snapshot.stuck_in < math.inf:
        former += _stuck_unjudged(snapshot, node, job)
    if snapshot.target is None and not left_by(job, node):
        return [*former, *_opted_out(jobs, node, snapshot.deleting), *refusal_ended_by(snapshot, node, job, [])]
    former += _outlived(jobs, job)
    current: list[Action] = []
    if job is not None and not job.deleting:
        unwanted = overtaken(job, node, snapshot.target)
        end = _end(job, node, Reason.SUPERSEDED, snapshot.deleting)
        current = end if unwanted else _follow(snapshot, node, job)
    over = refusal_ended_by(snapshot, node, job, current)
    return [*former, *current, *_begin(snapshot, node, jobs), *over]


def unserved(node: NodeView, shims: Iterable[ShimView]) -> bool:
    """Return whether a user opted a node in for which there is nothing to install without a legacy image."""
    opted_in = node.operating_system == SUPPORTED_OS and opt_in_of(node, auto_provision=False) is OptIn.IN
    return opted_in and not any(shim.default for shim in shims)


def _outlived(jobs: tuple[JobView, ...], job: JobView | None) -> list[DeleteJob]:
    """Return the deletion of Jobs that ended before the newest, and remain because their events were not published.

    They must not outlive the newest: one of them would become the newest, and its outcome would replace a later one on
    the node. An attempt stays beside the Job that rolls it back.
    """
    if job is None or job.operation == UNDO:
        return []
    ended = (item for item in jobs if item is not job and not item.deleting and item.state is not JobState.ACTIVE)
    return [DeleteJob(item, Reason.SUPERSEDED, foreground=False) for item in ended]


def inspect(job: JobView | None, *, inspect_after: float, now: float) -> bool:
    """Return whether to read the pod of a Job: it failed without a verdict, or it should have ended by now."""
    if job is None or job.deleting:
        return False
    if job.state is JobState.ACTIVE:
        return now - job.created_at >= inspect_after
    return job.state is JobState.FAILED and job.failure is None


def to_begin(node: NodeView, jobs: tuple[JobView, ...], entry: Entry) -> bool:
    """Return whether Nodes and Jobs permit the Job of a node's slot; pods may still block it.

    A Job of a former Node of the name that is being deleted creates no more pods, and may remain for long.
    """
    if node.skip is not None or entry.is_recorded_on(node):
        return False  # recorded: the planner frees the slot
    tried = (entry.digest, entry.attempt)
    own = [job for job in jobs if job.node_uid == node.uid]
    if any((job.digest, job.attempt) == tried and not job.deleting for job in own):
        return False
    former = [job for job in jobs if job.node_uid != node.uid and not job.deleting]
    return not any(map(at_work, [*own, *former]))  # one installer per disk; the end of the Job enqueues the node


def _begin(snapshot: Snapshot, node: NodeView, jobs: tuple[JobView, ...]) -> list[Action]:
    """Return the creation of the Job of a claimed slot, once no earlier one is running."""
    if snapshot.other is not None:
        not_ended = any(job.deleting or job.state is not JobState.FAILED for job in jobs)
        return [] if not_ended else [WarnNode(node, Reason.OTHER_CONTROLLER, snapshot.other.advice)]
    entry, target = snapshot.entry, snapshot.target
    if entry is None or target is None or snapshot.task is None or not to_begin(node, snapshot.jobs, entry):
        return []
    if entry.digest != target.digest or not changes_of(node, target):
        return []  # the target changed before the Job was created, or is reached: the planner frees the slot
    if snapshot.pods_left:
        message = (
            f"pod {', '.join(snapshot.pods_left)} of an earlier installer Job has not ended, and only one may run on a "
            "node; if the pod no longer runs on the node, delete it by kubectl delete pod --force"
        )
        return [WarnNode(node, Reason.INSTALLER_POD_STUCK, message), GiveBackSlot(node, snapshot.timings.pod_left)]
    last = newest(jobs)
    if last is not None and last.failure is None and left_by(last, node):
        return []  # an older attempt was repeated and succeeded: the Node has to record that first
    if blocked := _blocked(snapshot, node, target):
        return blocked
    if snapshot.blocked_for > 0:
        return [LookAgain(snapshot.blocked_for)]  # the run that released the slot may have failed since
    outlived = {action.job.uid for action in _outlived(jobs, newest(jobs))}
    clear = [DeleteJob(job, Reason.SUPERSEDED, foreground=False) for job in jobs if job.uid not in outlived]
    return [*clear, CreateJob(node, replace(snapshot.task, unconfirmed=snapshot.unconfirmed), entry.attempt)]


def labelled(node: NodeView, target: Target) -> bool:
    """Return whether a node still has the label of a Shim to uninstall.

    node_watcher removes the label first, and the circuit breaker may pause that: until then no Job is created there.
    """
    return bool(_labels(node, to_remove(node, target)))


def _labels(node: NodeView, shims: Iterable[str]) -> list[str]:
    """Return the labels of these Shims that a node has."""
    wanted = {names.shim_label(name) for name in shims}  # nothing, of most nodes
    return [f"{label}={value}" for label, value in node.label_values().items() if label in wanted] if wanted else []


def _blocked(snapshot: Snapshot, node: NodeView, target: Target) -> list[Action]:
    """Return the steps before a removal of Shims: first the labels, which stop scheduling, then pods, by policy."""
    deleting = to_remove(node, target)
    if labelled(node, target):
        return [GiveBackSlot(node, snapshot.timings.labels)]
    policies = dict(snapshot.policies)
    of: dict[RemovalPolicy, list[User]] = {policy: [] for policy in RemovalPolicy}
    for user in snapshot.users:
        if user.shim in deleting:
            of[policies.get(user.shim, RemovalPolicy.REFUSE)].append(user)
    if refusing := of[RemovalPolicy.REFUSE]:
        message = (
            f"{', '.join(deleting)} cannot be removed: {_listed(refusing)} still run with it; delete them, or set "
            "spec.removalPolicy of the Shim to Drain or Force"
        )
        return [WarnNode(node, Reason.IN_USE, message), GiveBackSlot(node, snapshot.timings.in_use, message)]
    if draining := of[RemovalPolicy.DRAIN]:
        return [*(EvictPod(node, user) for user in draining), LookAgain(snapshot.timings.drain)]
    return _drain(snapshot, node)


def _drain(snapshot: Snapshot, node: NodeView) -> list[Action]:
    """Return the steps before Shims are changed that are drained, for a limited time; [] once no pod is left.

    1. node_watcher removes the labels of these Shims, so that no evicted pod returns (ADR 126).
    2. The pods are evicted. As with ``kubectl drain``, pods of DaemonSets and pods without a controller stay. Pods that
       were created later name the node themselves: the eviction of their successors would not end (ADR 124).
    """
    since = snapshot.entry.since if snapshot.entry is not None else 0
    in_time = snapshot.now - since < snapshot.drain_timeout
    if labels := _labels(node, snapshot.draining):
        if in_time:
            return [LookAgain(snapshot.timings.labels)]
        return _not_drained(
            snapshot,
            node,
            f"node_watcher has not removed the label {', '.join(labels)} within {snapshot.drain_timeout:.0f} s, so the "
            f"node is not changed: check that node_watcher is ready, and that it may read ConfigMap {names.LEDGER}",
        )
    until = since + snapshot.timings.placed
    left = [
        user
        for user in snapshot.users
        if user.shim in snapshot.draining and user.controller not in _STAYING and user.created_at <= until
    ]
    if not left:
        return []
    if in_time:
        return [*(EvictPod(node, user, Reason.CLAIMED) for user in left), LookAgain(snapshot.timings.drain)]
    return _not_drained(
        snapshot,
        node,
        f"{_listed(left)} cannot be evicted within {snapshot.drain_timeout:.0f} s, so the node is not changed: check "
        "their PodDisruptionBudgets, and that other nodes have room, or set rolling.drain of the Shim to false",
    )


def _not_drained(snapshot: Snapshot, node: NodeView, message: str) -> list[Action]:
    return [WarnNode(node, Reason.DRAIN_BLOCKED, message), GiveBackSlot(node, snapshot.timings.in_use, message)]


def _listed(users: list[User]) -> str:
    more = len(users) - _NAMED
    return ", ".join(map(str, users[:_NAMED])) + (f" and {more} more" if more > 0 else "")


def _follow(snapshot: Snapshot, node: NodeView, job: JobView) -> list[Action]:
    """Return the actions that publish the state of the newest Job, and judge it when it ended."""
    if job.operation == UNDO:
        return _follow_undo(snapshot, node, job)
    started = f"{job.uid}.started"
    actions: list[Action] = []
    if started not in snapshot.published and job.state is JobState.ACTIVE:
        actions.append(Publish(ProvisionStarted(**about(job)), started, job))
    match job.state:
        case JobState.ACTIVE:
            return [*actions, *_follow_active(snapshot, node, job)]
        case JobState.FAILED:
            if node.marked_digest == job.digest:  # it was repeated, based on a view without the verification
                return [DeleteJob(job, Reason.SUPERSEDED, foreground=False)]
            if job.failure is not None:
                return []
            message, result = failure_message(job, snapshot.installer), result_of(snapshot.installer)
            disruptive, blamed = result is not None and result.restarted, blamed_by(job, result)
            return judge(job, Reason.INSTALLER_FAILED, message, disruptive=disruptive, blamed=blamed)
        case JobState.COMPLETE:
            return verify(snapshot, node, job)


def _follow_active(snapshot: Snapshot, node: NodeView, job: JobView) -> list[Action]:
    if job.failure_target and not node.ready:
        return _give_up(job)
    if refused := pod_refused(snapshot, node, job):
        return refused
    return _stuck(snapshot, job) if snapshot.stuck_in <= 0 else _watch_start(snapshot, node, job)


def _give_up(job: JobView) -> list[Action]:
    """Judge a Job on an unreachable node, which reports no end of a pod: otherwise its slot would never be free."""
    if job.failure is not None:
        return []
    message = f"{job.failure_target}; the node is not ready, so it is not known how far the installer came"
    return judge(job, Reason.NODE_NOT_READY, message)


def _stuck_unjudged(snapshot: Snapshot, node: NodeView, job: JobView | None) -> list[Action]:
    """Schedule a check for the deadline of the newest Job; warn about a stuck one that is not to be judged."""
    if snapshot.stuck_in > 0:
        return [LookAgain(snapshot.stuck_in)]
    if job is None or not (job.deleting or snapshot.target is None or overtaken(job, node, snapshot.target)):
        return []
    return [WarnNode(node, Reason.INSTALLER_POD_STUCK, _pod_stuck(snapshot, job))]


def _stuck(snapshot: Snapshot, job: JobView) -> list[Action]:
    """Judge a Job after its deadline, even if its pod still runs, then end it if Kubernetes did not try that.

    The Job stays, so that no other Job is created for the node while the pod may run.
    """
    if job.failure is None:
        return judge(job, Reason.INSTALLER_POD_STUCK, _pod_stuck(snapshot, job))
    return [] if job.failure_target or job.ends_now else [EndJob(job, Reason.INSTALLER_POD_STUCK)]


def _pod_stuck(snapshot: Snapshot, job: JobView) -> str:
    waits = snapshot.installer.waiting if snapshot.installer else ""
    details = "; ".join(part for part in (job.failure_target, waits) if part)
    text = f"Job {job.namespace}/{job.name} is past its deadline and its pod has not ended"
    return f"{text} ({details})" if details else text


def _follow_undo(snapshot: Snapshot, node: NodeView, job: JobView) -> list[Action]:
    """Judge an attempt once its rollback ended; the verdict is on the rollback Job, with the number of the attempt."""
    if job.failure is not None:
        return []
    reason, _, message = job.rolls_back.partition(": ")
    match job.state:
        case JobState.ACTIVE if refused := pod_refused(snapshot, node, job):
            return refused
        case JobState.ACTIVE if job.failure_target and not node.ready:
            message = f"{message}; the node is not ready, so it is not known whether the rollback completed"
        case JobState.ACTIVE if snapshot.stuck_in <= 0:
            message = f"{message}; it is not known whether the rollback completed: {_pod_stuck(snapshot, job)}"
        case JobState.ACTIVE:
            return _watch_start(snapshot, node, job)
        case JobState.COMPLETE:
            message = f"{message}; the node was rolled back"
        case JobState.FAILED:
            message = f"{message}; the rollback of the node failed: {failure_message(job, snapshot.installer)}"
    return judge(job, Reason(reason), message, disruptive=True, blamed=job.blamed)


def _watch_start(snapshot: Snapshot, node: NodeView, job: JobView) -> list[Action]:
    """Warn about a pod that does not start, such as for an image pull error, before the deadline of the Job."""
    installer = snapshot.installer
    if installer is None:
        return [LookAgain(max(1.0, job.created_at + snapshot.inspect_after - snapshot.now))]
    again = LookAgain(snapshot.inspect_after)
    if not installer.waiting:
        return [again]
    message = f"Job {job.namespace}/{job.name} waits: {installer.waiting}"
    return [WarnNode(node, Reason.NOT_STARTING, message), again]


def _opted_out(jobs: tuple[JobView, ...], node: NodeView, deleting: frozenset[str]) -> list[Action]:
    """Return the actions that end all work on a node without a target, except for a rollback."""
    actions: list[Action] = []
    for job in jobs:
        if job.deleting or (job.operation == UNDO and job.state is JobState.ACTIVE and not job.stopped):
            continue
        running = job.state is JobState.ACTIVE
        if running and job.installs is not None:
            actions += _end(job, node, Reason.OPTED_OUT, deleting)
            continue
        publish = Publish(ProvisionRemoved(**about(job)), f"{job.uid}.removed", job)
        steps = (publish, DeleteJob(job, Reason.OPTED_OUT, foreground=running))
        # A Job that ended is only deleted: its effect stays.
        actions += [GuardedDeletion(_interruption(job), steps)] if running else steps
    return actions


def _end(job: JobView, node: NodeView, reason: Reason, deleting: frozenset[str]) -> list[Action]:
    """End an installer that is no longer required: it rolls back its changes, or completes if it is past that point.

    A suspended Job would never end, so it is deleted after its pods. The deletion of a Shim affects all of its nodes,
    and the circuit breaker does not pause it (ADR 27).
    """
    if job.state is not JobState.ACTIVE or (job.ends_now and not job.stopped):
        return []
    step = DeleteJob(job, reason, foreground=True) if job.stopped else EndJob(job, reason)
    changes = difference(node.installed, job.shims)
    of_deleted_shims = bool(changes) and deleting.issuperset(changes)
    return [step] if of_deleted_shims else [GuardedDeletion(_interruption(job), (step,))]


def _interruption(job: JobView) -> Deletion:
    what = f"stopping the installer on node {job.node}"
    return Deletion(JOBS, job.name, job.uid, what, "batch/v1", "Job", job.namespace)
