"""Reads the Events of pods that do not run: only these show a sandbox, a volume, an image or a probe that fails.

In: pods that do not work. Out: their Events for the snapshot. Called by the reconciler of workloads. Invariants: of a
workload, the Events of a few pods on different nodes are read, because pods of one owner fail for the same cause; all
reads have one rate limit, and a repeated one waits for the first ones of other pods; memory is bounded. Logs are not
read: they can contain data of users.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from provisioner.timings import WorkloadTimings
from provisioner.workloads.pods import WorkloadPod
from trellis.kube.client import Kube
from trellis.kube.errors import Forbidden
from trellis.kube.resources import EVENTS
from trellis.limits.token_bucket import TokenBucket
from trellis.read_model.wasm_pods.pods import EventView, view_event

SHOWN: Final = 3
"""Pods of a workload whose Events are read."""
_KEPT: Final = 6
"""Events of a pod that are kept, the newest."""
_REMEMBERED: Final = 1000
"""Pods whose Events are kept; the one that was read first is dropped."""


@dataclass(frozen=True, slots=True)
class _Read:
    at: float
    events: tuple[EventView, ...]


@dataclass(eq=False)
class Evidence:
    """The last Events by UID of their pod. ``unread``: why Events cannot be read, "" if they can."""

    kube: Kube
    timings: WorkloadTimings
    unread: str = ""
    _read: OrderedDict[str, _Read] = field(default_factory=OrderedDict)
    _limit: TokenBucket = field(init=False)
    _waiting: dict[str, float] = field(default_factory=dict)
    """UIDs of pods whose first read the rate limit has delayed, with the monotonic time of the last attempt."""

    def __post_init__(self) -> None:
        self._limit = TokenBucket(self.timings.reads, self.timings.reads_burst)

    def events(self) -> Iterator[EventView]:
        """Yield all Events that are kept."""
        for read in self._read.values():
            yield from read.events

    def knows(self, pod: WorkloadPod) -> bool:
        """Return whether the Events of a pod were read, or cannot be."""
        return bool(self.unread) or pod.uid in self._read

    def due(self, pod: WorkloadPod) -> bool:
        """Return whether the Events of a pod are to be read now."""
        read = self._read.get(pod.uid)
        return read is None or time.monotonic() - read.at >= self.timings.events_again

    async def read(self, pod: WorkloadPod) -> bool:
        """Read the Events of a pod; return False, without a request, if the rate limit or the order delays it.

        Raises:
            KubeError: the API server did not answer.
        """
        now, repeated = time.monotonic(), pod.uid in self._read
        if repeated and self._is_awaited(now):
            return False
        self._waiting.pop(pod.uid, None)
        if not self._limit.take(now):
            if not repeated:
                self._waiting[pod.uid] = now
            return False
        found: Iterable[object] = ()
        try:
            selector = f"type=Warning,involvedObject.uid={pod.uid}"
            found = (await self.kube.list(EVENTS, pod.namespace, field_selector=selector)).items
            self.unread = ""
        except Forbidden as error:
            self.unread = self.kube.describe_error(error)
        newest = sorted(map(view_event, found), key=lambda event: -event.at)[:_KEPT]
        self._read.pop(pod.uid, None)
        self._read[pod.uid] = _Read(now, tuple(newest))
        while len(self._read) > _REMEMBERED:
            self._read.popitem(last=False)
        return True

    def forget(self, pod: WorkloadPod) -> None:
        """Drop the Events of a pod that works or is gone."""
        self._read.pop(pod.uid, None)
        self._waiting.pop(pod.uid, None)

    def _is_awaited(self, now: float) -> bool:
        """Return whether first reads are delayed. Each is retried soon, unless its workload shows other pods."""
        newest = next(reversed(self._waiting.values()), now)
        if now - newest >= self.timings.look:
            self._waiting.clear()
        return bool(self._waiting)


def shown_pods(pods: Sequence[WorkloadPod]) -> list[WorkloadPod]:
    """Return the pods of a workload whose Events are read: of those that do not work, a few on different nodes."""
    waiting = [pod for pod in pods if pod.node and not pod.works and not pod.deleting]
    by_node = {pod.node: pod for pod in reversed(waiting)}
    first = [*by_node.values()][::-1][:SHOWN]
    return (first + [pod for pod in waiting if pod not in first])[:SHOWN]
