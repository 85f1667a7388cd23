"""The Shims of a node whose pods are kept away from it while a rollout changes it (ADR 126).

Pure. In: a Node, its slot in the ledger, the Shims that it is to have. Out: names of Shims. Called by ``node_watcher``,
which removes their labels, and by ``provisioner``, which then evicts their pods. Invariant: both services derive the
same from the same objects, so nothing remains after a crash, or after a slot that was released.
"""

from __future__ import annotations

from collections.abc import Iterable

from trellis.provisioning.ledger import Entry
from trellis.provisioning.shims import ShimView
from trellis.provisioning.views import NodeView


def drained_on(node: NodeView, entry: Entry | None, shims: Iterable[ShimView]) -> frozenset[str]:
    """Return the names of the installed Shims that are drained on a node: no pod may be scheduled there for them.

    ``entry``: the slot of the node, None if it has none. ``shims``: those that the node is to have: a removal has a
    policy of its own. A drain lasts from the assignment of the slot until the node records the outcome of the attempt.
    """
    if entry is None or entry.is_recorded_on(node):
        return frozenset()
    installed = node.installed
    return frozenset(shim.name for shim in shims if shim.drain and shim.name in entry.shims and shim.name in installed)
