"""Events that wake greeter: Nodes that became ready. Out: keys (node names) in the queue."""

from __future__ import annotations

from collections.abc import Callable

from trellis.bus.consume.queue import KeyedQueue
from trellis.bus.consume.subscriber import Received
from trellis.events.node import NodeReady

CONSUMED = (NodeReady,)


def on_node(queue: KeyedQueue[str]) -> Callable[[Received[NodeReady]], None]:
    """Return the handler of events about Nodes."""

    def handle(received: Received[NodeReady]) -> None:
        queue.add(received.data.node, received.ack, received.trace)

    return handle
