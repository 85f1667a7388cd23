"""Leftovers of superseded or failed Jobs on their nodes.

Pure. In: views of a Node and its Jobs. Out: answers. Called by ``node_watcher`` (it records leftovers) and
``provisioner`` (it ends the Job, waits for the record, removes the leftovers). Invariant: everything that a Job of the
Trellis installer installed is named by the annotations of the node or by the Job, so the Job stays until it is
recorded. A failed or terminated run leaves nothing, because the installer reverts its changes. Shims that a Job failed
to remove are leftovers too (ADR 29), and so are Shims that may have existed before it (ADR 79).
"""

from __future__ import annotations

from collections.abc import Collection

from trellis.provisioning.views import (
    PROVISION,
    UNDO,
    JobState,
    JobView,
    NodeView,
    Target,
    as_unverified,
    decode_digests,
)


def left_by(job: JobView | None, node: NodeView) -> dict[str, str]:
    """Return the Shims that a Job installed, or did not roll back, and that the node's annotations do not name.

    The result contains digests by Shim name, which are not verified.
    """
    if job is None or job.node_uid != node.uid:
        return {}
    has = node.installed
    return {name: as_unverified(None) for name in _there_after(job) if name not in has}


def marks_after(job: JobView, node: NodeView) -> dict[str, str]:
    """Return the digests by Shim name for the annotations of a node after a failed Job.

    Shims that were not rolled back are installed but unverified, and so is a version that another one replaced.
    """
    has = node.installed
    if job.operation != UNDO:
        return has | left_by(job, node)
    blamed = decode_digests(job.blamed)
    if _succeeded(job):
        return {name: digest for name, digest in has.items() if name not in blamed} | job.shims
    return has | left_by(job, node) | {name: as_unverified(has.get(name)) for name in blamed}


def concerned_by(job: JobView) -> frozenset[str]:
    """Return the names of the Shims that a Job leaves on its node, or rolls back there."""
    return frozenset({*job.shims, *job.unconfirmed, *(decode_digests(job.blamed) if job.operation == UNDO else ())})


def unwanted_left(job: JobView | None, node: NodeView, wanted: Collection[str]) -> dict[str, str]:
    """Return the Shims of :func:`left_by` that are not wanted; the annotations must name them before their removal."""
    return {name: digest for name, digest in left_by(job, node).items() if name not in wanted}


def overtaken(job: JobView | None, node: NodeView, target: Target | None) -> bool:
    """Return True if no change of a Job of the Trellis installer is wanted any more, and it left nothing to record."""
    if job is None or not _installs(job) or job.node_uid != node.uid or left_by(job, node):
        return False
    has, wanted = node.installed, dict(target.shims) if target else {}
    changes = {name for name, digest in job.shims.items() if has.get(name) != digest}
    return bool(changes) and not changes & wanted.keys()


def fulfilled(job: JobView, node: NodeView) -> bool:
    """Return True if a Job is complete and the annotations of the node record its result."""
    done = job.state is JobState.COMPLETE and job.operation != UNDO
    return done and job.node_uid == node.uid and node.installed == job.shims


def _there_after(job: JobView) -> frozenset[str]:
    """Return the names of the Shims that are on a node after a Job of the Trellis installer, as far as known."""
    if job.operation == UNDO and (_succeeded(job) or job.state is JobState.FAILED or job.failure is not None):
        return frozenset(job.shims) if _succeeded(job) else concerned_by(job)
    if not _succeeded(job):
        return job.unconfirmed
    return frozenset(job.shims) if _installs(job) else frozenset()


def _succeeded(job: JobView) -> bool:
    return job.state is JobState.COMPLETE or job.succeeded


def _installs(job: JobView) -> bool:
    return job.installs is not None and job.operation == PROVISION
