"""Decides which deleted host groups may lose their finalizer now.

In: host groups and pods from watches, their CRD. Out: permission, or a delay. Called by ``app`` before the finalizer is
removed. Invariant: a group that is deleted together with many is released only if the circuit breaker permits it for
each of its hosts; until then its finalizer keeps the group, and with it the pods.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from host_manager.domain.pods import PodView
from host_manager.domain.views import GroupView
from trellis.kube.breaker import Breaker
from trellis.kube.mass_deletions import Deletions
from trellis.kube.resources import PODS
from trellis.limits.breaker import Deletion

HOSTS: Final = "hosts"
"""Kind in the circuit breaker: pods of host groups."""


@dataclass(frozen=True, slots=True)
class Wait:
    """A group keeps its finalizer for ``seconds``; ``paused``: the circuit breaker pauses its deletion."""

    seconds: float
    paused: bool


@dataclass(frozen=True, slots=True)
class FinalizerRelease:
    """Called for each deleted host group."""

    groups: Mapping[str, GroupView]
    deletions: Deletions
    breaker: Breaker

    async def wait(self, key: str, pods: tuple[PodView, ...]) -> Wait | None:
        """Return how long a deleted host group keeps its finalizer, None if it can be removed now.

        Raises:
            KubeError: the state of the circuit breaker is unknown, so the finalizer stays.
        """
        group = self.groups.get(key)
        if group is None or not group.deleting:
            return Wait(self.deletions.timings.settle, paused=False)  # the watch lags behind
        await self.deletions.look(self.groups.values())
        if left := self.deletions.settles_in(group):
            return Wait(left, paused=False)
        if group.name in self.deletions.alone(self.groups.values()):
            return None
        waits = await asyncio.gather(*(self.breaker.admit(_deletion(pod)) for pod in pods))
        paused_waits = [wait for wait in waits if wait is not None]
        return Wait(min(paused_waits), paused=True) if paused_waits else None


def hosts_removed_with(groups: Mapping[str, GroupView], pods: Mapping[str, PodView]) -> dict[str, str]:
    """Return the hosts of deleted groups, names by uid: all that the circuit breaker can pause."""
    deleted = {key for key, group in groups.items() if group.deleting}
    return {pod.uid: pod.name for pod in pods.values() if pod.group_key in deleted}


def _deletion(pod: PodView) -> Deletion:
    what = "deletion of a host with its group"
    return Deletion(HOSTS, pod.name, pod.uid, what, PODS.api_version, PODS.kind, pod.namespace)
