"""Which host groups that are being deleted may go now.

In: groups and pods as watched, their CRD. Out: leave, or how long to wait. Called by ``app`` before a deleted group is
let go. Invariant: a group that was not deleted by itself goes only if the circuit breaker permits it for each of its
hosts; until then its finalizer keeps the group, and with it the pods.
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
from trellis.limits.breaker import Destruction

HOSTS: Final = "hosts"
"""Kind of the circuit breaker: pods of groups."""


@dataclass(frozen=True, slots=True)
class Wait:
    """A group stays for so many ``seconds``; ``held``: the circuit breaker holds it."""

    seconds: float
    held: bool


@dataclass(frozen=True, slots=True)
class Leave:
    """Asked for each deleted group."""

    groups: Mapping[str, GroupView]
    deletions: Deletions
    breaker: Breaker

    async def wait(self, key: str, pods: tuple[PodView, ...]) -> Wait | None:
        """Return how long a deleted group stays, None if it may go now.

        Raises:
            KubeError: no certain answer, so the group stays.
        """
        group = self.groups.get(key)
        if group is None or not group.deleting:
            return Wait(self.deletions.timings.settle, held=False)  # the watch is behind
        await self.deletions.look(self.groups.values())
        if left := self.deletions.settles_in(group):
            return Wait(left, held=False)
        if group.name in self.deletions.alone(self.groups.values()):
            return None
        waits = await asyncio.gather(*(self.breaker.hold(_destruction(pod)) for pod in pods))
        held = [wait for wait in waits if wait is not None]
        return Wait(min(held), held=True) if held else None


def going_with(groups: Mapping[str, GroupView], pods: Mapping[str, PodView]) -> dict[str, str]:
    """Return the names by uid of the hosts that go with a deleted group: all that the circuit breaker can hold."""
    deleted = {key for key, group in groups.items() if group.deleting}
    return {pod.uid: pod.name for pod in pods.values() if pod.group_key in deleted}


def _destruction(pod: PodView) -> Destruction:
    what = "deletion of a host with its group"
    return Destruction(HOSTS, pod.name, pod.uid, what, PODS.api_version, PODS.kind, pod.namespace)
