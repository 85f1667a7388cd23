"""Reconciles a pod: publishes its state.

In: keys of pods of host groups. Out: events. Called by the queue of ``app``. Invariant: a pod in a namespace that is
not listed yet does not count as deleted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from host_manager.domain.published_events import due
from host_manager.gather import Cache
from trellis.bus.bus import Bus, BusUnavailable
from trellis.events.hosts import HostPodReady
from trellis.telemetry import TraceContext, TraceSpans


@dataclass(frozen=True, slots=True)
class PodReconciler:
    """One reconcile of a pod: publishes the changes of its state."""

    cache: Cache
    bus: Bus
    traces: TraceSpans[str]
    knows: Callable[[str], bool]

    async def run(self, key: str, trace: TraceContext | None) -> float | None:
        """Publish the events that are due; return seconds until the retry if NATS is unreachable."""
        del trace
        if not self.knows(key):
            return self.cache.timings.unknown  # the namespace is not listed yet: the pod may exist
        published = self.cache.published.ready
        pod = self.cache.pods.get(key)
        for event in due(pod, published.get(key)):
            state = pod.resource_version if pod is not None and pod.uid == event.uid else "deleted"
            try:
                with self.traces.follow(f"{event.namespace}/{event.group}"):
                    await self.bus.publish(event, dedup=f"{event.uid}.{state}.{event.event_name}")
            except BusUnavailable:
                return self.cache.timings.publish
            if isinstance(event, HostPodReady):
                published[key] = event
            else:
                published.pop(key, None)
        return None
