"""The queues of provisioner: node names, Shim names, and one key for the plan.

In: calls of watches, handlers and runs. Out: keys in the queues. Called by ``watches``, ``handlers`` and ``app``.
Invariant: whatever may change a plan has it made a moment later, once for a burst.
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
    """Which keys run when something changed."""

    cache: Cache
    nodes: KeyedQueue[str]
    plans: KeyedQueue[str]
    shims: KeyedQueue[str]

    def wake(self, node: str) -> None:
        """Have a node run, and a plan be made."""
        self.nodes.add(node)
        self.plan_soon()

    def plan_soon(self) -> None:
        """Have a plan be made in a moment, or after the rest of the last one; the status of all Shims follows it."""
        self.plans.add_after(PLAN, max(self.cache.timings.plan_delay, self.cache.rested_at - time.monotonic()))
        self.status_soon()

    def status_soon(self) -> None:
        """Have all Shims run in a moment."""
        for name in self.cache.shims:
            self.shims.add_after(name, self.cache.timings.status_delay)

    def list_all(self) -> None:
        """Have everything run, with the ledger read again."""
        self.cache.ledger_doubted()
        for name in {*self.cache.nodes, *self.cache.jobs.names()}:
            self.nodes.add(name)
        self.plans.add(PLAN)
        for name in self.cache.shims:
            self.shims.add(name)
