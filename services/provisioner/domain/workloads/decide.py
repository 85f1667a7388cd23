"""Decides which events about a workload to publish.

Pure. In: a workload, its pods, its published state. Out: events, and when to decide again. Called by the reconciler of
workloads. Invariants: after all events are noted, the same pods cause none; a pod whose cause is not known causes none,
and prevents that the workload counts as recovered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from provisioner.domain.workloads.published import Key, State
from trellis.events.wasm_workloads import (
    WasmWorkloadEventData,
    WasmWorkloadFailed,
    WasmWorkloadRecovered,
    WasmWorkloadRunning,
)
from trellis.read_model.wasm_pods.counted_pods import counted


@dataclass(frozen=True, slots=True)
class Workload:
    """The topmost known controller of pods, or a pod without one."""

    namespace: str
    api_version: str
    kind: str
    name: str
    uid: str

    @property
    def key(self) -> Key:
        """Namespace, kind and name."""
        return (self.namespace, self.kind, self.name)

    @property
    def text(self) -> str:
        """``Kind namespace/name``, as in log lines."""
        return f"{self.kind} {self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Cause:
    """The reason why a pod does not run, as ``trellis explain`` shows it."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Observed:
    """A pod; or, with name and UID "", pods that a controller has not created yet.

    ``works``: it is ready or has completed; ``ended``: its containers do not restart. ``steady_since``: Unix seconds
    since which it works. ``cause``: None if it works, progresses, or is not known yet.
    """

    name: str
    uid: str
    runtime_class: str
    node: str = ""
    created_at: float = 0.0
    works: bool = False
    ended: bool = False
    steady_since: float = 0.0
    cause: Cause | None = None

    @property
    def exists(self) -> bool:
        """False if it stands for pods that a controller has not created."""
        return bool(self.uid)


@dataclass(frozen=True, slots=True)
class Decision:
    """Events to publish in their order, and the seconds until a decision may differ without a change."""

    events: tuple[WasmWorkloadEventData, ...] = ()
    look_in: float | None = None


def decide(
    workload: Workload, pods: Sequence[Observed], published: State | None, now: float, steady: float
) -> Decision:
    """Return the events that are due; ``pods``: those that are not being deleted, and missing ones.

    ``steady``: seconds for which pods work until the workload has recovered. A container that crashes repeatedly, and
    has no readiness probe, is ready in between.
    """
    relevant = counted(workload.kind, pods)
    if not relevant:
        return Decision()
    former = published if published is not None and published.uid == workload.uid else None
    failing = by_reason(relevant)
    if failing:
        known = former.failing if former is not None else ()
        new = (_failed(workload, relevant, those) for reason, those in failing.items() if reason not in known)
        return Decision(tuple(new))
    if not all(pod.works for pod in relevant):
        return Decision()
    if former is None:
        newest = max(relevant, key=lambda pod: (pod.steady_since, pod.name))
        return Decision((WasmWorkloadRunning(**_fields(workload, newest, relevant)),))
    if not former.failing:
        return Decision()
    # A kubelet's clock may differ: a time far in the future does not count as recent.
    left = max((steady - abs(now - pod.steady_since) for pod in relevant if not pod.ended), default=0.0)
    if left > 0:
        return Decision(look_in=left)
    same = [pod for pod in relevant if pod.uid in former.pods] or relevant
    pod = max(same, key=lambda pod: (pod.steady_since, pod.name))
    return Decision((WasmWorkloadRecovered(**_fields(workload, pod, relevant), reasons=former.failing),))


def by_reason(pods: Sequence[Observed]) -> dict[str, list[Observed]]:
    """Return the pods with a cause by its reason, each in the order of the names; missing ones are last."""
    found: dict[str, list[Observed]] = {}
    for pod in sorted(pods, key=lambda pod: (not pod.exists, pod.name)):
        if pod.cause is not None:
            found.setdefault(pod.cause.reason, []).append(pod)
    return found


def _failed(workload: Workload, pods: Sequence[Observed], failing: Sequence[Observed]) -> WasmWorkloadFailed:
    pod, number, all_pods = failing[0], sum(pod.exists for pod in failing), sum(pod.exists for pod in pods)
    assert pod.cause is not None  # by_reason
    share = f"{number} of {all_pods} pods ({pod.name}): " if pod.exists and all_pods > 1 else ""
    return WasmWorkloadFailed(
        **_fields(workload, pod, pods),
        reason=pod.cause.reason,
        message=f"{share}{pod.cause.message}",
        failing=number,
    )


def _fields(workload: Workload, pod: Observed, pods: Sequence[Observed]) -> dict[str, Any]:
    return {
        "namespace": workload.namespace,
        "kind": workload.kind,
        "name": workload.name,
        "uid": workload.uid,
        "runtime_class": pod.runtime_class,
        "pod": pod.name,
        "pod_uid": pod.uid,
        "node": pod.node,
        "pods": sum(pod.exists for pod in pods),
    }
