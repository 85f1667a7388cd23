"""Handlers of the events of ``node_watcher``: nodes that opted in or out, were replaced or deleted.

In: events of ``node_watcher``. Out: acknowledgements, sent after a run of the node that saw the change of the event; a
run and a plan if the watch is behind NATS. Called by the bus. Invariant: an event is a hint; the Node is read before a
decision. Source: ADR 102.
"""

from __future__ import annotations

from collections.abc import Callable

from provisioner.cache import Cache
from trellis.bus.consume.queue import KeyedQueue
from trellis.bus.consume.subscriber import Received
from trellis.events.node import NodeEventData, NodeGone, NodeOptedIn, NodeOptedOut, NodeReplaced
from trellis.provisioning.views import NodeView

CONSUMED = (NodeOptedIn, NodeOptedOut, NodeReplaced, NodeGone)


def on_node_event(
    cache: Cache, queue: KeyedQueue[str], plan: Callable[[], None]
) -> Callable[[Received[NodeEventData]], None]:
    """Return the handler of events about nodes; an opt-in without an annotation provides the trace for its Job."""

    def handle(received: Received[NodeEventData]) -> None:
        event = received.data
        if isinstance(event, NodeOptedIn):
            cache.record_trace(event.name, event.uid, received.trace)
        if is_shown(event, cache.nodes.get(event.name)):
            queue.cover(event.name, received.ack)
            return
        queue.add(event.name, received.ack, received.trace)
        plan()

    return handle


def is_shown(event: NodeEventData, node: NodeView | None) -> bool:
    """Return whether the watch, which has the node as ``node``, already reports the change of an event.

    Resource versions of one kind are increasing numbers (KEP-5504); a version that is not a number is not compared.
    """
    if isinstance(event, NodeGone):
        return node is None or node.uid != event.uid
    if node is None or node.uid != event.uid:
        return False
    seen, reported = node.resource_version, event.resource_version
    return seen.isdecimal() and reported.isdecimal() and int(seen) >= int(reported)
