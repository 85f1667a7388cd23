"""Reads the ReplicaSets of workloads that have failed pods only: one that needs no pod keeps those that were evicted.

In: the pods of a workload, by controller. Out: whether a failed pod is needed. Called by the reconciler of workloads
and by metrics. Invariants: a ReplicaSet is read only while no pod of its workload runs, and once for the same pods if
it needs none; all reads have one rate limit; one that cannot be read needs its pods. Source: the controller of
ReplicaSets deletes the pods that run; those that have ended stay until the garbage collector of pods deletes them.
"""

from __future__ import annotations

import time
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from provisioner.timings import WorkloadTimings
from provisioner.workloads.pods import Controller, WorkloadPod
from trellis.kube.client import Kube
from trellis.kube.errors import Forbidden, NotFound
from trellis.kube.resources import REPLICA_SETS
from trellis.limits.token_bucket import TokenBucket
from trellis.wasm_pods.owners import view_owner

RATE: Final = 10.0
"""Reads per second, after a burst of two seconds."""


@dataclass(frozen=True, slots=True)
class _Read:
    """``at``: monotonic; ``pods``: UIDs of those that the ReplicaSet had then."""

    at: float
    pods: frozenset[str]
    needs_pods: bool


@dataclass(eq=False)
class ScaledDown:
    """Results of reads, by UID of the ReplicaSet."""

    kube: Kube
    timings: WorkloadTimings
    _read: dict[str, _Read] = field(default_factory=dict)
    _limit: TokenBucket = field(default_factory=lambda: TokenBucket(RATE, 2 * RATE))

    async def read(self, members: Mapping[str, Sequence[WorkloadPod]]) -> bool:
        """Read the ReplicaSets of a workload without a pod that runs; return False if the rate limit delays one.

        ``members``: its pods by UID of their controller.

        Raises:
            KubeError: the API server did not answer.
        """
        if any(not pod.ended and not pod.deleting for pods in members.values() for pod in pods):
            return True
        for uid, pods in members.items():
            found = frozenset(pod.uid for pod in pods)
            failed = any(map(_has_failed, pods))
            if failed and _is_replica_set(pods[0].controller) and self._is_due(uid, found):
                if not self._limit.take(now := time.monotonic()):
                    return False
                self._read[uid] = _Read(now, found, await self._needs_pods(pods[0]))
        return True

    def is_needless(self, pod: WorkloadPod) -> bool:
        """Return whether a pod has failed, and its ReplicaSet needs none."""
        read = self._read.get(pod.controller.uid)
        return read is not None and not read.needs_pods and pod.uid in read.pods and _has_failed(pod)

    def keep(self, controllers: Container[str]) -> None:
        """Drop what was read of other controllers."""
        self._read = {uid: read for uid, read in self._read.items() if uid in controllers}

    def _is_due(self, uid: str, pods: frozenset[str]) -> bool:
        read = self._read.get(uid)
        if read is None or read.pods != pods:
            return True
        return read.needs_pods and time.monotonic() - read.at >= self.timings.refused_again

    async def _needs_pods(self, pod: WorkloadPod) -> bool:
        try:
            manifest = await self.kube.get(REPLICA_SETS, pod.owner_name, pod.namespace)
        except NotFound:
            return False
        except Forbidden:
            return True
        view = view_owner(REPLICA_SETS.kind, manifest)
        return view.meta.uid == pod.controller.uid and view.wanted != 0


def _has_failed(pod: WorkloadPod) -> bool:
    return pod.ended and not pod.works


def _is_replica_set(controller: Controller) -> bool:
    return (controller.api_version, controller.kind) == (REPLICA_SETS.api_version, REPLICA_SETS.kind)
