"""Whether a Job that ended well did what it should: proof, a trial by canaries, or taking back.

Pure. In: a snapshot, its newest Job. Out: actions. Called by ``decide``.
Invariant: a Job counts by what its Node shows and its canaries did, never by its end alone where more can be known.
"""

from __future__ import annotations

from provisioner.domain.actions import (
    Action,
    CreateCanary,
    CreateUndo,
    DeleteCanary,
    DeleteJob,
    LookAgain,
    ProveJob,
    Publish,
    Snapshot,
)
from provisioner.domain.canary import Trial, proves_all, trial_of
from provisioner.domain.job_failure import about, blame, judge, unlike
from provisioner.domain.refused import update_refused
from provisioner.domain.tasks import undo_of
from trellis.events.provision import ProvisionSucceeded
from trellis.provisioning.leftovers import fulfilled
from trellis.provisioning.reasons import Reason
from trellis.provisioning.views import PROVISION, JobState, JobView, NodeView, Proof, proof_of


def verify(snapshot: Snapshot, node: NodeView, job: JobView) -> list[Action]:
    """A Job that ended well is believed when the node itself shows the handler, and a pod ran with it."""
    if proof := proof_of(job, node):
        said = f"{job.uid}.succeeded"
        actions: list[Action] = []
        if said not in snapshot.said:
            actions.append(Publish(ProvisionSucceeded(**about(job), verified=proof.value), said, job))
        if fulfilled(job, node):
            actions.append(_clear_away(snapshot, job))
        else:
            actions += update_refused(snapshot, node)
        return actions
    if job.failure is not None:
        return []
    if job.canaries and job.proved is None:
        return _try_out(snapshot, node, job)  # at once: the kubelet lists a new handler only after seconds
    if (left := _left(snapshot)) > 0:
        return [LookAgain(left)]
    message = f"the installer ended well, but after {snapshot.verify_timeout:.0f} s the node {unlike(job, node)}"
    return take_back(snapshot, node, job, Reason.HANDLER_MISSING, message)


def in_vain(snapshot: Snapshot, node: NodeView, job: JobView) -> tuple[str, ...]:
    """Return the Shims that a Job which ended well put on its node in vain; () while they may still prove themselves.

    ``gather`` asks it: to take them back, their former versions must be in the snapshot.
    """
    if job.deleting or job.state is not JobState.COMPLETE or job.failure is not None or proof_of(job, node):
        return ()
    if job.canaries and job.proved is None:
        return _trial(snapshot, job).failed
    return tried(node, job) if _left(snapshot) <= 0 else ()


def _left(snapshot: Snapshot) -> float:
    """Return the seconds that a node still has to prove what its Job did, whatever the clocks of others say."""
    return snapshot.verify_timeout - snapshot.done_for


def _trial(snapshot: Snapshot, job: JobView) -> Trial:
    overdue = _left(snapshot) <= 0
    return trial_of(job, snapshot.canaries, snapshot.pods, overdue=overdue, refused=snapshot.refused)


def _clear_away(snapshot: Snapshot, job: JobView) -> Action:
    """Where many installers end at once, clearing their Jobs away must not keep the next nodes waiting."""
    left = snapshot.timings.clear - snapshot.done_for
    return LookAgain(left) if left > 0 else DeleteJob(job, Reason.PROVED, foreground=False)


def _try_out(snapshot: Snapshot, node: NodeView, job: JobView) -> list[Action]:
    """Let a pod try each Shim of the Job that is to be tried; the proof is written on the Job."""
    trial = _trial(snapshot, job)
    if trial.passed:
        everything = proves_all(job, snapshot.canaries, tried(node, job))
        return [ProveJob(job, Proof.CANARY if everything else Proof.HANDLER)]
    if trial.failed:
        clear = [DeleteCanary(pod, Reason.CANARY_FAILED) for pod in snapshot.pods if not pod.deleting]
        return [*clear, *take_back(snapshot, node, job, Reason.CANARY_FAILED, trial.message)]
    again = [DeleteCanary(pod, Reason.VERIFICATION_FAILED) for pod in trial.again]
    return [*again, *(CreateCanary(job, canary) for canary in trial.begin), LookAgain(max(_left(snapshot), 0.0))]


def tried(node: NodeView, job: JobView) -> tuple[str, ...]:
    """Return the Shims that a Job put onto the node, or put there in another version; by name."""
    had = node.installed
    return tuple(sorted(name for name, digest in job.shims.items() if had.get(name) != digest))


def take_back(snapshot: Snapshot, node: NodeView, job: JobView, reason: Reason, message: str) -> list[Action]:
    """What did not prove itself is taken back before it is judged, so that a failure leaves the node as it was.

    Not of a legacy image, which knows no way back, and not on a node that cannot be reached.
    """
    if job.installs is None or job.operation != PROVISION:
        return judge(job, reason, message)
    shims = in_vain(snapshot, node, job)
    if not node.ready:
        why = f"{message} (the node is not ready, so nothing was taken back)"
        return judge(job, reason, why, blamed=blame(job, shims))
    task = undo_of(node, job, shims, f"{reason.value}: {message}", snapshot.former)
    return [CreateUndo(node, job, task, reason)]
