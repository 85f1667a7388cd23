"""Timings of provisioner; tests use shorter ones.

Pure. Called by ``app``, which passes them on. In seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from trellis.config.timings import DeletionTimings
from trellis.kube.timings import RefusalTimings


@dataclass(frozen=True, slots=True)
class NodeTimings:
    """Timings of the work on one node."""

    grace: float = 60.0
    """Time for the pods of a Job to end after its deadline; then the Job counts as stuck."""
    labels: float = 1.0
    """Time for which a slot is released while node_watcher removes the label of a Shim to uninstall."""
    in_use: float = 60.0
    """Time for which a slot is released while pods still run with a Shim to uninstall."""
    drain: float = 5.0
    """Interval of evictions of the pods that run with such a Shim."""
    placed: float = 5.0
    """Time after the assignment of a slot in which the scheduler may still place a pod on a node that is drained: its
    label is being removed, and the pod is evicted, too."""
    pod_left: float = 5.0
    """Time for which a slot is released while a pod of an earlier Job has not ended."""
    name_taken: float = 2.0
    """Interval of attempts to create a Job whose name is in use by a Job that no watch reports."""
    clear: float = 4.0
    """Minimum age of an ended Job: its deletion, with the pod, loads the API server as much as the next creation."""
    record: float = 2.0
    """Time for node_watcher to label a node whose Job is verified; then the Events of the Node are read."""


@dataclass(frozen=True, slots=True)
class RolloutPodTimings:
    """Timings of the evaluation of pods during a rollout."""

    settle: float = 10.0
    """Time for which a pod must be ready, and in which a changed node is not evaluated."""
    look: float = 5.0
    """Interval of evaluations while pods are less ready than before."""
    fresh: float = 4.0
    """Time for which a list of pods is used."""


@dataclass(frozen=True, slots=True)
class WorkloadTimings:
    """Timings of the reports about workloads."""

    settle: float = 0.2
    """Period in which changes of pods are collected into one run."""
    classes: float = 1.0
    """Period in which changes of RuntimeClasses are collected into one list of pods."""
    look: float = 15.0
    """Interval in which pods that do not run are evaluated without a change: Nodes and Shims change their causes."""
    patience: float = 10.0
    """Age of a pod from which its Events are read if it does not run, although its objects show no cause.

    Also of an Event from which its controller is read: a refusal that the next attempt ends is not reported. Also of
    the message of the scheduler that it finds no node: it retries within 10 s after a change of nodes.
    """
    reads: float = 10.0
    """Maximum reads per second of each: Events of pods, controllers of refused pods, controllers of failed pods."""
    reads_burst: float = 20.0
    """Maximum reads at once, of each."""
    events_again: float = 30.0
    """Interval of the reads of the Events of a pod that does not run."""
    events_wait: float = 1.0
    """Delay of a workload whose Events are not read because of the rate limit."""
    refused_again: float = 30.0
    """Interval of the reads of a controller whose pods the API server refuses."""
    refused_for: float = 1200.0
    """Age from which an Event does not prove refused pods any more: controllers retry within 1,000 s."""
    other_class: float = 3600.0
    """Time for which the Events of a controller whose RuntimeClass no Shim provides are not evaluated."""
    steady: float = 30.0
    """Time for which all pods work until a workload has recovered: a crashing container is ready in between."""
    warn_again: float = 600.0
    """Minimum interval of the Events of an owner for one reason."""
    warn_refill: float = 60.0
    """Time until one more owner of a namespace gets an Event for a reason, after the burst."""
    forget: float = 600.0
    """Time without pods after which the published state of a workload is dropped."""
    measure: float = 5.0
    """Minimum interval of the counts of pods."""
    publish: float = 5.0
    """Interval of attempts to publish while the bus is unavailable."""
    recall: float = 30.0
    """Time for the published events to be read; then Warning Events and metrics go on without them."""


@dataclass(frozen=True, slots=True)
class Timings:
    """Timings of one leadership term."""

    settle: float = 1.0
    """Debounce time of Shim changes: Shims that are applied together are one change of a node."""
    blocked: float = 0.2
    """Interval of plans while a node is held back."""
    plan_delay: float = 0.05
    """Delay of a plan, which evaluates every node: one plan for a burst of changes, at most 20 a second."""
    plan_rest: float = 0.5
    """Maximum pause after a plan, even if the API server was slow to accept the ledger."""
    status_delay: float = 1.0
    """Delay of a status, which counts nodes: one status for a burst of changes, at most one a second."""
    deleting: float = 30.0
    """Interval of checks of a Shim that is being deleted: ``unreachable`` ends by the clock."""
    unreachable: float = 600.0
    """Time for which a Shim that is being deleted waits for nodes that are not ready; a new leader restarts it."""
    publish: float = 5.0
    """Interval of attempts to publish while the bus is unavailable; an attempt only reads a flag."""
    nodes: NodeTimings = field(default_factory=NodeTimings)
    rollout_pods: RolloutPodTimings = field(default_factory=RolloutPodTimings)
    workloads: WorkloadTimings = field(default_factory=WorkloadTimings)
    deletions: DeletionTimings = field(default_factory=DeletionTimings)
    refusals: RefusalTimings = field(default_factory=RefusalTimings)
