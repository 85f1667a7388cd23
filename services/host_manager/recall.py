"""Restores from NATS the published events of pods and host groups, so that a new leader publishes changes only.

In: the last event of each subject. Out: ``Cache.said``, filled with them. Called once, before the first reconcile.
Invariant: after the loss of the stream, all events are published; subscribers tolerate duplicates.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from host_manager.gather import Cache
from trellis.bus.bus import Bus
from trellis.events.envelope import EventData
from trellis.events.hosts import HostPodGone, HostPodReady, HostsReady


async def recall(cache: Cache, bus: Bus) -> None:
    """Read which pods and groups were published as ready; the deletion of a pod that is gone is published later."""
    facts: AsyncIterator[EventData] = bus.last_events((HostPodReady, HostPodGone, HostsReady))
    async for fact in facts:
        if isinstance(fact, HostsReady):
            cache.said.groups[f"{fact.namespace}/{fact.name}"] = f"{fact.uid}.{fact.generation}.ready"
            continue
        assert isinstance(fact, HostPodReady | HostPodGone)
        key = f"{fact.namespace}/{fact.name}"
        if isinstance(fact, HostPodReady):
            cache.said.ready[key] = fact
        elif (said := cache.said.ready.get(key)) is not None and said.uid == fact.uid:
            del cache.said.ready[key]
