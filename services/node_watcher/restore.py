"""Restores the published events of each node from the stream, so that a new leader publishes changes only.

In: the last event of each subject. Out: the published state. Called once, before the first run of a key. Invariant:
without the stream all events are published again, which is harmless for readers.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator

from node_watcher.domain.actions import PublishedState
from node_watcher.gather import Cache
from trellis.bus.bus import Bus
from trellis.events.node import NodeEventData, NodeGone, NodeOptedIn, NodeOptedOut, NodeReady, NodeReplaced

NODE_EVENTS = (NodeOptedIn, NodeOptedOut, NodeReplaced, NodeGone, NodeReady)


async def restore(cache: Cache, bus: Bus) -> None:
    """Read the last events of each node from the stream."""
    events: AsyncIterator[NodeEventData] = bus.last_events(NODE_EVENTS)
    async for event in events:
        cache.remember(event.name, published_after(cache.published.get(event.name), event))


def published_after(published: PublishedState | None, event: NodeEventData) -> PublishedState | None:
    """Return the published state after this event; events are passed in the order of their publication."""
    ready = published.ready if published and published.uid == event.uid else None
    match event:
        case NodeOptedIn():
            return PublishedState(event.uid, opted_in=True, ready=ready)
        case NodeOptedOut():
            return PublishedState(event.uid, opted_in=False)
        case NodeGone():
            return None
        case NodeReady(digest=digest):
            return PublishedState(event.uid, opted_in=True, ready=sys.intern(digest))  # few values for many nodes
        case _:
            return PublishedState(event.uid)
