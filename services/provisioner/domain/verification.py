"""Verifies a Job that succeeded: by the status of its Node and by canaries, or else by a rollback.

Pure. In: a snapshot, its newest Job. Out: actions. Called by ``decide``.
Invariant: a Job counts by its Node and its canaries, never by its exit alone if more can be known.
"""

from __future__ import annotations

from provisioner.domain.actions import (
    Action,
    CreateCanary,
    CreateUndo,
    DeleteCanary,
    DeleteJob,
    LookAgain,
    Publish,
    Snapshot,
    VerifyJob,
)
from provisioner.domain.canary import Trial, trial_of, verifies_all
from provisioner.domain.job_failure import about, blame, judge, unlike
from provisioner.domain.refused import update_refused
from provisioner.domain.tasks import undo_of
from trellis.events.provision import ProvisionSucceeded
from trellis.provisioning.leftovers import fulfilled
from trellis.provisioning.reasons import Reason
from trellis.provisioning.views import PROVISION, JobState, JobView, NodeView, VerifiedBy, verification_of


def verify(snapshot: Snapshot, node: NodeView, job: JobView) -> list[Action]:
    """Return the actions on a Job that succeeded; it counts once the node lists the handler and a pod ran with it."""
    if verified_by := verification_of(job, node):
        dedup_id = f"{job.uid}.succeeded"
        actions: list[Action] = []
        if dedup_id not in snapshot.published:
            actions.append(Publish(ProvisionSucceeded(**about(job), verified=verified_by.value), dedup_id, job))
        if fulfilled(job, node):
            actions.append(_delete_verified_job(snapshot, job))
        else:
            actions += update_refused(snapshot, node)
        return actions
    if job.failure is not None:
        return []
    if job.canaries and job.verified_by is None:
        return _try_out(snapshot, node, job)  # at once: the kubelet lists a new handler only after seconds
    if (left := _left(snapshot)) > 0:
        return [LookAgain(left)]
    message = f"the installer succeeded, but after {snapshot.verify_timeout:.0f} s the node {unlike(job, node)}"
    return roll_back(snapshot, node, job, Reason.HANDLER_MISSING, message)


def in_vain(snapshot: Snapshot, node: NodeView, job: JobView) -> tuple[str, ...]:
    """Return the Shims of a Job that succeeded without a verification in time; () while they may still be verified.

    ``gather`` calls it: for a rollback, their former versions must be in the snapshot.
    """
    if job.deleting or job.state is not JobState.COMPLETE or job.failure is not None or verification_of(job, node):
        return ()
    if job.canaries and job.verified_by is None:
        return _trial(snapshot, job).failed
    return tried(node, job) if _left(snapshot) <= 0 else ()


def _left(snapshot: Snapshot) -> float:
    """Return the seconds that remain for the verification of a Job, by the clock of this process alone."""
    return snapshot.verify_timeout - snapshot.done_for


def _trial(snapshot: Snapshot, job: JobView) -> Trial:
    overdue = _left(snapshot) <= 0
    return trial_of(job, snapshot.canaries, snapshot.pods, overdue=overdue, refused=snapshot.refused)


def _delete_verified_job(snapshot: Snapshot, job: JobView) -> Action:
    """Delete a verified Job, with a delay: if many installers end at once, deletions must not delay the next nodes."""
    left = snapshot.timings.clear - snapshot.done_for
    return LookAgain(left) if left > 0 else DeleteJob(job, Reason.PROVISION_SUCCEEDED, foreground=False)


def _try_out(snapshot: Snapshot, node: NodeView, job: JobView) -> list[Action]:
    """Return the actions that test the Shims of a Job with canary pods; the verification is written to the Job."""
    trial = _trial(snapshot, job)
    if trial.passed:
        everything = verifies_all(job, snapshot.canaries, tried(node, job))
        return [VerifyJob(job, VerifiedBy.CANARY if everything else VerifiedBy.HANDLER)]
    if trial.failed:
        clear = [DeleteCanary(pod, Reason.CANARY_FAILED) for pod in snapshot.pods if not pod.deleting]
        return [*clear, *roll_back(snapshot, node, job, Reason.CANARY_FAILED, trial.message)]
    again = [DeleteCanary(pod, Reason.VERIFICATION_FAILED) for pod in trial.again]
    return [*again, *(CreateCanary(job, canary) for canary in trial.begin), LookAgain(max(_left(snapshot), 0.0))]


def tried(node: NodeView, job: JobView) -> tuple[str, ...]:
    """Return the names of the Shims that a Job added to the node, or changed to another version."""
    had = node.installed
    return tuple(sorted(name for name, digest in job.shims.items() if had.get(name) != digest))


def roll_back(snapshot: Snapshot, node: NodeView, job: JobView, reason: Reason, message: str) -> list[Action]:
    """Roll back Shims without a verification before the Job is judged, so that a failure leaves the node unchanged.

    A legacy image has no rollback, and a node that is not ready is not rolled back.
    """
    if job.installs is None or job.operation != PROVISION:
        return judge(job, reason, message)
    shims = in_vain(snapshot, node, job)
    if not node.ready:
        cause = f"{message} (the node is not ready, so it was not rolled back)"
        return judge(job, reason, cause, blamed=blame(job, shims))
    task = undo_of(node, job, shims, f"{reason.value}: {message}", snapshot.former)
    return [CreateUndo(node, job, task, reason)]
