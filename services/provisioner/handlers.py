"""What wakes provisioner from the bus: nodes that opted in or out, were replaced or deleted.

In: facts of ``node_watcher``. Out: keys (node names) in the queue, with the acknowledgement to give when a run that
started later is done. Called by the bus. Invariant: a fact is a hint; the Node is read before acting.
"""

from __future__ import annotations

from collections.abc import Callable

from provisioner.known import Known
from trellis.bus.consume.queue import KeyedQueue
from trellis.bus.consume.subscriber import Received
from trellis.events.node import NodeFact, NodeGone, NodeOptedIn, NodeOptedOut, NodeReplaced

CONSUMED = (NodeOptedIn, NodeOptedOut, NodeReplaced, NodeGone)


def on_node_fact(
    known: Known, queue: KeyedQueue[str], plan: Callable[[], None]
) -> Callable[[Received[NodeFact]], None]:
    """Return the handler of facts about nodes; the trace of an opting in is kept for its Job."""

    def handle(received: Received[NodeFact]) -> None:
        if isinstance(received.fact, NodeOptedIn) and received.trace is not None:
            known.traces[received.fact.uid] = received.trace
        queue.add(received.fact.name, received.ack, received.trace)
        plan()

    return handle
