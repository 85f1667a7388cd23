"""Leftovers of superseded or failed Jobs on their nodes.

Pure. In: views of a Node and its Jobs. Out: answers. Called by ``node_watcher`` (it records leftovers) and
``provisioner`` (it ends the Job, waits for the record, removes the leftovers). Invariant: everything that a Job of the
Trellis installer installed is named by the annotations of the node or by the Job, so the Job stays until it is
recorded. A failed or terminated run leaves nothing, because the installer reverts its changes. Shims that a Job failed
to remove are leftovers too (ADR 29), and so are Shims that may have existed before it (ADR 79).
"""

from __future__ import annotations

from collections.abc import Collection

from trellis.provisioning.views import PROVISION, UNDO, JobState, JobView, NodeView, Target, decode_digests, unproved


def left_by(job: JobView | None, node: NodeView) -> dict[str, str]:
    """Return what a Job of our installer put on the node, or did not take back, and its marks do not name.

    Digests by Shim name; nothing is proved of them by that.
    """
    if job is None or job.node_uid != node.uid:
        return {}
    has = node.installed
    return {name: unproved(None) for name in _there_after(job) if name not in has}


def marks_after(job: JobView, node: NodeView) -> dict[str, str]:
    """Return what a node's marks are to name once a Job of its that failed is recorded; digests by Shim name.

    What was not taken back is there, and nothing is proved of it; nor of a version that another one replaced.
    """
    has = node.installed
    if job.operation != UNDO:
        return has | left_by(job, node)
    blamed = decode_digests(job.blamed)
    if _ended_well(job):
        return {name: digest for name, digest in has.items() if name not in blamed} | job.shims
    return has | left_by(job, node) | {name: unproved(has.get(name)) for name in blamed}


def concerned_by(job: JobView) -> frozenset[str]:
    """Return the Shims that a Job leaves on its node, or takes back from there; by name."""
    return frozenset({*job.shims, *job.feared, *(decode_digests(job.blamed) if job.operation == UNDO else ())})


def unwanted_left(job: JobView | None, node: NodeView, wanted: Collection[str]) -> dict[str, str]:
    """Return of :func:`left_by` what the node is not to have: it must be named before it can be removed."""
    return {name: digest for name, digest in left_by(job, node).items() if name not in wanted}


def overtaken(job: JobView | None, node: NodeView, target: Target | None) -> bool:
    """Return whether all that a Job of our installer changes is unwanted by now.

    And nothing it did is to be recorded.
    """
    if job is None or not _installs(job) or job.node_uid != node.uid or left_by(job, node):
        return False
    has, wanted = node.installed, dict(target.shims) if target else {}
    changes = {name for name, digest in job.shims.items() if has.get(name) != digest}
    return bool(changes) and not changes & wanted.keys()


def fulfilled(job: JobView, node: NodeView) -> bool:
    """Return whether a Job did its work and the node's marks say so."""
    done = job.state is JobState.COMPLETE and job.operation != UNDO
    return done and job.node_uid == node.uid and node.installed == job.shims


def _there_after(job: JobView) -> frozenset[str]:
    """Return the Shims that are on a node after a Job of our installer, as far as that is known; by name."""
    if job.operation == UNDO and (_ended_well(job) or job.state is JobState.FAILED or job.failure is not None):
        return frozenset(job.shims) if _ended_well(job) else concerned_by(job)
    if not _ended_well(job):
        return job.feared
    return frozenset(job.shims) if _installs(job) else frozenset()


def _ended_well(job: JobView) -> bool:
    return job.state is JobState.COMPLETE or job.succeeded


def _installs(job: JobView) -> bool:
    return job.installs is not None and job.operation == PROVISION
