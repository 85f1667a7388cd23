"""Restores from NATS the published events of Services, so that a new leader publishes changes only.

In: the last event of each subject. Out: the published state. Called once, before the first run of a key. Invariant:
without the stream all events are published again, which is harmless for readers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from service_reflector.domain.published_events import removed, stored
from service_reflector.gather import Cache
from trellis.bus.bus import Bus
from trellis.events.envelope import EventData
from trellis.events.services import ServiceReflected, ServiceRemoved


async def restore(cache: Cache, bus: Bus) -> None:
    """Read the last event of each Service; the removal of one that no longer exists is published afterwards."""
    events: AsyncIterator[EventData] = bus.last_events((ServiceReflected, ServiceRemoved))
    async for event in events:
        assert isinstance(event, ServiceReflected | ServiceRemoved)
        key = f"{event.namespace}/{event.name}"
        published = cache.published.setdefault(f"{event.namespace}/{event.application}", {})
        if isinstance(event, ServiceReflected):
            published[key] = stored(event)
        elif key in published and removed(published[key]).uid == event.uid:
            del published[key]
