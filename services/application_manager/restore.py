"""Restores from NATS the published events of Applications, so that a new leader publishes changes only.

In: the last event of each subject. Out: ``published``, filled with them. Called once, before the first reconcile.
Invariant: after the loss of the stream, all events are published; subscribers tolerate duplicates.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from application_manager.domain.published_events import Published
from trellis.bus.bus import Bus
from trellis.events.applications import (
    ApplicationDeleted,
    ApplicationEventData,
    ApplicationOverridden,
    ApplicationRejected,
    ApplicationSynced,
)


async def restore(published: Published, bus: Bus) -> None:
    """Read the last event about each Application; deletions during the gap between leaders are published later."""
    kinds = (ApplicationSynced, ApplicationOverridden, ApplicationRejected, ApplicationDeleted)
    events: AsyncIterator[ApplicationEventData] = bus.last_events(kinds)
    async for event in events:
        published.note(event)
