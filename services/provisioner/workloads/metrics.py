"""Metrics of Wasm pods: their number by handler, node and state, and restarts of their containers.

In: pods, their causes. Out: series, which end with their last pod. Called by the reconciler of workloads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from provisioner.domain.workloads.decide import Cause
from provisioner.workloads.pods import Controller, WorkloadPod
from trellis.kube.changes import Change
from trellis.read_model.wasm_pods.counted_pods import counted
from trellis.telemetry import Telemetry


class State(StrEnum):
    """State of a pod in metrics."""

    RUNNING = "running"
    COMPLETED = "completed"
    PENDING = "pending"
    FAILED = "failed"
    REPLACED = "replaced"
    """It has ended with an error, and its owner has another pod, or needs none: an evicted pod stays for days."""
    DELETING = "deleting"


def state_of(pod: WorkloadPod, cause: Cause | None, *, replaced: bool = False) -> State:
    """Return the state of a pod."""
    if pod.deleting:
        return State.DELETING
    if replaced:
        return State.REPLACED
    if pod.completed:
        return State.COMPLETED
    if pod.ready:
        return State.RUNNING
    return State.PENDING if cause is None else State.FAILED


@dataclass(eq=False)
class PodNumbers:
    """The series. ``handler_of``: returns the handler of a RuntimeClass, "" if it is not known.

    ``owner_of``: returns kind and UID of the topmost known controller; ``is_needless``: whether the controller of a
    failed pod needs none.
    """

    telemetry: Telemetry
    handler_of: Callable[[str], str]
    owner_of: Callable[[Controller], tuple[str, str]]
    cause_of: Callable[[WorkloadPod], Cause | None]
    is_needless: Callable[[WorkloadPod], bool]
    _shown: set[tuple[str, str, str]] = field(default_factory=set)

    def show(self, pods: Sequence[WorkloadPod]) -> None:
        """Export the number of these pods, and of no other ones."""
        replaced = self._replaced(pods)
        counts = Counter(
            (
                self.handler_of(pod.runtime_class),
                pod.node,
                state_of(pod, self.cause_of(pod), replaced=pod.uid in replaced).value,
            )
            for pod in pods
        )
        gauge, service = self.telemetry.metrics.wasm_pods, self.telemetry.service
        for labels in self._shown - counts.keys():
            gauge.remove(service, *labels)
        for labels, number in counts.items():
            gauge.labels(service, *labels).set(number)
        self._shown = {*counts}

    def _replaced(self, pods: Sequence[WorkloadPod]) -> set[str]:
        """Return the UIDs of the pods that do not count for the events about their owner, either."""
        owners = {self.owner_of(pod.controller) for pod in pods if pod.ended and not pod.works}
        found: dict[tuple[str, str], list[WorkloadPod]] = {owner: [] for owner in owners}
        for pod in pods if owners else ():
            if not pod.deleting and (of_owner := found.get(self.owner_of(pod.controller))) is not None:
                of_owner.append(pod)
        relevant = {pod.uid for (kind, _), of_owner in found.items() for pod in counted(kind, of_owner)}
        every = (pod for of_owner in found.values() for pod in of_owner if not pod.works)
        return {pod.uid for pod in every if pod.uid not in relevant or self.is_needless(pod)}

    def take(self, change: Change[WorkloadPod]) -> None:
        """Count the restarts of a change; those before the first list are not counted."""
        old, new = change.old, change.new
        if old is None or new is None or old.uid != new.uid or new.restarts <= old.restarts:
            return
        total = self.telemetry.metrics.wasm_pod_restarts_total
        total.labels(self.telemetry.service, self.handler_of(new.runtime_class)).inc(new.restarts - old.restarts)
