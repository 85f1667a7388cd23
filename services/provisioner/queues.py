"""The queues of provisioner: node names, Shim names, and one key for the plan.

In: calls of watches, handlers and runs. Out: keys in the queues. Called by ``watches``, ``handlers`` and ``app``.
Invariant: every change that may affect a plan causes one a moment later, one for a burst.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from provisioner.cache import Cache
from trellis.bus.consume.queue import KeyedQueue

PLAN: Final = "plan"


@dataclass(frozen=True, slots=True)
class Queues:
    """Queues of the keys to reconcile after a change."""

    cache: Cache
    nodes: KeyedQueue[str]
    plans: KeyedQueue[str]
    shims: KeyedQueue[str]

    def wake(self, node: str) -> None:
        """Enqueue a node, and a plan."""
        self.nodes.add(node)
        self.plan_soon()

    def plan_soon(self) -> None:
        """Enqueue a plan after a delay, or after the pause of the last one; the status of all Shims follows it."""
        self.plans.add_after(PLAN, max(self.cache.timings.plan_delay, self.cache.rested_at - time.monotonic()))
        self.status_soon()

    def status_soon(self) -> None:
        """Enqueue all Shims after a delay."""
        for name in self.cache.shims:
            self.shims.add_after(name, self.cache.timings.status_delay)

    def follow_later(self, shim: str) -> None:
        """Enqueue a Shim after a delay: another client may write its RuntimeClass repeatedly."""
        self.shims.add_after(shim, self.cache.timings.status_delay)

    def list_all(self) -> None:
        """Enqueue all keys, and invalidate the ledger."""
        self.cache.invalidate_ledger()
        for name in {*self.cache.nodes, *self.cache.jobs.names()}:
            self.nodes.add(name)
        self.plans.add(PLAN)
        for name in self.cache.shims:
            self.shims.add(name)
