"""Restores from NATS the published events about host groups, so that a new leader publishes changes only.

In: the last event of each subject. Out: ``published`` of the cache, filled with them. Called once, before the first
reconcile. Invariant: after the loss of the stream, all events are published; subscribers tolerate duplicates.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from host_manager.gather import Cache
from trellis.bus.bus import Bus
from trellis.events.envelope import EventData
from trellis.events.hosts import HostPodGone, HostPodReady, HostsReady


async def restore(cache: Cache, bus: Bus) -> None:
    """Read what was published as ready or running; the deletion of an object that is gone is published later."""
    events: AsyncIterator[EventData] = bus.last_events((HostPodReady, HostPodGone, HostsReady))
    async for event in events:
        if isinstance(event, HostsReady):
            cache.published.groups[f"{event.namespace}/{event.name}"] = f"{event.uid}.{event.generation}.ready"
            continue
        assert isinstance(event, HostPodReady | HostPodGone)
        key = f"{event.namespace}/{event.name}"
        if isinstance(event, HostPodReady):
            cache.published.ready[key] = event
        elif (published := cache.published.ready.get(key)) is not None and published.uid == event.uid:
            del cache.published.ready[key]
