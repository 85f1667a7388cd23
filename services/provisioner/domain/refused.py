"""Handles a node whose installer, or whose labels, the API server refuses: admission, a quota, RBAC.

Pure. In: a snapshot and its newest Job. Out: actions. Called by ``decide`` and ``verification``.

    Job created ──► the Job controller reports FailedCreate ──► reported on Node and Shims
       ▲                                                          │ no pod within the time between two attempts
       └── the slot is released for as long ◄─── Job deleted ◄────┘
    Job verified ──► node_watcher reports NodeUpdateRefused ──► reported on the Shims until the Node is labelled

Invariants: a refusal is reported at its first failure, with the error of the API server; a Job without a pod keeps no
slot for long, and is replaced within seconds: the backoff of the Job controller grows to minutes.
"""

from __future__ import annotations

from provisioner.domain.actions import Action, ClearRefusal, DeleteJob, GiveBackSlot, LookAgain, ReportRefusal, Snapshot
from trellis.provisioning.attempts import changes_of
from trellis.provisioning.reasons import NO_POD, Reason
from trellis.provisioning.views import UNDO, JobState, JobView, NodeView

_CREATED = " is created: "


def without_job(message: str) -> str:
    """Return the cause of a reported refusal, without the Job that gets no pod."""
    return message.partition(_CREATED)[2] if message.startswith(NO_POD) else message


def pod_refused(snapshot: Snapshot, node: NodeView, job: JobView) -> list[Action]:
    """Report that the pod of a Job is refused; replace the Job after a while. [] if it is not refused.

    A Job that was suspended after its pod was created is not replaced: it is judged after its deadline.
    """
    if not snapshot.pod_refused or (job.has_pods and not job.suspended):
        return []
    message = f"{NO_POD} {job.namespace}/{job.name}{_CREATED}{snapshot.pod_refused}"
    report = ReportRefusal(node, Reason.INSTALLER_REFUSED, message)
    if job.has_pods:
        return [report] if snapshot.stuck_in > 0 else []
    half = snapshot.refusal_retry / 2  # with the Job, and without: an attempt is made once in the whole time
    left = half - snapshot.pod_refused_for
    if left > 0:
        return [report, LookAgain(left)]
    # The Job controller may be creating the pod just now, and waits up to five minutes until it sees that pod for the
    # Job of this name: the next one of the name would get none in the meantime. So this one stays until its pods are
    # gone.
    replace = DeleteJob(job, Reason.INSTALLER_REFUSED, foreground=True)
    if job.operation == UNDO:
        return [report, replace]
    return [report, replace, GiveBackSlot(node, half)]


def update_refused(snapshot: Snapshot, node: NodeView) -> list[Action]:
    """Report that the verified Node cannot be labelled; check it, less and less often, until it is."""
    again: list[Action] = [LookAgain(min(max(snapshot.done_for, snapshot.timings.record), snapshot.refusal_retry))]
    if not snapshot.update_refused:
        return again
    return [ReportRefusal(node, Reason.UPDATE_REFUSED, snapshot.update_refused), *again]


def refusal_ended_by(snapshot: Snapshot, node: NodeView, job: JobView | None, actions: list[Action]) -> list[Action]:
    """Return the end of a former report: the Job runs or ended, or no change remains on the node."""
    if not snapshot.refused or any(isinstance(action, ReportRefusal) for action in actions):
        return []
    runs = job is not None and not job.deleting and (job.has_pods or job.state is not JobState.ACTIVE)
    idle = snapshot.target is None or not changes_of(node, snapshot.target)
    return [ClearRefusal(node)] if runs or idle else []
