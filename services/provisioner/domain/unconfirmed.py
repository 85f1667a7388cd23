"""What may be on a node's disk though nothing says so: a try had a slot, and its Job is not there (ADR 79).

Pure. In: a Node, its Jobs, the slot it has. Out: names of Shims, and the Node as if its marks named them. Called by
``gather``. Invariants: of a Job that another writer deleted the worst is feared, it did its work; of a try that made no
Job yet, or whose Job was cleared away here, nothing is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Final

from trellis.provisioning.ledger import Entry
from trellis.provisioning.views import KWASM, JobView, NodeView, Proof, Target, encode_digests, unproved

NOTHING: Final = Target(()).digest
"""What a node is to have that all of Trellis is to be removed from."""


def doubted(node: NodeView, entry: Entry, jobs: Iterable[JobView]) -> frozenset[str]:
    """Return the Shims that a try may have left on a node: its Job is gone, and the marks do not name them.

    Not the legacy image's, which cannot be removed. A try whose outcome is recorded has left what the marks name; and a
    removal of what they named is done when they no longer do.
    """
    tried, failed = (entry.digest, entry.attempt), node.failed
    recorded = node.marked_digest == entry.digest or (failed and (failed.digest, failed.attempt) == tried)
    removed = not entry.feared and entry.digest == NOTHING
    if recorded or removed or any((job.digest, job.attempt) == tried for job in jobs):
        return frozenset()
    return frozenset(entry.shims).difference(node.installed, {KWASM})


def feared_on(node: NodeView, shims: Collection[str]) -> NodeView:
    """Return a Node as if its marks named Shims that may be on its disk, with nothing proved of them."""
    installed = {name: unproved(None) for name in shims} | node.installed
    mine = node if node.marked_uid == node.uid else replace(node, failed_attempt=None, failed_shims=None)
    return replace(
        mine,
        marked_uid=node.uid,
        shims=encode_digests(installed),
        digest=Target(tuple(sorted(installed.items()))).digest,
        verified=(node.proof or Proof.JOB).value,
    )
