"""Reads the owners of workloads that have failed pods only: one that needs no pod keeps those that have ended.

In: the pods of a workload, by controller. Out: whether a failed pod counts. Called by the reconciler of workloads and
by metrics. Invariants: a controller is read only while no pod of its workload runs, and once for the same pods if it
needs none; all reads have one rate limit; a controller that cannot be read needs its pods. Source: the controller of
ReplicaSets deletes the pods that run, and leaves those that have ended to the garbage collector of pods; a Job
completes beside failed pods by its successPolicy; ``successfulJobsHistoryLimit`` of a CronJob can be 0.
"""

from __future__ import annotations

import time
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from provisioner.domain.workloads.decide import Workload
from provisioner.timings import WorkloadTimings
from provisioner.workloads.pods import WorkloadPod
from trellis.kube.client import Kube
from trellis.kube.errors import Forbidden, NotFound
from trellis.kube.resources import CRON_JOBS, JOBS, REPLICA_SETS, Resource
from trellis.limits.token_bucket import TokenBucket
from trellis.read_model.wasm_pods.owners import OwnerView, view_owner

_READ: Final = {(res.api_version, res.kind): res for res in (REPLICA_SETS, JOBS)}


@dataclass(frozen=True, slots=True)
class _Read:
    """``at``: monotonic; ``pods``: UIDs of those that the controller had then. ``final``: only other pods change it."""

    at: float
    pods: frozenset[str]
    needs_pods: bool
    final: bool


@dataclass(eq=False)
class FinishedOwners:
    """Results of reads, by UID of the controller of pods."""

    kube: Kube
    timings: WorkloadTimings
    _read: dict[str, _Read] = field(default_factory=dict)
    _limit: TokenBucket = field(init=False)

    def __post_init__(self) -> None:
        self._limit = TokenBucket(self.timings.reads, self.timings.reads_burst)

    async def read(self, owner: Workload, members: Mapping[str, Sequence[WorkloadPod]]) -> bool:
        """Read the controllers of a workload without a pod that runs; return False if the rate limit delays one.

        ``members``: its pods by UID of their controller.

        Raises:
            KubeError: the API server did not answer.
        """
        runs = any(not pod.ended and not pod.deleting for pods in members.values() for pod in pods)
        for uid, pods in members.items():
            failed = next(filter(_has_failed, pods), None)
            if runs or failed is None:
                self._read.pop(uid, None)
                continue
            found = frozenset(pod.uid for pod in pods)
            res = _READ.get((failed.controller.api_version, failed.controller.kind))
            if res is not None and self._is_due(uid, found):
                if not self._limit.take(now := time.monotonic()):
                    return False
                self._read[uid] = _Read(now, found, *await self._needs_pods(owner, res, failed))
        return True

    def is_needless(self, pod: WorkloadPod) -> bool:
        """Return whether a pod has failed, and its owner needs none."""
        read = self._read.get(pod.controller.uid)
        return read is not None and not read.needs_pods and pod.uid in read.pods and _has_failed(pod)

    def keep(self, controllers: Container[str]) -> None:
        """Drop the results for other controllers."""
        self._read = {uid: read for uid, read in self._read.items() if uid in controllers}

    def _is_due(self, uid: str, pods: frozenset[str]) -> bool:
        read = self._read.get(uid)
        if read is None or read.pods != pods:
            return True
        return not read.final and time.monotonic() - read.at >= self.timings.refused_again

    async def _needs_pods(self, owner: Workload, res: Resource, pod: WorkloadPod) -> tuple[bool, bool]:
        """Return whether a controller needs pods, and whether that is final."""
        try:
            view = await self._view(res, pod.owner_name, pod.namespace)
            if view.meta.uid == pod.controller.uid and (view.wanted == 0 or view.complete):
                return False, True
            if (owner.api_version, owner.kind) == (CRON_JOBS.api_version, CRON_JOBS.kind):
                cron = await self._view(CRON_JOBS, owner.name, owner.namespace)
                return not (later := cron.succeeded > pod.created_at), later or bool(view.failed)
        except NotFound:
            return False, True
        except Forbidden:
            return True, False
        return True, bool(view.failed)

    async def _view(self, res: Resource, name: str, namespace: str) -> OwnerView:
        return view_owner(res.kind, await self.kube.get(res, name, namespace))


def _has_failed(pod: WorkloadPod) -> bool:
    return pod.ended and not pod.works
