"""Finds unconfirmed Shims on the disk of a node: an attempt had a slot, but its Job does not exist (ADR 79).

Pure. In: a Node, its Jobs, its slot. Out: names of Shims, and the Node as if its marks named them. Called by
``gather``. Invariants: a Job that another writer deleted counts as executed; an attempt without a Job so far, or whose
Job was deleted here, left nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Final

from trellis.provisioning.ledger import Entry
from trellis.provisioning.views import KWASM, JobView, NodeView, Target, VerifiedBy, as_unverified, encode_digests

NOTHING: Final = Target(()).digest
"""Target of a node from which all of Trellis is to be removed."""


def unconfirmed_shims(node: NodeView, entry: Entry, jobs: Iterable[JobView]) -> frozenset[str]:
    """Return the Shims that an attempt may have left on a node: its Job is deleted, and the marks do not name them.

    The runtime of the legacy image is excluded, because it cannot be removed. If the outcome of an attempt is recorded,
    the marks name what it left; a removal is done when the marks no longer name the Shims.
    """
    tried, failed = (entry.digest, entry.attempt), node.failed
    recorded = node.marked_digest == entry.digest or (failed and (failed.digest, failed.attempt) == tried)
    removed = not entry.unconfirmed and entry.digest == NOTHING
    if recorded or removed or any((job.digest, job.attempt) == tried for job in jobs):
        return frozenset()
    return frozenset(entry.shims).difference(node.installed, {KWASM})


def with_unconfirmed(node: NodeView, shims: Collection[str]) -> NodeView:
    """Return a Node as if its marks named Shims that may be on its disk, without a verification of them."""
    installed = {name: as_unverified(None) for name in shims} | node.installed
    own = node if node.marked_uid == node.uid else replace(node, failed_attempt=None, failed_shims=None)
    return replace(
        own,
        marked_uid=node.uid,
        shims=encode_digests(installed),
        digest=Target(tuple(sorted(installed.items()))).digest,
        verified=(node.verified_by or VerifiedBy.JOB).value,
    )
