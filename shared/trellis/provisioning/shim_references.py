"""Collects the Nodes and installer Jobs that refer to Shims, to decide whether Shims must be readable.

In: changes of Nodes and Jobs. Out: whether Shims are required but cannot be listed, and the reason. Called by
``node_watcher`` and ``provisioner``. Invariant: a Shim that cannot be listed is unknown, not deleted; without
references to Shims, a cluster without the CRD works without Shims (annotation of KWasm and KWasm-compatible image).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from trellis.provisioning.views import KWASM, JobView, NodeView

_NAMED = 3


@dataclass(eq=False)
class ShimReferences:
    """The references to Shims. ``known`` returns True if Shims can be listed, so an unlisted Shim does not exist."""

    known: Callable[[], bool]
    nodes: dict[str, frozenset[str]] = field(default_factory=dict)
    """Shims that the annotations of each Node name."""
    jobs: set[str] = field(default_factory=set)
    """UIDs of the installer Jobs that install or remove Shims."""

    def take_node(self, name: str, node: NodeView | None) -> None:
        """Update a Node; None if it is deleted."""
        shims = frozenset(node.recorded) - {KWASM} if node is not None else frozenset[str]()
        if shims:
            self.nodes[name] = shims
        else:
            self.nodes.pop(name, None)

    def take_job(self, old: JobView | None, new: JobView | None) -> None:
        """Update an installer Job."""
        if old is not None:
            self.jobs.discard(old.uid)
        if new is not None and new.installs is not None:
            self.jobs.add(new.uid)

    @property
    def unknown(self) -> bool:
        """Return True if Shims cannot be listed although Nodes or Jobs refer to them: then no decision is possible."""
        return not self.known() and bool(self.nodes or self.jobs)

    def needed(self) -> str | None:
        """Return the reason why Shims must be readable, or None if nothing refers to one."""
        if self.nodes:
            first = min(self.nodes)
            shims = sorted(self.nodes[first])
            more = f" and {len(shims) - _NAMED} more" if len(shims) > _NAMED else ""
            others = f" (and {len(self.nodes) - 1} more nodes)" if len(self.nodes) > 1 else ""
            return f"node {first}{others} has Shims: {', '.join(shims[:_NAMED])}{more}; nothing is changed meanwhile"
        if self.jobs:
            return f"{len(self.jobs)} installer Jobs work on Shims; nothing is changed meanwhile"
        return None
