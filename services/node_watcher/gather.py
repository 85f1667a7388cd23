"""The cache of node_watcher: watched Nodes, installer Jobs and slots of rollouts, and published events.

In: changes from the informers, and the last events from NATS by ``restore``. Out: a frozen snapshot of one node name.
Called by ``app``; filled by ``watches``. Invariant: a snapshot needs no request.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from node_watcher.domain.actions import PublishedState, Snapshot
from node_watcher.timings import Timings
from trellis.kube.mass_deletions import Deletions
from trellis.provisioning.drain import drained_on
from trellis.provisioning.job_index import JobIndex
from trellis.provisioning.ledger import Entry
from trellis.provisioning.shim_references import ShimReferences
from trellis.provisioning.shims import ShimView
from trellis.provisioning.targets import wanted_on
from trellis.provisioning.views import KWASM, NodeView, OptIn, newest, opt_in_of
from trellis.telemetry import TraceContext


@dataclass(eq=False)
class Cache:
    """Caches of one term of leadership. Informers fill ``nodes``, ``shims`` and ``slots``.

    ``slots``: nodes in progress by their UID, of the ledger of rollouts by its key.
    ``traces``: the trace that the opt-in of a node started. ``causes``: the ``uid/resourceVersion`` that starts one.
    """

    nodes: dict[str, NodeView]
    shims: dict[str, ShimView]
    auto_provision: bool
    deletions: Deletions
    shim_references: ShimReferences
    timings: Timings = Timings()
    jobs: JobIndex = field(default_factory=JobIndex)
    slots: dict[str, Mapping[str, Entry]] = field(default_factory=dict)
    missing: dict[str, float] = field(default_factory=dict)
    """Monotonic time since which a Shim that nodes have does not exist, by Shim name."""
    published: dict[str, PublishedState] = field(default_factory=dict)
    traces: dict[str, TraceContext] = field(default_factory=dict)
    causes: dict[str, str] = field(default_factory=dict)
    observed_ns: dict[str, int] = field(default_factory=dict)

    def snapshot(self, name: str) -> Snapshot:
        """Return the input of a decision about this node name."""
        node = self.nodes.get(name)
        job = newest(self.jobs.of_uid(node.uid)) if node else None
        wanted = wanted_on(node, self.shims.values(), auto_provision=self.auto_provision) if node else frozenset()
        marked = node.installed if node else {}
        unknown = self.shim_references.unknown
        waits = self._waits(node, marked) if node is not None and not unknown else {}
        wanted |= waits.keys()
        handlers = {shim: self.shims[shim].handler for shim in marked if shim in self.shims}
        shims = tuple(shim for shim in self.shims.values() if shim.name in wanted)
        return Snapshot(
            name,
            node,
            job,
            self.published.get(name),
            wanted,
            handlers,
            shims,
            deleting=self.deletions.alone(self.shims.values()),
            missing=frozenset(waits.keys() - self.shims.keys()),
            unknown=unknown,
            look_in=min(waits.values(), default=None),
            drained=drained_on(node, self._slot(node.uid), shims) if node else frozenset(),
        )

    def _slot(self, uid: str) -> Entry | None:
        """Return the slot of the Node with this UID in the ledger of rollouts, None if it has none."""
        return next((slots[uid] for slots in self.slots.values() if uid in slots), None)

    def _waits(self, node: NodeView, marked: Collection[str]) -> dict[str, float]:
        """Return the Shims that stay on a node for now, with the remaining seconds.

        A Shim that was just deleted stays, because further deletions may make it a mass deletion. A Shim that no longer
        exists but was not uninstalled stays, because it may be re-created. An opt-out annotation has precedence.
        """
        if node.opt_in is not None and opt_in_of(node, auto_provision=False) is not OptIn.IN:
            return {}
        now, timings = self.deletions.clock(), self.deletions.timings
        left: dict[str, float] = {}
        for name in marked:
            if (shim := self.shims.get(name)) is not None:
                self.missing.pop(name, None)
                left[name] = self.deletions.settles_in(shim)
            elif name != KWASM:
                left[name] = self.missing.setdefault(name, now) + timings.grace - now
        return {name: seconds for name, seconds in left.items() if seconds > 0}

    def remember(self, name: str, published: PublishedState | None) -> None:
        """Store the published state of a node name; None drops it, as node names change by the thousand."""
        if published is None:
            self.published.pop(name, None)
        else:
            self.published[name] = published

    def forget(self, name: str) -> None:
        """Drop all data of a node name that no longer exists and has no event left to publish."""
        for by_name in (self.published, self.traces, self.causes, self.observed_ns):
            by_name.pop(name, None)

    def forget_published(self) -> None:
        """Mark every current event as unpublished, because the stream that stored them is gone."""
        self.published = {
            name: PublishedState(published.uid, complained=published.complained)
            for name, published in self.published.items()
        }

    def names(self) -> set[str]:
        """Return the names of existing nodes and of nodes with published events."""
        return set(self.nodes) | set(self.published)
