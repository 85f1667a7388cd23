"""Gathers the input of the decision about workloads: RuntimeClasses, Nodes, Shims, and the causes of pods.

In: the cache of provisioner, pods, their Events, refused pods. Out: the snapshot of
``trellis.read_model.wasm_pods``, and pods with their cause. Called by the reconciler of workloads. Invariants: a cause
is the one of ``trellis explain`` without logs; it is not concluded before the Events of the pod were read, if these
can show another one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from provisioner.cache import Cache
from provisioner.domain.shim_snapshot import RuntimeClassView as OwnView
from provisioner.domain.workloads.decide import Cause, Observed
from provisioner.timings import WorkloadTimings
from provisioner.workloads.evidence import Evidence, shown_pods
from provisioner.workloads.pods import WorkloadPod
from provisioner.workloads.refused_owners import RefusedOwners
from trellis.read_model.explain.page import Rank
from trellis.read_model.wasm_pods.explain.pod import pod_cause
from trellis.read_model.wasm_pods.owners import KEEPS_PLACE, RuntimeClassView
from trellis.read_model.wasm_pods.pods import Toleration
from trellis.read_model.wasm_pods.reasons import Reason
from trellis.read_model.wasm_pods.snapshot import Part, Snapshot

_NO_LOGS = "provisioner reads no logs"
_TURN: Final = 100
"""Pods that are evaluated before other tasks get their turn."""
_NOT_LISTED = "not listed, or no permission"


@dataclass(frozen=True, slots=True)
class _Verdict:
    """The result for a view of a pod. ``at``: monotonic; ``since``: of the first result with this reason.

    ``tentative``: the next evidence can show another cause.
    """

    pod: WorkloadPod
    at: float
    since: float
    cause: Cause | None
    tentative: bool


@dataclass(eq=False)
class Gather:
    """Results by ``namespace/name`` of pods that do not work. ``classes``: views of RuntimeClasses."""

    cache: Cache
    classes: Mapping[str, OwnView]
    classes_known: Callable[[], bool]
    evidence: Evidence
    refused: RefusedOwners
    timings: WorkloadTimings
    _verdicts: dict[str, _Verdict] = field(default_factory=dict)

    def snapshot(self) -> Snapshot:
        """Return the snapshot for the causes of pods."""
        unread = {Part.LOGS: _NO_LOGS}
        if not self.cache.shims_known():
            unread[Part.SHIMS] = _NOT_LISTED
        if not self.classes_known():
            unread[Part.CLASSES] = _NOT_LISTED
        if self.evidence.unread:
            unread[Part.EVENTS] = self.evidence.unread
        return Snapshot(
            events=[*self.evidence.events(), *self.refused.events()],
            classes=[*map(_as_explained, self.classes.values())],
            nodes=[*self.cache.nodes.values()],
            shims=[*self.cache.shims.values()],
            unread=unread,
        )

    async def observe(self, snapshot: Snapshot, pods: Iterable[WorkloadPod]) -> list[Observed]:
        """Return the pods of a workload with their causes, without those in deletion.

        A StatefulSet or a DaemonSet waits for the end of those: one on a lost node, which nothing ends, has a cause.
        A reason that the Events of some pods have confirmed counts for all of its pods: the Events of few are read.
        Other tasks get their turn in between: the causes of 5,000 pods take a third of a second.
        """
        there, found = [pod for pod in pods if not pod.deleting or pod.owner_kind in KEEPS_PLACE], list[Observed]()
        for pod in there:
            found.append(self._observed(snapshot, pod))
            if len(found) % _TURN == 0:
                await asyncio.sleep(0)
        known = {item.cause.reason for item in found if item.cause is not None}
        seen = [(self._confirmed(item, pod, known), pod) for item, pod in zip(found, there, strict=True)]
        return [item for item, pod in seen if item.cause is not None or not pod.deleting]

    def to_read(self, pods: Sequence[WorkloadPod], now: float) -> list[WorkloadPod]:
        """Return the pods of a workload whose Events are to be read: they have failed, or do not progress."""
        return [pod for pod in shown_pods(pods) if self._is_stuck(pod, now) and self.evidence.due(pod)]

    def cause_of(self, pod: WorkloadPod) -> Cause | None:
        """Return the last known cause of a pod, also one that its Events have not confirmed."""
        verdict = self._verdicts.get(pod.key)
        return verdict.cause if verdict is not None and verdict.pod.uid == pod.uid else None

    def forget(self, pod: WorkloadPod) -> None:
        """Drop the results for a pod that works or is gone."""
        self._verdicts.pop(pod.key, None)
        self.evidence.forget(pod)

    def keep(self, pods: Mapping[str, WorkloadPod]) -> None:
        """Drop the results for pods that are gone, which a run can have added after :meth:`forget`."""
        self._verdicts = {key: found for key, found in self._verdicts.items() if key in pods}

    def invalidate(self, pod: WorkloadPod) -> None:
        """Have a pod evaluated again: its Events were read."""
        self._verdicts.pop(pod.key, None)

    def _is_stuck(self, pod: WorkloadPod, now: float) -> bool:
        # The clock of the API server can be set back: a pod far in the future is not a new one.
        return self.cause_of(pod) is not None or abs(now - pod.created_at) >= self.timings.patience

    def _observed(self, snapshot: Snapshot, pod: WorkloadPod) -> Observed:
        verdict = self._verdict(snapshot, pod) if not pod.works else None
        return Observed(
            name=pod.name,
            uid=pod.uid,
            runtime_class=pod.runtime_class,
            node=pod.node,
            created_at=pod.created_at,
            works=pod.works,
            ended=pod.ended,
            steady_since=pod.ready_at,
            cause=verdict.cause if verdict is not None and not verdict.tentative else None,
        )

    def _confirmed(self, item: Observed, pod: WorkloadPod, known: Collection[str]) -> Observed:
        """Return a pod with its tentative cause, if that has one of these reasons."""
        cause = self.cause_of(pod) if item.cause is None and not item.works else None
        return replace(item, cause=cause) if cause is not None and cause.reason in known else item

    def _verdict(self, snapshot: Snapshot, pod: WorkloadPod) -> _Verdict:
        found, now = self._verdicts.get(pod.key), time.monotonic()
        if found is None or found.pod is not pod or now - found.at >= self.timings.look:
            cause = _cause(snapshot, pod)
            former = found.cause if found is not None and found.pod.uid == pod.uid else None
            same = former is not None and cause is not None and former.reason == cause.reason
            since = found.since if found is not None and same else now
            tentative = cause is not None and not self._is_confirmed(pod, cause, now - since)
            found = self._verdicts[pod.key] = _Verdict(pod, now, since, cause, tentative)
        return found

    def _is_confirmed(self, pod: WorkloadPod, cause: Cause, age: float) -> bool:
        """Return whether a cause, which a pod has for ``age`` seconds, counts."""
        if cause.reason == Reason.UNSCHEDULABLE:
            # The scheduler retries within 10 s after a change of nodes, and its message is outdated until then.
            return age >= self.timings.patience
        # Without a node there is no kubelet that reports Events, and none ends a pod on a lost one.
        return not pod.node or pod.deleting or self.evidence.knows(pod)


def _cause(snapshot: Snapshot, pod: WorkloadPod) -> Cause | None:
    line = pod_cause(snapshot, pod.details) if pod.details is not None else None
    return Cause(line.reason, line.shown) if line is not None and line.rank is Rank.CAUSE else None


def _as_explained(item: OwnView) -> RuntimeClassView:
    tolerations = (
        Toleration(one.key or "", one.operator or "", one.value or "", one.effect or "")
        for one in item.placement.tolerations
    )
    return RuntimeClassView(item.name, item.handler, item.placement.selector, tuple(tolerations))
