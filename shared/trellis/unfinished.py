"""Work that was overtaken: what nobody wants any more of a Job that runs, and what it left on its node.

Pure. In: views of a Node and its Jobs. Out: answers. Called by ``node_watcher`` (it writes down what was left) and
``provisioner`` (it ends the Job, waits for the record, removes what was left).
Invariant: what a Job of our own installer put on a node is either named by the node's marks or known by the Job, so
the Job stays until it is named. A run that failed or was ended left nothing: the installer takes its changes back.
"""

from __future__ import annotations

from collections.abc import Collection

from trellis.provisioning import PROVISION, UNDO, JobState, JobView, NodeView, Target, installed_on


def left_by(job: JobView | None, node: NodeView) -> dict[str, str]:
    """Return what a Job of our installer put on the node and its marks do not name; digests by Shim name."""
    if job is None or not _installs(job) or job.node_uid != node.uid:
        return {}
    if job.state is not JobState.COMPLETE and not job.succeeded:
        return {}
    has = installed_on(node)
    return {name: digest for name, digest in job.shims.items() if name not in has}


def unwanted_left(job: JobView | None, node: NodeView, wanted: Collection[str]) -> dict[str, str]:
    """Return of :func:`left_by` what the node is not to have: it must be named before it can be removed."""
    return {name: digest for name, digest in left_by(job, node).items() if name not in wanted}


def overtaken(job: JobView | None, node: NodeView, target: Target | None) -> bool:
    """Say whether all that a Job of our installer changes is unwanted by now, and nothing it did is to be recorded."""
    if job is None or not _installs(job) or job.node_uid != node.uid or left_by(job, node):
        return False
    has, wanted = installed_on(node), dict(target.shims) if target else {}
    changes = {name for name, digest in job.shims.items() if has.get(name) != digest}
    return bool(changes) and not changes & wanted.keys()


def fulfilled(job: JobView, node: NodeView) -> bool:
    """Say whether a Job did its work and the node's marks say so."""
    done = job.state is JobState.COMPLETE and job.operation != UNDO
    return done and job.node_uid == node.uid and installed_on(node) == job.shims


def _installs(job: JobView) -> bool:
    return job.installs is not None and job.operation == PROVISION
