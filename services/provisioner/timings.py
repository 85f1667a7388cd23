"""Timings of provisioner; tests use shorter ones.

Pure. Called by ``app``, which passes them on. In seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from trellis.config.timings import DeletionTimings
from trellis.kube.timings import RefusalTimings


@dataclass(frozen=True, slots=True)
class NodeTimings:
    """Of the work on one node."""

    grace: float = 60.0
    """For the pods of a Job to end after its deadline; then the Job counts as stuck."""
    labels: float = 1.0
    """For which a slot is given back while node_watcher removes the label of a Shim that is to be removed."""
    in_use: float = 60.0
    """For which a slot is given back while pods still run with a Shim that is to be removed."""
    drain: float = 5.0
    """Between two rounds of evictions of the pods that run with such a Shim."""
    pod_left: float = 5.0
    """For which a slot is given back while a pod of an earlier Job has not ended."""
    name_taken: float = 2.0
    """Between two tries to create a Job whose name a Job has that no watch shows."""
    clear: float = 4.0
    """How long a Job stays after its end: deleting it and its pod costs the API server as much as making the next."""
    record: float = 2.0
    """For node_watcher to label a node whose Job is proved; then the Node's Events are looked at."""


@dataclass(frozen=True, slots=True)
class Timings:
    """Of one term of leadership."""

    settle: float = 1.0
    """Shims that are applied together come one after another: changes within this time are one change of a node."""
    held: float = 0.2
    """Between two plans while a node is held back."""
    plan_delay: float = 0.05
    """A plan looks at every node: changes that come in a burst are answered by one plan, at most 20 a second."""
    plan_rest: float = 0.5
    """The longest rest after a plan: an API server that is slow to take the ledger is no reason to rest."""
    status_delay: float = 1.0
    """A status counts nodes: changes that come in a burst are counted once, at most once a second."""
    deleting: float = 30.0
    """Between two looks at a Shim that is being deleted: ``unreachable`` ends by the clock."""
    unreachable: float = 600.0
    """How long a Shim that is being deleted waits for nodes that are not ready; a new leader starts the time again."""
    publish: float = 5.0
    """Between two attempts to publish while the bus is unavailable: an attempt costs nothing but a look at a flag."""
    nodes: NodeTimings = field(default_factory=NodeTimings)
    deletions: DeletionTimings = field(default_factory=DeletionTimings)
    refusals: RefusalTimings = field(default_factory=RefusalTimings)
